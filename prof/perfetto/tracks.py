"""A trace as its writers take it: tracks, slices with arguments and flows, counters. Times are ns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pyprof.table.columns import Coded, Floats, Ints, Ragged

__all__ = ["Arg", "Counter", "Slices", "Trace", "Track", "TrackKind"]

TrackKind = Literal["process", "group", "thread", "slices", "counter"]


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
    """An argument of slices: a value a slice; empty texts, ``NULL`` and NaN are left out."""

    name: str
    data: Coded | Ints | Floats


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices with the same arguments, of any tracks. On one track all slices of a trace nest."""

    track: Ints  # index into Trace.tracks
    start: Ints
    duration: Ints  # 0 or more
    name: Coded
    category: Coded
    args: Sequence[Arg] = ()
    opens: Ragged | None = None  # numbers of the flows that leave each slice
    closes: Ragged | None = None  # and of those that end in it

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class Counter:
    """A number over time: ``value[i]`` holds from ``time[i]`` on. Times ascend."""

    track: int
    time: Ints
    value: Floats | Ints


@dataclass(slots=True)
class Trace:
    tracks: list[Track] = field(default_factory=list)
    slices: list[Slices] = field(default_factory=list)
    counters: list[Counter] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, track: Track) -> int:
        """The number of the new track."""
        self.tracks.append(track)
        return len(self.tracks) - 1

    def first(self) -> int:
        """The earliest time, ns."""
        starts = [int(part.start.min()) for part in self.slices if len(part)]
        return min([*starts, *(int(counter.time[0]) for counter in self.counters if len(counter.time))], default=0)


def grouped(owner: Ints, value: Ints, rows: int) -> Ragged:
    """``value[i]`` in the list of row ``owner[i]``, in the order given."""
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=rows)
    return Ragged(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), value[order])
