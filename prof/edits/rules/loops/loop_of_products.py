"""A layer and its loss in a Python loop over positions, where both could be called once for all positions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pyprof.dtypes import HALF
from pyprof.prof.advice import Run
from pyprof.prof.advice.run_columns import numel
from pyprof.prof.edits.costs import COSTS
from pyprof.prof.edits.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.edits.recurrent_cells import SAMPLED, made
from pyprof.prof.edits.rules.host_waits import released_by
from pyprof.prof.edits.rules.merged_rows import Merged, alike, merge, place
from pyprof.prof.edits.scenario import Scenario
from pyprof.quantities import rounded

# Of classes. Predicted amounts, as of mse_loss, may go back into the loop in part, which only a view shows.
LOSSES = ("nll_loss_forward", "nll_loss2d_forward")
ITERATIONS = 8  # of a loop, at least
SUMMED = 0.5  # of the iterations, at least, add to the weight's gradient
VIEWS = 3  # nodes before a product's own that select its input and turn its weight
LATER = 2  # nodes that a loss makes after the number that it began with


class Part(NamedTuple):
    """What an iteration calls: the rows from its product to its loss, and scalars made of that."""

    product: int
    loss: int
    rows: list[int]


@edit_rule("loop_of_products")
def loop_of_products(scenario: Scenario) -> Iterator[Proposal]:
    """A linear layer and the cross-entropy of its result, position by position, as one call of each for all positions.

    The layer is the same one if autograd adds up gradients of its weight. No iteration needs the layer's result of
    another one if no op but the loss takes a tensor as large as that, forward or backward, and none samples. A piece of
    the result that is taken without a gradient is not seen.
    """
    run = scenario.run
    found: list[list[Part]] = []
    why = f"no line computes a loss of classes {ITERATIONS} times or more within a step"
    for losses in _loops(run):
        parts, why = _parts(run, losses)
        if parts:
            found.append(parts)
    if found:
        yield _edit(scenario, found)
    else:
        yield Abstained("loop_of_products", why)


def _loops(run: Run) -> list[list[int]]:
    """The rows of each loop's losses: of one line and one size, in one step, with no other pass in between."""
    found: dict[tuple[object, ...], list[int]] = {}
    steps, passes = run.table.ints("step"), np.isin(run.phase, ("backward", "optimizer", "data"))
    for row in np.flatnonzero(np.isin(run.aten, LOSSES) & (run.phase != "backward")).tolist():
        key = (place(run, row), str(run.shapes(row)), int(run.lane[row]), int(steps[row]))
        found.setdefault(key, []).append(row)
    loops: list[list[int]] = []
    for rows in found.values():
        ends = [at for at, (a, b) in enumerate(pairwise(rows), 1) if passes[a:b].any()]
        loops += [rows[a:b] for a, b in pairwise([0, *ends, len(rows)])]
    return [loop for loop in loops if len(loop) >= ITERATIONS]


def _parts(run: Run, losses: list[int]) -> tuple[list[Part], str]:
    """What each iteration calls; or why that cannot be called once for all of them."""
    size = numel(run.first_shape(losses[0]))
    if not size:
        return [], "the capture does not have the sizes of the losses in a loop"
    before = max(losses[0] - (losses[1] - losses[0]), 0)
    products = [_product(run, a, b, size) for a, b in pairwise([before, *losses])]
    if min(products) < 0 or len({(place(run, row), run.layer(row), str(run.shapes(row))) for row in products}) > 1:
        return [], "before each loss of a loop, no product of one layer makes what the loss is computed from"
    parts = []
    for number, (product, loss) in enumerate(zip(products, losses, strict=True)):
        end = products[number + 1] if number + 1 < len(products) else min(loss + losses[1] - losses[0], run.rows)
        parts.append(Part(product, loss, [*range(product, loss + 1), *_scalars(run, loss, end)]))
    mine = {row for part in parts for row in part.rows}
    for row in range(parts[0].product, parts[-1].loss + 1):
        if run.aten[row] in SAMPLED:
            return [], f"an op of the loop samples ({run.aten[row]}, {run.trace(row)})"
    back = _backward(run, parts)
    mine.update(back)
    used = (row for row in _around(parts, back) if row not in mine and size in map(numel, run.shapes(row)))
    other = products[0] if size == _input(run, products[0]) else next(used, -1)
    if other >= 0:
        return [], f"more than the loss may be made of the product's result ({run.op(other)}, {run.trace(other)})"
    if _sums(run, parts) < SUMMED * len(parts):
        return [], "autograd does not add up gradients of one weight, so that the products may be of several layers"
    return parts, ""


def _around(parts: list[Part], back: list[int]) -> Iterator[int]:
    """The rows of the loop, and of its backward pass with what lies in between."""
    yield from range(parts[0].product, parts[-1].loss + 1)
    yield from range(min(back, default=0), max(back, default=-1) + 1)


def _input(run: Run, product: int) -> int:
    """The elements of what a product multiplies with its weight; 0 if unknown."""
    shapes = [shape for shape in run.shapes(product) if len(shape) == 2]
    return numel(shapes[0]) if shapes else 0


def _product(run: Run, after: int, loss: int, size: int) -> int:
    """The last product before a loss, if its result has the loss's size; -1: none."""
    for row in range(loss - 1, after - 1, -1):
        if run.family[row] == "gemm" and run.role[row] != "aux":
            return row if size in made(run, row) else -1
    return -1


def _scalars(run: Run, loss: int, end: int) -> Iterator[int]:
    """The rows directly after a loss that work on single values: it is divided, added up, read."""
    for row in range(loss + 1, end):
        shapes = run.listed("sizes", row)
        if not shapes or any(shapes) or run.phase[row] in ("backward", "optimizer", "data"):
            return
        yield row


def _numbers(run: Run, part: Part) -> tuple[int, int]:
    """The first and the last number that autograd gave to nodes of a part; (0, -1) without numbers."""
    number = run.table.ragged("seqId")
    first, last = number.take(np.array([part.product])).values, number.take(np.array(part.rows)).values
    return (int(first.min()) - VIEWS, int(last.max()) + LATER) if len(first) else (0, -1)


def _backward(run: Run, parts: list[Part]) -> list[int]:
    """The rows of the backward pass that have the numbers and lines of these parts."""
    number, first = run.table.ragged("seqId"), parts[0].product
    ranges = np.array(sorted(_numbers(run, part) for part in parts))
    owner = np.repeat(np.arange(run.rows), np.diff(number.offsets))
    at = np.maximum(np.searchsorted(ranges[:, 0], number.values, side="right") - 1, 0)
    within = np.zeros(run.rows, bool)
    within[owner[(number.values >= ranges[at, 0]) & (number.values <= ranges[at, 1])]] = True
    within &= (run.phase == "backward") & (run.table.ints("step") == run.table.ints("step")[first])
    within &= run.lane == run.lane[first]
    lines = {place(run, row) for part in parts for row in part.rows}
    return [row for row in np.flatnonzero(within).tolist() if place(run, row) in lines]


def _weight(run: Run, product: int) -> list[int]:
    """The sizes of the layer's weight, in rising order, as it is read turned; empty if unknown."""
    shapes = [shape for shape in run.shapes(product) if len(shape) == 2]
    return sorted(shapes[-1]) if shapes else []


def _at_once_ns(run: Run, rows: list[int], kept: int, weight: list[int]) -> float:
    """What these products take as few, of which each reads the weight, or writes the weight's gradient, once."""
    now, code = float(run.dur[rows].sum()), int(run.limits.unit.codes[rows[0]])
    if run.device is None or code < 0:
        return now
    itemsize = 2 if run.dtype[rows[0]] in HALF else 4
    nbytes = float(run.nbytes[rows].sum()) - (len(rows) - kept) * numel(weight) * itemsize
    unit = run.limits.unit.values[code]
    expected = kept * run.product_ns(float(run.flop[rows].sum()) / kept, nbytes / kept, unit)
    return min(now, expected) if expected == expected else now


def _sums(run: Run, parts: list[Part]) -> int:
    """How often autograd adds a gradient of the layer's weight to another one, besides to a parameter's own."""
    weight, own = _weight(run, parts[0].product), run.mentions("nodes", "AccumulateGrad")
    rows = [row for row in _backward(run, parts) if run.aten[row] in ("add", "add_") and not own[row]]
    return sum(sorted(run.first_shape(row)) == weight for row in rows)


def _edit(scenario: Scenario, loops: list[list[Part]]) -> Edit:
    run = scenario.run
    merged = Merged([], [], [])
    every: list[int] = []
    for parts in loops:
        rows = [row for part in parts for row in part.rows] + _backward(run, parts)
        products = [row for row in rows if run.family[row] == "gemm" and run.role[row] != "aux"]
        for group in alike(run, products):
            kept = max(1, round(len(group) / len(parts)))
            merged.put(group, _at_once_ns(run, group, kept, _weight(run, parts[0].product)), kept)
        merge(run, sorted(set(rows) - set(products)), len(parts), merged)
        every += rows
    rows_, ns, left = merged.arrays()
    reads = rows_[(run.aten[rows_] == "_local_scalar_dense") & (left == 0)]
    gone = run.ms_of(rows_) - run.ms(float(ns.sum()))
    iterations = sum(map(len, loops)) / len(loops)
    first = loops[0][0]
    return Edit(
        rule="loop_of_products",
        change=(
            "Call the layer and its loss once for all positions: keep the layer's inputs, stack them after the loop, "
            "and compute one loss of the result."
        ),
        why=(
            f"A loop calls {run.op(first.product)} and {run.op(first.loss)} {rounded(iterations)} times, each time on "
            f"{run.first_shape(first.loss)[0]} rows. With the backward pass, which adds up as many gradients of one "
            f"weight, that is {rounded(run.count(len(every)))} launches per {run.unit}; once for all takes "
            f"{rounded(gone)} ms of the GPU's less. No other op of the loop takes a tensor as large as the layer's "
            "result. No position may need the result of another one"
        ),
        cost=COSTS["loop_of_products"],
        rows=rows_,
        ns=ns,
        left=left,
        deviation=0.25,
        released=released_by(scenario, reads),
    )
