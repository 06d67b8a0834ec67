"""A recording for any other format, made from the capture that the format's reader returns.

A capture has each GPU operation with its launch, and the ranges. It has no calls that launched nothing and no calls of
the operating system. So the tables of calls are reported as missing, since they would be incomplete.
"""

import re
from collections.abc import Mapping
from functools import cached_property, partial

import numpy as np

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.scope import ENGINE, Kind
from pyprof.parse.formats.cupti import COPIES
from pyprof.parse.stats.recording import KERNEL, MEMCPY, MEMSET, Calls, Gpu, Recording, Spans
from pyprof.table.columns import NULL, Coded, Data, coded_of, ints_of

KINDS = {"kernel": KERNEL, "memcpy": MEMCPY, "memset": MEMSET}
PREFIX = {Kind.ENGINE: ENGINE, Kind.LAYER: "layer:"}  # the part of a range's text that its scope's name lacks
# Memcpy HtoD (Pinned -> Device), as libkineto writes it; nsys writes Host-to-Device.
_COPY = re.compile(r"Memcpy (\w)to(\w)\b")
_ENDS = {"H": "Host", "D": "Device", "A": "Array", "P": "Peer"}


class CaptureRecording(Recording):
    """The events of a capture."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    @property
    def warnings(self) -> list[str]:
        return self._capture.warnings

    @cached_property
    def gpu(self) -> Gpu:
        return gpu_rows(self._capture.columns, self._capture.rows)

    @cached_property
    def spans(self) -> Spans:
        """All ranges except Python frames, which have no counterpart in NVTX."""
        capture, ranges = self._capture, self._capture.ranges
        frames = np.array([scope.kind == Kind.FRAME for scope in capture.scopes], bool)
        rows = np.flatnonzero(~frames[ranges.scope])
        pid, tid = capture.pids_and_tids(ranges.thread[rows])
        texts = [scope.text or f"{PREFIX.get(scope.kind, '')}{scope.name}" for scope in capture.scopes]
        names = Coded(ranges.scope[rows].astype(np.int32), [f":{text}" for text in texts])
        end = np.minimum(ranges.end, ranges.last_time())  # also ends ranges that were never closed
        return Spans.pushed(ranges.start[rows], end[rows], pid, tid, names)


def gpu_rows(columns: Mapping[str, Data], rows: int) -> Gpu:
    """The kernels, copies and memsets among a reader's rows."""
    numbers, texts = partial(ints_of, columns, rows=rows), partial(coded_of, columns, rows=rows)
    kinds, names = texts("kind"), (texts("kLongName"), texts("kShortName"))
    start, call = numbers("start"), numbers("apiStart")
    call_end = np.where(call == NULL, NULL, call + np.where(call == NULL, 0, numbers("apiDuration")))
    long, short = (Coded(name.codes, [copy_name(text) for text in name.values]) for name in names)
    gpu = Gpu(
        start=start,
        end=start + numbers("kDuration"),
        kind=np.array([*(KINDS.get(kind, NULL) for kind in kinds.values), NULL], np.int64)[kinds.codes],
        bytes=numbers("bytes"),
        device=numbers("device"),
        name=long,
        base=short,
        mangled=long,  # readers demangle names; nsys also prints demangled names if a file has no mangled ones
        grid=texts("grid"),
        block=texts("block"),
        launch=Calls(call, call_end, numbers("pid"), numbers("tid"), texts("api")),
    )
    return gpu.of(KERNEL, MEMCPY, MEMSET)


def copy_name(name: str) -> str:
    """The name of a copy or memset as nsys writes it; any other name unchanged.

    >>> copy_name("Memcpy HtoD (Pinned -> Device)"), copy_name("Memset (Device)"), copy_name("gemm")
    ('[CUDA memcpy Host-to-Device]', '[CUDA memset]', 'gemm')
    """
    if name.startswith("Memset"):
        return "[CUDA memset]"
    match = _COPY.match(name)
    ends = "-to-".join(_ENDS.get(letter, "") for letter in match.groups()) if match else ""
    return f"[CUDA memcpy {ends}]" if ends in COPIES.values() else name
