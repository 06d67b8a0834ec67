"""A GPU that waits: for launches, for the host after a synchronisation, for data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.run import Run
from pyprof.prof.occupancy import Floats
from pyprof.table import NULL

__all__ = ["gaps"]

IDLE = 0.4  # a launch-bound GPU works less than this share of a step
DENSE_NS = 200_000.0  # longer gaps are the host's own work, not launches
MANY = 30  # launches a step; with fewer nothing is bound by them
# What the host needs for a kernel from Python without a profiler: 5 to 10 µs. The capture's own gaps are longer,
# by what the profiler takes: a step of GPT-2 on an H200, 24 ms busy, takes 31 under torch.profiler, 47 under nsys.
EAGER_NS = 10_000.0
WAITED = 0.05  # of the step, before a batch
LEAD_NS = 20_000.0  # a copy that waited this long behind other work in the queue
BATCH = 1 << 16  # bytes of a batch, at least
SMALL = 64  # bytes: .item() and the like


def gaps(run: Run) -> Floats:
    """Before each row, ns in which its GPU did nothing; 0 for the first row of a GPU."""
    before = np.zeros(run.rows)
    for rows in run.lane_rows:
        done = np.maximum.accumulate(run.end[rows])
        before[rows[1:]] = np.maximum(run.start[rows[1:]] - done[:-1], 0)
    return before


@rule("launch_bound")
def launch_bound(run: Run) -> Iterator[Finding]:
    """Many short kernels, and a GPU that waits for the next launch most of the step.

    Saved is the host's time at 10 µs a launch over the GPU's, no more than the gaps. Abstains where the GPU works 40%
    of the step or more, where launching at that rate takes no longer than the GPU works (then the profiler, or
    something else, holds the host up), and where kernels come from a graph already.
    """
    idle = gaps(run)
    dense = (idle > 0) & (idle < DENSE_NS)
    host = EAGER_NS * run.count(run.rows)
    in_graphs = bool((run.table.ints("graphNode") != NULL).any()) or bool((run.texts("kind") == "graph").any())
    if in_graphs or run.count(run.rows) < MANY or run.busy_ns > IDLE * run.step_ns or host < run.busy_ns:
        return
    waiting = float(idle[dense].sum())
    why = (
        f"The GPU works {100 * run.busy_ns / run.step_ns:.0f}% of the step: {run.count(run.rows):.4g} kernels "
        "and copies "
        f"of {run.busy_ns / run.count(run.rows) / 1e3:.3g} µs on average, while launching one from Python takes "
        "5 to 10. It "
        f"waits {run.ms(waiting):.4g} ms for launches, the profiler's own time included; counted is what 10 µs "
        "a launch "
        "would leave: measure the step without a profiler"
    )
    change = (
        'torch.compile(model, mode="reduce-overhead") or torch.cuda.graph: a graph launches all kernels at '
        "once; larger "
        "batches, where they fit."
    )
    whole = (host - run.busy_ns) * run.steps * run.lanes
    yield Finding(np.arange(run.rows), np.zeros(run.rows), why, change, "low", min(waiting, whole))


@rule("sync_in_step")
def sync_in_step(run: Run) -> Iterator[Finding]:
    """.item() and the like within a step: the host waits for the queue to drain, then the GPU for the host.

    Only copies of some bytes to the host that stood in a full queue, and are followed by work of the same step: what
    the GPU waited afterwards, but no more than the lead the host had. Abstains without launch times.
    """
    idle = gaps(run)
    small = (run.texts("kind") == "memcpy") & (run.mentions("kShortName", "DtoH", "Device-to-Host"))
    size, api = run.table.ints("bytes"), run.table.ints("apiStart")
    rows = np.flatnonzero(small & (size != NULL) & (size <= SMALL) & (api != NULL))
    step = run.table.ints("step")
    rows = rows[rows + 1 < run.rows]
    rows = rows[(run.lane[rows + 1] == run.lane[rows]) & (step[rows + 1] == step[rows])]
    lead = (run.start[rows] - api[rows]).astype(np.float64)
    lost = np.where(lead > LEAD_NS, np.minimum(idle[rows + 1], lead), 0.0)
    rows, lost = rows[lost > 0], lost[lost > 0]
    if len(rows):
        why = (
            f"{run.count(len(rows)):.4g} copies of a few bytes to the host within the step (.item(), a condition on a "
            f"tensor): each drains the queue, and the GPU then waits for the host, {run.ms(float(lost.sum())):.4g} ms"
        )
        change = "Keep the value on the GPU (torch.where, in-place sums), or read it once every some steps."
        yield Finding(rows, np.zeros(len(rows)), why, change, "medium", float(lost.sum()))


@rule("data_loader")
def data_loader(run: Run) -> Iterator[Finding]:
    """The GPU waits for the next batch: idle before the step's copies of data from the host.

    Only in training, copies that the capture puts into the phase "data", and gaps that no launch explains.
    """
    idle = gaps(run)
    copies = (run.texts("kind") == "memcpy") & (run.phase == "data")
    copies &= run.mentions("kShortName", "HtoD", "Host-to-Device")
    copies &= run.table.ints("bytes") >= BATCH
    trains = bool(np.isin(run.phase, ("backward", "optimizer")).any())
    rows = np.flatnonzero(copies & (idle > DENSE_NS) & trains)
    waited = float(idle[rows].sum())
    if waited > WAITED * run.step_ns * run.steps * run.lanes:
        why = (
            f"Before {run.count(len(rows)):.4g} copies of input data a step the GPU did nothing for "
            f"{run.ms(waited):.4g} ms: the host had no batch ready"
        )
        change = (
            "DataLoader(num_workers=..., persistent_workers=True, pin_memory=True, prefetch_factor=...); "
            "decode and augment "
            "in the workers or on the GPU."
        )
        yield Finding(rows, np.zeros(len(rows)), why, change, "medium", waited)
