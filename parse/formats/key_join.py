"""Joins of integer keys over arrays."""

from __future__ import annotations

import numpy as np

from pyprof.table.columns import Ints


def lookup(major: Ints, minor: Ints, wanted_major: Ints, wanted_minor: Ints) -> Ints:
    """For each wanted (major, minor) the index of the first row with that pair, -1 where there is none."""
    found = np.full(len(wanted_major), -1, np.int64)
    order = np.lexsort((minor, major))
    majors, minors = major[order], minor[order]
    for value in np.unique(wanted_major).tolist():  # processes: a handful
        lo, hi = np.searchsorted(majors, [value, value + 1]) if value < np.iinfo(np.int64).max else (0, 0)
        mine = np.flatnonzero(wanted_major == value)
        if lo == hi:
            continue
        at = np.minimum(np.searchsorted(minors[lo:hi], wanted_minor[mine]), hi - lo - 1) + lo
        found[mine] = np.where(minors[at] == wanted_minor[mine], order[at], -1)
    return found
