"""Tables as text in the forms of nsys stats: column, csv and json. Empty tables appear in json only."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from pyprof.parse.stats.group_statistics import BATCH, Cell, Cells, Columns, Row, Rows
from pyprof.parse.stats.reports import TEXTS, Wanted
from pyprof.text import inert, inert_json

Table = tuple[Wanted, Rows]
WIDEST = 100  # characters per column; a longer text is cut and ends with an ellipsis


def columns(tables: Sequence[Table]) -> Iterator[str]:
    """Aligned columns under a title, one table after the other."""
    for wanted, rows in tables:
        if rows:
            yield from _aligned(wanted, rows)


def _aligned(wanted: Wanted, rows: Rows) -> Iterator[str]:
    names = wanted.report.columns
    table = rows if isinstance(rows, Columns) else Columns.of_rows(rows)
    shown = [_Texts(cells) for cells in table.columns]
    widths = [max(len(name), texts.longest) for name, texts in zip(names, shown, strict=True)]
    yield f"\n ** {wanted.report.title} ({wanted.name}):\n\n"
    yield _line(f"{name:^{width}}" for name, width in zip(names, widths, strict=True))
    yield _line("-" * width for width in widths)
    form = _line(f"%{'-' if name in TEXTS else ''}{width}s" for name, width in zip(names, widths, strict=True))
    for begin in range(0, len(table), BATCH):
        cells = [texts.between(begin, begin + BATCH) for texts in shown]
        yield "".join(form % row for row in zip(*cells, strict=True))


def _line(cells: Iterable[str]) -> str:
    return f" {'  '.join(cells)}\n"


class _Texts:
    """A column's cells for a terminal. Numbers, which repeat, are made once; texts, which may be long, when needed."""

    def __init__(self, cells: Cells) -> None:
        self._values, self._codes = cells
        used = [self._values[code] for code in np.unique(self._codes).tolist()]
        self._are_texts = any(isinstance(value, str) for value in used)
        self.longest = min(WIDEST, max((len(str(value)) for value in used), default=0))
        if not self._are_texts:
            self._values = [str(value) for value in self._values]

    def between(self, begin: int, end: int) -> list[str]:
        found = [self._values[code] for code in self._codes[begin:end].tolist()]
        return [_shown(value) for value in found] if self._are_texts else found


def _shown(cell: Cell) -> str:
    """A cell for a terminal, without the control characters that a file's texts may contain."""
    text = str(cell)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def comma_separated(tables: Sequence[Table]) -> Iterator[str]:
    """A header and rows per table, with an empty line between two tables. An unknown value is empty."""
    between = ""
    for wanted, rows in tables:
        if not rows:
            continue
        yield between
        between = "\n"
        header: list[Row] = [wanted.report.columns]
        for begin in range(0, len(rows), BATCH):
            out = io.StringIO()
            batch = [*header, *rows[begin : begin + BATCH]]
            lines = ([inert(cell) if isinstance(cell, str) else cell for cell in row] for row in batch)
            csv.writer(out, lineterminator="\n").writerows(lines)
            header = []
            yield out.getvalue()


def as_json(tables: Sequence[Table]) -> Iterator[str]:
    """One table as a list of objects, as nsys writes it; several tables as an object: report name -> such a list."""
    lists = {wanted.name: _objects(wanted, rows) for wanted, rows in tables}
    if len(tables) == 1:
        yield from next(iter(lists.values()))
        yield "\n"
        return
    before = "{\n"
    for name, texts in lists.items():
        yield f"{before}{json.dumps(name)}: "
        yield from texts
        before = ",\n"
    yield "\n}\n"


def _objects(wanted: Wanted, rows: Rows) -> Iterator[str]:
    names = wanted.report.columns
    between = "[\n  "
    for row in rows:
        cells = dict(zip(names, row, strict=True))
        yield between + inert_json(json.dumps(cells, ensure_ascii=False, default=float))  # Decimal to float
        between = ",\n  "
    yield "\n]" if rows else "[]"


Form = Callable[[Sequence[Table]], Iterator[str]]
FORMATS: dict[str, Form] = {"column": columns, "csv": comma_separated, "json": as_json}
