"""The JSON document that pyprof stats prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pyprof.command.json_schema import Record, Schema, doc, extended, schema_of_class
from pyprof.parse.stats.group_statistics import Rows
from pyprof.parse.stats.reports import REPORTS, TEXTS, Report, Wanted

UNIT = re.compile(r"\((%|ns|MB)\)")


class TableColumn(Record):
    name: Annotated[str, doc("the key in `rows`")]
    type: Annotated[Literal["string", "number"], doc("of its values, which may be null too: unknown")]
    unit: Annotated[str | None, doc("of its numbers; null: none")]


class StatsTable(Record):
    title: Annotated[str, doc("of the report")]
    missing: Annotated[str | None, doc("what the file lacks, where there are no rows")]
    columns: Annotated[list[TableColumn], doc("the keys of `rows`, in order")]
    rows: Annotated[list[dict[str, Any]], doc("in the order of nsys stats")]


def _column(name: str) -> TableColumn:
    unit = UNIT.search(name)
    return TableColumn(name=name, type="string" if name in TEXTS else "number", unit=unit[1] if unit else None)


def _cell(name: str) -> Schema:
    column = _column(name)
    schema: Schema = {"type": [column.type, "null"], "description": "as nsys stats has it"}
    return {**schema, "unit": column.unit} if column.unit else schema


def _schema(report: Report) -> Schema:
    schema = schema_of_class(StatsTable)
    schema["properties"]["rows"]["items"] = {
        "type": "object",
        "description": "a row",
        "properties": {name: _cell(name) for name in report.columns},
        "required": list(report.columns),
        "additionalProperties": False,
    }
    return {**schema, "description": report.title}


def _pattern(report: Report) -> str:
    """The names that -r takes for the report."""
    variants = f"(:({'|'.join(report.variants)}))?" if report.variants else ""
    return f"^{report.name}{variants}$"


_SCHEMAS = {_pattern(report): _schema(report) for report in REPORTS}
BY_NAME = {"patternProperties": _SCHEMAS, "additionalProperties": False}


class Tables(Record):
    """The tables of nsys stats."""

    tables: Annotated[
        dict[str, StatsTable],
        extended("by the report's name, as -r takes it; columns as in nsys stats (docs/reference/stats.md)", BY_NAME),
    ]


def tables_of(tables: Sequence[tuple[Wanted, Rows]]) -> Tables:
    """One table per report, even if the file has no data for the report."""
    return Tables(tables={wanted.name: _table(wanted.report, rows) for wanted, rows in tables})


def _table(report: Report, rows: Rows) -> StatsTable:
    columns = [_column(name) for name in report.columns]
    objects = [dict(zip(report.columns, row, strict=True)) for row in rows]
    return StatsTable(title=report.title, missing=None if rows else report.missing, columns=columns, rows=objects)
