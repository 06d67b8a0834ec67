"""Join the kernels that a CUDA graph replays to the launches that it captured.

A replayed kernel has the correlation id of its cudaGraphLaunch and, in most traces, nothing else that says which
captured launch it was. The launches are known from the capture, in order. Which graph a cudaGraphLaunch replays, and
which kernel is which launch, follows in this way:

1. The kernels of one launch, in order, are a replay. The order is that of the graph's nodes where the profiler has
   their numbers, else that of the kernels' starts.
2. A graph fits a replay if it captured as many kernels, and, where the capture has their names (HIP), kernels of the
   same names: the n-th kernel of a name was launched by the n-th launch of that name. Without names, the n-th kernel
   was launched by the n-th launch, if the graph has no branches that may run in another order (streams that waited
   for each other, unless pyprof found that each node depends on the one before it), and if no kernel is one that its op
   cannot have (``graph_agreement``). Copies and memsets are joined likewise, each by themselves. The driver runs some
   of them as kernels of its own (``memcpy32_post``).
3. The begin of the capture may cut the first replay, and its end the last one. Such a replay fits a graph if its
   kernels are the last or the first ones of a whole replay of that graph.
4. Where pyprof marked the begin of a graph's capture and its replays with the graph's number, only that graph fits.
5. If several graphs fit, a kernel belongs to its launch only if all of them have the same op there, in the same layer
   and line; if they have it with different shapes (graphs of several batch sizes), its shapes are unknown. Of graphs
   that were captured in this file, those captured after the replay are no choice.

All other kernels stay without an op, and their reason says which of these conditions failed.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pyprof.marker import GRAPH_RANGE
from pyprof.parse.attribute.capture import GRAPH_KINDS, Capture, GraphLaunches
from pyprof.parse.attribute.nesting import innermost
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.reasons import (
    GRAPH_BRANCHES,
    GRAPH_COPIES,
    GRAPH_COUNT,
    GRAPH_KERNELS,
    GRAPH_SEVERAL,
    GRAPH_SHAPES,
)
from pyprof.parse.attribute.scope import Kind
from pyprof.parse.graphs.graph_agreement import agrees
from pyprof.table.columns import NULL, Bools, Coded, Ints, distinct, value_at

REASONS = (GRAPH_COUNT, GRAPH_KERNELS, GRAPH_BRANCHES, GRAPH_SEVERAL, GRAPH_COPIES, GRAPH_SHAPES)
GRAPH = re.compile(rf"{GRAPH_RANGE}(\d{{1,18}})")
_KERNEL = GRAPH_KINDS.index("kernel")
# The driver's own kernels for copies and memsets in graphs: memcpy32_post, memcpy128, memset32_post, ... On an H200, a
# copy of 64 bytes was a copy for CUPTI that had stayed since the graph's capture, and such a kernel for one that had
# come later.
_DRIVERS_OWN = {kind: re.compile(rf"{kind}\d+(?:_\w+)?") for kind in ("memcpy", "memset")}
_NODE_NUMBER = (1 << 32) - 1  # the lower half of a node's id; the upper half is the number of its graph


@dataclass(frozen=True, slots=True)
class Origins:
    """The launch at capture of each row."""

    launch: Ints  # index into the capture's GraphLaunches; -1: none or unknown
    reason: Ints  # index into REASONS of rows whose launch, or its shapes, are unknown; -1: all others


@dataclass(frozen=True, slots=True)
class Replay:
    """The rows of one cudaGraphLaunch, in order."""

    rows: Ints
    launched: bool  # whether the call of the launch was recorded
    start: int  # of its first row
    time: int  # when it was launched, or else when its first row began
    numbered: bool  # whether the order is that of the graph's nodes
    overlaps: bool  # whether kernels of different streams ran at the same time
    graph: int  # the number with which pyprof marked the launch; -1: none


def with_graph_origins(capture: Capture, tree: RangeTree, replayed: Bools) -> tuple[Capture, Ints]:
    """The capture, with the origins of rows that CUDA graphs ``replayed``, and the reason of each row without one (an
    index into ``REASONS``, -1: none).

    Rows whose origin the profiler names keep it, if any range is around it: nsys also records the creation of nodes
    before the range that it collects.
    """
    launches = capture.graph_launches
    if not launches or capture.is_host or "kLongName" not in capture.columns:  # rows: CPU ops, or allocations
        return capture, np.full(capture.rows, -1, np.int64)
    found = _origins(capture, tree, launches, replayed)
    thread, time = value_at(launches.thread, found.launch, -1), value_at(launches.time, found.launch)
    reason = found.reason
    if capture.origin_thread is not None and capture.origin_time is not None:
        named = innermost(tree.nesting, capture.origin_thread, capture.origin_time) >= 0
        thread, time = np.where(named, capture.origin_thread, thread), np.where(named, capture.origin_time, time)
        reason = np.where(named, -1, reason)
    return replace(capture, origin_thread=thread, origin_time=time), reason


def _origins(capture: Capture, tree: RangeTree, launches: GraphLaunches, replayed: Bools) -> Origins:
    """The launches of the rows that CUDA graphs ``replayed``."""
    origins = Origins(*(np.full(capture.rows, -1, np.int64) for _ in range(2)))
    captured = _Captured(capture, tree, launches)
    ordered = sorted(replays(capture, tree, replayed), key=lambda replay: replay.start)
    fits = captured.fitting_graphs(ordered)
    for number, (replay, (found, why)) in enumerate(zip(ordered, fits, strict=True)):
        if not found and number == (len(ordered) - 1 if replay.launched else 0):
            found = captured.continuing(replay)
        origins.launch[replay.rows], origins.reason[replay.rows] = captured.choose(replay, found, why)
    return origins


def replays(capture: Capture, tree: RangeTree, replayed: Bools) -> Iterable[Replay]:
    """The replays: rows of graph launches, and rows that share the id of a call without a record."""
    start, corr, node, stream = map(capture.ints, ("start", "corr", "graphNode", "stream"))
    end = start + capture.ints("kDuration")
    is_graph = capture.coded("kind").among("graph")
    chosen = np.flatnonzero((replayed | (capture.launch_thread < 0)) & (corr > 0) & ~is_graph)
    graph = marked_graphs(tree, capture.launch_thread, capture.launch_time, chosen)
    keys, number = distinct(capture.ints("pid")[chosen], corr[chosen])
    order = np.lexsort((start[chosen], number))
    bounds = np.searchsorted(number[order], np.arange(len(keys) + 1))
    for begin, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = chosen[order[begin:stop]]
        launched = bool(capture.launch_thread[rows[0]] >= 0)
        if not launched and len(rows) == 1:
            continue
        nodes = node[rows] & _NODE_NUMBER
        numbered = bool(np.all(node[rows] != NULL)) and len(np.unique(nodes)) == len(rows)
        at_once = (start[rows[1:]] < end[rows[:-1]]) & (stream[rows[1:]] != stream[rows[:-1]])
        rows = rows[np.argsort(nodes)] if numbered else rows
        first = int(start[rows].min())
        time = int(capture.launch_time[rows[0]]) if launched else first
        yield Replay(rows, launched, first, time, numbered, bool(at_once.any()), int(graph[rows[0]]))


def marked_graphs(tree: RangeTree, thread: Ints, time: Ints, chosen: Ints) -> Ints:
    """The number of pyprof's range of a graph around each of the ``chosen`` points; -1: none, or not chosen."""
    found = np.full(len(time), -1, np.int64)
    numbers = [GRAPH.fullmatch(scope.name) if scope.kind == Kind.USER else None for scope in tree.scopes]
    of_scope = np.array([int(match[1]) if match else -1 for match in numbers] or [-1], np.int64)
    if not np.any(of_scope >= 0):
        return found
    inner = innermost(tree.nesting, thread[chosen], time[chosen])
    while np.any(above := (inner >= 0) & (of_scope[tree.scope[inner]] < 0)):
        inner[above] = tree.parent[inner[above]]
    found[chosen] = np.where(inner >= 0, of_scope[tree.scope[inner]], -1)
    return found


class _Captured:
    """The captured graphs of a file, and the names of the rows in the same numbers."""

    def __init__(self, capture: Capture, tree: RangeTree, launches: GraphLaunches) -> None:
        self.launches, self.tree = launches, tree
        self.inner = innermost(tree.nesting, launches.thread, launches.time)
        self.op = self._ops()
        kinds, names = capture.coded("kind"), capture.coded("kLongName")
        both = Coded.concat([names, launches.kernel])
        self.texts = both.values
        self.names = both.codes[: capture.rows].astype(np.int64)  # per row
        self.kernels = both.codes[capture.rows :].astype(np.int64)  # per launch, -1: unknown
        place = {kind: number for number, kind in enumerate(GRAPH_KINDS)}
        self.kinds = np.array([*(place.get(kind, -1) for kind in kinds.values), -1], np.int64)[kinds.codes]  # per row
        for kind, own in _DRIVERS_OWN.items():
            self.kinds[(self.kinds == _KERNEL) & names.where(own.fullmatch)] = place[kind]
        self.bounds = np.searchsorted(launches.graph, np.arange(len(launches.ended) + 1))
        self.marked = marked_graphs(tree, launches.began_thread, launches.began, np.arange(len(launches.began)))
        self.branched = launches.branched & ~np.isin(self.marked, list(capture.ordered_graphs))
        counts = np.zeros(len(launches.ended), np.int64)
        np.add.at(counts, launches.graph[launches.kind == _KERNEL], 1)
        self.by_count: dict[int, list[int]] = {}
        for graph, count in enumerate(counts.tolist()):
            self.by_count.setdefault(count, []).append(graph)
        self.whole: dict[tuple[int, bytes], tuple[Ints, Ints]] = {}  # replays that fit: their names and launches
        self.choices: dict[tuple[int, ...], tuple[Ints, Ints]] = {}  # by the identity of what was found, and graphs
        self.kept: list[dict[int, Ints]] = []  # what was found stays, so that its identity is not another's
        self.paths: dict[tuple[int, bool], int] = {}  # per range, the number of its path
        self.path_numbers: dict[tuple[int, object], int] = {}

    def _ops(self) -> Ints:
        """The innermost op around each launch, -1: none."""
        op = self.inner.copy()
        while np.any(above := (op >= 0) & (self.tree.kind[op] != Kind.OP)):
            op[above] = self.tree.parent[op[above]]
        return op

    def fitting_graphs(self, replays: Sequence[Replay]) -> list[tuple[dict[int, Ints], int]]:
        """Per replay: the launch of each row (-1: unknown), by graph that fits; and why none fits."""
        known: dict[tuple[object, ...], tuple[dict[int, Ints], int]] = {}
        keys = [(self.names[replay.rows].tobytes(), replay.numbered, replay.overlaps) for replay in replays]
        for key, replay in zip(keys, replays, strict=True):
            if key not in known:
                known[key] = self._fitting(replay)
        return [known[key] for key in keys]

    def _fitting(self, replay: Replay) -> tuple[dict[int, Ints], int]:
        kernels = replay.rows[self.kinds[replay.rows] == _KERNEL]
        found: dict[int, Ints] = {}
        why = REASONS.index(GRAPH_COUNT)
        for graph in self.by_count.get(len(kernels), []):
            launches = np.arange(*self.bounds[graph : graph + 2])
            own = launches[self.launches.kind[launches] == _KERNEL]
            order, misfit = self._ordered(graph, own, kernels, replay)
            if order is None:
                why = max(why, REASONS.index(misfit))
                continue
            own_launches = self._with_copies(replay.rows, kernels, order, launches)
            if not len(kernels) and np.any(own_launches < 0):  # copies and memsets alone: all have to fit
                continue
            found[graph] = own_launches
            self.whole[graph, self.names[replay.rows].tobytes()] = self.names[replay.rows], found[graph]
        return found, why

    def _ordered(self, graph: int, launches: Ints, kernels: Ints, replay: Replay) -> tuple[Ints | None, str]:
        """The launch of each kernel, or None and what does not fit."""
        names, captured = self.names[kernels], self.kernels[launches]
        if len(captured) and np.all(captured >= 0):
            by_name, by_launch = np.argsort(names, kind="stable"), np.argsort(captured, kind="stable")
            if not np.array_equal(names[by_name], captured[by_launch]):
                return None, GRAPH_KERNELS
            order = np.empty(len(kernels), np.int64)
            order[by_name] = launches[by_launch]
            return order, ""
        if not replay.numbered and (self.branched[graph] or replay.overlaps):
            return None, GRAPH_BRANCHES
        known = captured >= 0
        ops = ["" if op < 0 else self.tree.name(op) for op in self.op[launches].tolist()]
        if np.any(names[known] != captured[known]) or not agrees(
            ops, self.op[launches].tolist(), [self.texts[name] for name in names.tolist()]
        ):
            return None, GRAPH_KERNELS
        return launches, ""

    def _with_copies(self, rows: Ints, kernels: Ints, order: Ints, launches: Ints) -> Ints:
        """The launch of each row: of its kernels, and of copies and of memsets if the graph has as many."""
        found = np.full(len(rows), -1, np.int64)
        found[self.kinds[rows] == _KERNEL] = order
        for kind in range(len(GRAPH_KINDS)):
            own, here = launches[self.launches.kind[launches] == kind], self.kinds[rows] == kind
            if kind != _KERNEL and len(own) == here.sum():
                found[here] = own
        return found

    def continuing(self, replay: Replay) -> dict[int, Ints]:
        """The launch of each row, by graph, if the replay is the begin of a whole one or, unlaunched, its end."""
        names, count = self.names[replay.rows], len(replay.rows)
        found = {}
        for (graph, _), (whole, launches) in self.whole.items():
            part = slice(0, count) if replay.launched else slice(len(whole) - count, None)
            if count < len(whole) and np.array_equal(whole[part], names):
                found[graph] = launches[part]
        return found

    def choose(self, replay: Replay, found: dict[int, Ints], why: int) -> tuple[Ints, Ints]:
        """The launch of each row of a replay, and the reasons of rows without one, given the graphs that fit."""
        ended = self.launches.ended
        possible = [graph for graph in found if ended[graph] == NULL or ended[graph] <= replay.time]
        known = replay.graph >= 0 and replay.graph in self.marked
        if replay.graph >= 0:
            meant = replay.graph if known else -1  # -1: captured before pyprof marked graphs
            possible = [graph for graph in possible if self.marked[graph] == meant]
        if not possible:
            # A row without a launch has the reader's reason. If graphs fit but none is meant, the graph's own capture
            # is in no file, which is the reason of every row that a graph launched.
            misfit = replay.launched and (not found or known)
            return np.full(len(replay.rows), -1), np.full(len(replay.rows), why if misfit else -1)
        key = (id(found), *possible)
        if key not in self.choices:
            self.choices[key] = self._choice([found[graph] for graph in possible])
            self.kept.append(found)
        return self.choices[key]

    def _choice(self, launches: list[Ints]) -> tuple[Ints, Ints]:
        """The launch and the reason of each row, given the launches in each graph that may be meant."""
        same, but_for_shapes = (self._agreed(launches, shapes) for shapes in (True, False))
        unknown = np.where(but_for_shapes, REASONS.index(GRAPH_COPIES), REASONS.index(GRAPH_SEVERAL))
        launch = np.where(but_for_shapes, launches[-1], -1)
        return launch, np.where(launch < 0, unknown, np.where(same, -1, REASONS.index(GRAPH_SHAPES)))

    def _agreed(self, launches: list[Ints], shapes: bool) -> Bools:
        """Per row, whether the launches in several graphs have the same scopes around them, with or without shapes."""
        if len(launches) == 1:
            return np.ones(len(launches[0]), bool)
        paths = [
            [self._path(int(self.inner[launch]), shapes) if launch >= 0 else -1 for launch in of_graph.tolist()]
            for of_graph in launches
        ]
        return np.asarray(np.all(np.array(paths) == paths[0], axis=0))

    def _path(self, place: int, shapes: bool) -> int:
        """A number for the scopes around a place, the user's own ranges left out: equal for equal scopes."""
        chain: list[int] = []
        while place >= 0 and (place, shapes) not in self.paths:
            chain.append(place)
            place = int(self.tree.parent[place])
        number = self.paths[place, shapes] if place >= 0 else -1
        for place in reversed(chain):
            if self.tree.kind[place] not in (Kind.USER, Kind.STEP):
                key = (number, self._identity(place, shapes))
                number = self.path_numbers.setdefault(key, len(self.path_numbers))
            self.paths[place, shapes] = number
        return number

    def _identity(self, place: int, shapes: bool) -> object:
        """What a range has in common with others of its kind; without shapes, its name and the line of a marker."""
        if self.tree.kind[place] in (Kind.NODE, Kind.ENGINE):
            return -place - 1  # which forward op a backward node has is not among the scopes: a case of its own
        if shapes:
            return int(self.tree.scope[place])
        scope = self.tree.scopes[int(self.tree.scope[place])]
        marker = scope.marker
        return (scope.kind, scope.name) if marker is None else (marker.mod, marker.op, tuple(marker.trace))
