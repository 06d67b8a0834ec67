"""Products too small to fill the GPU, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.advice.alignment import gemm
from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.run import Run

__all__: list[str] = []

IN_A_ROW = 4
LEAST_NS = 3000.0  # shorter ones are launches (launch_bound)


@rule("small_grid")
def small_grid(run: Run) -> Iterator[Finding]:
    """The same product at least four times in a row, none of which could use another's result, each on less than half
    of the SMs: as one batched product they run side by side.

    Independence is told by the sizes: a result [m, n] can be no operand of the next where n != k and m != k. Abstains
    without shapes, strides or the number of SMs.
    """
    if run.device is None or not run.device.sms:
        return
    main = np.flatnonzero((run.role != "aux") & (run.texts("kind") != "memset"))
    group: list[int] = []
    rows: list[int] = []
    saved: list[float] = []
    for row in [*main.tolist(), -1]:
        if group and (row < 0 or not _alike(run, group[-1], row)):
            if len(group) >= IN_A_ROW:
                blocks = float(run.limits.geometry.blocks[group[0]])
                beside = min(len(group), int(run.device.sms // blocks))
                rows += group
                saved += [float(run.dur[i]) * (1 - 1 / beside) for i in group]
            group = []
        if row >= 0 and _small(run, row, run.device.sms):
            group.append(row)
    if rows:
        why = (
            f"{run.count(len(rows)):.4g} equal products run one after the other, each on fewer than half of the "
            f"{run.device.sms} SMs: {run.ms(float(run.dur[rows].sum())):.4g} ms"
        )
        change = "Stack their operands and call torch.bmm (or one product, where they share an operand)."
        yield Finding(np.array(rows), np.array(saved), why, change, "medium")


def _small(run: Run, row: int, sms: int) -> bool:
    product = gemm(str(run.aten[row]), run.shapes(row), run.strides(row))
    if product is None or not product.leads or product.k in (product.m, product.n):
        return False
    return bool(run.limits.geometry.blocks[row] < sms / 2 and run.dur[row] > LEAST_NS)


def _alike(run: Run, a: int, b: int) -> bool:
    same = all(run.table.coded(key).codes[a] == run.table.coded(key).codes[b] for key in ("sizes", "strides", "grid"))
    return bool(same and run.lane[a] == run.lane[b] and run.aten[a] == run.aten[b] and run.phase[a] == run.phase[b])
