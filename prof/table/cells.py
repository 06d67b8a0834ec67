"""The cells of the chosen columns, a block of rows at a time."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeGuard

import numpy as np

from pyprof.prof.table.columns import Column
from pyprof.table.columns import NULL, Bools, Coded, Floats, Ints

BLOCK = 16384  # rows
DIGITS = 4

Data = Coded | Ints | Floats
Change = Callable[[str], str]  # how a format changes a text, such as quoting or shortening it


class Cells:
    """The printed table: its columns and their cells."""

    def __init__(self, columns: Sequence[Column], data: Sequence[Data], rows: int) -> None:
        self.columns = list(columns)
        self.data = list(data)
        self.rows = rows

    def first(self, count: int) -> "Cells":
        """The first columns alone."""
        return Cells(self.columns[:count], self.data[:count], self.rows)

    def blocks(self, changes: Sequence[Change]) -> Iterator[Iterator[tuple[str, ...]]]:
        """The rows as texts, in blocks. ``changes``: a function per column, called once per distinct value of a
        block."""
        columns = zip(self.columns, self.data, changes, strict=True)
        fields = [_field(column, data, change) for column, data, change in columns]
        for begin in range(0, self.rows, BLOCK):
            yield zip(*(field(begin, begin + BLOCK) for field in fields), strict=True)


def _field(column: Column, data: Data, change: Change) -> Callable[[int, int], list[str]]:
    if is_float(data):
        data = shown(data)
    if isinstance(data, Coded):
        texts = [*map(change, data.values), change(column.empty)]  # code -1 finds the last
        return lambda begin, end: [texts[code] for code in data.codes[begin:end].tolist()]

    def numbers(begin: int, end: int) -> list[str]:
        values = data[begin:end].tolist()
        texts = {value: change(str(value)) for value in set(values)}
        texts[NULL] = change("")
        return [texts[value] for value in values]

    return numbers


def ints(data: Data) -> Ints:
    """A column that has no texts."""
    assert not isinstance(data, Coded)
    return data.astype(np.int64)


def texts(data: Data) -> Coded:
    """A column of texts."""
    assert isinstance(data, Coded)
    return data


def is_known(numbers: Ints | Floats) -> Bools:
    """Where the value is not unknown: neither NULL nor NaN."""
    known: Bools = ~np.isnan(numbers) if numbers.dtype.kind == "f" else numbers != NULL
    return known


def is_float(data: Data) -> TypeGuard[Floats]:
    return not isinstance(data, Coded) and data.dtype.kind == "f"


def widths(column: Column, data: Data) -> Iterator[str]:
    """Some texts of the column, the widest among them."""
    if isinstance(data, Coded) or is_float(data):
        coded = data if isinstance(data, Coded) else shown(data)
        codes = np.unique(coded.codes)
        yield from (coded.values[code] if code >= 0 else column.empty for code in codes.tolist())
        return
    known = data[data != NULL]
    yield from (str(int(n)) for n in (known.min(), known.max())) if known.size else ()


def shown(values: Floats) -> Coded:
    """Numbers as texts with four digits and no exponent; each distinct number is formatted once.

    >>> shown(np.array([1365.333, 0.0123456, 0.0, 100.0, np.nan])).texts()
    ['1365', '0.01235', '0', '100', '']
    """
    known = np.isfinite(values)
    size = np.floor(np.log10(np.abs(np.where(known & (values != 0), values, 1.0)))).astype(np.int64)
    scale = 10.0 ** np.clip(DIGITS - 1 - size, 0, 12)  # values below 1e-8 are shown as 0
    distinct, row = np.unique(np.where(known, np.rint(values * scale) / scale, np.nan), return_inverse=True)
    texts = [_text(value) for value in distinct.tolist()]
    return Coded(np.where(known, row.reshape(-1), -1).astype(np.int32), texts)


def _text(value: float) -> str:
    text = f"{value:.12f}".rstrip("0").rstrip(".") if value == value else ""
    return "0" if text == "-0" else text
