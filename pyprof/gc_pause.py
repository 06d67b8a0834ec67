"""Read large files with garbage collection off.

The objects that are read form no reference cycles. Searching millions of them for cycles can take half of the time.
"""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# None where the C library is another one
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


@contextmanager
def uncollected() -> Iterator[None]:
    """Turn automatic garbage collection off in this block, and restore its state afterwards.

    Memory that was freed goes back to the system: glibc would keep up to some hundred MiB of freed arrays.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
        if _trim is not None:
            _trim(0)
