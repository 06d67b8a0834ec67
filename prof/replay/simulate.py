"""When each task begins and ends: as soon as all that it waits for has ended."""

from __future__ import annotations

import numpy as np

from pyprof.gc_pause import uncollected
from pyprof.prof.replay.tasks import Tasks
from pyprof.table.columns import Ints

_NEVER = -(1 << 61)


@uncollected()
def simulate(tasks: Tasks) -> Ints:
    """The end of each task, ns. A task's dependencies come before it, so one pass over them is enough.

    The loop takes 0.25 µs per task.
    """
    count = np.diff(tasks.first)
    ends = [0] * (len(tasks) + 1)
    ends[-1] = _NEVER  # of the dependencies that a task does not have: index -1
    columns = [_nth(tasks.first[:-1], count, tasks.source, tasks.lag, number) for number in range(2)]
    (one, one_lag), (two, two_lag) = ((sources.tolist(), lags.tolist()) for sources, lags in columns)
    duration, release = tasks.duration.tolist(), tasks.release.tolist()
    begin = 0
    for many in [*np.flatnonzero(count > 2).tolist(), len(tasks)]:
        for task in range(begin, many):
            time = release[task]
            end = ends[one[task]] + one_lag[task]
            if end > time:
                time = end
            end = ends[two[task]] + two_lag[task]
            if end > time:
                time = end
            ends[task] = time + duration[task]
        if many < len(tasks):
            between = slice(int(tasks.first[many]), int(tasks.first[many + 1]))
            pairs = zip(tasks.source[between].tolist(), tasks.lag[between].tolist(), strict=True)
            ends[many] = max(release[many], *(ends[source] + lag for source, lag in pairs)) + duration[many]
        begin = many + 1
    return np.array(ends[:-1], np.int64)


def _nth(first: Ints, count: Ints, source: Ints, lag: Ints, number: int) -> tuple[Ints, Ints]:
    """The n-th dependency of each task, as its source and lag; -1 where it has none."""
    has = count > number
    if not len(source):
        return np.full(len(count), -1, np.int64), np.zeros(len(count), np.int64)
    at = np.where(has, first + number, 0)
    return np.where(has, source[at], -1), np.where(has, lag[at], 0)
