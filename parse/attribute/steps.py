"""Which training step launched each row.

Steps are marked by torch.profiler's ``ProfilerStep#3``, which pyprof.step() writes too, or by an NVTX start/end range
of that name. pyprof.step() ends an iteration, so the first iteration has no mark. The rows before ``ProfilerStep#1``
are step 0 if their number is at least half the number of rows of a step.

In a process without marks, each forward pass that an inference server annotates is a step (``serving``), counted from
0; a range inside another one is part of its step.

Otherwise the optimizer separates the steps: a step ends when `Optimizer.step` ends, and steps count
from 0. Calls of several optimizers end one step together unless there is a backward pass between them (so a GAN's two
updates are two steps). Launches after the last call, without another backward pass, still belong to the last step. A
capture with only markers has no backward nodes; in their place, launches by a thread other than the optimizer's thread
are used.
"""

import json
import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.gc_pause import given_back
from pyprof.parse.attribute.capture import OPEN, Capture
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.attribute.serving import ServingRanges
from pyprof.table.columns import NULL, Coded, Ints, distinct, value_at

_NUMBER = re.compile(r"\d{1,18}")


class Nodes(NamedTuple):
    """The start times of backward nodes, and their processes."""

    pid: Ints
    start: Ints


def nodes_of(tree: RangeTree) -> Nodes:
    found = tree.is_first & tree.is_backward
    return Nodes(tree.pid[found], tree.start[found])


class Steps(NamedTuple):
    """The step of each row, and its time on the host from mark to mark, ns; NULL where none is known."""

    number: Ints
    mark: Ints  # the start of its mark; NULL for steps that the optimizer separates, and for step 0 before all marks
    until: Ints  # the start of the next mark; or the end of its own, if no mark follows, or work between them
    empty: Coded  # in the first row of a step and device, as JSON: the steps after it that launch nothing


@given_back()
def steps(capture: Capture, tree: RangeTree, serving: ServingRanges | None = None, nodes: Nodes | None = None) -> Steps:
    """The step that was running on any thread when each row was launched, since the backward pass has its own thread.

    ``serving``: the servers' annotations, if they are known. ``nodes``: the backward nodes, given if the capture does
    not have all ranges.
    """
    nodes = nodes_of(tree) if nodes is None else nodes
    step, mark, until = (np.full(capture.rows, NULL, np.int64) for _ in range(3))
    empty = Coded(np.full(capture.rows, -1, np.int32), [])
    device = capture.ints("device")
    marked = _with_serving(marks(capture, tree), ServingRanges(capture, tree) if serving is None else serving)
    updates = updates_of(tree)
    pids = np.append(capture.pids(), NULL)[capture.launch_thread]
    for pid in np.unique(np.concatenate([marked.pid, tree.pid[updates]])).tolist():
        rows = np.flatnonzero((pids == pid) & (capture.launch_time != NULL))
        time = capture.launch_time[rows]
        own_marks = Marks(*(column[marked.pid == pid] for column in marked))
        if len(own_marks.pid):
            step[rows], mark[rows], until[rows], following = _marked(own_marks, time)
            if following:
                _note(empty, following, rows, mark[rows], device[rows])
            if Kind.MARKER in tree.scope_kind and own_marks.number.min() == 1:
                first = int(own_marks.start.min())
                step[rows] = _with_first(step[rows], time < first)
                until[rows[step[rows] == 0]] = first
        else:
            own_updates = updates[tree.pid[updates] == pid]
            backward = np.sort(nodes.start[nodes.pid == pid])
            if not len(backward):
                elsewhere = ~np.isin(capture.launch_thread[rows], tree.thread[own_updates])
                backward = np.sort(time[elsewhere])
            step[rows] = _inferred(tree.start[own_updates], tree.whole_end[own_updates], backward, time)
    return Steps(step, mark, until, empty)


def _note(column: Coded, following: dict[int, str], rows: Ints, mark: Ints, device: Ints) -> None:
    """Write the texts about what follows a mark into the first row of each device in that mark's step."""
    keys, number = distinct(mark, device)
    first = np.unique(number, return_index=True)[1]
    for (start, _), row in zip(keys, rows[first].tolist(), strict=True):
        if start in following:
            column.codes[row] = len(column.values)
            column.values.append(following[start])


class Marks(NamedTuple):
    """The steps that are marked."""

    pid: Ints
    start: Ints
    end: Ints
    number: Ints


def marks(capture: Capture, tree: RangeTree) -> Marks:
    """The steps that are marked by ranges of a thread, or of a whole process."""
    spans = capture.spans
    of_thread = np.flatnonzero(tree.is_first & (tree.kind == Kind.STEP))
    of_process = np.flatnonzero(tree.scope_kind[spans.scope] == Kind.STEP)
    codes = np.concatenate([tree.scope[of_thread], spans.scope[of_process]])
    return Marks(
        np.concatenate([tree.pid[of_thread], capture.pids()[spans.thread[of_process]]]),
        np.concatenate([tree.start[of_thread], spans.start[of_process]]),
        np.concatenate([tree.whole_end[of_thread], spans.end[of_process]]),
        np.array([_number(tree.scopes[code]) for code in codes.tolist()], np.int64),
    )


def _with_serving(marked: Marks, serving: ServingRanges) -> Marks:
    """The marks, and as marks the servers' annotations of processes without any, numbered from 0 in order of start."""
    chosen = serving.outermost()
    chosen = chosen[~np.isin(serving.pid[chosen], marked.pid)]
    if not len(chosen):
        return marked
    pid, start, end = serving.pid[chosen], serving.nesting.start[chosen], serving.nesting.end[chosen]
    order = np.lexsort((start, pid))
    pid, start, end = pid[order], start[order], end[order]
    first = np.searchsorted(pid, pid)  # the place of the process's first one
    added = Marks(pid, start, end, np.arange(len(pid)) - first)
    return Marks(*(np.concatenate(pair) for pair in zip(marked, added, strict=True)))


def updates_of(tree: RangeTree) -> Ints:
    """The ranges of optimizers that are their steps (and not, for example, zero_grad)."""
    is_update = tree.scopes_where(Kind.OPTIMIZER, lambda scope: scope.name.startswith("Optimizer.step"))
    return np.flatnonzero(tree.is_first & is_update[tree.scope])


def _number(scope: Scope) -> int:
    match = _NUMBER.search(scope.name)
    return int(match.group()) if match else NULL


def _marked(marks: Marks, time: Ints) -> tuple[Ints, Ints, Ints, dict[int, str]]:
    """Number, start and end of the mark around each time, of nested marks the last begun; and ``_empty``."""
    order = np.argsort(marks.start, kind="stable")
    start, number, until = marks.start[order], marks.number[order], _until(marks, order, time)
    at = np.searchsorted(start, time, "right") - 1
    at = np.where((at >= 0) & (time < marks.end[order][at]), at, -1)
    return value_at(number, at), value_at(start, at), value_at(until, at), _empty(number, start, until, at)


def _empty(number: Ints, start: Ints, until: Ints, at: Ints) -> dict[int, str]:
    """The steps in which nothing was launched, by the start of the mark before them that is around launches: a JSON
    list of number, start and end of their marks.

    Only those between steps with work: a mark after all work is the end of the loop or of the profile, not a step.
    ``at``: which of the marks, in order of their start, are around launches.
    """
    used = np.unique(at[at >= 0])
    launched = set(number[used].tolist())
    found: dict[int, str] = {}
    for before, after in zip(used[:-1].tolist(), used[1:].tolist(), strict=True):
        marks = (column[before + 1 : after].tolist() for column in (number, start, until))
        steps = [step for step in zip(*marks, strict=True) if NULL not in step and step[0] not in launched]
        if steps:
            found[int(start[before])] = json.dumps(steps, separators=(",", ":"))
    return found


def _until(marks: Marks, order: Ints, time: Ints) -> Ints:
    """Where each mark's step ends on the host, in this order of the marks: see ``Steps.until``."""
    start, end, number, times = marks.start[order], marks.end[order], marks.number[order], np.sort(time)
    own = np.where(end < OPEN // 2, end, NULL)
    following = np.append(start[1:], NULL)
    idle = np.searchsorted(times, end[:-1]) >= np.searchsorted(times, start[1:])  # nothing was launched in between
    follows = np.append((number[1:] == number[:-1] + 1) & idle, False)
    return np.where(follows, following, own)


def _with_first(step: Ints, before: NDArray[np.bool_]) -> Ints:
    """Set step 0 for the rows ``before`` the first mark if there are at least half as many as in a step."""
    _, counts = np.unique(step[step != NULL], return_counts=True)
    enough = len(counts) > 0 and 2 * int(before.sum()) >= float(np.median(counts))
    return np.where(before, 0, step) if enough else step


def _inferred(start: Ints, end: Ints, nodes: Ints, time: Ints) -> Ints:
    """The number of steps that ended at or before each time.

    ``start`` and ``end``: times of the optimizer's updates; ``nodes``: start times of the backward nodes, sorted.
    """
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    nodes_before = np.searchsorted(nodes, start)
    is_last = np.append(nodes_before[1:] > nodes_before[:-1], True)  # whether an update is its step's last one
    step_ends = end[is_last]
    if np.searchsorted(nodes, end[-1]) == len(nodes):  # no node after the last update: later rows belong to its step
        step_ends = step_ends[:-1]
    return np.searchsorted(step_ends, time, "right").astype(np.int64)
