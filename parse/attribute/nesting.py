"""Find which ranges contain which, in one pass per thread, without a SQL range join and without a query in a loop.

Push/pop ranges of a thread nest. So a range's depth is the number of ranges that began before it minus the number that
ended before it, and its parent is the last range one level up. Both come from sorting and binary search over arrays.

Ranges of several NVTX domains may overlap without nesting (push A, push B, pop A, pop B). Such a thread is processed
with a stack, and a range that ends after the range around it continues as a new piece. So the pieces nest, and at every
moment the pieces around it are exactly the ranges that are open.
"""

import heapq
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyprof.table.columns import Codes, Indices, Ints

Nested = tuple[Codes, list[Codes]]  # of one thread: each range's parent, and the ranges of each depth


@dataclass(frozen=True, slots=True)
class Nesting:
    """Ranges (or pieces of them) by thread and start, an outer one before the inner ones."""

    source: Codes  # per piece: the index of its range in the input
    thread: Codes
    start: Ints
    end: Ints
    parent: Codes  # per piece: the index of the innermost piece that contains it; -1 for none
    levels: list[Codes]  # the pieces of each depth, outermost pieces first

    def __len__(self) -> int:
        return len(self.source)


def nest(thread: Indices, start: Ints, end: Ints) -> Nesting:
    """Nest ranges given in any order. Of equal ranges the first is the outer one; a range of 0 ns counts as 1 ns."""
    threads, end = thread.astype(np.int32, copy=False), lasting(start, end)
    order = np.arange(len(thread), dtype=np.int32)
    for sort in SORTS:
        if in_order(threads, start, end):
            break
        by = sort(threads, start, end)
        order, threads, start, end = order[by], threads[by], start[by], end[by]
    parts: list[tuple[NDArray[Any], ...]] = []  # per thread: the fields of its Nesting
    levels: list[list[Codes]] = []  # per depth: its pieces on each thread
    total, overlapping = 0, False
    for lo, hi in pairwise(np.flatnonzero(np.diff(threads, prepend=-1, append=-1)).tolist()):
        ranges = order[lo:hi], threads[lo:hi], start[lo:hi], end[lo:hi]
        nested = _parents(start[lo:hi], end[lo:hi])
        if nested is None:
            ranges, nested = _swept(*ranges)
            overlapping = True
        parent, of_thread = nested
        parts.append((*ranges, np.where(parent >= 0, parent + total, -1).astype(np.int32)))
        levels += [[] for _ in of_thread[len(levels) :]]
        for pieces, level in zip(levels, of_thread, strict=False):
            pieces.append(level + np.int32(total))
        total += len(parent)
    of_depth = [np.concatenate(pieces) for pieces in levels]
    if overlapping:
        source, threads, start, end, parents = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Nesting(source, threads, start, end, parents, of_depth)
    return Nesting(order, threads, start, end, np.concatenate([part[-1] for part in parts] or [order]), of_depth)


def lasting(start: Ints, end: Ints) -> Ints:
    """The ends, where a range of 0 ns counts as 1 ns."""
    return np.maximum(end, start + 1) if np.any(end <= start) else end


def in_order(thread: Indices, start: Ints, end: Ints) -> bool:
    """Whether ranges come by thread and start, an outer range before the inner ones."""
    longer = (start[1:] == start[:-1]) & (end[1:] <= end[:-1])
    on_thread = (thread[1:] == thread[:-1]) & ((start[1:] > start[:-1]) | longer)
    return bool(np.all(on_thread | (thread[1:] > thread[:-1])))


def _by_thread(thread: Indices, *_: Ints) -> Codes:
    few = np.int16 if thread.max(initial=0) < 1 << 15 else np.int32  # numpy sorts 16 bits by counting
    return np.argsort(thread.astype(few), kind="stable").astype(np.int32)


def _by_all(thread: Indices, start: Ints, end: Ints) -> Codes:
    return np.lexsort((-end, start, thread)).astype(np.int32)


# Profilers write the ranges of a thread, or of all threads, in order of their starts: for these the first is enough.
SORTS = (_by_thread, _by_all)


def _parents(start: Ints, end: Ints) -> Nested | None:
    """Parents within one thread, computed level by level, and the levels; None if the ranges do not nest."""
    depth = np.arange(len(start)) - np.searchsorted(np.sort(end), start, "right")
    if depth.min() < 0:
        return None
    parent, levels = np.full(len(start), -1, np.int32), _of_each_depth(depth)
    for above, level in pairwise(levels):
        at = np.searchsorted(above, level) - 1
        if at.min(initial=0) < 0:
            return None
        parent[level] = above[at]
    return (parent, levels) if bool(np.all((parent < 0) | (end <= end[parent]))) else None


def _of_each_depth(depth: Indices) -> list[Codes]:
    """The indices of the ranges of each depth, outermost ranges first."""
    counts = np.bincount(depth)
    few = np.int16 if len(counts) < 1 << 15 else np.int32  # numpy sorts 16 bits by counting
    return np.split(np.argsort(depth.astype(few), kind="stable").astype(np.int32), np.cumsum(counts)[:-1])


def _swept(source: Codes, thread: Codes, start: Ints, end: Ints) -> tuple[tuple[Codes, Codes, Ints, Ints], Nested]:
    """One thread's overlapping ranges, cut into pieces that nest; their parents and levels."""
    pieces: list[list[int]] = []  # source, start, end, parent, depth
    stack: list[int] = []  # open pieces, outermost first
    ends: list[tuple[int, int]] = []  # (end, range)
    whole_end = end.tolist()
    piece_of: dict[int, int] = {}

    def open_piece(number: int, at: int) -> None:
        pieces.append([number, at, whole_end[number], stack[-1] if stack else -1, len(stack)])
        piece_of[number] = len(pieces) - 1
        stack.append(len(pieces) - 1)

    def close(number: int, at: int) -> None:
        place = stack.index(piece_of.pop(number))
        inside = [pieces[piece][0] for piece in stack[place + 1 :]]
        for piece in stack[place:]:
            pieces[piece][2] = at
        del stack[place:]
        for other in inside:
            open_piece(other, at)

    for number, begin in enumerate(start.tolist()):
        while ends and ends[0][0] <= begin:
            close(*reversed(heapq.heappop(ends)))
        open_piece(number, begin)
        heapq.heappush(ends, (whole_end[number], number))
    while ends:
        close(*reversed(heapq.heappop(ends)))
    number, begins, finish, parent, depth = np.array(pieces, np.int64).T
    return (source[number], thread[number], begins, finish), (parent.astype(np.int32), _of_each_depth(depth))


def innermost(nesting: Nesting, thread: Indices, time: Ints) -> Ints:
    """The innermost range that is open at each point (start <= time < end) on its thread, -1 for none.

    Points may be in any order; a point with thread -1 is in no range.
    """
    found = np.full(len(time), -1, np.int64)
    if not len(nesting):
        return found
    first = np.searchsorted(nesting.thread, np.arange(nesting.thread[-1] + 2, dtype=np.int32))
    for number in np.unique(thread).tolist():
        if number < 0 or number + 1 >= len(first) or first[number] == first[number + 1]:
            continue
        lo, hi = int(first[number]), int(first[number + 1])
        points = np.flatnonzero(thread == number)
        at = np.searchsorted(nesting.start[lo:hi], time[points], "right") - 1
        found[points] = np.where(at >= 0, at + lo, -1)
    while True:  # if the last range to begin has ended, the range around it may still be open
        closed = np.flatnonzero((found >= 0) & (nesting.end[found] <= time))
        if not len(closed):
            return found
        found[closed] = nesting.parent[found[closed]]
