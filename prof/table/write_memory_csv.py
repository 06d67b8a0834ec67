"""The memory table as CSV: one line per allocation or free, unknown values empty."""

import csv
import io
from typing import BinaryIO

from pyprof.table.columns import NULL, Coded, MemoryTable
from pyprof.table.schema import MEMORY
from pyprof.text import clean, inert

ROWS = 1 << 14  # formatted at a time


def write_memory_csv(table: MemoryTable, out: BinaryIO) -> None:
    """Write all columns of ``pyprof.table.schema.MEMORY``, whose names are the first line."""
    out.write((",".join(column.key for column in MEMORY) + "\n").encode())
    for begin in range(0, len(table), ROWS):
        part = table.take(slice(begin, begin + ROWS))
        cells = [_cells(part.columns[column.key]) for column in MEMORY]
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerows(zip(*cells, strict=True))
        out.write(text.getvalue().encode("utf-8", "replace"))


def _cells(data: object) -> list[str]:
    if isinstance(data, Coded):
        texts = [inert(clean(text)) for text in data.values]
        texts.append("")  # code -1 selects the last item
        return [texts[code] for code in data.codes.tolist()]
    assert hasattr(data, "tolist")
    return ["" if value == NULL else str(value) for value in data.tolist()]
