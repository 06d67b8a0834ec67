"""Turn a capture's calls of the GPU's API into the table of host calls."""

import numpy as np

from pyprof.gc_pause import given_back, uncollected
from pyprof.parse.attribute.capture import Capture, HostCalls
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind
from pyprof.parse.attribute.steps import steps
from pyprof.parse.tables.correlate import at_times, attribute
from pyprof.parse.tables.hand_overs import hand_overs
from pyprof.parse.tables.memory_rows import rank_of
from pyprof.table.api_kinds import api_kind
from pyprof.table.columns import NULL, Coded, Data, HostTable, Ints, value_at


@given_back()
@uncollected()
def host_table(capture: Capture, tree: RangeTree) -> HostTable:
    """The table of a capture that has calls: one row per call, in order of process, thread and start."""
    assert capture.calls is not None
    calls = capture.calls
    pid, tid = capture.pids_and_tids(calls.thread)
    timed = np.flatnonzero((calls.start != NULL) & (calls.end != NULL))
    end = np.maximum(calls.end, calls.start)
    order = timed[np.lexsort((-end[timed], calls.start[timed], tid[timed], pid[timed]))]
    place = np.full(len(calls), -1, np.int64)
    place[order] = np.arange(len(order))
    events = at_times(capture, calls.thread[order], calls.start[order])
    columns_of_rows = attribute(events, tree).columns
    kinds = Coded.of(map(api_kind, calls.name.values))
    kind = Coded(np.append(kinds.codes, -1)[calls.name.codes[order]], kinds.values)  # no name, no kind
    thread, start, end = calls.thread[order], calls.start[order], end[order]
    after = hand_overs(kind, pid[order], thread, start, end, tree)
    columns: dict[str, Data] = {
        "name": calls.name.take(order),
        "kind": kind,
        "start": start,
        "duration": end - start,
        "pid": pid[order],
        "tid": tid[order],
        "corr": calls.corr[order],
        **_events(calls, order, place),
        **{key: columns_of_rows[key] for key in ("op", "layer", "trace", "aten", "phase")},
        "step": steps(events, tree).number,
        "rank": rank_of(capture, len(order)),
        "after": after,
        "ranges": _ranges(tree, pid[order], thread, start, end, after),
        "calls": _marked_calls(tree, pid[order], start),
    }
    return HostTable(len(order), columns)


@given_back()
def _ranges(tree: RangeTree, pid: Ints, thread: Ints, start: Ints, end: Ints, after: Ints) -> Ints:
    """How many ranges began in each call's process since its thread's call before, or since the hand-over."""
    found = np.zeros(len(start), np.int64)
    same = np.append(False, (thread[1:] == thread[:-1]) & (pid[1:] == pid[:-1]))
    before = np.where(after >= 0, after, np.where(same, np.arange(len(start)) - 1, -1))
    for process in np.unique(pid).tolist():
        begun = tree.start[tree.pid == process]
        begun.sort()
        rows = np.flatnonzero((pid == process) & (before >= 0))
        until, since = (np.searchsorted(begun, times, "right") for times in (start[rows], end[before[rows]]))
        found[rows] = np.maximum(until - since, 0)
    return found


def _marked_calls(tree: RangeTree, pid: Ints, start: Ints) -> Ints:
    """How many of PyTorch's calls with a marker had begun in each call's process, on the thread that makes most of
    them; a marker within another one is part of that call. ``NULL`` in processes without markers."""
    found = np.full(len(start), NULL, np.int64)
    marker = tree.kind == Kind.MARKER
    if not marker.any():
        return found
    inside = np.zeros(len(tree), bool)
    for level in tree.levels[1:]:
        around = tree.parent[level]
        inside[level] = inside[around] | marker[around]
    outermost = np.flatnonzero(marker & ~inside & tree.is_first)
    for process in np.unique(tree.pid[outermost]).tolist():
        mine = outermost[tree.pid[outermost] == process]
        threads, count = np.unique(tree.thread[mine], return_counts=True)
        begun = np.sort(tree.start[mine[tree.thread[mine] == threads[count.argmax()]]])
        rows = np.flatnonzero(pid == process)
        found[rows] = np.searchsorted(begun, start[rows], "right")
    return found


def _events(calls: HostCalls, order: Ints, place: Ints) -> dict[str, Data]:
    """What synchronising calls are about, where the capture records it."""
    found: dict[str, Data] = {}
    if calls.stream is not None:
        found["stream"] = calls.stream[order]
    if calls.record is not None:
        record = value_at(place, calls.record[order], -1)
        found["record"] = np.where(record >= 0, record, NULL)
    return found
