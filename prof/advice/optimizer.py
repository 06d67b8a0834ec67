"""Optimizers that read and write the parameters' state more often than one pass needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.run import STREAMED, Run

__all__ = ["optimizer"]

REACHED = 0.72  # of the bandwidth: fused AdamW of GPT-2 on an H200, 1.00 ms for 124 M parameters
WORTH = 1.15


@dataclass(frozen=True, slots=True)
class Kind:
    """An optimizer by the op that only it has: what that op moves a parameter, and what one pass of all moves."""

    name: str
    mark: tuple[str, ...]  # the op, once a parameter and step
    mark_bytes: int  # a fp32 parameter
    fused_bytes: int


# fp32: Adam reads p, g, m, v and writes p, m, v: 28 bytes a parameter. addcdiv_(p, m, denom) reads 12 and writes 4.
ADAM = Kind("Adam", ("_foreach_addcdiv_", "addcdiv_"), 16, 28)


@rule("optimizer")
def optimizer(run: Run) -> Iterator[Finding]:
    """Adam by single ops or lists of tensors, against one fused pass.

    Saved are bytes, at the bandwidth that the fused kernel reaches, and the kernels' launches where the GPU waited for
    them. Abstains where a fused kernel runs, where bytes or device are unknown, for other optimizers (SGD with momentum
    by lists moves 20 to 24 bytes a parameter, fused 20: nothing to gain), and where the GPU idles during the
    optimizer's step: there the host is the limit, and fewer bytes change nothing.
    """
    phase = (run.phase == "optimizer") & (run.texts("kind") != "memset")
    rows = np.flatnonzero(phase)
    mark = rows[np.isin(run.aten[rows], ADAM.mark)]
    if not len(mark) or any(str(a).startswith("_fused_") for a in np.unique(run.aten[rows].astype(str))):
        return
    rows = rows[run.role[rows] == "main"]
    if np.isnan(run.nbytes[rows]).any():
        return
    parameters = float(run.nbytes[mark].sum()) / ADAM.mark_bytes
    expected = 1e9 * parameters * ADAM.fused_bytes / (REACHED / STREAMED * run.bandwidth)
    now = float(run.dur[rows].sum())
    if not now > WORTH * expected or not _gpu_bound(run, rows):
        return
    moved = float(run.nbytes[rows].sum()) / parameters
    loop = not any(str(a).startswith("_foreach_") for a in np.unique(run.aten[rows].astype(str)))
    saved = run.dur[rows] * (1 - expected / now)
    why = (
        f"{ADAM.name} by {'single ops' if loop else 'lists of tensors (foreach)'} moves {moved:.0f} bytes a parameter "
        f"in {run.count(len(rows)):.4g} kernels, a fused one {ADAM.fused_bytes}: {run.ms(now):.4g} ms, expected "
        f"{run.ms(expected):.4g} ms for {parameters / run.steps / run.lanes / 1e6:.4g} M parameters"
    )
    yield Finding(rows, saved, why, "Pass fused=True to the optimizer (torch.optim.Adam, AdamW).", "medium")


def _gpu_bound(run: Run, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> bool:
    """Does the GPU work most of the time from the first of the rows to the last, in each step?"""
    step = run.table.ints("step")[rows]
    lane = run.lane[rows]
    spans = 0.0
    for one in np.unique(step).tolist():
        for gpu in np.unique(lane[step == one]).tolist():
            mine = rows[(step == one) & (lane == gpu)]
            spans += float(run.end[mine].max() - run.start[mine].min())
    return float(run.dur[rows].sum()) > 0.8 * spans
