"""Gradients that are filled with zeros first: by zero_grad(set_to_none=False), by an embedding's dense backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.rows import numel
from pyprof.prof.advice.run import Run
from pyprof.prof.occupancy import Floats
from pyprof.table import NULL

__all__: list[str] = []

ADDED = 3  # tensors' worth of bytes that adding to a gradient moves: two read, one written
MADE = ("aten::zeros", "aten::new_zeros", "aten::zeros_like", "aten::full")  # fills of new tensors
ZEROS = ("aten::zero_", "aten::_foreach_zero_")
DENSE = "aten::embedding_dense_backward"
RARE = 0.1  # rows of the table that a step touches, at the most, where sparse gradients are worth it
# Launches of a sparse gradient and its update, in traces of an H200 (PyTorch 2.11): SGD adds rows as they are,
# SparseAdam coalesces first (sort, unique, sums).
SPARSE_SGD, SPARSE_ADAM = 5, 35


@rule("zero_grad")
def zero_grad(run: Run) -> Iterator[Finding]:
    """Gradients filled with zeros and added to, where without them the backward pass hands over what it made.

    Saved are the fills and, of the additions, one for each filled gradient (with gradient accumulation the later ones
    stay); under DDP, whose buckets keep the gradients, the fills alone. Abstains where nothing was added, where the
    fills are not of the gradients' sizes, and in CUDA graphs, which need gradients in one place.
    """
    outside = (run.phase != "backward") & ~run.mentions("nodes", *MADE) & (run.table.ints("graphNode") == NULL)
    zeros = np.isin(run.aten, ("zero_", "_foreach_zero_")) | ((run.aten == "fill_") & run.mentions("nodes", *ZEROS))
    fills = np.flatnonzero(zeros & outside)
    adds = np.flatnonzero(run.mentions("nodes", "AccumulateGrad") & np.isin(run.aten, ("add_", "add")))
    fills = fills[np.isin(run.phase[fills], ("optimizer", "forward", "other"))]
    if not len(fills) or not len(adds):
        return
    filled, added = float(run.nbytes[fills].sum()), float(run.nbytes[adds].sum()) / ADDED
    if not 0.5 * filled < added:  # NaN: a size is not known
        return
    spared = 0.0 if bool(run.collectives.any()) else min(1.0, filled / added)
    rows = np.concatenate([fills, adds]) if spared else fills
    saved = np.concatenate([run.dur[fills], run.dur[adds] * spared]) if spared else run.dur[fills].copy()
    more = f", {run.count(len(adds)):.4g} add to them ({run.ms(float(run.dur[adds].sum())):.4g} ms)"
    why = (
        f"{run.count(len(fills)):.4g} kernels fill gradients with zeros "
        f"({run.ms(float(run.dur[fills].sum())):.4g} ms){more if spared else ''}; a gradient that is None is taken "
        "over as the backward pass made it"
    )
    change = "optimizer.zero_grad(set_to_none=True), which is the default since PyTorch 2.0."
    yield Finding(rows, saved, why, change, "high", launches=len(fills) + spared * len(adds))


@rule("sparse_grad")
def sparse_grad(run: Run) -> Iterator[Finding]:
    """An embedding's dense gradient: a table of zeros, of which a step fills a few rows, and the optimizer reads all.

    Abstains where a step touches a tenth of the table or more, where a product has the table's rows among its sizes (a
    tied output layer, whose gradient is dense anyhow), and in distributed runs.
    """
    fills = np.flatnonzero(run.mentions("nodes", DENSE) & np.isin(run.aten, ("fill_", "zero_")))
    if bool(run.collectives.any()):
        return
    tables: dict[tuple[int, int], list[int]] = {}
    for row in fills.tolist():
        shape = (run.shapes(row) or [[]])[0]
        if len(shape) == 2:
            tables.setdefault((shape[0], shape[1]), []).append(row)
    dims = _product_dims(run) if tables else set()
    for (entries, width), rows in tables.items():
        touched = _touched(run, width)
        if entries not in dims and 0 < touched < RARE * entries:
            yield from _table(run, (entries, width), rows, touched)


def _table(run: Run, shape: tuple[int, int], fills: list[int], touched: int) -> Iterator[Finding]:
    update = np.flatnonzero((run.phase == "optimizer") & (run.dur > 0))
    share = np.array([_share(run, row, shape) for row in update.tolist()])
    update, share = update[share > 0], share[share > 0]
    rows = np.concatenate([np.array(fills), update])
    saved: Floats = np.concatenate([run.dur[fills], run.dur[update] * share])
    now = run.ms(float(saved.sum()))
    why = (
        f"The gradient of an embedding of {shape[0]} × {shape[1]} is dense: a step touches at most {touched} of its "
        f"rows, but fills all with zeros and updates all, {now:.4g} ms"
    )
    change = (
        "nn.Embedding(..., sparse=True), with torch.optim.SGD, Adagrad or SparseAdam for this parameter; momentum and "
        "weight decay then leave rows alone that had no gradient."
    )
    adam = bool(np.isin(run.aten[update], ("_foreach_addcdiv_", "addcdiv_", "_fused_adam_")).any())
    gone = int(run.mentions("nodes", DENSE).sum()) + int((share == 1).sum())
    launches = gone - (SPARSE_ADAM if adam else SPARSE_SGD) * run.steps * run.lanes
    yield Finding(rows, saved, why, change, "medium", launches=launches)


def _touched(run: Run, width: int) -> int:
    """Rows of the greatest batch of indices, of embeddings of this width."""
    found = [0]
    for row in np.flatnonzero((run.aten == "embedding_dense_backward") & (run.role == "main")).tolist():
        shapes = run.shapes(row)
        if len(shapes) > 1 and shapes[0] and shapes[0][-1] == width:
            found.append(numel(shapes[0]) // width)
    return max(found)


def _share(run: Run, row: int, shape: tuple[int, int]) -> float:
    """Of the row's work, what the parameter of this shape takes: of a list of tensors its part."""
    sizes: Any = run.json("sizes", row)
    first = sizes[0] if isinstance(sizes, list) and sizes else None
    if first == list(shape):
        return 1.0
    if not isinstance(first, list) or list(shape) not in first:
        return 0.0
    return shape[0] * shape[1] / max(sum(numel(item) for item in first), 1)


def _product_dims(run: Run) -> set[int]:
    rows = np.flatnonzero(run.family == "gemm").tolist()
    return {size for row in rows for shape in run.shapes(row) for size in shape}
