"""The chain of tasks that decides how long the run takes, and what its time goes to.

From the task that ends last, each task's predecessor on the path is the dependency that let it begin last. The times on
the path add up to the length of the run. Only what shortens a task on the path shortens the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from pyprof.prof.replay.recorded_run import ROW_KINDS, Recorded
from pyprof.prof.replay.tasks import CALL, HOST, QUEUE, SYNC, Tasks
from pyprof.table.columns import Bools, Ints

PathClass = Literal["host", "kernels", "copies", "communication", "synchronisation", "latency"]
CLASSES: tuple[PathClass, ...] = get_args(PathClass)
_HOST, _KERNELS, _COPIES, _COMMUNICATION, _SYNC, _LATENCY = range(len(CLASSES))


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The path in order of time: one entry per task on it."""

    task: Ints
    own: Ints  # the task's own time on the path, ns
    own_class: Ints  # index into CLASSES
    lag: Ints  # time between the task before and this one, ns
    lag_class: Ints

    def by_class(self) -> dict[str, int]:
        """The path's time by what it goes to; the sum is the length of the run."""
        sums = np.zeros(len(CLASSES))
        np.add.at(sums, self.own_class, self.own)
        np.add.at(sums, self.lag_class, self.lag)
        return {name: int(ns) for name, ns in zip(CLASSES, sums.tolist(), strict=True)}


def critical_path(run: Recorded, tasks: Tasks, ends: Ints, communicates: Bools) -> CriticalPath:
    """The path of a simulated run. ``communicates``: per row of the kernel table, whether it is a collective."""
    path, cause, gap = _backwards(tasks, ends)
    own_class = _classes(run, tasks, path, communicates)
    own = tasks.duration[path].copy()
    # A call that ends with a wait takes its own time while it waits: what remains is the return from the wait.
    waited = np.isin(cause, (SYNC, QUEUE))
    gap[waited], own[waited] = gap[waited] + own[waited], 0
    before = np.append(own_class[:1], own_class[:-1])
    lag_class = np.where(gap < 0, before, np.where(waited, _SYNC, _LATENCY))
    return CriticalPath(path, own, own_class, gap, np.where(cause < 0, _HOST, lag_class))


def _backwards(tasks: Tasks, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """The tasks of the path in order of time, and the cause and lag of each one's dependency; cause -1: the first."""
    task, path = int(ends.argmax()), []
    begin, seen = int(tasks.release.min()), set[int]()
    while True:
        seen.add(task)
        between = slice(int(tasks.first[task]), int(tasks.first[task + 1]))
        reached = ends[tasks.source[between]] + tasks.lag[between]
        edge = between.start + int(reached.argmax()) if len(reached) else -1
        # Of calls whose times overlap on one thread, which no profiler records, each may wait for the other.
        if edge < 0 or int(reached.max()) < int(tasks.release[task]) or int(tasks.source[edge]) in seen:
            path.append((task, -1, int(tasks.release[task]) - begin))
            break
        path.append((task, int(tasks.cause[edge]), int(tasks.lag[edge])))
        task = int(tasks.source[edge])
    found = np.array(path[::-1], np.int64)
    return found[:, 0], found[:, 1], found[:, 2]


def _classes(run: Recorded, tasks: Tasks, path: Ints, communicates: Bools) -> Ints:
    kind, item = tasks.kind[path], tasks.item[path]
    rows = np.where(np.isin(kind, (HOST, CALL)), 0, item)
    of_work = np.where(
        communicates[run.work.row[rows]],
        _COMMUNICATION,
        np.isin(run.work.kind[rows], [ROW_KINDS.index(name) for name in ("memcpy", "memset")]) * (_COPIES - _KERNELS)
        + _KERNELS,
    )
    return np.where(np.isin(kind, (HOST, CALL)), _HOST, of_work)
