"""How each device's time passed: working, idle, and idle because the CPU had launched nothing yet.

Rows of a device by their start: what a row adds to the time already covered is its own working time, so that kernels
that overlap count once, and the gap before it is idle time of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Bools, Ints, Table, distinct

__all__ = ["Timeline", "alone", "exposed_ns", "exposed_rows", "timeline"]


HOST_BOUND = 0.25  # share of the time that the GPU waits for launches, from which the CPU limits the speed


@dataclass(frozen=True, slots=True)
class Timeline:
    """A number a row, ns; 0 for rows without a start."""

    own_ns: Ints  # what the row adds to the time covered
    idle_ns: Ints  # the gap before it
    late_ns: Ints  # of the gap, what passed before the CPU called for the row's launch


def timeline(table: Table) -> Timeline:
    """The time of every device from its first operation to its last."""
    found = Timeline(*(np.zeros(len(table), np.int64) for _ in range(3)))
    start, duration = table.ints("start"), np.maximum(table.ints("kDuration"), 0)
    keys, group = distinct(table.ints("rank"), table.ints("pid"), table.ints("device"))
    launched = table.ints("apiStart")
    for number in range(len(keys)):
        rows = np.flatnonzero((group == number) & (start != NULL))
        rows = rows[np.argsort(start[rows], kind="stable")]
        begin, end = start[rows], start[rows] + duration[rows]
        if not len(rows):
            continue
        before = np.maximum.accumulate(np.concatenate([begin[:1], end]))[:-1]  # what was covered until then
        found.own_ns[rows] = np.maximum(end - np.maximum(begin, before), 0)
        gap = np.maximum(begin - before, 0)
        found.idle_ns[rows] = gap
        late = np.where(launched[rows] == NULL, 0, launched[rows] - before)
        found.late_ns[rows] = np.clip(late, 0, gap)
    return found


def exposed_ns(table: Table, rows: Bools) -> int:
    """How long nothing ran on a device but these rows."""
    from pyprof.prof.timing.usage import covered

    start, end = table.ints("start"), table.ints("start") + np.maximum(table.ints("kDuration"), 0)
    known = start != NULL
    keys, group = distinct(table.ints("rank"), table.ints("pid"), table.ints("device"))
    total = 0
    for number in range(len(keys)):
        mine = known & (group == number)
        rest = mine & ~rows
        total += covered(start[mine], end[mine]) - covered(start[rest], end[rest])
    return total


def exposed_rows(table: Table, annotation: Annotation) -> Ints:
    """Of each row of communication, ns in which nothing but communication ran on its device; NULL for other rows."""
    from pyprof.prof.work.kinds import NCCL, kinds

    what = kinds(table, annotation)
    communication = np.array([*(value == NCCL for value in what.values), False])[what.codes]
    start, took = table.ints("start"), np.maximum(table.ints("kDuration"), 0)
    found = np.full(len(table), NULL, np.int64)
    keys, group = distinct(table.ints("rank"), table.ints("pid"), table.ints("device"))
    for number in range(len(keys)):
        mine = (group == number) & (start != NULL)
        rows, rest = np.flatnonzero(mine & communication), np.flatnonzero(mine & ~communication)
        found[rows] = alone(start[rows], start[rows] + took[rows], start[rest], start[rest] + took[rest])
    return found


def alone(start: Ints, end: Ints, from_: Ints, until: Ints) -> Ints:
    """Of each interval, the part that lies in none of the others, from ``from_`` to ``until``."""
    order = np.argsort(from_, kind="stable")
    others = (from_[order], np.maximum.accumulate(until[order]) if len(order) else until)
    return end - start - (_busy(*others, end) - _busy(*others, start))


def _busy(start: Ints, last: Ints, at: Ints) -> Ints:
    """ns in which an interval lasted, from the beginning to each time; ``last``: the latest end so far."""
    if not len(start):
        return np.zeros(len(at), np.int64)
    first = np.flatnonzero(np.r_[True, start[1:] > last[:-1]])  # of each stretch without a gap
    begin, end = start[first], last[np.r_[first[1:] - 1, len(start) - 1]]
    before = np.r_[0, np.cumsum(end - begin)]
    stretch = np.searchsorted(begin, at, side="right") - 1
    inside = np.minimum(at, end[stretch]) - begin[stretch]
    return np.where(stretch < 0, 0, before[np.maximum(stretch, 0)] + inside)
