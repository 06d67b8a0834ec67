"""Lanes for slices that overlap: on one track of a trace, every slice must nest in those that are open."""

import heapq

import numpy as np

from pyprof.prof.perfetto.tracks import outer_first
from pyprof.table.columns import Ints

DEEPEST = 200  # nested slices on a lane; Perfetto (v52) keeps 512 open slices and loses the ends of further ones


def single_lanes(start: Ints, end: Ints) -> Ints:
    """The lane of each slice: the lowest free one, so that no two on a lane overlap; as few lanes as possible.

    >>> single_lanes(np.array([0, 5, 10, 6]), np.array([10, 8, 12, 7])).tolist()
    [0, 1, 0, 2]
    """
    order = np.lexsort((end, start))
    begin, finish = start[order], end[order]
    lane = np.zeros(len(start), np.int64)
    if not len(start) or bool(np.all(begin[1:] >= np.maximum.accumulate(finish)[:-1])):
        return lane
    busy: list[tuple[int, int]] = []  # (end, lane)
    free: list[int] = []
    lanes = []
    for low, high in zip(begin.tolist(), finish.tolist(), strict=True):
        while busy and busy[0][0] <= low:
            heapq.heappush(free, heapq.heappop(busy)[1])
        number = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (high, number))
        lanes.append(number)
    lane[order] = lanes
    return lane


def nested_lanes(start: Ints, end: Ints) -> Ints:
    """The lane of each slice: the first on which it nests in the slices that are open.

    >>> nested_lanes(np.array([0, 2, 6, 7]), np.array([10, 4, 14, 9])).tolist()
    [0, 0, 1, 0]
    """
    lane = np.zeros(len(start), np.int64)
    order = outer_first(start, end)
    if _nest(start[order], end[order]):
        return lane
    stacks: list[list[int]] = []  # for each lane, the ends of its open slices, the innermost last
    lanes = []
    for low, high in zip(start[order].tolist(), end[order].tolist(), strict=True):
        for number, stack in enumerate(stacks):
            while stack and stack[-1] <= low:
                stack.pop()
            if not stack or (high <= stack[-1] and len(stack) < DEEPEST):
                stack.append(high)
                lanes.append(number)
                break
        else:
            stacks.append([high])
            lanes.append(len(stacks) - 1)
    lane[order] = lanes
    return lane


def _nest(start: Ints, end: Ints) -> bool:
    """Whether slices, outer ones first, nest no deeper than DEEPEST.

    Begins and ends are taken as parentheses, in order of time, and each end closes the innermost open slice. If that
    slice is meant to end then, for every end, no two slices overlap without nesting.
    """
    lasting = end > start  # the others end before the next one begins
    ends = np.sort(end[lasting])
    opened: Ints = np.cumsum(lasting) - lasting  # lasting slices that began before each begin
    depth = opened - np.searchsorted(ends, start, "right")  # open slices at each begin
    if int(depth.max(initial=0)) >= DEEPEST:
        return False
    level = (
        np.searchsorted(start[lasting], ends, "left") - np.arange(len(ends)) - 1
    )  # of the slice that each end closes
    pairs = (
        np.argsort(depth[lasting].astype(np.uint8), kind="stable"),
        np.argsort(level.astype(np.uint8), kind="stable"),
    )
    return bool(np.array_equal(end[lasting][pairs[0]], ends[pairs[1]]))
