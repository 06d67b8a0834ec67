"""Tables as text in the forms of nsys stats: column, csv and json. Empty tables appear in json only."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from pyprof.parse.stats.group_statistics import BATCH, Cell, Cells, Columns, Rows
from pyprof.parse.stats.reports import TEXTS, Wanted
from pyprof.text import inert_fields, inert_json

Table = tuple[Wanted, Rows]
WIDEST = 100  # characters per column; a longer text is cut and ends with an ellipsis


def columns(tables: Sequence[Table]) -> Iterator[str]:
    """Aligned columns under a title, one table after the other."""
    for wanted, rows in tables:
        if rows:
            yield from _aligned(wanted, _as_columns(rows))


def _as_columns(rows: Rows) -> Columns:
    return rows if isinstance(rows, Columns) else Columns.of_rows(rows)


def _aligned(wanted: Wanted, table: Columns) -> Iterator[str]:
    names = wanted.report.columns
    widths = [max(len(name), _longest(cells)) for name, cells in zip(names, table.columns, strict=True)]
    yield f"\n ** {wanted.report.title} ({wanted.name}):\n\n"
    yield _line(f"{name:^{width}}" for name, width in zip(names, widths, strict=True))
    yield _line("-" * width for width in widths)
    form = _line(f"%{'-' if name in TEXTS else ''}{width}s" for name, width in zip(names, widths, strict=True))
    for rows in _batches(table, _shown):
        yield "".join(form % row for row in rows)


def _line(cells: Iterable[str]) -> str:
    return f" {'  '.join(cells)}\n"


def _longest(cells: Cells) -> int:
    used = np.unique(cells.codes).tolist()
    return min(WIDEST, max(len(str(cells.values[code])) for code in used))


def _shown(cells: Sequence[Cell]) -> list[str]:
    """Cells for a terminal, without the control characters that a file's texts may contain."""
    texts = list(map(str, cells))
    if not "".join(texts).isprintable():
        texts = ["".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text) for text in texts]
    return [text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…" for text in texts]


class _Column:
    """The cells of a column as ``written``: numbers once, texts, which may be long, once in each batch of rows."""

    def __init__(self, cells: Cells, written: Callable[[Sequence[Cell]], list[str]]) -> None:
        self._cells, self._written = cells, written
        are_texts = any(isinstance(value, str) for value in cells.values)
        self._numbers = None if are_texts else written(cells.values)

    def between(self, begin: int, end: int) -> list[str]:
        texts, codes = self._numbers, self._cells.codes[begin:end]
        if texts is None:
            used, codes = np.unique(codes, return_inverse=True)
            texts = self._written([self._cells.values[code] for code in used.tolist()])
        return [texts[code] for code in codes.tolist()]


def _batches(table: Columns, written: Callable[[Sequence[Cell]], list[str]]) -> Iterator[Iterator[tuple[str, ...]]]:
    """The rows, some at a time, with their cells as ``written``, which gets cells of one column."""
    columns = [_Column(cells, written) for cells in table.columns]
    for begin in range(0, len(table), BATCH):
        yield zip(*(column.between(begin, begin + BATCH) for column in columns), strict=True)


def comma_separated(tables: Sequence[Table]) -> Iterator[str]:
    """A header and rows per table, with an empty line between two tables. An unknown value is empty."""
    between = ""
    for wanted, rows in tables:
        if not rows:
            continue
        yield f"{between}{','.join(wanted.report.columns)}\n"
        between = "\n"
        for lines in _batches(_as_columns(rows), _fields):
            yield "\n".join([*map(",".join, lines), ""])


def _fields(cells: Sequence[Cell]) -> list[str]:
    """Cells of one column as fields of CSV."""
    texts = ["" if cell is None else str(cell) for cell in cells]
    return inert_fields(texts) if any(isinstance(cell, str) for cell in cells) else texts


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
