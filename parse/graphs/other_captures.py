"""Add what was recorded of the capture of CUDA graphs elsewhere to the capture of their replay.

vLLM and SGLang trace the capture of each graph when the server starts, and the replays later, each into files of their
own. pyprof's collector records the capture of graphs outside of the range that it collects. Only the launches that
graphs captured, and the ranges around them, are taken from there.
"""

from dataclasses import fields, replace

import numpy as np

from pyprof.parse.attribute.capture import Capture, GraphLaunches, Ranges
from pyprof.parse.attribute.scope import Kind
from pyprof.table.columns import NULL, Coded, Ints


def with_graphs(capture: Capture) -> Capture:
    """The capture with the launches and ranges of ``Capture.graphs``.

    The threads of each other capture get a process number of their own, since its clock and its sequence numbers are
    its own: no range of it is near, before or after one of ``capture``. Its marks of steps are left out.
    """
    graphs, joined = capture.graphs, replace(capture, graphs=[])
    for other in graphs:
        if other.graph_launches:
            own_pid = min([0, *(pid for pid, _ in joined.threads)]) - 1
            joined = _with(joined, other, other.graph_launches, own_pid)
    return joined if graphs else capture


def _with(capture: Capture, other: Capture, launches: GraphLaunches, pid: int) -> Capture:
    threads, scopes = len(capture.threads), len(capture.scopes)
    kind = np.array([scope.kind for scope in other.scopes], np.int64)
    kept = np.flatnonzero(kind[other.ranges.scope] != Kind.STEP)
    place = np.full(len(other.ranges) + 1, -1, np.int64)  # index in ``other`` -> index in the result
    place[kept] = len(capture.ranges) + np.arange(len(kept))
    outs = {int(place[range_]): text for range_, text in other.outs.items() if place[range_] >= 0}
    return replace(
        capture,
        threads=[*capture.threads, *((pid, tid) for _, tid in other.threads)],
        scopes=[*capture.scopes, *other.scopes],
        ranges=_ranges(capture.ranges, other.ranges, kept, place, threads, scopes),
        outs={**capture.outs, **outs},
        compiled={**other.compiled, **capture.compiled},
        graph_launches=_launches(capture.graph_launches, launches, threads),
    )


def _ranges(first: Ranges, second: Ranges, kept: Ints, place: Ints, threads: int, scopes: int) -> Ranges:
    def joined(name: str, offset: int = 0) -> Ints:
        return np.concatenate([getattr(first, name), getattr(second, name)[kept] + offset])

    def of_forward(name: str, moved: Ints) -> Ints | None:
        columns = getattr(first, name), getattr(second, name)
        if columns[0] is None and columns[1] is None:
            return None
        unknown = (np.full(len(ranges), -1, np.int64) for ranges in (first, second))
        given, added = (blank if column is None else column for column, blank in zip(columns, unknown, strict=True))
        return np.concatenate([given, np.where(added[kept] >= 0, moved[added[kept]], -1)])

    moved_threads = threads + np.arange(int(second.thread.max(initial=-1)) + 2)
    return Ranges(
        thread=joined("thread", threads),
        start=joined("start"),
        end=joined("end"),
        scope=joined("scope", scopes),
        seq=joined("seq"),
        op_id=joined("op_id"),
        forward_thread=of_forward("forward_thread", moved_threads),
        forward_range=of_forward("forward_range", place),
    )


def _launches(first: GraphLaunches | None, second: GraphLaunches, threads: int) -> GraphLaunches:
    graphs = 0 if first is None else len(first.ended)
    moved = replace(
        second,
        graph=second.graph + graphs,
        thread=second.thread + threads,
        began_thread=second.began_thread + threads,
        ended=np.full(len(second.ended), NULL, np.int64),
    )
    if first is None:
        return moved
    names = [field.name for field in fields(GraphLaunches) if field.name != "kernel"]
    both = {name: np.concatenate([getattr(first, name), getattr(moved, name)]) for name in names}
    return GraphLaunches(**both, kernel=Coded.concat([first.kernel, moved.kernel]))
