"""How many bytes are in use and in reserve on each device over time, and when they are the most.

A timeline is that of one device of one process. The totals are the profiler's own where it records them. Otherwise, and
on a CPU, they count from the first event on, and what was in use before is unknown and left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.table.columns import NULL, Ints, MemoryTable, distinct, known

LEVELS = ("allocator", "driver")


@dataclass(frozen=True, slots=True)
class Peak:
    """The most bytes in use at a time."""

    nbytes: int
    place: int  # the event of the timeline from which on they are in use; -1: before the first event
    time_ns: int | None  # of that event; None for what was in use before the first one


@dataclass(frozen=True, slots=True)
class Timeline:
    """The events of one device. ``total`` and ``reserved`` have a value after each event."""

    kind: str  # cuda, cpu, ...
    device: int | None
    pid: int | None
    rank: int | None
    level: str  # allocator: blocks of PyTorch's allocator; driver: memory from cudaMalloc and the like
    rows: Ints  # of the memory table
    before_rows: Ints  # of blocks that were there when the capture began, where the total includes them
    time: Ints
    change: Ints
    total: Ints
    reserved: Ints | None  # None: not recorded
    initial: int | None  # bytes in use before the first event; None: not recorded
    missing: int  # recorded totals that do not follow from the one before and the event's own bytes

    @property
    def first(self) -> int:
        """The total before the first event; 0 where it is unknown."""
        return self.initial or 0

    @property
    def peak(self) -> Peak:
        return self.peak_between(0, len(self.rows))

    def peak_between(self, begin: int, end: int) -> Peak:
        """The peak from the state before event ``begin`` to the state before event ``end``."""
        before = int(self.total[begin - 1]) if begin else self.first
        if begin >= end or int(self.total[begin:end].max()) <= before:
            return Peak(before, begin - 1, int(self.time[begin - 1]) if begin else None)
        place = begin + int(self.total[begin:end].argmax())
        return Peak(int(self.total[place]), place, int(self.time[place]))

    def most_reserved(self, begin: int = 0, end: int | None = None) -> int | None:
        """The most bytes in reserve; None if they are not recorded."""
        return None if self.reserved is None else int(self.reserved[max(begin - 1, 0) : end].max())


@dataclass(frozen=True, slots=True)
class StepPeak:
    """The peak of one training step: what torch.cuda.max_memory_allocated() returns if it is reset at its begin."""

    step: int
    peak: Peak
    reserved: int | None
    begin: int  # events begin to end - 1 of the timeline are the step's
    end: int


def timelines(memory: MemoryTable) -> list[Timeline]:
    """The timeline of each device, those with the most bytes first; none for a device without events."""
    driver = memory.coded("level").among("driver")
    kinds = memory.coded("kind")
    columns = (memory.ints("rank"), memory.ints("pid"), kinds.codes, memory.ints("device"), driver.astype(np.int64))
    keys, number = distinct(*columns)
    order = np.argsort(number, kind="stable")
    ends = np.cumsum(np.bincount(number, minlength=len(keys)))
    found = []
    for (rank, pid, kind, device, level), rows in zip(keys, np.split(order, ends)[:-1], strict=True):
        name = kinds.values[kind] if kind >= 0 else "unknown"
        made = _timeline(memory, rows, name, LEVELS[level], known(device), known(pid), known(rank))
        if len(made.rows):
            found.append(made)
    return sorted(found, key=lambda line: (line.level != "allocator", line.kind == "cpu", -line.peak.nbytes))


def _timeline(
    memory: MemoryTable, rows: Ints, kind: str, level: str, device: int | None, pid: int | None, rank: int | None
) -> Timeline:
    before = memory.coded("level").among("before")[rows]
    of_events, before_rows = rows[~before], rows[before]
    change = memory.ints("bytes")[of_events]
    total, reserved = memory.ints("allocated")[of_events], memory.ints("reserved")[of_events]
    # A CPU's total counts from the first profiler's start on (c10/core/CPUAllocator.cpp), and its threads alone.
    recorded = len(total) > 0 and bool((total != NULL).all()) and level == "allocator" and kind != "cpu"
    initial = int(total[0] - change[0]) if recorded else None
    missing = int((np.diff(total) != change[1:]).sum()) if recorded else 0
    has_reserved = recorded and bool((reserved != NULL).all()) and bool(reserved.any())
    totals = total if recorded else np.cumsum(change)
    return Timeline(
        kind=kind,
        device=device,
        pid=pid,
        rank=rank,
        level=level,
        rows=of_events,
        before_rows=before_rows if initial is not None else before_rows[:0],
        time=memory.ints("time")[of_events],
        change=change,
        total=totals,
        reserved=reserved if has_reserved else None,
        initial=initial,
        missing=missing,
    )


def step_peaks(memory: MemoryTable, line: Timeline) -> list[StepPeak]:
    """The peak of each step of which the timeline has events, in order of time."""
    step = memory.ints("step")[line.rows]
    numbers, first = np.unique(step, return_index=True)
    found = []
    for number, begin in sorted(zip(numbers.tolist(), first.tolist(), strict=True), key=lambda pair: pair[1]):
        if number != NULL:
            end = int(np.flatnonzero(step == number)[-1]) + 1
            found.append(StepPeak(number, line.peak_between(begin, end), line.most_reserved(begin, end), begin, end))
    return found
