"""The counters of rows that ``--group`` combines: sums of counts, means by time, and ratios of sums.

Only rows that were measured count, and a ratio is that of the rows for which both sides are known. Shares of a peak are
means weighted by the rows' time in the capture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pyprof.parse.ncu.stalls import top_texts
from pyprof.prof.counters.measured import AMOUNTS, EXECUTED, REGISTERS, SHARES, Counters
from pyprof.table.columns import NULL, Coded, Floats, Ints

if TYPE_CHECKING:
    from pyprof.prof.table.cells import Data


def counter_aggregates(
    counters: Counters, values: Mapping[str, Ints], group_of_row: Ints, groups: int
) -> dict[str, Data]:
    """The aggregates by name. ``values``: the rows' ``sil``, ``flops`` and ``bytes``."""
    time = np.where(values["sil"] == NULL, 0, values["sil"]).astype(np.float64)

    def total(amounts: Floats) -> Floats:
        return np.bincount(group_of_row, amounts, groups).astype(np.float64)

    def mean(column: Floats) -> Floats:
        known = np.isfinite(column)
        return _ratio(total(np.where(known, column * time, 0)), total(np.where(known, time, 0)))

    def ratio(measured: str, algorithmic: str) -> Floats:
        above, below = counters.values[measured], values[algorithmic]
        known = np.isfinite(above) & (below != NULL)
        return _ratio(total(np.where(known, above, 0)), total(np.where(known, below, 0).astype(np.float64)))

    found: dict[str, Data] = {"measured": 100 * _ratio(total(np.where(counters.matched, time, 0)), total(time))}
    for name in (*AMOUNTS, EXECUTED):
        column = counters.values[name]
        known = np.isfinite(column)
        sums, count = total(np.where(known, column, 0)), np.bincount(group_of_row[known], minlength=groups)
        found[name] = np.where(count > 0, np.rint(sums), NULL).astype(np.int64)
    found |= {name: mean(counters.values[name]) for name in SHARES}
    found[REGISTERS] = _greatest(counters.values[REGISTERS], group_of_row, groups)
    found |= {"bytes_ratio": ratio("dram", "bytes"), "flops_ratio": ratio(EXECUTED, "flops")}
    found["stalls"] = Coded.of(top_texts({name: mean(column) for name, column in counters.stalls.items()}, groups))
    return found


def _ratio(part: Floats, whole: Floats) -> Floats:
    """part / whole; NaN where the whole is 0."""
    found: Floats = np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0)
    return found


def _greatest(column: Floats, group_of_row: Ints, groups: int) -> Ints:
    known = np.isfinite(column)
    most = np.full(groups, NULL, np.int64)
    np.maximum.at(most, group_of_row[known], np.rint(column[known]).astype(np.int64))
    return most
