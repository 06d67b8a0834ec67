"""An amount in whole shares."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def split(amount: int, weights: Sequence[int]) -> list[int]:
    """``amount`` in whole shares by weight; the shares sum to it exactly.

    >>> split(10, [1, 1, 1])
    [3, 4, 3]
    """
    whole = sum(weights)
    if not whole:
        weights, whole = [1] * len(weights), len(weights)
    edges = [0]
    for weight in weights:
        edges.append(edges[-1] + weight)
    marks = [(2 * amount * edge + whole) // (2 * whole) for edge in edges]
    return [b - a for a, b in pairwise(marks)]
