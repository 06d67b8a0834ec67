"""The kernel table as CSV: a header, the columns of net.dict, unknown values empty, quotes as in RFC 4180."""

import re
from collections.abc import Callable, Iterable
from typing import BinaryIO

from pyprof.table.columns import NULL, Coded, Ragged, Table
from pyprof.table.schema import KERNELS, Column
from pyprof.text import clean, inert

CHUNK = 8192  # rows at a time
_QUOTED = re.compile(r'[",\r\n]')


def write_csv(table: Table, out: BinaryIO) -> None:
    """Write a header and one line per row, in UTF-8. Lists are JSON, as in Parquet."""
    out.write((",".join(column.key for column in KERNELS) + "\n").encode())
    cells = [_cells(column, table) for column in KERNELS]
    for begin in range(0, len(table), CHUNK):
        rows = zip(*(cell(slice(begin, begin + CHUNK)) for cell in cells), strict=True)
        out.write("".join(f"{line}\n" for line in map(",".join, rows)).encode())


def _cells(column: Column, table: Table) -> Callable[[slice], Iterable[str]]:
    """A function from some rows to the fields of a column."""
    data = table.columns[column.key]
    if isinstance(data, Coded):
        texts = [*map(_field, data.values), ""]  # code -1 selects the last
        codes = data.codes
        return lambda rows: map(texts.__getitem__, codes[rows].tolist())
    if isinstance(data, Ragged):
        return lambda rows: (_field(str(items)) if items else "" for items in data.take(rows).lists())
    if column.kind == "float":
        return lambda rows: ("" if v != v else repr(v) for v in data[rows].tolist())
    return lambda rows: ("" if v == NULL else str(v) for v in data[rows].tolist())


def _field(text: str) -> str:
    text = inert(clean(text))
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
