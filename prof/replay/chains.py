"""Tasks that wait for one other alone: their ends follow from the end of the first of their chain, without a loop.

Most tasks of the host are such: the work before a call waits for the thread's call before, and the call for that work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.prof.replay.tasks import CALL, DEPENDS, HOST, Tasks
from pyprof.table.columns import Bools, Ints


@dataclass(frozen=True, slots=True)
class Chains:
    """Which tasks end a fixed time after another, and after which: the last one before them that has to be looked at.

    Durations may change, and all lags but those of these tasks.
    """

    looked_at: Ints  # tasks whose begin depends on several others, in order
    root: Ints  # per task: the task of ``looked_at`` that it follows, or itself
    order: Ints  # all tasks, each chain's together and in order
    first: Ints  # per place in ``order``: the place of the chain's root

    def offsets(self, tasks: Tasks) -> Ints:
        """Per task, the ns from its root's end to its own."""
        takes = tasks.duration[self.order] + self._lags(tasks)
        total = np.cumsum(takes)
        found = np.empty(len(total), np.int64)
        found[self.order] = total - total[self.first]
        return found

    def _lags(self, tasks: Tasks) -> Ints:
        """The lag of each task's first dependency, in ``order``; of those without one, any."""
        if not len(tasks.lag):
            return np.zeros(len(self.order), np.int64)
        lags: Ints = tasks.lag[np.minimum(tasks.first[:-1], len(tasks.lag) - 1)][self.order]
        return lags


def chains(tasks: Tasks) -> Chains:
    """The chains of tasks. Each has one parent at most; of several that follow one task, one goes on with its chain."""
    alone = _alone(tasks)
    source = np.arange(len(tasks))
    source[alone] = tasks.source[tasks.first[:-1][alone]]
    follows = np.flatnonzero(alone)
    _, latest = np.unique(source[follows][::-1], return_index=True)  # one follower for each task
    alone = np.zeros(len(tasks), bool)
    alone[follows[len(follows) - 1 - latest]] = True
    before = np.where(alone, source, -1)
    numbers, depths = [0] * len(tasks), [0] * len(tasks)
    for task, parent in enumerate(before.tolist()):  # sources come first
        numbers[task], depths[task] = (task, 0) if parent < 0 else (numbers[parent], depths[parent] + 1)
    number, depth = np.array(numbers, np.int64), np.array(depths, np.int64)
    order = np.lexsort((depth, number))
    starts = np.flatnonzero(depth[order] == 0)
    first = np.repeat(starts, np.diff(np.append(starts, len(order))))
    return Chains(np.flatnonzero(~alone), number, order, first)


def _alone(tasks: Tasks) -> Bools:
    """Tasks of the host with one dependency, which no release holds back."""
    count = np.diff(tasks.first)
    found: Bools = (count == 1) & np.isin(tasks.kind, (HOST, CALL))
    at = tasks.first[:-1][found]
    plain = (tasks.cause[at] == DEPENDS) & (tasks.lag[at] >= 0)
    plain &= tasks.release[found] <= tasks.release[tasks.source[at]]
    found[found] = plain
    return found
