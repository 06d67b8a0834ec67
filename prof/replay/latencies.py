"""How long the GPU takes to begin: after the launch where it is idle, after the operation before where it is busy.

Both are taken from the capture, as one value for each kind of operation: on an H200, launches begin 2.2 µs after their
call has returned (nine tenths within 0.4 µs), and queued kernels 1.0 to 1.3 µs after the one before. What an operation
began later than that is idle time, for which the replay must find another cause, or leave it out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.prof.replay.recorded_run import ROW_KINDS, Recorded, Work
from pyprof.table.columns import Bools, Ints

LAUNCH_NS, GAP_NS = 2200, 1100  # where a capture has no operation to take them from: of an H200
QUEUED_NS = 8000  # launched this long before the operation before it ended, an operation was in the queue
LONGEST_NS = 20_000  # a longer gap between two queued operations is no gap of the hardware's


@dataclass(frozen=True, slots=True)
class Latencies:
    """Per operation, ns."""

    launch: Ints  # from the end of its call to its start
    gap: Ints  # from the end of its stream's operation before to its start; negative where they overlap


def previous_on_lane(work: Work) -> Ints:
    """For each operation, the one launched before it on its stream; -1: none."""
    order = np.lexsort((np.arange(len(work)), work.lane))
    same = work.lane[order][1:] == work.lane[order][:-1]
    found = np.full(len(work), -1, np.int64)
    found[order[1:]] = np.where(same, order[:-1], -1)
    return found


def latencies(run: Recorded, before: Ints) -> Latencies:
    """The capture's own latencies. ``before``: of each operation, see ``previous_on_lane``."""
    work, calls = run.work, run.calls
    known, follows = work.call >= 0, before >= 0
    called = np.where(known, calls.end[work.call], 0)
    free = np.where(follows, work.end[before], np.iinfo(np.int64).min // 2)
    in_graph = follows & (work.call == work.call[before]) & known
    since_call, since_free = work.start - called, work.start - free
    idle = known & ~in_graph & (free < np.where(known, calls.start[work.call], 0))
    queued = known & follows & ((free > called + QUEUED_NS) | in_graph)
    group = np.where(in_graph, len(ROW_KINDS), work.kind)
    launch, gap = np.full(len(work), LAUNCH_NS, np.int64), np.full(len(work), GAP_NS, np.int64)
    for number in np.unique(group).tolist():
        mine = group == number
        launch[mine] = _typical(since_call, mine & idle, LAUNCH_NS, -LONGEST_NS)
        gap[mine] = _typical(since_free, mine & queued, GAP_NS, 0)
    overlap = follows & (since_free < 0)
    gap[overlap] = since_free[overlap]
    return Latencies(launch, gap)


def _typical(values: Ints, chosen: Bools, otherwise: int, least: int) -> int:
    """The mean of the chosen values between ``least`` and three times their median, which leaves out idle time."""
    found = values[chosen & (values >= least) & (values <= LONGEST_NS)]
    if not len(found):
        return otherwise
    middle = float(np.median(found))
    return round(float(found[np.abs(found - middle) <= max(2 * abs(middle), 1000)].mean()))
