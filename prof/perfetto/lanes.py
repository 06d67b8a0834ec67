"""Slices that overlap get lanes of their own: on one track of a trace every slice must nest in those that are open."""

from __future__ import annotations

import heapq

import numpy as np

from pyprof.table.columns import Ints

__all__ = ["nested_lanes", "single_lanes"]

DEEPEST = 200  # slices around one another; Perfetto (v52) keeps 512 and loses the ends of further ones


def single_lanes(start: Ints, end: Ints) -> Ints:
    """A lane a slice so that no two on a lane overlap, the lowest that is free; as few lanes as there can be.

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
    found = []
    for low, high in zip(begin.tolist(), finish.tolist(), strict=True):
        while busy and busy[0][0] <= low:
            heapq.heappush(free, heapq.heappop(busy)[1])
        number = heapq.heappop(free) if free else len(busy)
        heapq.heappush(busy, (high, number))
        found.append(number)
    lane[order] = found
    return lane


def nested_lanes(start: Ints, end: Ints) -> Ints:
    """A lane a slice so that those on one lane nest: each goes to the first lane where it does.

    >>> nested_lanes(np.array([0, 2, 6, 7]), np.array([10, 4, 14, 9])).tolist()
    [0, 0, 1, 0]
    """
    lane = np.zeros(len(start), np.int64)
    order = np.lexsort((-end, start))
    stacks: list[list[int]] = []  # of each lane the ends of its open slices, the innermost last
    found = []
    for low, high in zip(start[order].tolist(), end[order].tolist(), strict=True):
        for number, stack in enumerate(stacks):
            while stack and stack[-1] <= low:
                stack.pop()
            if not stack or (high <= stack[-1] and len(stack) < DEEPEST):
                stack.append(high)
                found.append(number)
                break
        else:
            stacks.append([high])
            found.append(len(stacks) - 1)
    lane[order] = found
    return lane
