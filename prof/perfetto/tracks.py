"""A trace as its writers get it: tracks, slices with arguments and flows, counters. Times are ns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from pyprof.table.columns import NULL, Bools, Coded, Floats, Ints, Ragged, offsets_of

TrackKind = Literal["process", "group", "thread", "slices", "counter"]

LARGEST = (1 << 31) - 1  # the largest number of a process or thread in a trace
MADE_UP = 1 << 30  # numbers from here on replace those that are unknown, too large or used already


@dataclass(frozen=True, slots=True)
class Track:
    """A line of the timeline, or a group of lines. ``pid`` and ``tid`` are unique within the trace, above 0."""

    kind: TrackKind
    name: str
    parent: int  # index into Trace.tracks; -1 for none
    pid: int
    tid: int = 0  # of a thread
    unit: str = ""  # of a counter
    about: str = ""


@dataclass(frozen=True, slots=True)
class Arg:
    """An argument of slices: one value per slice; empty texts, ``NULL`` and NaN are left out."""

    name: str
    data: Coded | Ints | Floats


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices with the same arguments, on any tracks. On one track all slices of a trace nest."""

    track: Ints  # index into Trace.tracks
    start: Ints
    duration: Ints  # 0 or more
    name: Coded
    category: Coded
    args: Sequence[Arg] = ()
    opens: Ragged | None = None  # numbers of the flows that leave each slice
    closes: Ragged | None = None  # numbers of the flows that end in each slice

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Counter:
    """A number over time: ``value[i]`` is valid from ``time[i]`` on. Times ascend."""

    track: int
    time: Ints
    value: Floats | Ints


@dataclass(slots=True)
class Trace:
    tracks: list[Track] = field(default_factory=list)
    slices: list[Slices] = field(default_factory=list)
    counters: list[Counter] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _processes: dict[tuple[int, int], int] = field(default_factory=dict)
    _threads: dict[tuple[int, int, int], int] = field(default_factory=dict)
    _taken: set[int] = field(default_factory=set)  # numbers of processes and threads

    def first(self) -> int:
        """The earliest time, ns."""
        starts = [int(part.start.min()) for part in self.slices if len(part)]
        return min([*starts, *(int(counter.time[0]) for counter in self.counters if len(counter.time))], default=0)

    def add(self, track: Track) -> int:
        """Add a track and return its index."""
        self.tracks.append(track)
        return len(self.tracks) - 1

    def process(self, rank: int, pid: int) -> int:
        """The track of a process, made at its first use."""
        key = (rank, pid)
        if key not in self._processes:
            names = [f"rank {rank}"] if rank != NULL else []
            known = pid if 0 < pid <= LARGEST else 0
            number = self._number(known)
            if number != known and pid != NULL:
                names.append(f"process {pid}")
            self._processes[key] = self.add(Track("process", ", ".join(names) or "process", -1, number))
        return self._processes[key]

    def thread(self, rank: int, pid: int, tid: int) -> int:
        """The track of a thread, made at its first use."""
        key = (rank, pid, tid)
        if key not in self._threads:
            process = self.process(rank, pid)
            above = self.tracks[process].pid
            known = tid if 0 < tid <= LARGEST else 0
            number = above if known == pid else self._number(known)  # the main thread has its process's number
            name = "thread" if tid in (number, NULL) else f"thread {tid}"
            self._threads[key] = self.add(Track("thread", name, process, above, number))
        return self._threads[key]

    def _number(self, wanted: int) -> int:
        """The number itself, or one that no other process or thread of the trace has."""
        number = wanted
        while not number or number in self._taken:
            number = MADE_UP + len(self._taken) if number < MADE_UP else number + 1
        self._taken.add(number)
        return number

    def child(self, parent: int, name: str, about: str = "", kind: TrackKind = "slices", unit: str = "") -> int:
        """Add a track below another one."""
        return self.add(Track(kind, name, parent, self.tracks[parent].pid, unit=unit, about=about))

    def on_lanes(self, parent: int, name: str, lane: Ints, about: str = "") -> Ints:
        """Add one track per lane below another track; returns the track of each slice from the lane of each slice."""
        return np.array([self.child(parent, name, about) for _ in range(int(lane.max()) + 1)], np.int64)[lane]


def grouped(owner: Ints, value: Ints, rows: int) -> Ragged:
    """``value[i]`` in the list of row ``owner[i]``, in the order given."""
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=rows)
    return Ragged(offsets_of(counts), value[order])


def outer_first(start: Ints, end: Ints) -> Ints:
    """Slices in the order in which they begin, outer ones before inner ones; of equal ones the first is the outer.

    >>> outer_first(np.array([5, 0, 5]), np.array([6, 9, 8])).tolist()
    [1, 2, 0]
    """
    order = np.argsort(start, kind="stable")  # of times almost in order, as a capture has them, this is fast
    same = start[order[1:]] == start[order[:-1]]
    together = np.flatnonzero(np.append(same, False) | np.append(False, same))
    inside = order[together]
    order[together] = inside[np.lexsort((-end[inside], start[inside]))]
    return order


def in_order(parts: Sequence[Slices]) -> tuple[Ints, Ints, Bools]:
    """(time, slice, whether it begins) of every event; slices count through all parts.

    Events at the same time are in the order in which slices nest: slices that began earlier end first, the innermost
    before the others; then slices begin, the longest first, and a slice of 0 ns ends as soon as it begins.
    """
    start = np.concatenate([part.start for part in parts])
    end = start + np.concatenate([part.duration for part in parts])
    begins = outer_first(start, end)
    is_empty = end == start
    whole = begins[~is_empty[begins]][::-1]
    ends = whole[np.argsort(end[whole], kind="stable")]  # of those that end at a time, the innermost first
    time = np.append(end[ends], start[begins])
    order = np.argsort(time, kind="stable")  # two columns in order, which are merged: ends before begins
    which, is_begin = np.append(ends, begins)[order], order >= len(ends)
    count = 1 + (is_begin & is_empty[which])  # an empty slice ends right after its begin
    place = np.repeat(np.arange(len(order)), count)
    is_begin = is_begin[place]
    is_begin[np.cumsum(count)[count == 2] - 1] = False
    return time[order][place], which[place], is_begin


Made = TypeVar("Made")


def per_value(data: Coded | Ints | Floats, make: Callable[[Any], Made]) -> list[Made]:
    """``make`` of the value of each row, called once per distinct value; of a missing text it gets ""."""
    if isinstance(data, Coded):
        made = {code: make(data.values[code]) for code in np.unique(data.codes).tolist() if code >= 0}
        made[-1] = make("")
        return [made[code] for code in data.codes.tolist()]
    values, which = np.unique(data, return_inverse=True)
    texts = [make(value) for value in values.tolist()]
    return [texts[i] for i in which.reshape(-1).tolist()]
