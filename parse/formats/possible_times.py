"""Impossible times: profilers lose times (CUPTI then writes 0 for both), and damaged files contain anything."""

import numpy as np

from pyprof.table.columns import NULL, Ints

LATEST_NS = 1 << 61  # since 1970: the year 2043; and a difference of two such times fits 64 bits
LONGEST_NS = 1 << 50  # 13 days: longer than any kernel, and 8,000 of them still add up within 64 bits


def times_warning(wrong: int) -> list[str]:
    """The warning that ``wrong`` rows have impossible times; no warning for 0 rows."""
    text = "GPU operations have impossible times (none, or an end before the start): they count as 0 ns"
    return [f"{wrong:,} {text}"] if wrong else []


def is_possible(time: object) -> bool:
    """Whether this is a time in ns; None and ``NULL`` are not."""
    return isinstance(time, int) and -LATEST_NS < time < LATEST_NS


def settle(start: Ints, end: Ints, earliest: int = -LATEST_NS) -> tuple[Ints, Ints, int]:
    """Corrected starts and ends in ns, and the number of rows with impossible times, which now last 0 ns.

    Impossible times are unknown, before ``earliest``, an end before the start, or weeks apart. Such a row is placed at
    whichever of its two times is possible, or else at the start of the first row.
    """
    begun, ended = ((earliest <= time) & (time < LATEST_NS) for time in (start, end))
    both = begun & ended
    length = np.where(both, end, 0) - np.where(both, start, 0)
    good = both & (length >= 0) & (length < LONGEST_NS)
    wrong = len(start) - int(np.count_nonzero(good))
    if not wrong:
        return start, end, 0
    first = int(start[good].min()) if good.any() else 0
    place = np.where(begun, start, np.where(ended, end, first))
    return np.where(good, start, place), np.where(good, end, place), wrong


def lasted(start: Ints, end: Ints) -> Ints:
    """The duration of calls in ns; ``NULL`` if a time is unknown or the end comes before the start."""
    known = (start > -LATEST_NS) & (start < LATEST_NS) & (end >= start) & (end < LATEST_NS)
    return np.where(known, np.where(known, end, 0) - np.where(known, start, 0), NULL)
