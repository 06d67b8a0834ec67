"""How long the GPU takes to begin: after the launch where it is idle, after the operation before where it is busy.

Both are taken from the capture, as one value for each kind of operation: on an H200, launches begin 2.2 µs after their
call has returned (nine tenths within 0.4 µs), and queued kernels 1.0 to 1.3 µs after the one before. What an operation
began later than that is idle time, for which the replay must find another cause, or leave it out.

An operation that begins before its call returns, as those of copies that hold the host and of CUDA graphs do, is timed
from the begin of the call. The time until then is the host's work in the call, and so its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from pyprof.prof.replay.recorded_run import ROW_KINDS, Recorded, by_group, median_or
from pyprof.table.columns import Bools, Ints

LAUNCH_NS, GAP_NS = 2200, 1100  # where a capture has no operation to take them from: of an H200
QUEUED_NS = 8000  # launched this long before the operation before it ended, an operation was in the queue
LONGEST_NS = 20_000  # a longer gap between two queued operations is no gap of the hardware's


@dataclass(frozen=True, slots=True)
class Latencies:
    """Per operation, ns."""

    launch: Ints  # from the end of its call to its start
    inside: Bools  # whether ``launch`` is from the start of its call instead
    gap: Ints  # from the end of its stream's operation before to its start; negative where they overlap


def latencies(run: Recorded, before: Ints) -> Latencies:
    """The capture's own latencies. ``before``: of each operation, the one before it on its stream."""
    work, calls = run.work, run.calls
    known, follows = work.call >= 0, before >= 0
    called, begun = (np.where(known, times[work.call], 0) for times in (calls.end, calls.start))
    free = np.where(follows, work.end[before], np.iinfo(np.int64).min // 2)
    in_graph = follows & (work.call == work.call[before]) & known
    idle = known & ~in_graph & (free < begun)
    inside = known & ~in_graph & (work.start < called)
    queued = known & follows & ((free > called + QUEUED_NS) | in_graph)
    launch = by_group(work.kind, work.start - called, idle & ~inside, partial(_typical, -LONGEST_NS, LAUNCH_NS))
    launch[in_graph] = 0
    # From the start of the call: on an idle stream its own time, on another at most the median of its kind.
    own = work.start - begun
    usual = by_group(work.kind, own, idle & inside, lambda values: median_or(LAUNCH_NS, values))
    launch[inside] = np.where(idle, own, np.minimum(own, usual))[inside]
    since_free = work.start - free
    pair = (np.where(follows, work.kind[before], 0) * len(ROW_KINDS) + work.kind) * 2 + in_graph
    gap = by_group(pair, since_free, queued, partial(_typical, 0, GAP_NS))
    overlap = follows & (since_free < 0)
    gap[overlap] = since_free[overlap]
    return Latencies(launch, inside | in_graph, gap)


def _typical(least: int, otherwise: int, values: Ints) -> int:
    """The mean of the values between ``least`` and three times their median, which leaves out idle time."""
    found = values[(values >= least) & (values <= LONGEST_NS)]
    if not len(found):
        return otherwise
    middle = float(np.median(found))
    return round(float(found[np.abs(found - middle) <= max(2 * abs(middle), 1000)].mean()))
