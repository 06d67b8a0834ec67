"""A share of GPU time estimated from some of the operations, and how far off the estimate can be.

The GPU time is cut into many equal parts, and a random moment is drawn from each: the sample is the operations that
were running then. The chance of an operation grows with its duration, every part of the capture is sampled, and no
rhythm of a training loop can fall in step with the draw. So the share of the moments is the share of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pyprof.table.columns import Ints

# The chance that the true share lies beyond the bounds, on each side: as for three standard deviations, so that 99.7 of
# 100 intervals contain it.
BEYOND = 0.00135


class Sample(NamedTuple):
    """The operations that ran at the moments drawn, and at how many moments each ran."""

    rows: Ints
    moments: Ints


def draw(duration: Ints, moments: int, seed: int = 0) -> Sample:
    """Draw moments from the time of operations, whose durations (ns) must not all be 0; the same moments each time."""
    until = np.cumsum(np.maximum(duration, 0))
    places = (np.arange(moments) + np.random.default_rng(seed).random(moments)) * (until[-1] / moments)
    row = np.searchsorted(until, np.minimum(places.astype(np.int64), until[-1] - 1), "right")
    return Sample(*np.unique(row, return_counts=True))


def bounds(hits: int, moments: int, beyond: float = BEYOND) -> tuple[float, float]:
    """The interval in which the true share lies where ``hits`` of so many moments have the property.

    The exact interval of C. J. Clopper and E. S. Pearson, The use of confidence or fiducial limits, 1934: below (above)
    it at most ``beyond`` of all draws give as many (as few) hits. It assumes independent moments; spread evenly over
    the capture they are a little more exact. Where all of 4,096 moments have it, 0.16% remain uncertain:

    >>> [round(100 * share, 2) for share in bounds(4096, 4096)]
    [99.84, 100.0]
    """
    numbers = np.arange(moments + 1)
    logs = np.cumsum(np.log(np.maximum(numbers, 1)))  # of the factorials
    ways = logs[-1] - logs - logs[::-1]

    def tail(share: float, among: slice) -> float:
        chance = ways[among] + numbers[among] * math.log(share) + (moments - numbers[among]) * math.log1p(-share)
        return float(np.exp(chance).sum())

    low = _root(lambda share: tail(share, slice(hits, None)) > beyond) if hits else 0.0
    high = _root(lambda share: tail(share, slice(hits + 1)) < beyond) if hits < moments else 1.0
    return low, high


def _root(above: Callable[[float], bool]) -> float:
    """Where, between 0 and 1, ``above`` becomes true."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if above(middle) else (middle, high)
    return (low + high) / 2
