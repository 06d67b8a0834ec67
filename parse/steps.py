"""Which training step launched each row.

Steps are marked by torch.profiler's ``ProfilerStep#3``, which pyprof.step() writes too. Where a process has no mark,
its steps are told by the optimizer: a step ends where `Optimizer.step` does, and counts from 0. Calls of several
optimizers end one step together unless a backward pass stands between them (so a GAN's two updates are two steps).
What follows the last call without another backward pass still belongs to the last step.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pyprof.parse.capture import Capture
from pyprof.parse.scope import Kind, Scope
from pyprof.table import NULL, Ints

if TYPE_CHECKING:
    from pyprof.parse.correlate import Nest

_NUMBER = re.compile(r"\d{1,18}")


def steps(capture: Capture, nest: Nest) -> Ints:
    """The step that was running when each row was launched, on any thread: backward runs on its own."""
    step = np.full(capture.rows, NULL, np.int64)
    marks = np.flatnonzero(nest.kind == Kind.STEP)
    updates = np.flatnonzero(nest.scopes_where(Kind.OPTIMIZER, is_update)[nest.scope])
    if not len(marks) and not len(updates):
        return step
    pids = np.append(np.array([pid for pid, _ in capture.threads], np.int64), NULL)[capture.launch_thread]
    for pid in np.unique(nest.pid[np.concatenate([marks, updates])]).tolist():
        rows = np.flatnonzero((pids == pid) & (capture.launch_time != NULL))
        mine = marks[nest.pid[marks] == pid]
        time = capture.launch_time[rows]
        if len(mine):
            numbers = np.array([_number(nest.scopes[code]) for code in nest.scope[mine].tolist()], np.int64)
            step[rows] = _marked(nest.start[mine], nest.end[mine], numbers, time)
        else:
            mine = updates[nest.pid[updates] == pid]
            nodes = nest.start[np.isin(nest.kind, (Kind.NODE, Kind.ENGINE)) & (nest.pid == pid)]
            step[rows] = _inferred(nest.start[mine], nest.end[mine], np.sort(nodes), time)
    return step


def is_update(scope: Scope) -> bool:
    """Whether an optimizer's range is its step, and not its zero_grad."""
    return scope.name.startswith("Optimizer.step")


def _number(scope: Scope) -> int:
    match = _NUMBER.search(scope.name)
    return int(match.group()) if match else NULL


def _marked(start: Ints, end: Ints, number: Ints, time: Ints) -> Ints:
    """The number of the mark around each time; of marks that nest the last begun."""
    order = np.argsort(start, kind="stable")
    at = np.searchsorted(start[order], time, "right") - 1
    inside = (at >= 0) & (time < end[order][at])
    return np.where(inside, number[order][at], NULL)


def _inferred(start: Ints, end: Ints, nodes: Ints, time: Ints) -> Ints:
    """How many of the optimizer's updates ended at or before each time. ``nodes``: when backward nodes began."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    backwards = np.searchsorted(nodes, start)  # nodes before each update
    last = np.append(backwards[1:] > backwards[:-1], True)  # of the updates that end one step
    ends = end[last]
    if np.searchsorted(nodes, end[-1]) == len(nodes):  # none after the last: what follows is of that step
        ends = ends[:-1]
    return np.searchsorted(ends, time, "right").astype(np.int64)
