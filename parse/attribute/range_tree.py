"""The ranges of a capture as trees: which range contains which, and the kind of each range.

Ranges are numbered by thread and start, an outer range before the ranges inside; the number -1 stands for no range.

A sequence number is autograd's count of the ops that it records for the backward pass, with one count per thread. Every
op shows the count at its start, whether it is recorded itself or only calls recorded ops. The backward node of a
recorded op has the same number as the op.
"""

from collections.abc import Callable

import numpy as np

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.nesting import innermost, nest
from pyprof.parse.attribute.scope import Kind, Scope, is_cpp_node
from pyprof.table.columns import NULL, Bools, Indices, Ints, value_at


class RangeTree:
    """A capture's ranges in order, each with its parent, its scope and its autograd data."""

    def __init__(self, capture: Capture) -> None:
        given = capture.ranges
        nesting = nest(given.thread, given.start, given.end)
        self.nesting = nesting
        self.source = nesting.source  # per range: its index in capture.ranges
        self.parent = nesting.parent
        self.thread, self.start, self.end = nesting.thread, nesting.start, nesting.end
        sorted_before = nesting.start is given.start
        self.number = self.source  # per range: its place in the file
        if given.number is not None:
            self.number = given.number if sorted_before else given.number[self.source]
        self.place = self.source  # the inverse of source: index in capture.ranges -> first piece
        self.is_first: Bools = np.broadcast_to(np.True_, len(nesting))  # what counts ranges counts first pieces
        if not sorted_before or len(nesting) > len(given):
            every = np.arange(len(nesting), dtype=np.int32)
            self.place = np.empty(len(given), np.int32)
            self.place[nesting.source[::-1]] = every[::-1]
            self.is_first = self.place[self.source] == every
        self.whole_end = nesting.end  # per piece: the end of its range
        if len(nesting) > len(given):
            self.whole_end = np.maximum(given.end, given.start + 1)[self.source]
        self.scope, self.seq = (c if sorted_before else c[self.source] for c in (given.scope, given.seq))
        self.scopes = capture.scopes
        self.scope_kind = np.fromiter((scope.kind for scope in capture.scopes), np.int8, len(capture.scopes))
        self.kind = self.scope_kind[self.scope]
        self.is_backward: Bools = np.isin(self.scope_kind, (Kind.NODE, Kind.ENGINE))[self.scope]  # backward nodes
        pids = capture.pids()
        one = len(pids) > 0 and bool((pids == pids[0]).all())  # a view that takes no memory
        self.pid = np.broadcast_to(pids[0], len(nesting)) if one else pids[self.thread]
        self.levels = nesting.levels
        self.forward_thread = None if given.forward_thread is None else given.forward_thread[self.source]
        self.forward_range: Ints | None = None  # per range, the forward op's range, -1: not named by the profiler
        if given.forward_range is not None:
            self.forward_range = value_at(self.place, given.forward_range[self.source], -1).astype(np.int64)
        self.compiled_from: Ints | None = None  # per call in a compiled backward pass, its forward op's range, or -1
        is_cpp = self.scopes_where(Kind.OP, is_cpp_node)[self.scope]
        self.is_node = (self.kind == Kind.NODE) | is_cpp
        self.has_number = (self.kind == Kind.OP) & (self.seq > 0) & ~is_cpp  # ops that autograd may have recorded

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

    def inside(self, ranges: Indices, chosen: Bools) -> Bools:
        """Which of the ranges (-1: none) are chosen, or in a chosen one with no backward node in between."""
        found = np.zeros(len(ranges), bool)
        asked = np.flatnonzero(ranges >= 0)
        climbing = ranges[asked]
        while len(asked):
            found[asked] = reached = chosen[climbing]
            going = ~reached & ~self.is_backward[climbing] & (self.parent[climbing] >= 0)
            asked, climbing = asked[going], self.parent[climbing[going]]
        return found

    def ancestor(self, ranges: Ints, levels: Ints) -> Ints:
        """Per range, its ancestor ``levels`` levels above; -1 if ``levels`` is negative."""
        found, left = ranges.copy(), levels.copy()
        while True:
            climbing = left > 0
            if not climbing.any():
                return np.where(levels >= 0, found, -1)
            found[climbing] = self.parent[found[climbing]]
            left[climbing] -= 1

    def innermost_of_rows(self, capture: Capture) -> tuple[Ints, Bools, Ints]:
        """The innermost range around each row's launch (-1: none); a mask of the CUDA graph nodes for which it is the
        range around their capture; and for these, the range around the launch of the graph.

        A CUDA graph node belongs to the range in which it was captured, if the file contains the capture. If no range
        contains the launch, the range that the profiler itself names for the row is used.
        """
        inner = innermost(self.nesting, capture.launch_thread, capture.launch_time)
        if capture.launch_range is not None:
            named = (capture.launch_range >= 0) & ((inner < 0) | capture.is_host)
            inner[named] = self.place[capture.launch_range[named]]
        captured, launched_in = np.zeros(len(inner), bool), np.full(len(inner), -1, np.int64)
        if capture.origin_thread is not None and capture.origin_time is not None:
            captured_in = innermost(self.nesting, capture.origin_thread, capture.origin_time)
            captured = captured_in >= 0
            launched_in = np.where(captured, inner, -1)
            inner = np.where(captured, captured_in, inner)
        return inner, captured, launched_in

    def numbers_of_nodes(self, ranges: Ints) -> Ints:
        """The sequence number of each of these ranges, ``NULL`` for -1. Autograd's own range around a node gets the
        node's number."""
        found = value_at(self.seq, ranges, NULL)
        asked = np.flatnonzero((found == NULL) & (value_at(self.kind, ranges, -1) == Kind.ENGINE))
        nodes = np.flatnonzero(self.is_node & (self.seq != NULL) & (self.parent >= 0))
        if len(asked) and len(nodes):
            nodes = nodes[np.argsort(self.parent[nodes], kind="stable")]
            around, wanted = self.parent[nodes], ranges[asked]
            last = nodes[np.searchsorted(around, wanted, "right") - 1]
            found[asked] = np.where(self.parent[last] == wanted, self.seq[last], NULL)
        return found
