"""The smaller profiler formats (nvprof, rocpd), and code that several formats share: SQLite, CUPTI, names, GPUs."""
