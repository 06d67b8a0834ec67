"""The printed table as JSON lines: one object per row, keys as -c takes them, null where a cell is unknown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import orjson

from pyprof.prof.table.cells import BLOCK, Cells, Data, is_float
from pyprof.table.columns import NULL, Coded
from pyprof.text import clean


def write_jsonl(cells: Cells, out: BinaryIO) -> None:
    for row in json_rows(cells):
        out.write(row + b"\n")


def json_rows(cells: Cells) -> Iterator[bytes]:
    """One object per row."""
    names = [column.name for column in cells.columns]
    texts = [[*(clean(text) or None for text in d.values), None] if isinstance(d, Coded) else [] for d in cells.data]
    for begin in range(0, cells.rows, BLOCK):
        part = slice(begin, begin + BLOCK)
        columns = [_values(data, known, part) for data, known in zip(cells.data, texts, strict=True)]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        yield from map(orjson.dumps, rows)


def _values(data: Data, texts: list[str | None], part: slice) -> list[Any]:
    if isinstance(data, Coded):
        return [texts[code] for code in data.codes[part].tolist()]  # code -1 finds the last
    if is_float(data):
        return [value if np.isfinite(value) else None for value in data[part].tolist()]
    return [None if value == NULL else value for value in data[part].tolist()]
