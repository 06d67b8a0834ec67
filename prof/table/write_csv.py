"""The printed table as CSV: every field quoted, as PyProf did, and quotes doubled (RFC 4180), as it did not."""

from __future__ import annotations

from typing import BinaryIO

from pyprof.prof.table.cells import Cells
from pyprof.text import clean, inert


def write_csv(cells: Cells, out: BinaryIO) -> None:
    """Write a header and one line per row, UTF-8. An unknown cell is an empty field."""
    out.write((",".join(_quoted(column.header) for column in cells.columns) + "\n").encode())
    for block in cells.blocks([_quoted] * len(cells.columns)):
        out.write("".join(f"{line}\n" for line in map(",".join, block)).encode())


def _quoted(text: str) -> str:
    return '"' + inert(clean(text)).replace('"', '""') + '"'
