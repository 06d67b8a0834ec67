"""Which training step launched each row.

Steps are marked by torch.profiler's ``ProfilerStep#3``, which pyprof.step() writes too, or by an NVTX start/end range
of that name. pyprof.step() ends an iteration, so that the first has no mark: what comes before its ``ProfilerStep#1``
is step 0, where that is as much as half of a step. Where a process has no mark, its steps are told by the optimizer: a
step ends where `Optimizer.step` does, and counts from 0. Calls of several optimizers end one step together unless a
backward pass stands between them (so a GAN's two updates are two steps). What follows the last call without another
backward pass still belongs to the last step. In a capture of markers alone, without autograd's nodes, what another
thread than the optimizer's launches stands for them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.table.columns import NULL, Ints

_NUMBER = re.compile(r"\d{1,18}")


class Nodes(NamedTuple):
    """When autograd's nodes began, in which process."""

    pid: Ints
    start: Ints


def nodes_of(tree: RangeTree) -> Nodes:
    found = np.isin(tree.kind, (Kind.NODE, Kind.ENGINE))
    return Nodes(tree.pid[found], tree.start[found])


def steps(capture: Capture, tree: RangeTree, nodes: Nodes | None = None) -> Ints:
    """The step that was running when each row was launched, on any thread: backward runs on its own.

    ``nodes``: autograd's, where the capture does not have all ranges.
    """
    nodes = nodes_of(tree) if nodes is None else nodes
    step = np.full(capture.rows, NULL, np.int64)
    owner, start, end, number = marks(capture, tree)
    updates = np.flatnonzero(tree.scopes_where(Kind.OPTIMIZER, is_update)[tree.scope])
    pids = np.append(np.array([pid for pid, _ in capture.threads], np.int64), NULL)[capture.launch_thread]
    for pid in np.unique(np.concatenate([owner, tree.pid[updates]])).tolist():
        rows = np.flatnonzero((pids == pid) & (capture.launch_time != NULL))
        mine = owner == pid
        time = capture.launch_time[rows]
        if mine.any():
            step[rows] = _marked(start[mine], end[mine], number[mine], time)
            if Kind.MARKER in tree.scope_kind and number[mine].min() == 1:
                step[rows] = _with_first(step[rows], time < start[mine].min())
        else:
            mine = updates[tree.pid[updates] == pid]
            begun = np.sort(nodes.start[nodes.pid == pid])
            if not len(begun):
                elsewhere = ~np.isin(capture.launch_thread[rows], tree.thread[mine])
                begun = np.sort(time[elsewhere])
            step[rows] = _inferred(tree.start[mine], tree.end[mine], begun, time)
    return step


class Marks(NamedTuple):
    """The steps that are marked."""

    pid: Ints
    start: Ints
    end: Ints
    number: Ints


def marks(capture: Capture, tree: RangeTree) -> Marks:
    """The steps that are marked by ranges of a thread, or of a whole process."""
    spans = capture.spans
    given, whole = np.flatnonzero(tree.kind == Kind.STEP), np.flatnonzero(tree.scope_kind[spans.scope] == Kind.STEP)
    pids = np.array([pid for pid, _ in capture.threads], np.int64)
    codes = np.concatenate([tree.scope[given], spans.scope[whole]])
    return Marks(
        np.concatenate([tree.pid[given], pids[spans.thread[whole]]]),
        np.concatenate([tree.start[given], spans.start[whole]]),
        np.concatenate([tree.end[given], spans.end[whole]]),
        np.array([_number(tree.scopes[code]) for code in codes.tolist()], np.int64),
    )


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


def _with_first(step: Ints, before: NDArray[np.bool_]) -> Ints:
    """Rows ``before`` the first end of an iteration are step 0, where they are at least half as many as a step's."""
    _, counts = np.unique(step[step != NULL], return_counts=True)
    enough = len(counts) > 0 and 2 * int(before.sum()) >= float(np.median(counts))
    return np.where(before, 0, step) if enough else step


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
