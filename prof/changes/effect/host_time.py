"""Estimate the time that the host would need per step without the profiler, which slows it down."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pyprof.prof.timing import profiler_cost
from pyprof.table.columns import NULL, Ints

if TYPE_CHECKING:
    from pyprof.prof.changes.effect.run import Run

_LISTS = re.compile(r"(?:aten::)?_(?:foreach|fused)_")
LIST_NS = 40_000  # an op on lists of 16 to 28 tensors, whose descriptions take a profiler longest (40 to 55 µs without)
CALL_NS = 20_000  # a launch call that takes longer is waiting for a full queue, a graph or a copy
LONG_NS = 500_000  # a long gap between launches; an op takes the host 5 to 50 µs, or up to 200 under a profiler


def _between(run: Run, rows: Ints, api: Ints, took: Ints) -> tuple[float, float]:
    """The ns from the first to the last launch, split into (short gaps and calls, long gaps).

    A long gap counts only from the end of the last operation, because until then the host may have waited for the GPU.
    A CUDA graph's launch has many rows, and counts once.
    """
    rows = rows[np.unique(api[rows], return_index=True)[1]]
    if len(rows) < 2:
        return 0.0, 0.0
    start, end = api[rows], api[rows] + np.minimum(took[rows], CALL_NS)
    gap = np.maximum(start[1:] - (api + took)[rows][:-1], 0)
    lists = run.table.coded("aten").where(_LISTS.match)[rows[1:]]
    gap = np.where(lists, np.minimum(gap, LIST_NS / profiler_cost.estimated_share(run.table).share), gap)
    ends = np.sort(run.end[rows])
    before = np.searchsorted(ends, start[1:], side="right") - 1
    since = np.where(before >= 0, start[1:] - ends[before], gap)
    long = gap > LONG_NS
    return float(gap[~long].sum() + (end - start).sum()), float(np.minimum(gap, since)[long].sum())


def own_of(run: Run) -> profiler_cost.OwnShare:
    """The same with its interval: measured where steps were timed without the profiler, estimated otherwise."""
    launching, besides = run.captured_host_ns
    return profiler_cost.own_share(run.table, launching, besides, run.busy_ns)


def captured_ns(run: Run) -> tuple[float, float]:
    """The captured host time per step: for launches, and for the rest."""
    api, took = run.table.ints("apiStart"), run.table.ints("apiDuration")
    known = (api != NULL) & (took != NULL)
    each = [_between(run, rows[known[rows]], api, took) for rows in run.lane_rows]
    launching, besides = (float(np.mean(part)) / run.steps for part in zip(*each, strict=True)) if each else (0.0, 0.0)
    return launching, besides
