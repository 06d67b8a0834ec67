"""Whole numbers in SQLite, whose columns may contain values of any type, whatever type they are declared with."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from pyprof.table.columns import NULL, Ints

# The SQL of an expression's whole number; NULL for any other value. A text of digits is a number, and so is 5.0.
WHOLE = "CASE WHEN CAST({0} AS INTEGER) = {0} THEN CAST({0} AS INTEGER) END"
LEFT_OUT = "{:,} ranges without a time or a thread are left out"
_DIGITS = re.compile(r"\s*[+-]?[0-9]{1,25}\s*")


def whole(value: Any) -> int | None:
    """The same for a Python value.

    >>> whole(7), whole(7.0), whole("7"), whole(7.5), whole("soon"), whole(b"7"), whole(1e30)
    (7, 7, 7, None, None, None, None)
    """
    is_text = isinstance(value, str) and _DIGITS.fullmatch(value) is not None
    if not (is_text or type(value) is int or (isinstance(value, float) and value.is_integer())):
        return None
    number = int(value)
    return number if NULL < number < 1 << 63 else None


def without_others(rows: Sequence[tuple[Any, ...]], place: int) -> tuple[list[tuple[Any, ...]], Ints]:
    """The rows with a whole number or None at ``place``, and the indices of those that had another value."""
    mixed = {number for number, row in enumerate(rows) if type(row[place]) is not int and row[place] is not None}
    if not mixed:
        return list(rows), np.zeros(0, np.int64)
    numbers = {number: whole(rows[number][place]) for number in sorted(mixed)}
    cleaned = [
        (*row[:place], numbers[number], *row[place + 1 :]) if number in mixed else row
        for number, row in enumerate(rows)
    ]
    return cleaned, np.array([number for number, value in numbers.items() if value is None], np.int64)
