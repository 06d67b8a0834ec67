"""The rows that rules read after an edit: those that remain, with new durations, dtypes and precisions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.limits.other_device import moved_table
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import Coded, Ints, Table

if TYPE_CHECKING:
    from pyprof.prof.changes.effect.scenario import Scenario


class EditedRows(NamedTuple):
    """The rows of a run after edits."""

    table: Table  # without the rows that vanished, with the durations and dtypes of the others
    annotation: Annotation
    origin: Ints  # per row: its row in the base's table


def edited_rows(edit: Edit, before: Scenario) -> EditedRows:
    """The rows of a run after one more edit."""
    rows = before.run.origin[edit.rows]
    took = before.rows.table.ints("kDuration").copy()
    took[rows] = np.round(edit.ns).astype(np.int64)
    kept = np.ones(len(took), bool)
    kept[rows[(edit.ns <= 0) & (edit.left <= 0)]] = False
    table, annotation = _retyped(edit, before)
    table = table.with_column("kDuration", took)
    table = moved_table(table, edit.device) if edit.device else table
    if kept.all():
        return EditedRows(table, annotation, before.origin)
    return EditedRows(table.take(np.flatnonzero(kept)), annotation.take(np.flatnonzero(kept)), before.origin[kept])


def _retyped(edit: Edit, scenario: Scenario) -> tuple[Table, Annotation]:
    """Table and annotation with the dtypes and precisions that rows have after the edit."""
    table, annotation, _ = scenario.rows
    if not len(edit.retyped):
        return table, annotation
    rows = scenario.run.origin[edit.retyped]
    if edit.dtype:
        dtypes = table.coded("dtypes")
        values = [*dtypes.values, *(text.replace('"float32"', f'"{edit.dtype}"') for text in dtypes.values)]
        codes = dtypes.codes.copy()
        codes[rows] = np.where(codes[rows] >= 0, codes[rows] + len(dtypes.values), codes[rows])
        table = table.with_column("dtypes", Coded(codes, values))
        nbytes = annotation.bytes.copy()
        known = rows[nbytes[rows] > 0]
        nbytes[known] //= 2
        annotation = replace(annotation, bytes=nbytes)
    products = rows[annotation.tc.take(rows).among("0", "1")]
    tc, precision = _set(annotation.tc, products, "1"), _set(annotation.tcprec, products, edit.unit)
    return table, replace(annotation, tc=tc, tcprec=precision)


def _set(column: Coded, rows: Ints, value: str) -> Coded:
    codes = column.codes.copy()
    codes[rows] = len(column.values)
    return Coded(codes, [*column.values, value])
