"""Threads whose ops a capture lacks, as the trace's key pyprof has them, and what is said of them."""

VERSION = 1  # parse/formats/own_record.py reads it


def missing_threads(threads: int, memory: bool) -> tuple[str, str]:
    """What is missing, and how to record it. ``memory``: whether allocations were recorded."""
    if threads == 1:
        missing = "the ops of another thread that called PyTorch are missing"
    else:
        missing = f"the ops of {threads:,} other threads that called PyTorch are missing"
    if memory:
        return f"{missing}, for PyTorch's profiler records one thread where it records memory", "leave out --memory"
    return f"{missing}, for this PyTorch's profiler records one thread", "use PyTorch 2.7 or newer"
