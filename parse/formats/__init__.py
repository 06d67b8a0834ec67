"""The smaller profiler formats (nvprof, rocpd), and what several formats share: SQLite, CUPTI, names, GPUs."""
