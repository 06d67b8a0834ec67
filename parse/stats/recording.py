"""The events of a profiler's file as columns, the same for all formats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyprof.files import open_input
from pyprof.parse.databases.database import HEADER
from pyprof.parse.databases.parquet_folder import opened
from pyprof.parse.detect import reader
from pyprof.parse.formats.cupti import sizes
from pyprof.table.columns import NULL, Coded, Ints, value_at

KERNEL, MEMCPY, MEMSET = range(3)  # Gpu.kind
_Columns = TypeVar("_Columns", bound="Events")


@dataclass(slots=True)
class Events:
    """Columns of events, all of one length. Times in ns."""

    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    def durations(self) -> Ints:
        return self.end - self.start

    def take(self: _Columns, rows: Any) -> _Columns:
        """The rows of an index array or a mask."""
        columns = (getattr(self, field.name) for field in fields(self))
        return type(self)(*(c[rows] if isinstance(c, np.ndarray) else c.take(rows) for c in columns))


@dataclass(slots=True)
class Calls(Events):
    """Calls on CPU threads, either of the CUDA API or of the operating system."""

    pid: Ints
    tid: Ints
    name: Coded

    @classmethod
    def none(cls) -> Calls:
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing, nothing, Coded.empty(0))

    def timed(self) -> Calls:
        """The calls of which start and end are known."""
        return self.take((self.start != NULL) & (self.end != NULL))

    def at(self, rows: Ints) -> Calls:
        """The calls with these indices; index -1, or one without an end, gives a call without a start (``NULL``)."""
        rows = np.where(value_at(self.end, rows) == NULL, -1, rows)
        start, end, pid, tid = (value_at(column, rows) for column in (self.start, self.end, self.pid, self.tid))
        return Calls(start, end, pid, tid, Coded(value_at(self.name.codes, rows, -1), self.name.values))


@dataclass(slots=True)
class Gpu(Events):
    """GPU operations: kernels, copies and memsets."""

    kind: Ints
    bytes: Ints
    device: Ints
    name: Coded  # name with template arguments; copies are named as in nsys
    base: Coded  # name without template arguments
    mangled: Coded
    grid: Coded  # `x y z`
    block: Coded
    launch: Calls  # each row's API call; a missing call has no start

    def of(self, *kinds: int) -> Gpu:
        return self.take(np.isin(self.kind, kinds))

    @classmethod
    def of_activity(cls, data: Mapping[str, Ints], names: Sequence[Coded], launch: Calls) -> Gpu:
        """The operations from the columns of ``gpu_operations``; ``names``: demangled, short, mangled."""
        start, end, kind, size, device = (data[key] for key in ("start_ns", "end_ns", "kind", "bytes", "device"))
        name, base, mangled, grid, block = (*names, sizes(data, "grid"), sizes(data, "block"))
        return cls(start, end, kind, size, device, name, base, mangled, grid, block, launch)


@dataclass(slots=True)
class Spans(Events):
    """NVTX ranges: push/pop and start/end. A range that was never closed ends at the last time the profiler saw."""

    pid: Ints
    tid: Ints
    name: Coded  # `domain:text`
    startend: NDArray[np.bool_]  # True for start/end ranges, False for push/pop ranges
    one_thread: NDArray[np.bool_]  # whether the range began and ended on the same thread
    id: Ints  # the file's own number, or else a number in order of start

    def of_one_thread(self) -> Spans:
        """Push/pop ranges, and those start/end ranges that began and ended on one thread."""
        return self.take(~self.startend | self.one_thread)

    @classmethod
    def pushed(cls, start: Ints, end: Ints, pid: Ints, tid: Ints, name: Coded) -> Spans:
        """Push/pop ranges without numbers of their own: from 1 in order of start, an outer range before its inner."""
        ids, is_pushed = np.empty(len(start), np.int64), np.ones(len(start), np.bool_)
        ids[np.lexsort((-end, start))] = np.arange(1, len(start) + 1)
        return cls(start, end, pid, tid, name, ~is_pushed, is_pushed, ids)

    @classmethod
    def none(cls) -> Spans:
        nothing = np.zeros(0, np.int64)
        return cls.pushed(nothing, nothing, nothing, nothing, Coded.empty(0))


class Recording:
    """A file's events, each kind read once and only when needed. All formats have ``gpu`` and ``spans``."""

    @property
    def warnings(self) -> list[str]:
        """What ``parse.py`` warns of in the events that were read so far: impossible times, values of wrong types."""
        raise NotImplementedError

    @cached_property
    def gpu(self) -> Gpu:
        raise NotImplementedError

    @cached_property
    def spans(self) -> Spans:
        raise NotImplementedError

    @cached_property
    def api(self) -> Calls:
        """CUDA API calls, runtime and driver."""
        return Calls.none()

    @cached_property
    def os(self) -> Calls:
        """Calls of the operating system's runtime."""
        return Calls.none()


@contextmanager
def recording(file: Path) -> Iterator[Recording]:
    """The events of a file, whose database stays open meanwhile. Raises InputError if no format is known."""
    from pyprof.parse.formats import nvprof
    from pyprof.parse.kineto import reader as kineto
    from pyprof.parse.nsys import reader as nsys
    from pyprof.parse.nsys.tables import EVERY
    from pyprof.parse.stats.from_capture import CaptureRecording
    from pyprof.parse.stats.from_databases import NsysRecording, NvprofRecording
    from pyprof.parse.stats.from_kineto import KinetoRecording

    read = reader(file)
    is_database = file.is_dir()
    if not is_database:
        with open_input(file) as source:
            is_database = source.read(len(HEADER)) == HEADER
    if read is kineto.read:
        yield KinetoRecording(file)
    elif not is_database:
        yield CaptureRecording(read(file))
    else:
        with opened(file, EVERY) as db:
            if nvprof.is_nvprof(db):
                yield NvprofRecording(db)
            elif nsys.is_nsys(db):
                yield NsysRecording(db)
            else:
                yield CaptureRecording(read(file))
