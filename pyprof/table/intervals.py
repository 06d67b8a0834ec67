"""Unions of intervals in time: overlapping time counts once."""

import numpy as np

from pyprof.table.columns import Ints


def united(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The union of intervals as the starts and ends of intervals that do not touch, in order. There must be one.

    >>> [part.tolist() for part in united(np.array([5, 0, 30]), np.array([20, 10, 40]))]
    [[0, 30], [20, 40]]
    """
    start, reach = _in_order(start, end)
    first = np.flatnonzero(np.r_[True, start[1:] > reach[:-1]])
    return start[first], reach[np.r_[first[1:] - 1, len(start) - 1]]


def covered(start: Ints, end: Ints) -> int:
    """The length of the union of intervals.

    >>> covered(np.array([0, 5, 30]), np.array([10, 20, 40]))
    30
    """
    if not len(start):
        return 0
    start, reach = _in_order(start, end)
    idle = np.maximum(start[1:] - reach[:-1], 0).sum()
    return int(reach[-1]) - int(start[0]) - int(idle)  # times in a damaged table may exceed 64 bits


def _in_order(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The starts in order, and how far the intervals up to each one reach."""
    if not bool(np.all(start[1:] >= start[:-1])):
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    return start, np.maximum.accumulate(end)
