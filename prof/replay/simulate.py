"""When each task begins and ends: as soon as all that it waits for has ended."""

from __future__ import annotations

import numpy as np

from pyprof.gc_pause import uncollected
from pyprof.prof.replay.chains import Chains, chains
from pyprof.prof.replay.tasks import Tasks
from pyprof.table.columns import Ints

_NEVER = -(1 << 61)


@uncollected()
def simulate(tasks: Tasks, known: Chains | None = None) -> Ints:
    """The end of each task, ns. A task's dependencies come before it, so one pass over them is enough.

    The loop takes 0.25 µs per task; it passes over tasks that follow one other (``chains``). ``known``: the chains of
    tasks that differ from these in durations alone, and in lags of other tasks.
    """
    found = known or chains(tasks)
    offset = found.offsets(tasks)
    looked_at = found.looked_at
    count = np.diff(tasks.first)
    lag = tasks.lag + offset[tasks.source]
    source = found.root[tasks.source]
    ends = [0] * (len(tasks) + 1)
    ends[-1] = _NEVER  # of the dependencies that a task does not have: index -1
    columns = [_nth(tasks.first[looked_at], count[looked_at], source, lag, number) for number in range(2)]
    (one, one_lag), (two, two_lag) = ((sources.tolist(), lags.tolist()) for sources, lags in columns)
    duration, release = tasks.duration[looked_at].tolist(), tasks.release[looked_at].tolist()
    numbers = looked_at.tolist()
    further = np.flatnonzero(count[looked_at] > 2).tolist()
    begin = 0
    for many in [*further, len(numbers)]:
        for i in range(begin, many):
            time = release[i]
            end = ends[one[i]] + one_lag[i]
            if end > time:
                time = end
            end = ends[two[i]] + two_lag[i]
            if end > time:
                time = end
            ends[numbers[i]] = time + duration[i]
        if many < len(numbers):
            task = numbers[many]
            between = slice(int(tasks.first[task]), int(tasks.first[task + 1]))
            latest = max(ends[s] + gap for s, gap in zip(source[between].tolist(), lag[between].tolist(), strict=True))
            ends[task] = max(release[many], latest) + duration[many]
        begin = many + 1
    ended: Ints = np.array(ends[:-1], np.int64)[found.root] + offset
    return ended


def _nth(first: Ints, count: Ints, source: Ints, lag: Ints, number: int) -> tuple[Ints, Ints]:
    """The n-th dependency of each task, as its source and lag; -1 where it has none."""
    has = count > number
    if not len(source):
        return np.full(len(count), -1, np.int64), np.zeros(len(count), np.int64)
    at = np.where(has, first + number, 0)
    return np.where(has, source[at], -1), np.where(has, lag[at], 0)
