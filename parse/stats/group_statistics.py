"""Statistics of groups as nsys stats prints them, and its rounding.

The rules are checked on 155 rows of real output. The deviation is the sample's (n - 1), 0 for one value. The median
of an even count is the mean of the two middle values. Halves are rounded away from zero on the exact binary value:
86953.25 becomes 86953.3 (Python's round gives .2), and 841.15, whose binary value is slightly smaller, becomes 841.1
(SQLite's round gives .2).
"""

from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.table.columns import NULL, Coded, Ints

Cell = int | Decimal | str | None
Rows = list[list[Cell]]
TENTH, THOUSANDTH = Decimal("0.1"), Decimal("0.001")


class Summary(NamedTuple):
    """The statistics of a group's values."""

    group: int
    rows: int
    total: int
    mean: float
    median: float
    low: int
    high: int
    deviation: float

    def times(self) -> list[Cell]:
        """Avg, Med, Min, Max and StdDev of times in ns."""
        return [rounded(self.mean), rounded(self.median), self.low, self.high, rounded(self.deviation)]


def rounded(value: float, to: Decimal = TENTH) -> Decimal:
    """Rounded half away from zero, on the exact binary value.

    >>> str(rounded(86953.25)), str(rounded(841.15)), str(rounded(-0.25))
    ('86953.3', '841.1', '-0.3')
    """
    return Decimal(value).quantize(to, ROUND_HALF_UP)


def known(numbers: Iterable[int]) -> list[Cell]:
    """The numbers, None for an unknown one."""
    return [None if number == NULL else number for number in numbers]


def summarise(group: NDArray[Any], value: Ints) -> list[Summary]:
    """Each group's statistics, in ascending order of the group's number."""
    if not len(group):
        return []
    order = np.lexsort((value, group))
    group, value = group[order], value[order]
    first = np.flatnonzero(np.diff(group, prepend=group[0] - 1))
    count = np.diff(first, append=len(group))
    total = np.add.reduceat(value, first)
    mean = total / count
    median = (value[first + (count - 1) // 2] + value[first + count // 2]) / 2
    away = value - np.repeat(mean, count)
    deviation = np.sqrt(np.add.reduceat(away * away, first) / np.maximum(count - 1, 1))
    columns = (group[first], count, total, mean, median, value[first], value[first + count - 1], deviation)
    return [Summary(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def largest_first(summaries: Sequence[Summary], names: Sequence[str]) -> list[Summary]:
    """The summaries sorted by total, descending, and equal totals by name. ``names``: the groups' names."""
    return sorted(summaries, key=lambda s: (-s.total, names[s.group]))


def time_rows(names: Coded, duration: Ints) -> Rows:
    """Share, total, count, statistics and name of each distinct text, largest first."""
    names = by_text(names)
    return group_rows(names.codes, duration, names.values, [[name] for name in names.values])


def group_rows(group: NDArray[Any], duration: Ints, names: Sequence[str], last: Sequence[Sequence[Cell]]) -> Rows:
    """Percent of the whole time, total, count and statistics of each group, and its ``last`` cells; largest first."""
    summaries = largest_first(summarise(group, duration), names)
    whole = sum(s.total for s in summaries)
    shares = [rounded(100 * s.total / whole if whole else 0.0) for s in summaries]
    return [[share, s.total, s.rows, *s.times(), *last[s.group]] for share, s in zip(shares, summaries, strict=True)]


def by_text(column: Coded) -> Coded:
    """The same column with exactly one code per text, including the empty text, so that codes can be grouped."""
    seen: dict[str, int] = {}
    code = [seen.setdefault(text, len(seen)) for text in (*column.values, "")]
    return Coded(np.array(code, np.int32)[column.codes], list(seen))  # code -1 selects the last item
