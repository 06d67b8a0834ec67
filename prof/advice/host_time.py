"""Estimate the time that the host would need per step without the profiler, which slows it down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyprof.table.columns import NULL, Ints

if TYPE_CHECKING:
    from pyprof.prof.advice.run import Run

# How much of the host's time under a profiler is its own. 45 programs on an H200 (PyTorch 2.11, tests/device/
# advice_measured.py): Python's time without a profiler over the time between the first and the last launch under
# torch.profiler with shapes, as pyprof.profile records: median 0.53, four fifths of them 0.35 to 0.66. GPT-2's step
# (docs/explanation/marking.md): 10.2 ms, under nsys with PyTorch's ranges 28.8, with init() too 32; under nsys alone
# 14.3.
OWN_KINETO, OWN_RANGES, OWN_MARKED, OWN_PLAIN = 0.5, 0.35, 0.32, 0.7
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
    api, took = run.table.ints("apiStart"), run.table.ints("apiDuration")
    launched = ~run.in_graph
    if not run.launches_timed:
        return LAUNCH_NS * run.count(int(launched.sum())), 0.0
    known = (api != NULL) & (took != NULL)
    each = [_between(run, rows[known[rows]], api, took) for rows in run.lane_rows]
    launching, besides = (float(np.mean(part)) / run.steps for part in zip(*each, strict=True)) if each else (0.0, 0.0)
    return min(own_share(run) * launching, MOST_NS * run.count(int(launched.sum()))), besides


def launches_timed(run: Run) -> bool:
    """Whether the capture has start and duration of the launches of at least 90% of the rows."""
    known = (run.table.ints("apiStart") != NULL) & (run.table.ints("apiDuration") != NULL)
    return run.rows > 0 and int(known.sum()) >= 0.9 * run.rows


def _between(run: Run, rows: Ints, api: Ints, took: Ints) -> tuple[float, float]:
    """The ns from the first to the last launch, split into (short gaps and calls, long gaps).

    A long gap counts only from the end of the last operation, because until then the host may have waited for the GPU.
    A CUDA graph's launch has many rows.
    """
    rows = rows[np.argsort(api[rows], kind="stable")]
    if len(rows) < 2:
        return 0.0, 0.0
    start, end = api[rows], api[rows] + np.minimum(took[rows], CALL_NS)
    gap = np.maximum(start[1:] - (api + took)[rows][:-1], 0)
    lists = np.array([str(aten).startswith(("_foreach_", "_fused_")) for aten in run.aten[rows][1:]])
    gap = np.where(lists, np.minimum(gap, LIST_NS / own_share(run)), gap)
    ends = np.sort(run.end[rows])
    before = np.searchsorted(ends, start[1:], side="right") - 1
    since = np.where(before >= 0, start[1:] - ends[before], gap)
    long = gap > LONG_NS
    return float(gap[~long].sum() + (end - start).sum()), float(np.minimum(gap, since)[long].sum())


def own_share(run: Run) -> float:
    """The share of the captured host time that is not the profiler's, which depends on the profiler."""
    if not bool(np.isnan(np.asarray(run.table.columns["occupancy"], np.float64)).all()):  # torch.profiler's column
        return OWN_KINETO
    if not bool((run.aten != "").any()):
        return OWN_PLAIN
    return OWN_MARKED if bool((run.table.coded("marker").codes >= 0).any()) else OWN_RANGES
