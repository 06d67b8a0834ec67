"""The JSON that prof.py --json prints for a table: its rows, its groups, or where a row's numbers come from.

pyprof/command/envelope.py adds the header, and ``written_forms.json_rows`` the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from pyprof.command.json_schema import Record, Schema, doc, extended
from pyprof.prof.table.columns import COLUMNS, Column
from pyprof.prof.table.group import AGGREGATES, MEASURED

if TYPE_CHECKING:
    from pyprof.prof.explain import Line
    from pyprof.prof.table.query import Query
    from pyprof.prof.table.totals import Totals
    from pyprof.table.columns import Ints, Table

JsonType = Literal["string", "integer", "number"]
TYPES: dict[str, JsonType] = {"text": "string", "int": "integer", "float": "number"}


class PrintedColumn(Record):
    name: Annotated[str, doc("the key in `rows`")]
    type: Annotated[JsonType, doc("of its values, which may be null too: unknown, or nothing")]
    unit: Annotated[str | None, doc("of its numbers; null: none")]
    meaning: Annotated[str, doc("what it means")]


class WholeTable(Record):
    rows: Annotated[int, doc("number of rows")]
    time_ns: Annotated[int, doc("sum of their durations", "ns")]
    on: Annotated[str, extended("what the rows ran on", {"enum": ["GPU", "CPU"]})]
    attributed_ns: Annotated[int, doc("time of the rows that have an op", "ns")]
    attributed_percent: Annotated[float | None, doc("its share of the time", "%")]
    uncounted_ns: Annotated[int, doc("time of the rows whose FLOPs no model counts", "ns")]
    uncounted_percent: Annotated[float | None, doc("its share of the time", "%")]
    bytes_uncounted_ns: Annotated[int, doc("time of the rows whose bytes no model counts", "ns")]
    bytes_uncounted_percent: Annotated[float | None, doc("its share of the time", "%")]


class SelectedRows(Record):
    rows: Annotated[int, doc("number of rows")]
    time_ns: Annotated[int, doc("sum of their durations", "ns")]
    percent: Annotated[float | None, doc("of the time of all rows", "%")]


class UncountedOp(Record):
    op: Annotated[str, doc("its name; of rows without an op the kernel's")]
    time_ns: Annotated[int, doc("of its rows", "ns")]
    percent: Annotated[float | None, doc("of the time of all rows", "%")]


def _row_schema(columns: Iterable[Column]) -> Schema:
    """The schema of a row, which has any of the columns, as selected by -c."""
    keys = {column.name: _cell(column) for column in columns}
    row = {"type": "object", "description": "keys as `columns` lists them", "properties": keys}
    return {"items": {**row, "additionalProperties": False}}


def _cell(column: Column) -> Schema:
    schema: Schema = {"type": [TYPES[column.kind], "null"], "description": column.meaning}
    return {**schema, "unit": column.unit} if column.unit else schema


BY_NAME = {column.name: column for column in (*COLUMNS, *AGGREGATES, *MEASURED)}  # flops and bytes are the group's
NO_ROWS: Any = msgspec.field(default_factory=list)  # rows are written one by one and are never set here


class TableDocument(Record, kw_only=True):
    columns: Annotated[list[PrintedColumn], doc("the keys of `rows`, in order")]
    totals: Annotated[WholeTable, doc("the whole table, whichever rows are printed")]
    selected: Annotated[SelectedRows, doc("the rows that --where chose, before --group and --top")]
    uncounted: Annotated[list[UncountedOp], doc("ops whose FLOPs no model counts, the longest first")]
    bytes_uncounted: Annotated[list[UncountedOp], doc("ops whose bytes no model counts, the longest first")]
    assumptions: Annotated[
        list[str], doc("the peaks that the limits rest on, and what of the reports was joined, in sentences")
    ]


class Kernels(TableDocument, kw_only=True):
    """The annotated kernel table: one row per GPU operation."""

    rows: Annotated[list[Any], extended("one per GPU operation, keys as -c names them", _row_schema(COLUMNS))] = NO_ROWS


class GroupedTable(TableDocument):  # its key comes before those of TableDocument
    group_by: Annotated[list[str], doc("the columns that the rows of a group agree in")]


class Groups(GroupedTable, kw_only=True):
    """With --group: one entry for all rows that agree in some columns."""

    rows: Annotated[list[Any], extended("one per group", _row_schema(BY_NAME.values()))] = NO_ROWS


class ExplanationLine(Record):
    what: Annotated[str, doc("kernel, op, layer, formula, role, tensor cores, ...")]
    text: Annotated[str, doc("where it comes from")]


class Explanation(Record):
    """With --explain: where a row's numbers come from."""

    row: Annotated[int, doc("its idx")]
    lines: Annotated[list[ExplanationLine], doc("in the order of the work: recorded, attributed, counted, shared")]


def rows_of(query: Query, table: Table, totals: Totals, rows: Ints, notes: Sequence[str]) -> Kernels | Groups:
    """The document without the printed rows. ``rows``: the numbers of the rows selected by --where."""
    selected_ns = int(table.ints("kDuration")[rows].sum())
    attributed = totals.attributed_ns, totals.attributed_percent
    uncounted = totals.uncounted_ns, totals.percent(totals.uncounted_ns)
    of_bytes = totals.bytes_uncounted_ns, totals.percent(totals.bytes_uncounted_ns)
    shared: dict[str, Any] = {
        "columns": [PrintedColumn(c.name, TYPES[c.kind], c.unit or None, c.meaning) for c in query.columns],
        "totals": WholeTable(totals.rows, totals.total_ns, totals.processor, *attributed, *uncounted, *of_bytes),
        "selected": SelectedRows(len(rows), selected_ns, totals.percent(selected_ns)),
        "uncounted": [UncountedOp(op, ns, totals.percent(ns)) for op, ns in totals.uncounted.items()],
        "bytes_uncounted": [UncountedOp(op, ns, totals.percent(ns)) for op, ns in totals.bytes_uncounted.items()],
        "assumptions": list(notes),
    }
    if query.group:
        return Groups(group_by=[column.name for column in query.group], **shared)
    return Kernels(**shared)


def explained(row: int, lines: Sequence[Line]) -> Explanation:
    """The document for --explain; ``row`` is the row's idx, from 1."""
    return Explanation(row=row, lines=[ExplanationLine(what, text) for what, text in lines])
