"""Read large files with garbage collection off, and without keeping memory that was freed.

The objects that are read form no reference cycles. Searching millions of them for cycles can take half of the time.
glibc keeps freed arrays of up to 32 MiB for later ones, some hundred MiB in all where millions of rows are read.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LARGE = 320 << 20  # bytes that a process has used; in a smaller one, new pages would cost more than they spare

_ARENA_MAX = -8  # M_ARENA_MAX of glibc's malloc.h


def one_heap() -> None:
    """Let all threads of the process share one heap, on Linux with glibc. For a process that runs commands alone.

    Otherwise each thread that reads has a heap of its own, and ``malloc_trim`` does not give back the free memory at
    the end of it: 55 and 74 MiB in two runs, for a file of 1.28 GB.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn automatic garbage collection off in this block, and restore its state afterwards."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def given_back() -> Iterator[None]:
    """At the end of this block, give freed memory back to the system, on Linux with glibc and in a large process."""
    try:
        yield
    finally:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
        if trim is not None and _peak_bytes() > LARGE:
            trim(0)


def _peak_bytes() -> int:
    import resource  # which Windows does not have

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
