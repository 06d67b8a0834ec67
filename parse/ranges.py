"""Which ranges contain which: one pass a thread, no SQL range join, no query in a loop.

Push/pop ranges of a thread nest. So a range's depth is the number of ranges that began before it less the number that
ended before it, its parent the last range one level up, and both come out of sorting and binary search over arrays,
whatever the number of ranges. Where ranges overlap without nesting (clock steps, ranges that other tools made), the
thread is swept with a stack instead.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyprof.table import Ints

Rows = NDArray[np.intp]


def order(thread: Ints, start: Ints, end: Ints) -> Rows:
    """Indices that sort ranges by thread, start, longest first; of equal ones the first given is the outer."""
    return np.lexsort((-end, start, thread))


def parents(thread: Ints, start: Ints, end: Ints) -> Ints:
    """The innermost range that contains each range, -1 for none. Ranges come in ``order``, with end > start."""
    parent = np.full(len(start), -1, np.int64)
    bounds = np.flatnonzero(np.diff(thread, prepend=-1, append=-1)) if len(thread) else np.zeros(1, np.intp)
    for lo, hi in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        found = _nested(start[lo:hi], end[lo:hi])
        if found is None:
            found = _swept(start[lo:hi], end[lo:hi])
        parent[lo:hi] = np.where(found >= 0, found + lo, -1)
    return parent


def _nested(start: Ints, end: Ints) -> Ints | None:
    """Parents within one thread, a level at a time; None where the ranges do not nest."""
    index = np.arange(len(start))
    depth = index - np.searchsorted(np.sort(end), start, "right")
    parent = np.full(len(start), -1, np.int64)
    if len(depth) and depth.min() < 0:
        return None
    by_depth = np.argsort(depth, kind="stable")
    levels = np.split(by_depth, np.cumsum(np.bincount(depth))[:-1]) if len(depth) else []
    for above, level in zip(levels[:-1], levels[1:], strict=True):
        parent[level] = above[np.searchsorted(above, level) - 1]
    inner = index[parent >= 0]
    outer = parent[inner]
    return parent if bool(np.all(end[inner] <= end[outer])) and bool(np.all(outer < inner)) else None


def _swept(start: Ints, end: Ints) -> Ints:
    """Parents within one thread of ranges that may overlap: the innermost that is open at each start."""
    parent = np.full(len(start), -1, np.int64)
    stack: list[tuple[int, int]] = []
    for index, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        stack = [entry for entry in stack if entry[0] > begin]
        if stack:
            parent[index] = stack[-1][1]
        stack.append((finish, index))
    return parent


def innermost(
    thread: Ints, start: Ints, end: Ints, parent: Ints, point_thread: Ints, point_time: Ints
) -> Ints:
    """The innermost range that is open at each point (start <= time < end) on its thread, -1 for none.

    Ranges come in ``order``; points in any. A point with thread -1 has none.
    """
    found = np.full(len(point_time), -1, np.int64)
    first = np.searchsorted(thread, np.arange(thread[-1] + 2)) if len(thread) else np.zeros(1, np.int64)
    for number in np.unique(point_thread):
        if number < 0 or number + 1 >= len(first) or first[number] == first[number + 1]:
            continue
        lo, hi = int(first[number]), int(first[number + 1])
        mine = np.flatnonzero(point_thread == number)
        at = np.searchsorted(start[lo:hi], point_time[mine], "right") - 1
        found[mine] = np.where(at >= 0, at + lo, -1)
    while True:  # the last range begun may have ended: the one around it may not
        closed = np.flatnonzero((found >= 0) & (end[found] <= point_time))
        if not len(closed):
            return found
        found[closed] = parent[found[closed]]
