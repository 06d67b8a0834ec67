"""Capture -> kernel table: which op, layer, line and direction each GPU operation belongs to.

All readers share this. Ranges are numbers in arrays, nested by one pass a thread; a launch finds its innermost range by
binary search; a backward launch finds its forward op by sequence number; texts are made once a distinct context.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.gc_pause import uncollected
from pyprof.parse.attribute import nest as ranges
from pyprof.parse.attribute import reasons
from pyprof.parse.attribute.capture import Capture, Ranges
from pyprof.parse.attribute.context import NOWHERE, Facts, Hops, Path, facts, hops, inside_of
from pyprof.parse.attribute.cpp_functions import is_function, made_by
from pyprof.parse.attribute.optimizer_lists import gradients, is_bare
from pyprof.parse.attribute.outputs import outputs, returned
from pyprof.parse.attribute.phase import TRANSFERS, transfers, updating
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.attribute.sequence import sequence
from pyprof.parse.attribute.steps import steps
from pyprof.table.columns import NULL, Coded, Data, Ints, Table, distinct, numbered


@uncollected()
def correlate(capture: Capture, brief: bool = False) -> Table:
    """The kernel table of a capture, one row a GPU operation in the capture's order; no row is ever dropped.

    ``brief``: without the columns that only models and PyProf's readers need (opId, outs, grads, sequence numbers).
    """
    nest = Nest(capture)
    columns: dict[str, Data] = dict(capture.columns)
    inner, node, forward, recomputed, told = attribute(capture, nest)
    columns.update(told)
    columns["comm"] = _told(capture.columns.get("comm"), columns["comm"])
    columns["step"] = steps(capture, nest)
    if brief:
        return Table(capture.rows, columns)
    call = nest.up(inner, nest.hop("call", inner))
    columns["opId"] = _numbers(np.where(call >= 0, np.append(nest.source, -1)[np.maximum(call, -1)], -1))
    columns["outs"] = outputs(capture, nest, inner, forward)
    columns["grads"] = _grads(capture, nest, inner, _ints(columns["pid"]))
    columns.update(sequence(nest, inner, node, recomputed, columns))
    return Table(capture.rows, columns)


def _numbers(source: Ints) -> Ints:
    """The calls, each given by its range (-1: none), numbered from 0 in the ranges' order, whatever else is there."""
    found = np.full(len(source), NULL, np.int64)
    known = source >= 0
    found[known] = numbered(source[known])[1]
    return found


class Attributed(NamedTuple):
    """What the ranges around each row's launch say of it."""

    inner: Ints  # the innermost range, -1 for none
    node: Ints  # the backward node around it, -1 for none
    forward: Ints  # of a row in a node the forward op's range, -1 for none
    recomputed: Ints
    columns: dict[str, Data]


def attribute(capture: Capture, nest: Nest) -> Attributed:
    """The columns of a capture that the ranges around each launch decide (``Facts``)."""
    inner, by_graph_launch = nest.place(capture)
    nest.give_contexts(inner)
    node, recomputed = nest.backward(inner)
    forward = nest.forward_of(node, recomputed)
    columns = _texts(capture, nest, inner, forward, recomputed, by_graph_launch)
    return Attributed(inner, node, forward, recomputed, columns)


def _grads(capture: Capture, nest: Nest, inner: Ints, pid: Ints) -> Coded:
    op = nest.up(inner, nest.hop("op", inner))
    op = np.where(op == NULL, -1, op)
    names = capture.columns.get("kShortName")
    bare = is_bare(names, op) if isinstance(names, Coded) else np.zeros(capture.rows, bool)
    return gradients(nest, op, pid, capture.launch_time, bare)


def _ints(column: Data) -> Ints:
    assert isinstance(column, np.ndarray)
    return column.astype(np.int64)


class Nest:
    """A capture's ranges in order, who contains whom, and the distinct contexts."""

    def __init__(self, capture: Capture) -> None:
        given = capture.ranges
        self.nesting = nested = ranges.nest(given.thread, given.start, given.end)
        self.source, self.parent = nested.source, nested.parent
        self.thread, self.start, self.end = nested.thread, nested.start, nested.end
        self.rank = np.empty(len(given), np.int64)  # of a given range: where it stands (its first piece)
        self.rank[nested.source[::-1]] = np.arange(len(nested))[::-1]
        self.scope, self.seq = given.scope[self.source], given.seq[self.source]
        self.forward_thread = None if given.forward_thread is None else given.forward_thread[self.source]
        self.forward_range = _ranked(given, self)
        self.scopes = capture.scopes
        self.scope_kind = np.fromiter((s.kind for s in capture.scopes), np.int64, len(capture.scopes))
        self.kind = self.scope_kind[self.scope]
        self.pid = np.array([pid for pid, _ in capture.threads], np.int64)[self.thread]
        self._levels = _levels(self.parent)
        function = self.scopes_where(Kind.OP, is_function)[self.scope]
        self.is_node = (self.kind == Kind.NODE) | function
        self.numbered = (self.kind == Kind.OP) & (self.seq > 0) & ~function  # ops that autograd may have recorded
        self.recorded = self._recorded()
        self.context = np.full(len(self), -1, np.int64)
        self.paths: list[Path] = []
        self.hops: list[Hops] = []
        self.returned: dict[int, str] = {}  # op -> its outputs' shapes, told by its backward (forward_of)

    def __len__(self) -> int:
        return len(self.scope)

    def scopes_where(self, kind: Kind, test: Callable[[Scope], bool]) -> NDArray[np.bool_]:
        """A mask of the scopes of that kind that pass a test; the last, which stands for none, does not."""
        found = np.zeros(len(self.scopes) + 1, bool)
        for code in np.flatnonzero(self.scope_kind == kind).tolist():
            found[code] = test(self.scopes[code])
        return found

    def _recorded(self) -> NDArray[np.bool_]:
        """Whether each range is an op recorded for autograd, or stands in one and not across a backward node."""
        recorded: NDArray[np.bool_] = self.numbered.copy()
        boundary = np.isin(self.kind, (Kind.NODE, Kind.ENGINE))
        for level in self._levels[1:]:
            recorded[level] |= recorded[self.parent[level]] & ~boundary[level]
        return recorded

    def give_contexts(self, inner: Ints) -> None:
        """Number the contexts, (the parent's context, the scope), of all ranges that rows can ask for.

        These are the ranges around a launch and those around an op that may be a backward node's forward op. A thread
        that launches nothing may have a million more, each with a text of its own.
        """
        asked = self.numbered.copy()
        asked[inner[inner >= 0]] = True
        if self.forward_range is not None:
            asked[self.forward_range[self.forward_range >= 0]] = True
        for level in self._levels[:0:-1]:  # innermost first; the outermost have no parent
            asked[self.parent[level[asked[level]]]] = True
        for depth, whole in enumerate(self._levels):
            level = whole[asked[whole]]
            around = self.context[self.parent[level]] if depth else np.full(len(level), -1, np.int64)
            key = (around + 1) * len(self.scopes) + self.scope[level]
            keys, number = distinct(key)
            self.context[level] = number + len(self.paths)
            for outer, code in (divmod(key, len(self.scopes)) for (key,) in keys):
                scope = self.scopes[code]
                self.paths.append(inside_of(self.paths[outer - 1] if outer else (), scope))
                self.hops.append(hops(self.hops[outer - 1] if outer else NOWHERE, scope))

    def hop(self, what: str, inner: Ints) -> Ints:
        """Of each range (-1: none): how many ranges up its context's op, node or call stands; -1 for nowhere."""
        by_context: Ints = np.array([*(getattr(h, what) for h in self.hops), -1], np.int64)
        found: Ints = by_context[np.append(self.context, -1)[inner]]
        return found

    def up(self, inner: Ints, count: Ints) -> Ints:
        """The range ``count`` levels above each; ``NULL`` where count is negative."""
        found, left = inner.copy(), count.copy()
        while True:
            moving = left > 0
            if not moving.any():
                return np.where(count >= 0, found, NULL)
            found[moving] = self.parent[found[moving]]
            left[moving] -= 1

    def place(self, capture: Capture) -> tuple[Ints, Ints]:
        """The innermost range of each row (-1: none), and a mask of graph nodes placed by their graph's launch."""
        point = ranges.innermost(self.nesting, capture.launch_thread, capture.launch_time)
        if capture.launch_range is not None:
            named = (capture.launch_range >= 0) & ((point < 0) | capture.is_host)
            point[named] = self.rank[capture.launch_range[named]]
        at_launch = np.zeros(len(point), bool)
        if capture.origin_thread is not None and capture.origin_time is not None:
            captured = ranges.innermost(self.nesting, capture.origin_thread, capture.origin_time)
            at_launch = (capture.origin_thread >= 0) & (captured < 0)
            point = np.where(captured >= 0, captured, point)
        return point, at_launch

    def backward(self, inner: Ints) -> tuple[Ints, Ints]:
        """Of each row: the backward node around it (-1: none), and whether it re-runs a forward op inside of one.

        Ops that a node runs are not recorded for autograd, so they carry no sequence number; an op under a node that
        carries one is checkpointing's second forward.
        """
        count = self.hop("node", inner)
        node = self.up(inner, count)
        node[count < 0] = -1
        return node, (count > 0) & np.append(self.recorded, False)[inner]

    def node_seq(self) -> Ints:
        """Every range's sequence number, autograd's own range having its node's."""
        seq = self.seq.copy()
        nodes = np.flatnonzero(self.is_node & (self.seq != NULL) & (self.parent >= 0))
        around = self.parent[nodes]
        fits = (self.kind[around] == Kind.ENGINE) & (seq[around] == NULL)
        seq[around[fits]] = self.seq[nodes[fits]]
        return seq

    def forward_of(self, node: Ints, recomputed: Ints) -> Ints:
        """The forward op's range of each row that runs in a backward node, -1 for none.

        It is the last op of the process with the node's sequence number that began before the node did: outer composite
        ops show the number that the next node will get, so the innermost (last begun) made it; and recomputation makes
        a second one, later, which the node belongs to.
        """
        forward = np.full(len(node), -1, np.int64)
        asked = np.unique(node[(node >= 0) & ~recomputed])
        if not len(asked):
            return forward
        seq = self.node_seq()
        made = np.flatnonzero(self.numbered)
        found = _last_before(
            self.pid[made], self.seq[made], self.start[made], self.pid[asked], seq[asked], self.start[asked]
        )
        of_node = np.where(found >= 0, made[found], -1) if len(made) else found
        if self.forward_thread is not None:  # sequence numbers count per thread: where the thread is known, it decides
            thread = self.forward_thread[asked]
            exact = _last_before(
                self.thread[made], self.seq[made], self.start[made], thread, seq[asked], self.start[asked]
            )
            of_node = np.where(thread >= 0, np.where(exact >= 0, made[exact], -1), of_node) if len(made) else of_node
        if self.forward_range is not None:
            named = self.forward_range[asked]
            of_node = np.where(named >= 0, named, of_node)
        of_node = made_by(self, asked, seq, of_node)
        self.returned = returned(self, asked, of_node)
        rows = node >= 0
        forward[rows] = of_node[np.searchsorted(asked, node[rows]).clip(0, len(asked) - 1)]
        forward[recomputed] = -1
        return forward


def _ranked(given: Ranges, nest: Nest) -> Ints | None:
    if given.forward_range is None:
        return None
    wanted = given.forward_range[nest.source]
    return np.where(wanted >= 0, nest.rank[np.maximum(wanted, 0)], -1)


def _levels(parent: Ints) -> list[Ints]:
    """Range indices by depth, outermost level first."""
    depth = (parent >= 0).astype(np.int64)
    above = parent.copy()
    while len(inside := np.flatnonzero(above >= 0)):  # twice as far up each time
        further = above[inside]
        depth[inside] += depth[further]
        above[inside] = above[further]
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.cumsum(np.bincount(depth))[:-1]) if len(parent) else []


def _last_before(owner: Ints, number: Ints, time: Ints, for_owner: Ints, for_number: Ints, before: Ints) -> Ints:
    """For each wanted (owner, number) the index of the last row with it whose time is before ``before``; -1: none."""
    found = np.full(len(for_owner), -1, np.int64)
    order = np.lexsort((time, number, owner))
    for value in np.unique(for_owner).tolist():
        lo, hi = np.searchsorted(owner[order], [value, value + 1])
        mine = np.flatnonzero((for_owner == value) & (for_number != NULL))
        if lo == hi or not len(mine):
            continue
        rows = order[lo:hi]
        times = np.sort(time[rows])
        span = len(rows) + 1
        # one key for (number, rank of time), so that one binary search answers both
        key = number[rows] * span + np.searchsorted(times, time[rows], "right")
        ask = for_number[mine] * span + np.searchsorted(times, before[mine], "left")
        at = np.searchsorted(key, ask, "right") - 1
        fits = (at >= 0) & (number[rows[np.maximum(at, 0)]] == for_number[mine])
        found[mine[fits]] = rows[at[fits]]
    return found


def _texts(
    capture: Capture, nest: Nest, inner: Ints, forward: Ints, recomputed: Ints, by_graph_launch: Ints
) -> dict[str, Data]:
    """The columns that contexts decide: facts once a distinct (own, forward, recomputed), then one code a row."""
    context = np.append(nest.context, -1)
    reason_code = capture.reason_code if capture.reason_code is not None else np.full(capture.rows, -1, np.int64)
    lost = np.where(inner < 0, reason_code, -1)
    keys, codes = distinct(
        context[inner], context[forward], recomputed.astype(np.int64), lost, by_graph_launch.astype(np.int64),
        transfers(capture), updating(capture, nest, inner).astype(np.int64),
    )  # fmt: skip
    known: list[Facts] = []
    for own, ahead, again, why, graph, moved, late in keys:
        path = nest.paths[own] if own >= 0 else ()
        ahead_path = nest.paths[ahead] if ahead >= 0 else None
        fact = facts(path, ahead_path, bool(again), TRANSFERS[moved], bool(late))
        known.append(_with_reason(fact, capture.reason[why] if why >= 0 else "", bool(graph)))
    columns: dict[str, Data] = {}
    for field in fields(Facts):
        values: dict[str, int] = {}
        by_key = [values.setdefault(text, len(values)) if (text := getattr(f, field.name)) else -1 for f in known]
        rows = np.array(by_key, np.int32)[codes] if known else np.zeros(0, np.int32)
        columns[field.name] = Coded(rows, list(values))
    return columns


def _told(own: Data | None, around: Data) -> Data:
    """What a row's own record says, else the range around its launch."""
    if not isinstance(own, Coded) or not isinstance(around, Coded) or not own.values:
        return around
    return Coded.of(a or b for a, b in zip(own.texts(), around.texts(), strict=True))


def _with_reason(fact: Facts, lost: str, graph: bool) -> Facts:
    """A row without an op keeps the reason that its reader found; a graph node says how it was placed."""
    if lost and not fact.op:
        return replace(fact, reason=lost)
    return replace(fact, reason=reasons.GRAPH_LAUNCH) if graph and fact.op else fact
