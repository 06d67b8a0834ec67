"""What every reader returns: the GPU rows, their launches and the ranges on the CPU threads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.attribute.scope import Scope
from pyprof.table.columns import NULL, Data, Ints

OPEN = 1 << 62  # the end of a range that was never closed, before its origin is subtracted: beyond all other times


@dataclass(slots=True)
class Ranges:
    """The ranges of all CPU threads, as columns, in any order. Times in ns; ``NULL`` where unknown."""

    thread: Ints  # index into Capture.threads
    start: Ints
    end: Ints
    scope: Ints  # index into Capture.scopes
    seq: Ints  # autograd sequence number
    op_id: Ints  # the profiler's number of this call, unique within the process
    forward_thread: Ints | None = None  # of a backward node: index of the thread of its forward op, where known
    forward_range: Ints | None = None  # of a backward node: the range of its forward op, where the profiler names it

    def __len__(self) -> int:
        return len(self.start)

    def last_time(self) -> int:
        """The last time at which a range began or was closed; ``NULL`` without ranges."""
        closed = self.end[self.end < OPEN // 2]
        return int(max(closed.max(initial=NULL), self.start.max(initial=NULL)))

    @classmethod
    def empty(cls) -> Ranges:
        return cls(*(np.zeros(0, np.int64) for _ in range(6)))


@dataclass(slots=True)
class Capture:
    """One profiler file, read."""

    file: str
    profiler: str  # "nsys 2025.3.1", "kineto", ...
    threads: list[tuple[int, int]]  # (pid, tid) by index
    scopes: list[Scope]  # distinct, by index
    ranges: Ranges
    rows: int  # GPU operations, in order of start
    columns: dict[str, Data]  # what the profiler says of them: some columns of pyprof.table.schema.KERNELS
    launch_thread: Ints  # of each row: index into threads; -1 without a launch
    launch_time: Ints  # of each row: when it was launched; NULL without
    reason: list[str] = field(default_factory=list)  # distinct reasons for a missing launch, by index
    reason_code: Ints | None = None  # of each row: index into reason; -1: launched
    launch_range: Ints | None = None  # of each row: the range it belongs to where the profiler names it; -1: by time
    origin_thread: Ints | None = None  # of each row: the thread that captured its CUDA graph node; -1: none
    origin_time: Ints | None = None  # and when
    # NVTX start/end ranges: they belong to the process and may end on any thread, so they contain no launch
    spans: Ranges = field(default_factory=Ranges.empty)
    outs: dict[int, str] = field(default_factory=dict)  # range -> JSON list of its outputs' shapes, inferred
    warnings: list[str] = field(default_factory=list)
    is_host: bool = False  # rows are CPU ops, and launch_range is each one's own range

    def launched(self) -> NDArray[np.bool_]:
        """A mask of the rows whose launch is known."""
        mask: NDArray[np.bool_] = self.launch_time != NULL
        return mask
