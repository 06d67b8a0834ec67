"""The cells of the chosen columns, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from pyprof.prof.columns import Annotation, Column
from pyprof.table import NULL, Coded, Ints, Table

BLOCK = 16384  # rows

Data = Coded | Ints
Change = Callable[[str], str]  # what a format does to a text: quote it, cut it


class Cells:
    """The printed table: columns, and what their rows hold."""

    def __init__(self, columns: Sequence[Column], table: Table, annotation: Annotation) -> None:
        self.columns = list(columns)
        self.data: list[Data] = [column.get(table, annotation) for column in columns]
        self.rows = len(table)

    def blocks(self, changes: Sequence[Change]) -> Iterator[Iterator[tuple[str, ...]]]:
        """The rows as texts, in blocks. Each column's change is made once for each distinct text."""
        fields = [_field(data, change) for data, change in zip(self.data, changes, strict=True)]
        for begin in range(0, self.rows, BLOCK):
            end = min(begin + BLOCK, self.rows)
            yield zip(*(field(begin, end) for field in fields), strict=True)


def _field(data: Data, change: Change) -> Callable[[int, int], list[str]]:
    if isinstance(data, Coded):
        texts = [*map(change, data.values), change("")]  # code -1 finds the last
        return lambda begin, end: [texts[code] for code in data.codes[begin:end].tolist()]
    return lambda begin, end: [change("" if n == NULL else str(n)) for n in data[begin:end].tolist()]


def used(data: Coded) -> list[str]:
    """The texts that rows have."""
    codes = np.unique(data.codes)
    return [data.values[code] if code >= 0 else "" for code in codes.tolist()]
