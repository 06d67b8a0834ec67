"""Joins of arrays by integer keys."""

from __future__ import annotations

import numpy as np

from pyprof.table.columns import Ints


def lookup(major: Ints, minor: Ints, wanted_major: Ints, wanted_minor: Ints) -> Ints:
    """The index of the first row with each wanted pair (major, minor), -1 where there is none."""
    row = np.full(len(wanted_major), -1, np.int64)
    order = np.lexsort((minor, major))
    majors, minors = major[order], minor[order]
    for value in np.unique(wanted_major).tolist():  # processes: a handful
        lo, hi = np.searchsorted(majors, [value, value + 1]) if value < np.iinfo(np.int64).max else (0, 0)
        if lo == hi:
            continue
        wanted = np.flatnonzero(wanted_major == value)
        at = np.minimum(np.searchsorted(minors[lo:hi], wanted_minor[wanted]), hi - lo - 1) + lo
        row[wanted] = np.where(minors[at] == wanted_minor[wanted], order[at], -1)
    return row
