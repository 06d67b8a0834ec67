"""The columns of limits and occupancy that prof.py prints, all computed from one roofline."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.limits.roofline import Roofline, roofline
from pyprof.prof.table.columns import Column, Limit
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Coded, Floats, Ints, Table


def with_limits(
    columns: Sequence[Column], table: Table, annotation: Annotation, peaks: Peaks | None = None
) -> tuple[list[Column], list[str]]:
    """The columns, with all columns of limits computed at once, and the peaks that they use, one line per device."""
    if not any(isinstance(column.get, Limit) for column in columns):
        return list(columns), []
    limits = roofline(table, annotation, peaks)
    cells = limit_cells(limits)
    return [_with_cells(column, cells) for column in columns], limits.notes()


def _with_cells(column: Column, cells: Mapping[str, Coded | Ints | Floats]) -> Column:
    if not isinstance(column.get, Limit):
        return column
    data = cells[column.get.name]
    return replace(column, get=lambda *_: data)


def limit_cells(limits: Roofline) -> dict[str, Coded | Ints | Floats]:
    """The cells of the columns of limits, by name."""
    launch, known = limits.geometry, ~np.isnan(limits.sol_ns)
    sol_ns = np.where(known, np.rint(np.where(known, limits.sol_ns, 0)), NULL).astype(np.int64)
    numbers: dict[str, Floats] = {
        "ai": limits.ai,
        "tflops": limits.tflops,
        "gbps": limits.gbps,
        "sol": limits.sol,
        "occ": launch.occupancy,
        "occ_est": launch.achieved,
        "waves": launch.waves,
        "tail": 100 * launch.tail,
        "sm_eff": launch.sm_efficiency,
    }
    texts = {"bound": limits.bound, "unit": limits.unit, "occ_limit": launch.limiter}
    return {"sol_ns": sol_ns, **texts, **numbers}
