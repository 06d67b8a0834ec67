"""The columns of limits and occupancy as prof.py prints them: one roofline for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pyprof.prof.annotate import Annotation
from pyprof.prof.columns import Column, Limit
from pyprof.prof.devices import Peaks
from pyprof.prof.occupancy import Floats
from pyprof.prof.roofline import Roofline, roofline
from pyprof.table import NULL, Coded, Ints, Table

__all__ = ["bound", "limit_cells", "shown"]

DIGITS = 4


def bound(
    columns: Sequence[Column], table: Table, annotation: Annotation, peaks: Peaks | None = None
) -> tuple[list[Column], list[str]]:
    """The columns with those of limits computed, once for all; and what they rest on, a line a device."""
    if not any(isinstance(column.get, Limit) for column in columns):
        return list(columns), []
    found = roofline(table, annotation, peaks)
    cells = limit_cells(found)
    return [_with_cells(column, cells) for column in columns], found.notes()


def _with_cells(column: Column, cells: Mapping[str, Coded | Ints]) -> Column:
    if not isinstance(column.get, Limit):
        return column
    data = cells[column.get.name]
    return replace(column, get=lambda *_: data)


def limit_cells(found: Roofline) -> dict[str, Coded | Ints]:
    """The cells of each column of limits, by its name: four digits, empty where unknown."""
    launch = found.geometry
    numbers = {
        "ai": found.ai,
        "tflops": found.tflops,
        "gbps": found.gbps,
        "sol": found.sol,
        "occ": launch.occupancy,
        "occ_est": launch.achieved,
        "waves": launch.waves,
        "tail": 100 * launch.tail,
        "sm_eff": launch.sm_efficiency,
    }
    texts = {"bound": found.bound, "unit": found.unit, "occ_limit": launch.limiter}
    return {"sol_ns": _whole(found.sol_ns), **texts, **{name: shown(values) for name, values in numbers.items()}}


def _whole(values: Floats) -> Ints:
    known = ~np.isnan(values)
    return np.where(known, np.rint(np.where(known, values, 0)), NULL).astype(np.int64)


def shown(values: Floats) -> Coded:
    """Numbers as texts, four digits and no exponent; each distinct one written once.

    >>> shown(np.array([1365.333, 0.0123456, 0.0, 100.0, np.nan])).texts()
    ['1365', '0.01235', '0', '100', '']
    """
    known = np.isfinite(values)
    size = np.floor(np.log10(np.abs(np.where(known & (values != 0), values, 1.0)))).astype(np.int64)
    scale = 10.0 ** np.clip(DIGITS - 1 - size, 0, 12)  # below 1e-8 there is nothing to tell
    distinct, row = np.unique(np.where(known, np.rint(values * scale) / scale, np.nan), return_inverse=True)
    texts = [_text(value) for value in distinct.tolist()]
    return Coded(np.where(known, row.reshape(-1), -1).astype(np.int32), texts)


def _text(value: float) -> str:
    text = f"{value:.12f}".rstrip("0").rstrip(".") if value == value else ""
    return "0" if text == "-0" else text
