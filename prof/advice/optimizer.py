"""Optimizers that read and write the parameters' state more often than one pass needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.run import LAUNCH_NS, STREAMED, Run
from pyprof.table import Ints, distinct

__all__ = ["optimizer"]

REACHED = 0.72  # of the bandwidth: fused AdamW of GPT-2 on an H200, 1.00 ms for 124 M parameters
WORTH = 1.15
BUSY = 0.8  # of its span, a phase in which the GPU is the limit


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

    Saved are bytes, at the bandwidth that the fused kernel reaches, and of single ops what the GPU waited for their
    launches, at 5 µs each. Abstains where a fused kernel runs, where bytes or device are unknown, for other optimizers
    (SGD with momentum by lists moves 20 to 24 bytes a parameter, fused 20: nothing to gain), and of lists where the GPU
    idles during the optimizer's step: there the host is the limit, and fewer bytes change nothing.
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
    loop = not any(str(a).startswith("_foreach_") for a in np.unique(run.aten[rows].astype(str)))
    span = _span_ns(run, rows)
    if not now > WORTH * expected or not (loop or now > BUSY * span):
        return
    waited = min(span - now, max(LAUNCH_NS * len(rows) - now, 0.0)) if loop else 0.0
    moved = float(run.nbytes[rows].sum()) / parameters
    saved = run.dur[rows] * (1 - expected / now)
    why = (
        f"{ADAM.name} by {'single ops' if loop else 'lists of tensors (foreach)'} moves {moved:.0f} bytes a parameter "
        f"in {run.count(len(rows)):.4g} kernels, a fused one {ADAM.fused_bytes}: {run.ms(now):.4g} ms, expected "
        f"{run.ms(expected):.4g} ms for {parameters / run.steps / run.lanes / 1e6:.4g} M parameters"
    )
    yield Finding(rows, saved, why, "Pass fused=True to the optimizer (torch.optim.Adam, AdamW).", "medium", waited)


def _span_ns(run: Run, rows: Ints) -> float:
    """From the first of the rows to the last, in each step and on each GPU, together."""
    keys, group = distinct(run.table.ints("step")[rows], run.lane[rows])
    first, last = np.full(len(keys), np.iinfo(np.int64).max), np.full(len(keys), np.iinfo(np.int64).min)
    np.minimum.at(first, group, run.start[rows])
    np.maximum.at(last, group, run.end[rows])
    return float((last - first).sum())
