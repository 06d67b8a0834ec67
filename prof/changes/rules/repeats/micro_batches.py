"""Work that a step repeats on inputs of one size, and that one call on all of these inputs would do as well.

Micro-batches are such work: forward and backward passes that are alike and follow each other before one update of the
weights. No pass depends on another, since the weights do not change in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.product import product_of
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.quantities import rounded
from pyprof.table.columns import Floats, Ints, numbered

ALIKE = 0.9  # of two passes' kernels, those that have the same op and sizes
# What a kernel takes however little it does: the shortest of 45 programs' kernels on an H200 take 1.2 to 2.5 µs.
FLOOR_NS = 2_000.0
DEVIATION = 0.15
ACCUMULATES = "AccumulateGrad"


class Passes(NamedTuple):
    """Passes that are alike: the rows of each in order of their start, of one step and GPU."""

    each: list[Ints]


@edit_rule("repeats")
def repeats(scenario: Scenario) -> Iterator[Proposal]:
    """Micro-batches as one batch: the host's work of one of them remains, and kernels on inputs k times as large.

    Refuted by: passes of different ops or sizes, an update of the weights between them, a single pass per step.
    """
    run = scenario.run
    found = [passes for passes in _micro_batches(run) if len(passes.each) > 1]
    if not found:
        yield Abstained("repeats", "no step has several passes that are alike, forward and backward, before one update")
        return
    rows = np.concatenate([rows for passes in found for rows in passes.each])
    ns = np.concatenate([each for passes in found for each in _merged_ns(run, passes)])
    left = np.concatenate([np.full(len(rows), float(i == 0)) for passes in found for i, rows in enumerate(passes.each)])
    times = Counter(len(passes.each) for passes in found).most_common(1)[0][0]
    kernels = run.count(sum(len(passes.each[0]) for passes in found))
    yield Edit(
        rule="repeats",
        change=(
            f"Run the {times} micro-batches of a step as one, where memory allows: batches {times} times as large "
            "and one backward pass, without dividing the loss. Otherwise as few and as large ones as fit."
        ),
        why=(
            f"Per {run.unit}, {times} forward and backward passes of {rounded(kernels)} kernels each have the same ops "
            "and sizes, and no update of the weights lies between them"
        ),
        cost=COSTS["repeats"],
        rows=rows,
        ns=ns,
        left=left,
        deviation=DEVIATION,
    )


def _micro_batches(run: Run) -> Iterator[Passes]:
    """The passes of each step and GPU that are alike."""
    _, word = numbered(*(run.table.coded(key).codes for key in ("aten", "sizes", "phase")))
    word = np.where(run.mentions("nodes", ACCUMULATES), -1, word)  # the first pass sets what the others add to
    steps = run.table.ints("step")
    passing = np.isin(run.phase, ("forward", "backward"))
    for lane in run.lane_rows:
        for step in np.unique(steps[lane]).tolist():
            mine = lane[steps[lane] == step]
            updates = np.flatnonzero(run.phase[mine] == "optimizer")
            if not len(updates):
                continue
            until = mine[: updates[0]] if updates[0] else mine[:0]
            yield Passes(_alike(_passes(run, until[passing[until]]), word))


def _passes(run: Run, rows: Ints) -> list[Ints]:
    """The rows split where a forward pass follows a backward pass."""
    backward = run.phase[rows] == "backward"
    begins = np.flatnonzero(backward[:-1] & ~backward[1:]) + 1
    parts = np.split(rows, begins)
    return [part for part in parts if {"forward", "backward"} <= set(run.phase[part].tolist())]


def _alike(passes: list[Ints], word: Ints) -> list[Ints]:
    """The passes that have the ops and sizes of the first one; none if any differs."""
    if len(passes) < 2:
        return []
    counts = [Counter(word[rows][word[rows] >= 0].tolist()) for rows in passes]
    first = counts[0]
    shared = [sum((first & other).values()) / max(first.total(), other.total()) for other in counts]
    return passes if min(shared) >= ALIKE else []


def _merged_ns(run: Run, passes: Passes) -> Iterator[Floats]:
    """The durations of the first pass's kernels on all inputs together, and zeros for those of the other passes."""
    times, first = len(passes.each), passes.each[0]
    whole = sum(float(run.dur[rows].sum()) for rows in passes.each) / max(times * float(run.dur[first].sum()), 1.0)
    parameters = _parameters(run)
    grown = times * run.dur[first] - (times - 1) * np.minimum(run.dur[first], FLOOR_NS)
    for place, row in enumerate(first.tolist()):
        if run.family[row] == "gemm" and run.role[row] == "main":
            grown[place] = min(grown[place], run.dur[row] * _ratio(run, row, times, parameters))
    yield grown * min(whole, 1.0)
    for rows in passes.each[1:]:
        yield np.zeros(len(rows))


def _parameters(run: Run) -> set[tuple[int, ...]]:
    """The shapes of parameters, by the gradients that autograd accumulates, as they are and transposed."""
    rows = np.flatnonzero(run.mentions("nodes", ACCUMULATES)).tolist()
    shapes = {tuple(run.first_shape(row)) for row in rows} - {()}
    return shapes | {shape[::-1] for shape in shapes}


def _ratio(run: Run, row: int, times: int, parameters: set[tuple[int, ...]]) -> float:
    """How much longer a product takes on so many times the samples: a weight among its operands is read once."""
    product, code = product_of(run, row), int(run.limits.unit.codes[row])
    if product is None or code < 0 or not run.nbytes[row] > 0:
        return float(times)
    m, n, k = product.m, product.n, product.k
    parts = [((m, k), m * k), ((k, n), k * n), ((m, n), m * n)]  # operands and result
    fixed = sum(size for shape, size in parts if shape in parameters) / sum(size for _, size in parts)
    unit, flop, nbytes = run.limits.unit.values[code], float(run.flop[row]), float(run.nbytes[row])
    now, then = (run.product_ns(flop * by, nbytes * (fixed + (1 - fixed) * by), unit) for by in (1, times))
    return then / now if then == then else float(times)
