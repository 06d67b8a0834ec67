"""Counters of Nsight Compute joined to the kernel table: what the hardware did, beside what the algorithm needs."""
