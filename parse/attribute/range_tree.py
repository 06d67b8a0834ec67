"""The ranges of a capture as trees: which range contains which, and what each of them is.

Ranges are numbered by thread and start, an outer range before the ranges inside; the number -1 stands for no range.

A sequence number is autograd's count of the ops that it records for the backward pass, one count per thread. An op
shows the count at its start, whether it is recorded or only calls ops that are; the node that a recorded op makes for
the backward pass carries the number that the op got.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pyprof.parse.attribute.capture import Capture, Ranges
from pyprof.parse.attribute.nesting import innermost, nest
from pyprof.parse.attribute.scope import Kind, Scope, is_cpp_node
from pyprof.table.columns import NULL, Bools, Ints


class RangeTree:
    """A capture's ranges in order, each with its parent, its scope and what autograd says of it."""

    def __init__(self, capture: Capture) -> None:
        given = capture.ranges
        nesting = nest(given.thread, given.start, given.end)
        self.nesting = nesting
        self.source = nesting.source  # of each range: its place in capture.ranges
        self.parent = nesting.parent
        self.thread, self.start, self.end = nesting.thread, nesting.start, nesting.end
        self.place = np.empty(len(given), np.int64)  # the inverse of source: a given range's first piece
        self.place[nesting.source[::-1]] = np.arange(len(nesting))[::-1]
        self.scope, self.seq = given.scope[self.source], given.seq[self.source]
        self.scopes = capture.scopes
        self.scope_kind = np.fromiter((scope.kind for scope in capture.scopes), np.int64, len(capture.scopes))
        self.kind = self.scope_kind[self.scope]
        self.pid = np.array([pid for pid, _ in capture.threads], np.int64)[self.thread]
        self.levels = _levels(self.parent)
        self.forward_thread = None if given.forward_thread is None else given.forward_thread[self.source]
        self.forward_range = self._forward_range(given)
        is_cpp = self.scopes_where(Kind.OP, is_cpp_node)[self.scope]
        self.is_node = (self.kind == Kind.NODE) | is_cpp
        self.has_number = (self.kind == Kind.OP) & (self.seq > 0) & ~is_cpp  # ops that autograd may have recorded
        self.recorded = self._recorded()

    def __len__(self) -> int:
        return len(self.scope)

    def name(self, place: int) -> str:
        """The name of a range."""
        return self.scopes[int(self.scope[place])].name

    def scopes_where(self, kind: Kind, test: Callable[[Scope], bool]) -> Bools:
        """A mask of the scopes of that kind that pass a test; the last entry, for no scope, is False."""
        mask = np.zeros(len(self.scopes) + 1, bool)
        for code in np.flatnonzero(self.scope_kind == kind).tolist():
            mask[code] = test(self.scopes[code])
        return mask

    def _forward_range(self, given: Ranges) -> Ints | None:
        """Of each range the forward op's range where the profiler names it, -1 elsewhere; None: it names none."""
        if given.forward_range is None:
            return None
        named = given.forward_range[self.source]
        return np.where(named >= 0, self.place[np.maximum(named, 0)], -1)

    def _recorded(self) -> Bools:
        """Whether each range is an op recorded for autograd, or stands in one and not across a backward node."""
        recorded: Bools = self.has_number.copy()
        boundary = np.isin(self.kind, (Kind.NODE, Kind.ENGINE))
        for level in self.levels[1:]:
            recorded[level] |= recorded[self.parent[level]] & ~boundary[level]
        return recorded

    def ancestor(self, ranges: Ints, levels: Ints) -> Ints:
        """The range that many levels above each; -1 where the number of levels is negative."""
        found, left = ranges.copy(), levels.copy()
        while True:
            climbing = left > 0
            if not climbing.any():
                return np.where(levels >= 0, found, -1)
            found[climbing] = self.parent[found[climbing]]
            left[climbing] -= 1

    def innermost_of_rows(self, capture: Capture) -> tuple[Ints, Bools]:
        """The innermost range around each row's launch (-1: none), and a mask of the nodes of CUDA graphs whose range
        is the graph launch's.

        A node of a CUDA graph belongs to the range in which it was captured, where the capture is in the file. Where no
        range holds the launch, the range that the profiler itself names for the row takes its place.
        """
        inner = innermost(self.nesting, capture.launch_thread, capture.launch_time)
        if capture.launch_range is not None:
            named = (capture.launch_range >= 0) & ((inner < 0) | capture.is_host)
            inner[named] = self.place[capture.launch_range[named]]
        by_graph_launch = np.zeros(len(inner), bool)
        if capture.origin_thread is not None and capture.origin_time is not None:
            captured_in = innermost(self.nesting, capture.origin_thread, capture.origin_time)
            by_graph_launch = (capture.origin_thread >= 0) & (captured_in < 0)
            inner = np.where(captured_in >= 0, captured_in, inner)
        return inner, by_graph_launch

    def numbers_of_nodes(self) -> Ints:
        """Every range's sequence number, where autograd's own range around a node has the node's."""
        seq = self.seq.copy()
        nodes = np.flatnonzero(self.is_node & (self.seq != NULL) & (self.parent >= 0))
        around = self.parent[nodes]
        takes_it = (self.kind[around] == Kind.ENGINE) & (seq[around] == NULL)
        seq[around[takes_it]] = self.seq[nodes[takes_it]]
        return seq


def _levels(parent: Ints) -> list[Ints]:
    """The ranges of each depth, the outermost first."""
    depth = (parent >= 0).astype(np.int64)
    above = parent.copy()
    while len(inside := np.flatnonzero(above >= 0)):  # twice as far up each time
        further = above[inside]
        depth[inside] += depth[further]
        above[inside] = above[further]
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.cumsum(np.bincount(depth))[:-1]) if len(parent) else []
