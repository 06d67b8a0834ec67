"""Work that a step repeats on inputs of one size, and that one call on all of these inputs would do as well.

Micro-batches are such work: forward and backward passes that are alike and follow each other before one update of the
weights. No pass depends on another, since the weights do not change in between. So are passes within a forward pass
that cannot read each other's results: experts, heads, critics, chunks, samples, or guidance.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.product import product_of
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.repeats.merged_rows import place
from pyprof.prof.changes.rules.repeats.repeated_passes import (
    backward_of,
    independent,
    is_weighted,
    repeated_passes,
    same_layers,
)
from pyprof.quantities import rounded
from pyprof.table.columns import Floats, Ints, numbered

ALIKE = 0.9  # of two passes' kernels, those that have the same op and sizes
# What a kernel takes however little it does: the shortest of 45 programs' kernels on an H200 take 1.2 to 2.5 µs.
FLOOR_NS = 2_000.0
DEVIATION = 0.15
ACCUMULATES = "AccumulateGrad"
FEWEST = 4  # kernels of all passes


class Passes(NamedTuple):
    """Passes that are alike: the rows of each in order of their start, of one step and GPU."""

    each: list[Ints]
    shared: bool = True  # whether all have the same weights
    shown: str = ""  # what shows that none reads another's result


@edit_rule("repeats")
def repeats(scenario: Scenario) -> Iterator[Proposal]:
    """Passes as one: the host's work of one of them remains, and kernels on inputs k times as large.

    Refuted by: passes of different ops or sizes, an update of the weights between them, a pass that may read what the
    one before it has made.
    """
    run = scenario.run
    micro_batches = [passes for passes in _micro_batches(run) if len(passes.each) > 1]
    if micro_batches:
        yield _of_micro_batches(run, micro_batches)
    places: dict[tuple[str, int], list[Passes]] = {}
    for passes in _within(run):
        first = int(passes.each[0][0])
        where = run.trace(first) or f"{run.aten[first]} {run.shapes(first)}"
        places.setdefault((where, len(passes.each)), []).append(passes)
    for found in places.values():
        yield _of_passes(run, found)
    if not micro_batches and not places:
        yield Abstained("repeats", "no passes that are alike follow each other, or one may read what another has made")


def _of_micro_batches(run: Run, found: list[Passes]) -> Edit:
    times = Counter(len(passes.each) for passes in found).most_common(1)[0][0]
    kernels = run.count(sum(len(passes.each[0]) for passes in found))
    change = (
        f"Run the {times} micro-batches of a step as one, where memory allows: batches {times} times as large and one "
        "backward pass, without dividing the loss. Otherwise as few and as large ones as fit."
    )
    why = (
        f"Per {run.unit}, {times} forward and backward passes of {rounded(kernels)} kernels each have the same ops and "
        "sizes, and no update of the weights lies between them"
    )
    return _as_one(run, found, change, why)


def _of_passes(run: Run, found: list[Passes]) -> Edit:
    times, rows = len(found[0].each), np.concatenate([rows for passes in found for rows in passes.each])
    names = list(dict.fromkeys(name for passes in found if (name := _named(run, passes))))
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    where = f"through {', '.join(names[:3])}{more}" if names else f"from {place(run, int(rows[0]))}"
    how = "inputs side by side along the batch (torch.cat), whose result is then split"
    if all(len(passes.each[0]) == 1 for passes in found):  # a product each
        how = "operands stacked, in one call of torch.bmm (or of mm, where they share an operand)"
    change = (
        f"Run the {times} equal passes {where} as one: on their {how}. Where each has weights of its own, stack these, "
        "too: torch.func.stack_module_state and torch.vmap, or torch.bmm."
    )
    why = (
        f"{run.number(len(found), 'time', 'times')} per {run.unit}, {times} passes of equal ops and sizes follow each "
        f"other, {run.number(len(rows), 'kernel', 'kernels')}, {rounded(run.ms_of(rows))} ms; {found[0].shown}"
    )
    return _as_one(run, found, change, why)


def _as_one(run: Run, found: list[Passes], change: str, why: str) -> Edit:
    """The edit that makes one pass of each set of passes."""
    each = [(rows, float(place == 0)) for passes in found for place, rows in enumerate(passes.each)]
    return Edit(
        rule="repeats",
        change=change,
        why=why,
        cost=COSTS["repeats"],
        rows=np.concatenate([rows for rows, _ in each]),
        ns=np.concatenate([ns for passes in found for ns in _merged_ns(run, passes)]),
        left=np.concatenate([np.full(len(rows), kept) for rows, kept in each]),
        deviation=DEVIATION,
    )


def _named(run: Run, passes: Passes) -> str:
    """The innermost module that all kernels of the first two passes are in; empty if the capture has no layers."""
    rows = np.concatenate(passes.each[:2])
    _, first = np.unique(run.table.coded("layer").codes[rows], return_index=True)
    paths = [path.split(":") for row in rows[first].tolist() if (path := run.layer(row))]
    shared = [names[0] for names in zip(*paths, strict=False) if len(set(names)) == 1]
    return ".".join(shared[-2:] if shared and shared[-1].isdigit() else shared[-1:])


def _within(run: Run) -> Iterator[Passes]:
    """Passes within the forward pass that do not read each other's results, with what goes back through each."""
    taken = np.zeros(run.rows, bool)
    for found in repeated_passes(run, 2, ("siblings",), "copy"):
        shown = independent(run, found) if found.size >= FEWEST and not taken[found].any() else ""
        if shown:
            taken[found] = True
            yield Passes(_with_backward(run, found), same_layers(run, found), shown)


def _with_backward(run: Run, found: Ints) -> list[Ints]:
    """The rows of each pass, from its first to its last one, and those that go back through it."""
    forward = [np.arange(rows[0], rows[-1] + 1) for rows in found]
    back = backward_of(run, found)
    return [np.concatenate(both) for both in zip(forward, back, strict=True)] if back else forward


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
    parameters = _parameters(run, first) if passes.shared else set()
    grown = times * run.dur[first] - (times - 1) * np.minimum(run.dur[first], FLOOR_NS)
    for at, row in enumerate(first.tolist()):
        grown[at] = min(grown[at], run.dur[row] * _by_blocks(run, row, times))
        if run.family[row] == "gemm" and run.role[row] == "main":
            grown[at] = min(grown[at], run.dur[row] * _ratio(run, row, times, parameters))
    yield grown * min(whole, 1.0)
    for rows in passes.each[1:]:
        yield np.zeros(len(rows))


def _by_blocks(run: Run, row: int, times: int) -> float:
    """How many times as many blocks the busiest multiprocessor has: what a kernel left idle takes no further time."""
    blocks, sms = numel(run.listed("grid", row)), run.device.sms if run.device else None
    return -(-times * blocks // sms) / -(-blocks // sms) if blocks and sms else float(times)


def _parameters(run: Run, first: Ints) -> set[tuple[int, ...]]:
    """The shapes of parameters, as they are and transposed: by the gradients that autograd accumulates, and by the
    second operands of linear layers."""
    rows = np.flatnonzero(run.mentions("nodes", ACCUMULATES)).tolist()
    shapes = {tuple(run.first_shape(row)) for row in rows}
    weighted = [row for row in first[run.family[first] == "gemm"].tolist() if run.once(is_weighted, row)]
    shapes |= {tuple(shape) for row in weighted for shape in [s for s in run.shapes(row) if len(s) == 2][1:2]}
    return (shapes | {shape[::-1] for shape in shapes}) - {()}


def _ratio(run: Run, row: int, times: int, parameters: set[tuple[int, ...]]) -> float:
    """How much longer a product takes on so many times the samples: a weight among its operands is read once.

    A larger product may have a kernel nearer to what large ones reach. So the result is half way, in the logarithm,
    between the ratio of expected times and what reaches the expected time (nine programs on an H200).
    """
    product, code = product_of(run, row), int(run.limits.unit.codes[row])
    if product is None or code < 0 or not run.nbytes[row] > 0:
        return float(times)
    m, n, k = product.m, product.n, product.k
    parts = [((m, k), m * k), ((k, n), k * n), ((m, n), m * n)]  # operands and result
    fixed = sum(size for shape, size in parts if shape in parameters) / sum(size for _, size in parts)
    unit, flop, nbytes = run.limits.unit.values[code], float(run.flop[row]), float(run.nbytes[row])
    now, then = (run.product_ns(flop * by, nbytes * (fixed + (1 - fixed) * by), unit) for by in (1, times))
    if then != then:
        return float(times)
    return math.sqrt(then / now * min(then / now, then / float(run.dur[row])))
