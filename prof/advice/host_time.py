"""Estimate the time that the host would need per step without the profiler, which slows it down."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pyprof.prof.timing import profiler_cost
from pyprof.table.columns import NULL, Ints

if TYPE_CHECKING:
    from pyprof.prof.advice.run import Run

_LISTS = re.compile(r"(?:aten::)?_(?:foreach|fused)_")
MOST_NS = 25_000.0  # most time per launch, in steps with 50 launches or more; call stacks and slow hosts take longer
LIST_NS = 40_000  # an op on lists of 16 to 28 tensors, whose descriptions take a profiler longest (40 to 55 µs without)
CALL_NS = 20_000  # a launch call that takes longer is waiting for a full queue, a graph or a copy
LONG_NS = 500_000  # a long gap between launches; an op takes the host 5 to 50 µs, or up to 200 under a profiler
# A launch, where the capture does not time them: 6.3 to 9.6 µs of Python for loops over single ops on an H200's host.
LAUNCH_NS = 6000.0


def host_ns(run: Run) -> tuple[float, float]:
    """An estimate of the host's time per step in ns, for launches and for the rest, good within a factor of about 1.5.

    The time for launches is the captured time between them, without the host's waits for the GPU, times the share that
    is not profiler overhead. The rest is long pauses (data loading, the user's own Python). They count in full, because
    a profiler slows only PyTorch's calls. Without launch times in the capture, the estimate is 6 µs per launch and 0
    for the rest.
    """
    if not run.launches_timed:
        return LAUNCH_NS * run.count(_launches(run)), 0.0
    launching, besides = run.captured_host_ns
    own = own_of(run)
    most = np.inf if own.measured else MOST_NS * run.count(_launches(run))
    return min(own.share * launching, most), besides


def interval_ns(run: Run) -> tuple[float, float]:
    """The 80% interval of the host's time per step in ns."""
    own, (launching, besides) = own_of(run), run.captured_host_ns
    low, high = (min(share * launching + besides, run.step_ns) for share in (own.low, own.high))
    return min(low, run.host_ns), max(high, run.host_ns)


def _launches(run: Run) -> int:
    """How many calls launched the rows: one for all of a CUDA graph that have its launch."""
    graph = run.table.ints("apiStart")[run.in_graph]
    return int((~run.in_graph).sum()) + len(np.unique(graph[graph != NULL]))


def launches_timed(run: Run) -> bool:
    """Whether the capture has start and duration of the launches of at least 90% of the rows."""
    known = (run.table.ints("apiStart") != NULL) & (run.table.ints("apiDuration") != NULL)
    return run.rows > 0 and int(known.sum()) >= 0.9 * run.rows


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


def own_share(run: Run) -> float:
    """The share of the captured host time that is not the profiler's."""
    return own_of(run).share


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
