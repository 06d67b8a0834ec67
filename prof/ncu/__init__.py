"""A report of Nsight Compute by itself: each kernel, sums by kind and by phase, and sentences (`pyprof ncu REPORT`)."""
