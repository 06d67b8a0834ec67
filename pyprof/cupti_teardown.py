"""Lets CUPTI go when the capture of a CUDA graph has been recorded, so that replays are launched as fast as before it.

Through CUPTI, PyTorch's profiler (Kineto) sees CUDA's calls and the GPU's work. It stays in the process when the
profiler has ended, and from then on each launch takes the host longer (docs/how-to/graphs.md has the times). Kineto
lets it go if TEARDOWN_CUPTI is 1 in the environment when a profiler ends: a thread of Kineto's waits until a call of
CUDA's has come and gone, in whose end cuptiFinalize runs (libkineto/src/CuptiActivityApi.cpp, teardownContext). The
next profiler attaches CUPTI again. One that begins before the thread is done loses its records of the GPU
(pytorch/kineto#1554). So pyprof makes such a call itself, and waits for the thread.

Seen with PyTorch 2.11 and CUDA 13.0 on an H200:

* If a graph is launched while CUPTI is there and nothing records, and CUPTI goes then, its next replay fails
  ("unspecified launch failure"). After any profiler that leaves CUPTI behind, it must stay: the caller knows of these.
* If the variable is set when a profiler begins, and the one before has left CUPTI behind, Kineto lets it go in the
  middle of the new one. So it is set only while a profiler ends.

Before CUDA 12.6 CUPTI crashes if it comes back to CUDA graphs, and PyTorch itself keeps it then
(torch/profiler/profiler.py); so does pyprof. What the environment says has precedence.

A slower launch is a nuisance and a failing replay ends a program, and these rules have been seen on one GPU with one
version of each. So pyprof does this only when it is asked to (``ASKED``).
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIABLE = "TEARDOWN_CUPTI"
ASKED = "PYPROF_LET_CUPTI_GO"  # 1 in the environment: pyprof lets CUPTI go where it may
# Each of these in the environment: pyprof does not let CUPTI go. Two belong to other tools that use it (nsys, ncu), and
# with the last one Kineto records without a call from Python.
TOOLS = "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "KINETO_USE_DAEMON"
KEEPING = (VARIABLE, "DISABLE_CUPTI_LAZY_REINIT", *TOOLS)
_SAFE_SINCE = 12, 6  # of CUDA
_WAIT_S = 1.0  # at most; it takes some milliseconds
_PAUSE_S = 1e-4
_TASKS = Path("/proc/self/task")


@contextmanager
def letting_go(wanted: bool) -> Iterator[None]:
    """Around the end of a profiler: afterwards CUPTI is no longer in the process, if that is ``wanted`` and possible,
    or if the environment wants it."""
    ours = wanted and _may_go()
    if ours:
        os.environ[VARIABLE] = "1"
    try:
        if not _goes():
            yield
            return
        before = _threads()
        yield
        _wait(_threads() - before)  # Kineto's, and perhaps others that began meanwhile
    finally:
        if ours and os.environ.get(VARIABLE) == "1":  # PyTorch up to 2.7 sets 0 where inductor makes CUDA graphs
            del os.environ[VARIABLE]


def _may_go() -> bool:
    import torch

    if os.environ.get(ASKED) != "1" or any(name in os.environ for name in KEEPING):
        return False
    if sys.platform != "linux" or torch.version.cuda is None:
        return False
    numbers = torch.version.cuda.split(".")[:2]
    safe = all(number.isdecimal() for number in numbers) and tuple(map(int, numbers)) >= _SAFE_SINCE
    return safe and torch.cuda.is_initialized()


def _goes() -> bool:
    """Whether Kineto lets CUPTI go when a profiler ends now, be it by pyprof's wish or by the user's."""
    import torch

    return os.environ.get(VARIABLE) == "1" and sys.platform == "linux" and torch.cuda.is_initialized()


def _wait(threads: set[int]) -> None:
    """Call CUDA until the threads are gone, or the time is up."""
    import torch

    until = time.monotonic() + _WAIT_S
    while threads and time.monotonic() < until:
        torch.cuda.current_device()  # a call that does nothing else, and that may be made while a graph is captured
        time.sleep(_PAUSE_S)
        threads = threads & _threads()


def _threads() -> set[int]:
    """The system's numbers of this process's threads, without Python's."""
    return {int(task.name) for task in _TASKS.iterdir()} - {thread.native_id or 0 for thread in threading.enumerate()}
