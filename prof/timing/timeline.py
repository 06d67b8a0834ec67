"""How each device's time passed: working, idle, and idle because the CPU had launched nothing yet.

Rows of a device by their start: what a row adds to the time already covered is its own working time, so that kernels
that overlap count once; the gap before it is its idle time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.prof.timing.gpus import covered, device_rows, ends
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.kinds import NCCL, kinds
from pyprof.table.columns import NULL, Bools, Ints, Table

HOST_BOUND = 0.25  # share of the time that the GPU waits for launches, from which the CPU limits the speed


@dataclass(frozen=True, slots=True)
class Timeline:
    """A number per row, ns; 0 for rows without a start."""

    own_ns: Ints  # what the row adds to the time covered
    idle_ns: Ints  # the gap before it
    late_ns: Ints  # of the gap, what passed before the CPU called for the row's launch


def timeline(table: Table) -> Timeline:
    """The time of every device from its first operation to its last."""
    own, idle, late = (np.zeros(len(table), np.int64) for _ in range(3))
    start, end, launched = table.ints("start"), ends(table), table.ints("apiStart")
    for _, unsorted in device_rows(table):
        rows = unsorted[np.argsort(start[unsorted], kind="stable")]
        if not len(rows):
            continue
        covered_until = np.maximum.accumulate(np.concatenate([start[rows[:1]], end[rows]]))[:-1]
        own[rows] = np.maximum(end[rows] - np.maximum(start[rows], covered_until), 0)
        idle[rows] = np.maximum(start[rows] - covered_until, 0)
        not_launched = np.where(launched[rows] == NULL, 0, launched[rows] - covered_until)
        late[rows] = np.clip(not_launched, 0, idle[rows])
    return Timeline(own, idle, late)


def exposed_ns(table: Table, chosen: Bools) -> int:
    """How long nothing ran on a device but these rows."""
    start, end = table.ints("start"), ends(table)
    total = 0
    for _, rows in device_rows(table):
        others = rows[~chosen[rows]]
        total += covered(start[rows], end[rows]) - covered(start[others], end[others])
    return total


def exposed_rows(table: Table, annotation: Annotation) -> Ints:
    """Per row of communication, ns in which nothing but communication ran on its device; NULL for other rows."""
    communication = kinds(table, annotation).among(NCCL)
    start, end = table.ints("start"), ends(table)
    exposed = np.full(len(table), NULL, np.int64)
    for _, on_device in device_rows(table):
        rows, others = on_device[communication[on_device]], on_device[~communication[on_device]]
        exposed[rows] = alone(start[rows], end[rows], start[others], end[others])
    return exposed


def alone(start: Ints, end: Ints, from_: Ints, until: Ints) -> Ints:
    """The part of each interval that lies in none of the others, which last from ``from_`` to ``until``."""
    order = np.argsort(from_, kind="stable")
    others = (from_[order], np.maximum.accumulate(until[order]) if len(order) else until)
    return end - start - (_busy(*others, end) - _busy(*others, start))


def _busy(start: Ints, last: Ints, at: Ints) -> Ints:
    """How long intervals lasted from the beginning to each time, ns; ``last``: the latest end so far."""
    if not len(start):
        return np.zeros(len(at), np.int64)
    first = np.flatnonzero(np.r_[True, start[1:] > last[:-1]])  # of each stretch without a gap
    begin, end = start[first], last[np.r_[first[1:] - 1, len(start) - 1]]
    before = np.r_[0, np.cumsum(end - begin)]
    stretch = np.searchsorted(begin, at, side="right") - 1
    inside = np.minimum(at, end[stretch]) - begin[stretch]
    return np.where(stretch < 0, 0, before[np.maximum(stretch, 0)] + inside)
