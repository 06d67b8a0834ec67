"""What the hardware counted: Nsight Compute's measurements of kernels, as a report and beside the algorithm's work."""
