"""The launches that were captured into CUDA graphs, found among the calls of CUDA or HIP.

Between cudaStreamBeginCapture and cudaStreamEndCapture a launch adds a node to a graph and runs nothing, so it has no
GPU operation of its own. cudaGraphLaunch later runs all nodes, under its own correlation id.
"""

import re

import numpy as np

from pyprof.parse.attribute.capture import GRAPH_KINDS, GraphLaunches
from pyprof.parse.formats.cupti import Calls
from pyprof.table.columns import NULL, Bools, Coded, Ints

_BEGIN = re.compile(r"(?:cuda|cu|hip)StreamBeginCapture")
_END = re.compile(r"(?:cuda|cu|hip)StreamEndCapture")
_WAIT = re.compile(r"(?:cuda|cu|hip)StreamWaitEvent")
_KINDS = (  # by the names of calls, in the order of GRAPH_KINDS
    re.compile(r"(?:cuda|cu|hip)(?!\w*(?:Graph|Host))\w*Launch"),
    re.compile(r"(?:cuda|cu|hip)(?!Graph)Memcpy"),
    re.compile(r"(?:cuda|cu|hip)(?!Graph)Memset"),
)


def graph_launches(calls: Calls, thread: Ints, ran: Bools, kernel: Coded) -> GraphLaunches | None:
    """The calls that were captured into graphs; None if the capture of no graph was recorded from begin to end.

    ``thread``: the index in ``Capture.threads`` of each call's thread. ``ran``: whether the call has a GPU operation.
    ``kernel``: the name of the kernel that the call launches, where it is recorded.

    A graph records the calls of the thread that captures it and of threads that join in, such as autograd's. If two
    threads capture at the same time, it is not known which of the two graphs a third thread's call belongs to; both
    are left out.
    """
    begins, ends = _windows(calls)
    if not len(begins):
        return None
    kind = node_kinds(calls.name)
    graph, unsure = _owners(begins, ends, calls, np.flatnonzero((kind >= 0) & ~ran))
    graph[np.isin(graph, unsure)] = -1
    calls_in = np.flatnonzero(graph >= 0)
    calls_in = calls_in[np.lexsort((calls.start[calls_in], graph[calls_in]))]
    calls_in = calls_in[~_inside_others(calls, calls_in)]
    waits = np.flatnonzero(calls.name.where(_WAIT.match))
    waited, _ = _owners(begins, ends, calls, waits)
    return GraphLaunches(
        graph=graph[calls_in],
        kind=kind[calls_in],
        thread=thread[calls_in],
        time=calls.start[calls_in],
        kernel=kernel.take(calls_in),
        began_thread=thread[begins],
        began=calls.start[begins],
        number=np.full(len(begins), NULL, np.int64),
        ended=calls.start[ends],
        branched=np.isin(np.arange(len(begins)), waited),
    )


def _windows(calls: Calls) -> tuple[Ints, Ints]:
    """The calls that begin and that end the captures, by begin. A capture inside another is a part of it."""
    begins = calls.name.where(_BEGIN.match)
    marks = np.flatnonzero(begins | calls.name.where(_END.match))
    found: list[tuple[int, int]] = []
    since: dict[tuple[int, int], list[int]] = {}
    for call in marks[np.argsort(calls.start[marks], kind="stable")].tolist():
        key = int(calls.pid[call]), int(calls.tid[call])
        opened = since.setdefault(key, [])
        if begins[call]:
            opened.append(call)
        elif opened:
            begin = opened.pop()
            if not opened:
                found.append((begin, call))
    pairs = np.array(found, np.int64).reshape(-1, 2)
    first, last = pairs[np.argsort(calls.start[pairs[:, 0]], kind="stable")].T
    return first, last


def node_kinds(names: Coded) -> Ints:
    """The kind of node that each call adds to a graph, as an index into ``GRAPH_KINDS``; -1: none."""
    of_name = [next((i for i in range(len(GRAPH_KINDS)) if _KINDS[i].match(name)), -1) for name in names.values]
    return np.array([*of_name, -1], np.int64)[names.codes]


def _owners(begins: Ints, ends: Ints, calls: Calls, chosen: Ints) -> tuple[Ints, list[int]]:
    """The graph of each of the ``chosen`` calls (-1: none; one entry per call), and the graphs in doubt."""
    owner = np.full(len(calls.start), -1, np.int64)
    order = chosen[np.argsort(calls.start[chosen], kind="stable")]
    times = calls.start[order]
    unsure: set[int] = set()
    for own_thread in (True, False):
        before = owner.copy()
        for number, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            inside = order[slice(*np.searchsorted(times, calls.start[[begin, end]]))]
            inside = inside[(calls.pid[inside] == calls.pid[begin]) & (before[inside] < 0)]
            inside = inside[(calls.tid[inside] == calls.tid[begin]) == own_thread]
            unsure |= {*owner[inside[owner[inside] >= 0]].tolist(), *([number] if np.any(owner[inside] >= 0) else [])}
            owner[inside] = number
    return owner, sorted(unsure)


def _inside_others(calls: Calls, ordered: Ints) -> Bools:
    """A mask of the calls that another of these calls makes: cudaLaunchKernel may be recorded with its driver call."""
    by_thread = np.lexsort((-calls.end[ordered], calls.start[ordered], calls.tid[ordered], calls.pid[ordered]))
    chosen = ordered[by_thread]
    same = (calls.pid[chosen[1:]] == calls.pid[chosen[:-1]]) & (calls.tid[chosen[1:]] == calls.tid[chosen[:-1]])
    inside = np.zeros(len(ordered), bool)
    within = (calls.start[chosen[1:]] < calls.end[chosen[:-1]]) & (calls.end[chosen[1:]] <= calls.end[chosen[:-1]])
    inside[by_thread[1:]] = same & within
    return inside
