"""The smaller profiler formats (nvprof, rocpd), and code that several formats share: CUPTI, names, GPUs."""
