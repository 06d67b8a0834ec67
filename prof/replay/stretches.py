"""When the tasks of many runs end that differ in durations and lags alone, by whole stretches of tasks.

A stretch is a row of tasks of one stream or thread, each of which follows the one before it, and of which none waits
for another task but those of earlier stretches. The end of task i is the latest over all tasks j up to i of when j can
begin, and what lies from there to the end of i: a running maximum, without a loop over the tasks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pyprof.prof.replay.tasks import DEPENDS, GAP, Tasks, simulate
from pyprof.table.columns import Ints

SLOW = 20  # a stretch takes as long as so many tasks that are looked at one by one


@dataclass(frozen=True, slots=True)
class Stretches:
    """The stretches of tasks. A place is that of a task where each stretch's tasks are together and in order."""

    order: Ints  # per place: the task
    place: Ints  # per task: its place
    inner: Ints  # per place: the dependency on the place before; -1 where a stretch begins
    edge: Ints  # the other dependencies, by stretch
    source: Ints  # of each: the place that it leads from
    target: Ints  # and the place that it leads to
    # Of each stretch: its places; and by groups, in which all have targets of their own, its dependencies and targets.
    parts: list[tuple[slice, list[tuple[slice, slice | Ints]]]]


def stretches(tasks: Tasks) -> Stretches:
    """The stretches of tasks."""
    follows = np.isin(tasks.cause, (GAP, DEPENDS)) & (tasks.lag >= 0)
    first, source, may = (each.tolist() for each in (tasks.first, tasks.source, follows))
    number, tail, inner = [0] * len(tasks), list[int](), [-1] * len(tasks)
    for task in range(len(tasks)):
        before = mine = latest = -1
        for edge in range(first[task], first[task + 1]):
            at = number[source[edge]]
            if before < 0 and may[edge] and tail[at] == source[edge]:
                before, mine = edge, at
            else:
                latest = max(latest, at)
        if latest >= mine:
            before, mine = -1, len(tail)
            tail.append(task)
        number[task], tail[mine], inner[task] = mine, task, before
    return _arranged(tasks, np.array(number, np.int64), np.array(inner, np.int64))


def _arranged(tasks: Tasks, number: Ints, inner: Ints) -> Stretches:
    """``number``: of each task's stretch."""
    order = np.argsort(number, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    target = np.repeat(np.arange(len(tasks)), np.diff(tasks.first))
    further = np.ones(len(target), bool)
    further[inner[inner >= 0]] = False
    edge, count = np.flatnonzero(further), np.append(0, np.cumsum(further))
    rank = count[:-1] - count[tasks.first[target]]  # of each dependency among those of its task
    edge = edge[np.lexsort((place[target[edge]], rank[edge], number[target[edge]]))]
    group = np.stack([number[target[edge]], rank[edge]])
    begins = np.flatnonzero(np.append(True, (np.diff(group) != 0).any(axis=0))) if len(edge) else edge
    reached = place[target[edge]]
    groups: list[list[tuple[slice, slice | Ints]]] = [[] for _ in range(int(number.max(initial=-1)) + 1)]
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(edge)], strict=False):
        first, last = int(reached[begin]), int(reached[end - 1]) + 1
        every = slice(first, last) if last - first == end - begin else reached[begin:end]
        groups[int(group[0, begin])].append((slice(begin, end), every))
    bounds = np.searchsorted(number[order], np.arange(len(groups) + 1)).tolist()
    parts = [(slice(*both), found) for *both, found in zip(bounds, bounds[1:], groups, strict=False)]
    return Stretches(order, place, inner[order], edge, place[tasks.source[edge]], reached, parts)


def ends_of(tasks: Tasks, known: Stretches, duration: Ints, lag: Ints, release: Ints) -> Ints:
    """The end of each task in each run, ns. ``duration``, ``lag``, ``release``: those of the tasks, a line per run."""
    if SLOW * len(known.parts) > duration.size:
        lines = zip(duration, lag, np.broadcast_to(release, duration.shape), strict=True)
        return np.array([simulate(replace(tasks, duration=d, lag=gap, release=r)) for d, gap, r in lines])
    takes = duration.take(known.order, axis=1)
    total = lag.take(known.inner, axis=1) if lag.size else np.zeros_like(takes)
    total[:, known.inner < 0] = 0
    total += takes
    np.cumsum(total, axis=1, out=total)
    latest = takes - total  # and from here on, all times of a place without ``total``
    further = lag.take(known.edge, axis=1) + latest.take(known.target, axis=1) + total.take(known.source, axis=1)
    latest += release.take(known.order, axis=1)
    for places, groups in known.parts:
        for group, target in groups:
            reached = latest.take(known.source[group], axis=1)
            reached += further[:, group]
            latest[:, target] = np.maximum(latest[:, target], reached, out=reached)
        ended = latest[:, places]
        np.maximum.accumulate(ended, axis=1, out=ended)
    latest += total
    return latest.take(known.place, axis=1)
