"""The printed table as CSV, as JSON lines and as Parquet; as plain or aligned text: ``write_plain``."""

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import orjson

from pyprof._version import __version__
from pyprof.prof.table.cells import BLOCK, Cells, Data, is_float
from pyprof.table import arrow
from pyprof.table.columns import NULL, Coded
from pyprof.text import clean, inert, inert_json


def write_csv(cells: Cells, out: BinaryIO) -> None:
    """Write a header and one line per row, UTF-8; every field is quoted, as PyProf did, and quotes are doubled (RFC
    4180), as it did not. An unknown cell is an empty field."""
    out.write((",".join(_quoted(column.header) for column in cells.columns) + "\n").encode())
    for block in cells.blocks([_quoted] * len(cells.columns)):
        out.write("".join(f"{line}\n" for line in map(",".join, block)).encode())


def _quoted(text: str) -> str:
    return '"' + inert(clean(text)).replace('"', '""') + '"'


def write_jsonl(cells: Cells, out: BinaryIO) -> None:
    """Write one object per row, keys as -c takes them, null where a cell is unknown."""
    for row in json_rows(cells):
        out.write(row + b"\n")


def json_rows(cells: Cells) -> Iterator[bytes]:
    """The lines of ``write_jsonl``."""
    names = [column.name for column in cells.columns]
    texts = [[*(clean(text) or None for text in d.values), None] if isinstance(d, Coded) else [] for d in cells.data]
    for begin in range(0, cells.rows, BLOCK):
        part = slice(begin, begin + BLOCK)
        columns = [_values(data, known, part) for data, known in zip(cells.data, texts, strict=True)]
        rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
        yield from map(_inert, map(orjson.dumps, rows))


def _inert(row: bytes) -> bytes:
    return row if row.isascii() and b"\x7f" not in row else inert_json(row.decode()).encode()


def _values(data: Data, texts: list[str | None], part: slice) -> list[Any]:
    if isinstance(data, Coded):
        return [texts[code] for code in data.codes[part].tolist()]  # code -1 finds the last
    if is_float(data):
        return [value if np.isfinite(value) else None for value in data[part].tolist()]
    return [None if value == NULL else value for value in data[part].tolist()]


def write_parquet(cells: Cells, out: BinaryIO) -> None:
    """Write columns named as -c takes them, with their units and meanings in the fields' metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    arrays = [_array(data) for data in cells.data]
    named = zip(cells.columns, arrays, strict=True)
    fields = [pa.field(c.name, array.type, metadata={"unit": c.unit, "meaning": c.meaning}) for c, array in named]
    schema = pa.schema(fields, {b"pyprof.version": __version__})
    pq.write_table(pa.table(arrays, schema=schema), out, compression="zstd")


def _array(data: Data) -> Any:
    if isinstance(data, Coded):
        return arrow.dictionary(data)
    return arrow.numbers(data, np.isfinite(data) if is_float(data) else data != NULL)
