"""Split each device's time into busy, idle, and idle because the CPU had not launched anything yet.

The rows of a device are taken in order of start time. A row's own time is the part not covered by earlier rows, so
overlapping kernels count once. The gap before a row is its idle time.
"""

from dataclasses import dataclass

import numpy as np

from pyprof.prof.timing.gpus import device_rows, ends, launched_at
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.kinds import NCCL, kinds
from pyprof.table.columns import NULL, Bools, Ints, Table
from pyprof.table.intervals import covered


@dataclass(frozen=True, slots=True)
class Timeline:
    """Times per row in ns; 0 for rows without a start time."""

    own_ns: Ints  # the part of the row not covered by earlier rows
    idle_ns: Ints  # the gap before it
    late_ns: Ints  # the part of the gap before the CPU launched the row


def timeline(table: Table) -> Timeline:
    """The time of every device from its first operation to its last."""
    own, idle, late = (np.zeros(len(table), np.int64) for _ in range(3))
    start, end, launched = table.ints("start"), ends(table), launched_at(table)
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
    """The time in which only these rows ran on their device."""
    start, end = table.ints("start"), ends(table)
    total = 0
    for _, rows in device_rows(table):
        others = rows[~chosen[rows]]
        total += covered(start[rows], end[rows]) - covered(start[others], end[others])
    return total


def exposed_rows(table: Table, annotation: Annotation) -> Ints:
    """For each communication row, the time in ns in which only communication ran on its device; NULL for other rows."""
    communication = kinds(table, annotation).among(NCCL)
    start, end = table.ints("start"), ends(table)
    exposed = np.full(len(table), NULL, np.int64)
    for _, on_device in device_rows(table):
        rows, others = on_device[communication[on_device]], on_device[~communication[on_device]]
        exposed[rows] = alone(start[rows], end[rows], start[others], end[others])
    return exposed


def alone(start: Ints, end: Ints, from_: Ints, until: Ints) -> Ints:
    """The length of each interval's part that overlaps none of the other intervals, from ``from_`` to ``until``."""
    order = np.argsort(from_, kind="stable")
    others = (from_[order], np.maximum.accumulate(until[order]) if len(order) else until)
    return end - start - (_busy(*others, end) - _busy(*others, start))


def _busy(start: Ints, last: Ints, at: Ints) -> Ints:
    """The time covered by intervals before each time in ``at``, ns; ``last``: the latest end so far."""
    if not len(start):
        return np.zeros(len(at), np.int64)
    first = np.flatnonzero(np.r_[True, start[1:] > last[:-1]])  # first interval of each stretch without a gap
    begin, end = start[first], last[np.r_[first[1:] - 1, len(start) - 1]]
    before = np.r_[0, np.cumsum(end - begin)]
    stretch = np.searchsorted(begin, at, side="right") - 1
    inside = np.minimum(at, end[stretch]) - begin[stretch]
    return np.where(stretch < 0, 0, before[np.maximum(stretch, 0)] + inside)
