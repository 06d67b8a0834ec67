"""Collectives that no computation covers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.run import Run, numel
from pyprof.prof.timeline import alone
from pyprof.table import Ints

__all__ = ["exposed"]


def exposed(run: Run, rows: Ints) -> Ints:
    """Of each of these rows, ns in which its GPU did nothing else."""
    others = np.ones(run.rows, bool)
    others[rows] = False
    found = np.zeros(len(rows), np.int64)
    for lane in np.unique(run.lane[rows]).tolist():
        mine = run.lane[rows] == lane
        beside = np.flatnonzero(others & (run.lane == lane))
        found[mine] = alone(run.start[rows[mine]], run.end[rows[mine]], run.start[beside], run.end[beside])
    return found


@rule("communication")
def communication(run: Run) -> Iterator[Finding]:
    """All-reduces of float32 gradients that nothing covers, at half their bytes.

    How long a collective moves bytes is told by the run's fastest one (a byte); the rest of its time it waits for other
    ranks, which no smaller message makes shorter. Abstains without the messages' sizes.
    """
    reduces = run.mentions("kShortName", "AllReduce") & run.mentions("kShortName", "ncclDevKernel", "ncclKernel")
    rows = np.flatnonzero(reduces & run.mentions("kShortName", "_f32", "_float"))
    size = np.array([_bytes(run, row) for row in rows.tolist()], np.float64)
    rows, size = rows[size > 0], size[size > 0]
    if not len(rows):
        return
    fastest = float((run.dur[rows] / size).min())
    bare = exposed(run, rows)
    saved = 0.5 * np.minimum(bare, size * fastest)
    why = (
        f"{run.count(len(rows)):.4g} all-reduces of {run.ms(float(size.sum())):.4g} MB in float32 take "
        f"{run.ms(float(run.dur[rows].sum())):.4g} ms, {run.ms(float(bare.sum())):.4g} ms of it with nothing "
        "beside them; "
        f"moving their bytes takes {run.ms(float((size * fastest).sum())):.4g} ms at the rate of the fastest, "
        "the rest is "
        "waiting for other ranks"
    )
    change = (
        "model.register_comm_hook(None, torch.distributed.algorithms.ddp_comm_hooks.default_hooks.bf16_compress_hook) "
        "halves the bytes; tune bucket_cap_mb so that the last bucket is small."
    )
    yield Finding(rows, saved, why, change, "low")


def _bytes(run: Run, row: int) -> float:
    """Of the message, where the capture tells its shape."""
    sizes = run.json("sizes", row)
    tensors = sizes[0] if isinstance(sizes, list) and sizes and isinstance(sizes[0], list) else []
    return 4.0 * sum(numel(t) for t in (tensors if tensors and isinstance(tensors[0], list) else [tensors]))
