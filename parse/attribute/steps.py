"""Which training step launched each row.

Steps are marked by torch.profiler's ``ProfilerStep#3``, which pyprof.step() writes too, or by an NVTX start/end range
of that name. pyprof.step() ends an iteration, so the first iteration has no mark: the rows before its
``ProfilerStep#1`` are step 0, if they are at least half as many as those of a step.

In a process without marks the optimizer separates the steps: a step ends where `Optimizer.step` does, and steps count
from 0. Calls of several optimizers end one step together unless a backward pass stands between them (so a GAN's two
updates are two steps). What follows the last call without another backward pass still belongs to the last step. In a
capture of markers alone, which has no backward nodes, launches by a thread other than the optimizer's stand for
them.
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
    """When backward nodes began, and in which process."""

    pid: Ints
    start: Ints


def nodes_of(tree: RangeTree) -> Nodes:
    found = np.isin(tree.kind, (Kind.NODE, Kind.ENGINE))
    return Nodes(tree.pid[found], tree.start[found])


def steps(capture: Capture, tree: RangeTree, nodes: Nodes | None = None) -> Ints:
    """The step that was running when each row was launched, on any thread: the backward pass has a thread of its own.

    ``nodes``: the backward nodes, where the capture does not have all ranges.
    """
    nodes = nodes_of(tree) if nodes is None else nodes
    step = np.full(capture.rows, NULL, np.int64)
    marked = marks(capture, tree)
    updates = np.flatnonzero(tree.scopes_where(Kind.OPTIMIZER, is_update)[tree.scope])
    pids = np.append(np.array([pid for pid, _ in capture.threads], np.int64), NULL)[capture.launch_thread]
    for pid in np.unique(np.concatenate([marked.pid, tree.pid[updates]])).tolist():
        rows = np.flatnonzero((pids == pid) & (capture.launch_time != NULL))
        time = capture.launch_time[rows]
        own_marks = Marks(*(column[marked.pid == pid] for column in marked))
        if len(own_marks.pid):
            step[rows] = _marked(own_marks, time)
            if Kind.MARKER in tree.scope_kind and own_marks.number.min() == 1:
                step[rows] = _with_first(step[rows], time < own_marks.start.min())
        else:
            own_updates = updates[tree.pid[updates] == pid]
            backward = np.sort(nodes.start[nodes.pid == pid])
            if not len(backward):
                elsewhere = ~np.isin(capture.launch_thread[rows], tree.thread[own_updates])
                backward = np.sort(time[elsewhere])
            step[rows] = _inferred(tree.start[own_updates], tree.end[own_updates], backward, time)
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
    of_thread = np.flatnonzero(tree.kind == Kind.STEP)
    of_process = np.flatnonzero(tree.scope_kind[spans.scope] == Kind.STEP)
    pids = np.array([pid for pid, _ in capture.threads], np.int64)
    codes = np.concatenate([tree.scope[of_thread], spans.scope[of_process]])
    return Marks(
        np.concatenate([tree.pid[of_thread], pids[spans.thread[of_process]]]),
        np.concatenate([tree.start[of_thread], spans.start[of_process]]),
        np.concatenate([tree.end[of_thread], spans.end[of_process]]),
        np.array([_number(tree.scopes[code]) for code in codes.tolist()], np.int64),
    )


def is_update(scope: Scope) -> bool:
    """Whether an optimizer's range is its step, and not its zero_grad."""
    return scope.name.startswith("Optimizer.step")


def _number(scope: Scope) -> int:
    match = _NUMBER.search(scope.name)
    return int(match.group()) if match else NULL


def _marked(marks: Marks, time: Ints) -> Ints:
    """The number of the mark around each time; of nested marks, that of the last to begin."""
    order = np.argsort(marks.start, kind="stable")
    at = np.searchsorted(marks.start[order], time, "right") - 1
    inside = (at >= 0) & (time < marks.end[order][at])
    return np.where(inside, marks.number[order][at], NULL)


def _with_first(step: Ints, before: NDArray[np.bool_]) -> Ints:
    """Step 0 for the rows ``before`` the first mark, if they are at least half as many as those of a step."""
    _, counts = np.unique(step[step != NULL], return_counts=True)
    enough = len(counts) > 0 and 2 * int(before.sum()) >= float(np.median(counts))
    return np.where(before, 0, step) if enough else step


def _inferred(start: Ints, end: Ints, nodes: Ints, time: Ints) -> Ints:
    """How many steps ended at or before each time.

    ``start`` and ``end``: of the optimizer's updates; ``nodes``: when backward nodes began, sorted.
    """
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    nodes_before = np.searchsorted(nodes, start)
    is_last = np.append(nodes_before[1:] > nodes_before[:-1], True)  # of the updates that end one step together
    step_ends = end[is_last]
    if np.searchsorted(nodes, end[-1]) == len(nodes):  # no node after the last update: the rest belongs to that step
        step_ends = step_ends[:-1]
    return np.searchsorted(step_ends, time, "right").astype(np.int64)
