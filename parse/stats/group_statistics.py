"""Statistics of groups as nsys stats prints them, and its rounding.

The rules are checked on 155 rows of real output. The deviation is the sample's (n - 1), 0 for one value. The median
of an even count is the mean of the two middle values. Halves are rounded away from zero on the exact binary value:
86953.25 becomes 86953.3 (Python's round gives .2), and 841.15, whose binary value is slightly smaller, becomes 841.1
(SQLite's round gives .2).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from pyprof.table.columns import NULL, Coded, Floats, Ints

Cell = int | Decimal | str | None
Row = Sequence[Cell]
Rows = Sequence[Row]
BATCH = 1_024  # rows made at a time: their texts stay in the cache
TENTH, THOUSANDTH = Decimal("0.1"), Decimal("0.001")


class Cells(NamedTuple):
    """A column of a table in which values repeat: row i has ``values[codes[i]]``."""

    values: Sequence[Cell]
    codes: NDArray[Any]

    @classmethod
    def of(cls, numbers: NDArray[Any], to: Decimal | None = None) -> "Cells":
        """Whole numbers as they are; other numbers ``rounded``."""
        values, codes = np.unique(numbers, return_inverse=True)
        listed = values.tolist()
        return cls(listed if to is None else [rounded(value, to) for value in listed], codes.reshape(-1))

    @classmethod
    def of_known(cls, numbers: NDArray[Any]) -> "Cells":
        """Whole numbers, None for an unknown one."""
        values, codes = cls.of(numbers)
        return cls([None if value == NULL else value for value in values], codes)

    def at(self, place: Ints, missing: Cell) -> "Cells":
        """The cells of these rows; ``missing`` for row -1."""
        return Cells([*self.values, missing], np.append(self.codes, len(self.values))[place])


class Columns(Sequence[Row]):
    """The rows of a long table, kept as columns: a row of ten cells takes 80 bytes, as a list ten times as many."""

    def __init__(self, columns: Sequence[Cells]) -> None:
        self.columns = columns

    @classmethod
    def of_rows(cls, rows: Rows) -> "Columns":
        return cls([Cells(column, np.arange(len(column))) for column in zip(*rows, strict=True)])

    def __len__(self) -> int:
        return len(self.columns[0].codes)

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Rows: ...
    def __getitem__(self, place: int | slice) -> Row | Rows:
        if isinstance(place, slice):
            cells = ([values[code] for code in codes[place].tolist()] for values, codes in self.columns)
            return list(map(list, zip(*cells, strict=True)))
        return [values[codes[place]] for values, codes in self.columns]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[Row]:
        for begin in range(0, len(self), BATCH):
            yield from self[begin : begin + BATCH]


def rounded(value: float, to: Decimal = TENTH) -> Decimal:
    """Rounded half away from zero, on the exact binary value.

    >>> str(rounded(86953.25)), str(rounded(841.15)), str(rounded(-0.25))
    ('86953.3', '841.1', '-0.3')
    """
    return Decimal(value).quantize(to, ROUND_HALF_UP)


@dataclass(slots=True)
class Groups:
    """The statistics of each group's values, as columns."""

    group: Ints
    rows: Ints
    total: Ints
    mean: Floats
    median: Floats
    low: Ints
    high: Ints
    deviation: Floats

    def take(self, order: Any) -> "Groups":
        return Groups(*(getattr(self, field.name)[order] for field in fields(self)))

    def times(self) -> list[Cells]:
        """Avg, Med, Min, Max and StdDev of times in ns."""
        mean, median, deviation = (Cells.of(column, TENTH) for column in (self.mean, self.median, self.deviation))
        return [mean, median, Cells.of(self.low), Cells.of(self.high), deviation]

    def largest_first(self, names: Sequence[str]) -> "Groups":
        """The groups sorted by total, descending, and equal totals by name. ``names``: the groups' names."""
        order = np.argsort(-self.total, kind="stable")
        total, group = self.total[order], self.group[order].tolist()
        begins = np.flatnonzero(np.diff(total, prepend=total[:1] - 1, append=total[-1:] - 1))
        for begin, end in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
            if end - begin > 1:
                tied = [names[number] for number in group[begin:end]]
                order[begin:end] = order[begin:end][sorted(range(len(tied)), key=tied.__getitem__)]
        return self.take(order)


def statistics(group: NDArray[Any], value: Ints) -> Groups:
    """Each group's statistics, in ascending order of the group's number."""
    order = np.lexsort((value, group))
    group, value = group[order].astype(np.int64), value[order]
    first = np.flatnonzero(np.diff(group, prepend=group[:1] - 1))
    count = np.diff(first, append=len(group))
    total = np.add.reduceat(value, first) if len(first) else value
    mean = total / count
    median = (value[first + (count - 1) // 2] + value[first + count // 2]) / 2
    away = value - np.repeat(mean, count)
    squares = np.add.reduceat(away * away, first) if len(first) else away
    deviation = np.sqrt(squares / np.maximum(count - 1, 1))
    return Groups(group[first], count, total, mean, median, value[first], value[first + count - 1], deviation)


def time_rows(names: Coded, duration: Ints) -> Rows:
    """Share, total, count, statistics and name of each distinct text, largest first."""
    names = by_text(names)
    return group_rows(names.codes, duration, names.values, [names.values])


def group_rows(group: NDArray[Any], duration: Ints, names: Sequence[str], last: Sequence[Sequence[Cell]]) -> Rows:
    """Percent of the whole time, total, count and statistics of each group, and its cells in the ``last`` columns.

    Largest first. ``last``: the cells by the group's number, column by column.
    """
    found = statistics(group, duration).largest_first(names)
    whole = sum(found.total.tolist())
    total = Cells.of(found.total)
    shares = [rounded(100 * value / whole if whole else 0.0) for value in total.values]  # type: ignore[operator]
    ends = [Cells(column, found.group) for column in last]
    return Columns([Cells(shares, total.codes), total, Cells.of(found.rows), *found.times(), *ends])


def by_text(column: Coded) -> Coded:
    """The same column with exactly one code per text, including the empty text, so that codes can be grouped."""
    if "" not in column.values and len(set(column.values)) == len(column.values) and (column.codes >= 0).all():
        return column
    seen: dict[str, int] = {}
    code = [seen.setdefault(text, len(seen)) for text in (*column.values, "")]
    return Coded(np.array(code, np.int32)[column.codes], list(seen))  # code -1 selects the last item
