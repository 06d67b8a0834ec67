"""Tables as text in the forms of nsys stats: column, csv and json. Empty tables appear in json only."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence

from pyprof.parse.stats.group_statistics import Cell, Rows
from pyprof.parse.stats.reports import TEXTS, Wanted
from pyprof.text import inert

Table = tuple[Wanted, Rows]
WIDEST = 100  # characters per column; a longer text is cut and ends with an ellipsis


def columns(tables: Sequence[Table]) -> str:
    """Aligned columns under a title, one table after the other."""
    return "".join(_aligned(wanted, rows) for wanted, rows in tables if rows)


def _aligned(wanted: Wanted, rows: Rows) -> str:
    names = wanted.report.columns
    cells = [[_shown(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    lines = ["", f" ** {wanted.report.title} ({wanted.name}):", ""]
    lines.append(_line(f"{name:^{width}}" for name, width in zip(names, widths, strict=True)))
    lines.append(_line("-" * width for width in widths))
    sides = ["<" if name in TEXTS else ">" for name in names]
    forms = [f"{side}{width}" for side, width in zip(sides, widths, strict=True)]
    lines += [_line(map(format, row, forms)) for row in cells]
    return "\n".join([*lines, ""])


def _line(cells: Iterable[str]) -> str:
    return " " + "  ".join(cells)


def _shown(cell: Cell) -> str:
    """A cell for a terminal, without the control characters that a file's texts may contain."""
    text = str(cell)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def comma_separated(tables: Sequence[Table]) -> str:
    """A header and rows per table, with an empty line between two tables. An unknown value is empty."""
    parts = []
    for wanted, rows in tables:
        if not rows:
            continue
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(wanted.report.columns)
        writer.writerows([inert(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
        parts.append(out.getvalue())
    return "\n".join(parts)


def as_json(tables: Sequence[Table]) -> str:
    """One table as a list of objects, as nsys writes it; several tables as an object: report name -> such a list."""
    lists = {wanted.name: _objects(wanted, rows) for wanted, rows in tables}
    if len(tables) == 1:
        return f"{next(iter(lists.values()))}\n"
    body = ",\n".join(f"{json.dumps(name)}: {text}" for name, text in lists.items())
    return f"{{\n{body}\n}}\n"


def _objects(wanted: Wanted, rows: Rows) -> str:
    names = wanted.report.columns
    objects = (dict(zip(names, row, strict=True)) for row in rows)
    lines = [json.dumps(cells, ensure_ascii=False, default=float) for cells in objects]  # Decimal to float
    return "[\n  " + ",\n  ".join(lines) + "\n]" if lines else "[]"


FORMATS: dict[str, Callable[[Sequence[Table]], str]] = {"column": columns, "csv": comma_separated, "json": as_json}
