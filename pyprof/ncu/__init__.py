"""`pyprof ncu -- python train.py`: the hardware's counters of a program's kernels, measured by Nsight Compute."""
