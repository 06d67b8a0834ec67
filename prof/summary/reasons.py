"""Why a row has no op, and what would give it one."""

from __future__ import annotations

_REMEDIES = (  # how a reason begins, and what to do about it (the reasons: docs/reference/formats.md)
    ("launched before the capture", "these were in the queue when the capture began: let the GPU finish first "
     "(torch.cuda.synchronize() before the start), or let the capture begin with a step"),
    ("no API row", "the file is cut, or was recorded without the CUDA API: capture again, nsys with -t cuda,nvtx"),
    ("the capture has no API rows", "capture with the CUDA API: nsys with -t cuda,nvtx"),
    ("no range around", "nothing of PyTorch's is around the launch: capture with pyprof.init(), pyprof run or nsys "
     "profile --pytorch=autograd-shapes-nvtx, if it is no other library's"),
    ("only user ranges", "there are ranges, but none of an op: capture with pyprof.init() or torch.profiler"),
)  # fmt: skip


def remedy(reason: str) -> str:
    """What to do about it; "" where nothing is known to help."""
    return next((words for start, words in _REMEDIES if reason.startswith(start)), "")
