"""What pyprof stats answers with --json: its own keys, and their schema (the header: pyprof/command/envelope.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyprof.command.json_schema import Schema, listing, maybe, number, record, text
from pyprof.parse.stats.reports import REPORTS, TEXTS, Report, Rows, Wanted

__all__ = ["SCHEMAS", "tables_of"]

UNIT = re.compile(r"\((%|ns|MB)\)")


def tables_of(tables: Sequence[tuple[Wanted, Rows]]) -> dict[str, Any]:
    """A table each report, also where the file has nothing for it."""
    return {"tables": {wanted.name: _table(wanted.report, rows) for wanted, rows in tables}}


def _table(report: Report, rows: Rows) -> dict[str, Any]:
    columns = [{"name": name, "type": _type(name), "unit": _unit(name)} for name in report.columns]
    return {
        "title": report.title,
        "missing": None if rows else report.missing,
        "columns": columns,
        "rows": [dict(zip(report.columns, row, strict=True)) for row in rows],
    }


def _type(column: str) -> str:
    return "string" if column in TEXTS else "number"


def _unit(column: str) -> str | None:
    match = UNIT.search(column)
    return match[1] if match else None


def _stats() -> Schema:
    tables = {
        "type": "object",
        "description": "by the report's name, as -r takes it; columns as in nsys stats (docs/reference/stats.md)",
        "patternProperties": {f"^{report.name}{_variants(report)}$": _schema(report) for report in REPORTS},
        "additionalProperties": False,
    }
    return record({"tables": tables}, "tables")


def _variants(report: Report) -> str:
    return f"(:({'|'.join(report.variants)}))?" if report.variants else ""


def _schema(report: Report) -> Schema:
    column = {
        "name": text("the key in `rows`"),
        "type": text("of its values, which may be null too: unknown", ("string", "number")),
        "unit": maybe(text("of its numbers; null: none")),
    }
    cells = {name: maybe(_cell(name)) for name in report.columns}
    return record(
        {
            "title": text("of the report"),
            "missing": maybe(text("what the file lacks, where there are no rows")),
            "columns": listing(record(column, "a column"), "the keys of `rows`, in order"),
            "rows": listing(record(cells, "a row"), "in the order of nsys stats"),
        },
        report.title,
    )


def _cell(column: str) -> Schema:
    meaning = "as nsys stats has it"
    return text(meaning) if column in TEXTS else number(meaning, _unit(column) or "")


SCHEMAS = {"stats": _stats}
