"""Times that cannot be: profilers lose them (CUPTI then writes 0 for both), and damaged files hold anything."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.table.columns import NULL, Ints

LATEST_NS = 1 << 61  # since 1970: the year 2043; and a difference of two such times fits 64 bits
LONGEST_NS = 1 << 50  # 13 days: longer than any kernel, and 8,000 of them still add up within 64 bits


class Settled(NamedTuple):
    """Starts and ends that can be; ``wrong`` rows had others and last 0 ns now."""

    start: Ints
    end: Ints
    wrong: int

    def warnings(self) -> list[str]:
        return told(self.wrong)


def told(wrong: int) -> list[str]:
    """A warning of so many rows; none of none."""
    words = "GPU operations have times that cannot be (none, or an end before the start): they count as 0 ns"
    return [f"{wrong:,} {words}"] if wrong else []


def settle(start: Ints, end: Ints, earliest: int = -LATEST_NS) -> Settled:
    """The times in ns with what cannot be (unknown, before ``earliest``, end before start, weeks long) made 0 ns long.

    Such a row stays where the time that is told puts it, or at the first of all rows.
    """
    begun, ended = ((earliest <= time) & (time < LATEST_NS) for time in (start, end))
    both = begun & ended
    length = np.where(both, end, 0) - np.where(both, start, 0)
    good = both & (length >= 0) & (length < LONGEST_NS)
    wrong = len(start) - int(np.count_nonzero(good))
    if not wrong:
        return Settled(start, end, 0)
    first = int(start[good].min()) if good.any() else 0
    place = np.where(begun, start, np.where(ended, end, first))
    return Settled(np.where(good, start, place), np.where(good, end, place), wrong)


def lasted(start: Ints, end: Ints) -> Ints:
    """How long calls took, in ns; ``NULL`` where a time is unknown or the end comes before the start."""
    known = (start > -LATEST_NS) & (start < LATEST_NS) & (end >= start) & (end < LATEST_NS)
    return np.where(known, np.where(known, end, 0) - np.where(known, start, 0), NULL)
