"""The events of a profiler's file as columns, the same for all formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.formats.cupti import sizes
from pyprof.table.columns import NULL, Coded, Ints, distinct, value_at

KERNEL, MEMCPY, MEMSET = range(3)  # Gpu.kind


@dataclass(slots=True)
class Calls:
    """Calls on CPU threads: of the CUDA API or of the operating system."""

    start: Ints
    end: Ints
    pid: Ints
    tid: Ints
    name: Coded

    def __len__(self) -> int:
        return len(self.start)

    @classmethod
    def none(cls) -> Calls:
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing, nothing, Coded.empty(0))

    def at(self, rows: Ints) -> Calls:
        """The calls of these rows; of row -1 one without a start (``NULL``)."""
        start, end, pid, tid = (value_at(column, rows) for column in (self.start, self.end, self.pid, self.tid))
        return Calls(start, end, pid, tid, Coded(value_at(self.name.codes, rows, -1), self.name.values))


@dataclass(slots=True)
class Gpu:
    """GPU operations: kernels, copies and memsets."""

    kind: Ints
    start: Ints
    end: Ints
    bytes: Ints
    device: Ints
    name: Coded  # with template arguments; a copy's as nsys prints it
    base: Coded  # without template arguments
    mangled: Coded
    grid: Coded  # `x y z`
    block: Coded
    launch: Calls  # each row's API call, without a start where there is none

    def __len__(self) -> int:
        return len(self.start)

    def of(self, *kinds: int) -> Gpu:
        return self.take(np.flatnonzero(np.isin(self.kind, kinds)))

    def take(self, rows: Ints) -> Gpu:
        """These rows."""
        kind, start, end, size, device = (
            column[rows] for column in (self.kind, self.start, self.end, self.bytes, self.device)
        )
        name, base, mangled, grid, block = (
            text.take(rows) for text in (self.name, self.base, self.mangled, self.grid, self.block)
        )
        return Gpu(kind, start, end, size, device, name, base, mangled, grid, block, self.launch.at(rows))

    @classmethod
    def of_activity(cls, data: Mapping[str, Ints], names: Sequence[Coded], launch: Calls) -> Gpu:
        """From the columns of ``gpu_operations``; ``names``: demangled, short, mangled."""
        kind, start, end, size, device = (data[key] for key in ("kind", "start_ns", "end_ns", "bytes", "device"))
        name, base, mangled = names
        grid, block = sizes(data, "grid"), sizes(data, "block")
        return cls(kind, start, end, size, device, name, base, mangled, grid, block, launch)

    @classmethod
    def none(cls) -> Gpu:
        nothing, text = np.zeros(0, np.int64), Coded.empty(0)
        return cls(nothing, nothing, nothing, nothing, nothing, text, text, text, text, text, Calls.none())


@dataclass(slots=True)
class Spans:
    """NVTX ranges: push/pop and start/end."""

    start: Ints
    end: Ints  # of a range that was never closed: the last time that the profiler saw
    pid: Ints
    tid: Ints
    name: Coded  # `domain:text`
    startend: NDArray[np.bool_]  # start/end ranges; the others are push/pop
    one_thread: NDArray[np.bool_]  # began and ended on one thread
    id: Ints  # the file's own number, otherwise in order of start

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Any) -> Spans:
        """The rows of an index array or a mask."""
        start, end, pid, tid = (column[rows] for column in (self.start, self.end, self.pid, self.tid))
        flags = self.startend[rows], self.one_thread[rows]
        return Spans(start, end, pid, tid, self.name.take(rows), *flags, self.id[rows])

    @classmethod
    def none(cls) -> Spans:
        nothing, flags = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        return cls(nothing, nothing, nothing, nothing, Coded.empty(0), flags, flags, nothing)


class Recording:
    """A file's events, each kind read once and only when needed. A format overrides the kinds that it has."""

    @cached_property
    def gpu(self) -> Gpu:
        return Gpu.none()

    @cached_property
    def api(self) -> Calls:
        """CUDA API calls, runtime and driver."""
        return Calls.none()

    @cached_property
    def os(self) -> Calls:
        """Calls of the operating system's runtime."""
        return Calls.none()

    @cached_property
    def spans(self) -> Spans:
        return Spans.none()


def by_start(start: Ints, end: Ints) -> Ints:
    """Ids for ranges without ids: from 1 in order of start, an outer range before the inner ones."""
    ids = np.empty(len(start), np.int64)
    ids[np.lexsort((-end, start))] = np.arange(1, len(start) + 1)
    return ids


def same_threads(spans: Spans, calls: Calls) -> tuple[Ints, Ints]:
    """The number of each range's and each call's thread; -1 where there is no call."""
    pid, tid = np.concatenate([spans.pid, calls.pid]), np.concatenate([spans.tid, calls.tid])
    _, number = distinct(pid, tid)
    of_call = number[len(spans) :]
    return number[: len(spans)], np.where(calls.start != NULL, of_call, -1)
