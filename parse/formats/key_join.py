"""Joins of arrays by integer keys."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pyprof.table.columns import NULL, Ints

Number = TypeVar("Number", np.int32, np.int64)


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


def matched(values: NDArray[Number], row: Ints, missing: int = NULL) -> NDArray[Number]:
    """The value at each row that ``lookup`` found; ``missing`` where it found none (-1)."""
    if not len(values):
        return np.full(len(row), missing, values.dtype)
    return np.where(row >= 0, values[np.maximum(row, 0)], values.dtype.type(missing))
