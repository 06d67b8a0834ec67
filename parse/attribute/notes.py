"""Notes on a capture besides its table: the profiler, the names of the user's ranges, and warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.scope import NAMING, Kind
from pyprof.parse.attribute.serving import unknown_forms
from pyprof.table.losses import Loss, incomplete_line

# How to record PyTorch's ranges with each profiler. On AMD's GPUs emit_nvtx pushes ROCTX ranges; pyprof.init() pushes
# NVTX ranges only.
_NVTX = "profile with pyprof.init() or emit_nvtx"
_ROCTX = "profile with torch.autograd.profiler.emit_nvtx(record_shapes=True)"
RECORD_OPS = {
    "nsys": "profile with pyprof.init(), or nsys --pytorch=autograd-shapes-nvtx",
    "nvprof": _NVTX,
    "kineto": "profile with ProfilerActivity.CPU, too",
    "rocprofv3": f"{_ROCTX} and rocprofv3 --marker-trace",
    "rocmProfileData": _ROCTX,
}
NO_AUTOGRAD = (
    "markers without PyTorch's own ranges: kernels of backward passes have no op; pyprof.init() pushes both"
    " (unless autograd=False), so does emit_nvtx"
)


def no_ops(profiler: str) -> str:
    """The warning that a capture has no PyTorch ranges, and how its profiler records them."""
    advice = RECORD_OPS.get(profiler.partition(" ")[0], _NVTX)
    return f"no PyTorch ranges in the capture: {advice}, for ops"


@dataclass(frozen=True, slots=True)
class CaptureNotes:
    """Information about a capture that is not in its table."""

    file: str
    profiler: str
    warnings: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)  # the most frequent names of the user's ranges

    @classmethod
    def of(cls, capture: Capture, lost: Iterable[Loss] = ()) -> CaptureNotes:
        """``lost``: why the capture is incomplete, which the first warning says."""
        warnings = [line for line in [incomplete_line(lost)] if line] + capture.warnings
        scopes = (scope for part in (capture, *capture.graphs) for scope in part.scopes)
        if capture.rows and not any(scope.kind in NAMING for scope in scopes):
            warnings.append(no_ops(capture.profiler))
        elif _lacks_autograd(capture):
            warnings.append(NO_AUTOGRAD)
        warnings += unknown_forms(capture)
        return cls(capture.file, capture.profiler, warnings, range_names(capture))

    @property
    def why_empty(self) -> str:
        """Why the capture has no rows: the reader's first warning."""
        return f"expected GPU operations or CPU ops, found none; {next(iter(self.warnings), 'profile again')}"


def _lacks_autograd(capture: Capture) -> bool:
    """Whether there are markers but no PyTorch ranges, and launches on threads without markers, such as autograd's."""
    kinds = np.array([scope.kind for scope in capture.scopes], np.int64)
    if Kind.MARKER not in kinds or np.isin(kinds, (Kind.OP, Kind.NODE, Kind.ENGINE)).any():
        return False
    marked_threads = capture.ranges.thread[~np.isin(kinds[capture.ranges.scope], (Kind.USER, Kind.COMM))]
    return not bool(np.isin(capture.launch_thread[capture.launch_thread >= 0], marked_threads).all())


def range_names(capture: Capture) -> list[str]:
    """The six most frequent names of the user's ranges, which are suggested if ``--range`` matches no range."""
    users = {Kind.USER, Kind.LAYER, Kind.STEP, Kind.OPTIMIZER, Kind.DATA, Kind.COMM}
    codes = np.concatenate([capture.ranges.scope, capture.spans.scope])
    counts = np.bincount(codes, minlength=len(capture.scopes)).tolist()
    names = Counter[str]()
    for scope, count in zip(capture.scopes, counts, strict=False):
        if count and scope.kind in users:
            names[scope.name] += count
    return [name for name, _ in names.most_common(6)]
