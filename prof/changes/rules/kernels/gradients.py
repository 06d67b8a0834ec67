"""Gradients that are first filled with zeros: by zero_grad, by an embedding's dense backward, by indexing in a loop."""

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import START_NS, STREAMED, Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.quantities import rounded
from pyprof.table.columns import Floats

ADDED = 3  # adding to a gradient moves three tensors: two are read, one is written
MADE = ("aten::zeros", "aten::new_zeros", "aten::zeros_like", "aten::full")  # fills of new tensors
ZEROS = ("aten::zero_", "aten::_foreach_zero_")
DENSE = ("aten::embedding_dense_backward", "aten::_embedding_bag_dense_backward")
RARE = 0.1  # sparse gradients are advised if a step touches at most this share of the table's rows
# Launches of a sparse gradient and its update, in traces of an H200 (PyTorch 2.11): SGD adds rows as they are,
# SparseAdam coalesces first (sort, unique, sums), and takes the host as long as 106 to 126 small ops of 8.3 µs do.
SPARSE_SGD, SPARSE_ADAM, BESIDES = 5, 35, 80
NORMS = ("_foreach_norm", "linalg_vector_norm")  # norms of gradients, as clip_grad_norm_ computes them
SELECT, SLICE = "aten::select_backward", "aten::slice_backward"
# What takes the pieces at once, the piece as it is taken one by one, and the words for one and many of these
OF_PIECES = {
    SELECT: ("unbind", "(dim)", "x[:, i]", "index", "indices"),
    SLICE: ("split", "(size, dim)", "x[:, a:b]", "slice", "slices"),
}
PIECES = 8  # fewest pieces of one tensor; PyTorch's own nn.MultiheadAttention splits a tensor into three
# stack along an inner dimension reads and writes at 0.59 to 0.61 of 4.8 TB/s (two programs on an H200); a launch takes
# 128 tensors (ATen/native/cuda/Shape.cu).
STACKED, STACKS = 0.12, 128


@rule("zero_grad")
def zero_grad(run: Run) -> Iterator[Finding]:
    """Gradients pre-filled with zeros, so autograd accumulates instead of assigning.

    The saving is the fills and one addition per filled gradient (with gradient accumulation, later additions remain).
    Under DDP, whose buckets keep the gradients, only the fills are saved. Abstains if nothing was added, if the fills
    do not have the gradients' sizes, and in CUDA graphs, which need gradients at fixed addresses.

    Refuted by: gradients that nothing fills with zeros, or that nothing is added to.
    """
    outside = (run.phase != "backward") & ~run.mentions("nodes", *MADE) & ~run.in_graph
    zeros = np.isin(run.aten, ("zero_", "_foreach_zero_")) | ((run.aten == "fill_") & run.mentions("nodes", *ZEROS))
    fills = np.flatnonzero(zeros & outside)
    adds = np.flatnonzero(run.mentions("nodes", "AccumulateGrad") & np.isin(run.aten, ("add_", "add")))
    fills = fills[np.isin(run.phase[fills], ("optimizer", "forward", "other"))]
    if not len(fills) or not len(adds):
        return
    filled, added = float(run.nbytes[fills].sum()), float(run.nbytes[adds].sum()) / ADDED
    if not 0.5 * filled < added:  # also abstains for NaN, an unknown size
        return
    spared = 0.0 if bool(run.collectives.any()) else min(1.0, filled / added)
    rows = np.concatenate([fills, adds]) if spared else fills
    saved = np.concatenate([run.dur[fills], run.dur[adds] * spared]) if spared else run.dur[fills].copy()
    more = (
        f", and {run.number(adds, 'kernel adds', 'kernels add')} to them ({rounded(run.ms_of(adds))} ms)"
        if spared
        else ""
    )
    why = (
        f"{run.number(fills, 'kernel fills', 'kernels fill')} gradients with zeros ({rounded(run.ms_of(fills))} "
        f"ms){more}. Where a gradient is None, autograd assigns it and needs neither"
    )
    change = "Set gradients to None: optimizer.zero_grad(set_to_none=True), the default since PyTorch 2.0."
    yield Finding(rows, saved, why, change, launches=len(fills) + spared * len(adds))


@rule("sparse_grad")
def sparse_grad(run: Run) -> Iterator[Finding]:
    """An embedding's dense gradient: a step fills few rows of a table of zeros, but the optimizer reads all of them.

    Abstains if a step touches a tenth of the table or more, if a product has the number of the table's rows among
    its sizes (a tied output layer, whose gradient is dense anyway), and in distributed runs.

    Refuted by: a table without a dense gradient, or of which a step touches a large part.
    """
    fills = np.flatnonzero(run.mentions("nodes", *DENSE) & np.isin(run.aten, ("fill_", "zero_")))
    if bool(run.collectives.any()):
        return
    tables: dict[tuple[int, int], list[int]] = {}
    for row in fills.tolist():
        shape = run.first_shape(row)
        if len(shape) == 2:
            tables.setdefault((shape[0], shape[1]), []).append(row)
    products = np.flatnonzero(run.family == "gemm").tolist() if tables else []
    dims = {size for row in products for shape in run.shapes(row) for size in shape}
    for (entries, width), rows in tables.items():
        touched = _touched(run, width)
        if entries not in dims and 0 < touched < RARE * entries:
            yield from _table(run, (entries, width), rows, touched)


def _table(run: Run, shape: tuple[int, int], fills: list[int], touched: int) -> Iterator[Finding]:
    steps = run.phase == "optimizer"
    update = np.flatnonzero(steps & (run.dur > 0))
    share = np.array([_share(run, row, shape) for row in update.tolist()])
    update, share = update[share > 0], share[share > 0]
    now = run.ms(float(run.dur[fills].sum() + (run.dur[update] * share).sum()))
    dense = np.setdiff1d(np.flatnonzero(run.mentions("nodes", *DENSE)), update)  # with what sorts and sums
    rows = np.concatenate([dense, update])
    saved: Floats = np.concatenate([run.dur[dense], run.dur[update] * share])
    bag = DENSE[1] in str(run.texts("nodes")[fills[0]])
    why = (
        f"The gradient of an embedding of {shape[0]} × {shape[1]} is dense. A step touches at most {touched} of its "
        f"rows, but fills all of them with zeros and updates all: {rounded(now)} ms"
    )
    change = (
        f"Use sparse gradients for the embedding of {shape[0]} × {shape[1]}: "
        f"nn.{'EmbeddingBag' if bag else 'Embedding'}(..., sparse=True), with torch.optim.SGD, Adagrad or SparseAdam "
        "for this parameter. Momentum and weight decay then skip rows without a gradient."
    )
    if bool(np.isin(run.aten[steps], NORMS).any()):
        change += " Clip the other gradients without this one: clip_grad_norm_ raises an error for a sparse gradient."
    adam = bool(np.isin(run.aten[update], ("_foreach_addcdiv_", "addcdiv_", "_fused_adam_")).any())
    launches = len(rows) - (SPARSE_ADAM if adam else SPARSE_SGD) * run.steps * run.lanes
    besides = BESIDES * run.steps * run.lanes if adam else 0
    yield Finding(rows, saved, why, change, launches=launches, added=besides)


def _touched(run: Run, width: int) -> int:
    """The size of the largest batch of indices into embeddings of this width."""
    rows = np.flatnonzero(np.isin(run.aten, [name.removeprefix("aten::") for name in DENSE])).tolist()
    of_rows = [run.shapes(row) for row in rows]
    return max((numel(shapes[1]) for shapes in of_rows if len(shapes) > 1 and shapes[0][-1:] == [width]), default=0)


def _share(run: Run, row: int, shape: tuple[int, int]) -> float:
    """The share of a row's work that belongs to the parameter of this shape."""
    first = next(iter(run.listed("sizes", row)), None)
    if first == list(shape):
        return 1.0
    if not isinstance(first, list) or list(shape) not in first:
        return 0.0
    return shape[0] * shape[1] / max(sum(numel(item) for item in first), 1)


@rule("select_in_loop")
def select_in_loop(run: Run) -> Iterator[Finding]:
    """x[:, i] or x[:, a:b] in a loop: the gradient of each piece takes a tensor of zeros as large as x, a copy into it,
    and a sum.

    With unbind or split, the gradient is a single stack. Only fills directly followed by a piece's copy count, and sums
    directly after the copy. One piece per tensor has no sum, so the fills without a sum give the number of tensors.
    Abstains below eight pieces per tensor, and for slices of several sizes, or that together are not as large as the
    tensor: they overlap or omit elements. Only half of the host's calls are counted, because autograd makes them
    without Python.

    Refuted by: pieces whose gradients no fill precedes, as those of unbind.
    """
    found: dict[tuple[str, str, str], list[list[int]]] = {}
    zeros = run.mentions("nodes", SELECT, SLICE) & np.isin(run.aten, ("fill_", "zero_"))
    for row in np.flatnonzero(zeros).tolist():
        shape, nodes = run.first_shape(row), str(run.texts("nodes")[row])
        kind = SELECT if SELECT in nodes else SLICE
        if shape and _follows(run, row, 1, "copy_") and kind in str(run.texts("nodes")[row + 1]):
            summed = _follows(run, row, 2, "add_", "add") and run.first_shape(row + 2) == shape
            key = (kind, str(shape), run.trace(row))
            found.setdefault(key, []).append([row, row + 1, *([row + 2] if summed else [])])
    for (kind, size, _), pieces in found.items():
        tensors = max(sum(len(rows) == 2 for rows in pieces), run.steps * run.lanes)
        fits = kind == SELECT or _covers(run, pieces, tensors)
        if len(pieces) >= PIECES * tensors and run.device is not None and fits:
            yield _selected(run, kind, size, pieces, tensors)


def _covers(run: Run, pieces: list[list[int]], tensors: int) -> bool:
    """Whether slices of one size are together as large as the tensors that they are taken from."""
    sizes = {int(run.elements[rows[1]]) for rows in pieces}
    return len(sizes) == 1 and sizes.pop() * len(pieces) == int(run.elements[pieces[0][0]]) * tensors


def _follows(run: Run, row: int, by: int, *ops: str) -> bool:
    """Whether the row that follows at this distance runs on the same GPU and belongs to one of these ops."""
    return row + by < run.rows and run.lane[row + by] == run.lane[row] and run.aten[row + by] in ops


def _selected(run: Run, kind: str, shape: str, pieces: list[list[int]], tensors: int) -> Finding:
    call, arguments, piece, *names = OF_PIECES[kind]
    rows = np.array([row for rows in pieces for row in rows])
    now = max(float(run.dur[rows].sum()), 1.0)
    fills = [rows[0] for rows in pieces]
    nbytes = 2.0 * float(run.nbytes[fills].sum()) / len(pieces) * tensors  # a fill writes the tensor once
    expected = min(START_NS * tensors + 1e9 * nbytes / (STACKED / STREAMED * run.bandwidth), now)
    saved: Floats = run.dur[rows] * (1 - expected / now)
    launches = max(len(rows) - tensors - len(pieces) / STACKS, 0.0)
    why = (
        f"{run.number(pieces, *names)} into tensors of {shape}: for each, autograd fills a tensor of that "
        f"size with zeros, copies the piece's gradient into it and adds it to the others, {rounded(run.ms(now))} ms. "
        f"One stack per tensor ({rounded(run.count(tensors))}) would take {rounded(run.ms(expected))} ms"
    )
    change = (
        f"Call {call} once before the loop: parts = x.{call}{arguments}, then parts[i] in place of {piece}. The "
        "gradient of all pieces is then one stack."
    )
    return Finding(rows, saved, why, change, launches=launches, calls=launches / 2)
