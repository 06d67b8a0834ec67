"""Inference that does the work of training: casts of weights in every step, and autograd's graph."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.limits.occupancy import json_list
from pyprof.quantities import rounded
from pyprof.table.columns import NULL, Floats, Ints, numbered

NODES = 16  # of autograd's graph per step, at least
# What the host needs for a node, in what a small op takes it: to make it, keep tensors for it and free both. With
# torch.inference_mode, each node saved 3.0 and 4.1 µs of text generation on an H200's host, where a small op took 21 to
# 27 µs (tests/device/plan_held7/storyteller.py, 12,578 nodes); on a CPU, 1.7 to 2.6 µs in an encoder, a residual
# network, an MLP and the same decoder, whose ops took 3 to 7.
OF_OP = 0.15
DO_NOT_GROW = "the numbers of autograd do not grow: nothing is recorded"
NO_NUMBERS = "no op has a number of autograd's, as where it records none"


@rule("weight_casts")
def weight_casts(run: Run) -> Iterator[Finding]:
    """Inference under autocast that casts fp32 weights to half precision in every forward pass.

    Autocast caches a cast only until its context ends. Abstains without shapes and dtypes, and in training, where fp32
    master weights need one cast per step.

    Refuted by: a backward pass; weights that are in half precision, which need no cast.
    """
    if run.trains:
        return
    casts = (run.aten == "copy_") & run.mentions("nodes", "aten::_to_copy")
    rows = [row for row in np.flatnonzero(casts).tolist() if _of_weight(run, row)]
    if rows:
        why = (
            f"Autocast casts {run.number(rows, 'weight', 'weights')} from float32 in every forward pass: "
            f"{rounded(run.ms_of(rows))} ms"
        )
        change = "Load the model in half precision: model.to(torch.bfloat16), without autocast."
        yield Finding(np.array(rows), run.dur[rows].copy(), why, change, launches=len(rows))


def _of_weight(run: Run, row: int) -> bool:
    """Whether a cast from fp32 makes the second operand or the bias of the product that follows."""
    sizes, dtypes = run.shapes(row), run.listed("dtypes", row)
    if not sizes or not dtypes or dtypes[:2] not in (["bfloat16", "float32"], ["float16", "float32"]):
        return False
    for after in range(row + 1, min(row + 6, run.rows)):
        if run.family[after] in ("gemm", "conv") and run.role[after] == "main":
            if len(sizes[0]) == 1:
                return sizes[0] in run.shapes(after)
            operands = [shape for shape in run.shapes(after) if len(shape) > 1]
            if len(operands) < 2:
                return False
            first, second = (math.prod(shape) for shape in operands[:2])
            return bool(math.prod(sizes[0]) == second != first)
    return False


@edit_rule("inference_mode")
def inference_mode(scenario: Scenario) -> Iterator[Proposal]:
    """torch.inference_mode around a program that has no backward pass and no optimizer.

    Each node of the graph takes the next number, and an op has the number that was next when it began. Under no_grad
    ops have no number, and where no input needs a gradient all have the same one. So nodes are counted by how far the
    numbers grow within a step, and the host no longer makes them. Kernels stay: autocast casts weights that need a
    gradient once in each of its regions in either mode (torch 2.13).

    Refuted by: a backward pass or an optimizer; numbers of autograd that do not grow.
    """
    run, whole = scenario.run, scenario.base.run
    why = _unfit(scenario, whole)
    if why:
        yield Abstained("inference_mode", why)
        return
    each = np.zeros(len(scenario.base.table))
    each[whole.origin] = nodes_before(whole)
    nodes: Floats = each[scenario.origin[run.origin]]
    rows = np.flatnonzero(nodes > 0)
    if run.count(_recorded(whole)) < NODES or not len(rows):
        yield Abstained("inference_mode", DO_NOT_GROW if whole.records_gradients else NO_NUMBERS)
        return
    yield Edit(
        rule="inference_mode",
        change="Run inference under torch.inference_mode(): autograd then records nothing.",
        why=(
            f"No step has a backward pass or an optimizer, and autograd records {rounded(run.count(int(nodes.sum())))} "
            f"nodes per {run.unit} for one, by its numbers. They take the host's time, and keep tensors in memory"
        ),
        cost=COSTS["inference_mode"],
        rows=rows,
        ns=run.dur[rows],
        left=np.ones(len(rows)),
        added=-OF_OP * nodes[rows],
    )


def _unfit(scenario: Scenario, run: Run) -> str:
    """Why the program may need its graph; empty if nothing speaks for it."""
    phases, ways = scenario.base.table.coded("phase"), scenario.base.table.coded("dir")
    if bool((phases.among("backward", "optimizer") | ways.among("bprop")).any()):
        return "the run has a backward pass or an optimizer"
    if bool(run.in_graph.any()):
        return "work that a CUDA graph launches may be a backward pass"
    if not run.marked or run.incomplete:
        return "a backward pass may lie outside of the capture, which marks no whole steps"
    return ""


def _recorded(run: Run) -> int:
    """How many numbers ops have, of those that have one only where autograd records; one fewer per step, for the number
    that ops without a node have.

    Autocast's casts of weights are recorded under no_grad, too, and an autograd.Function makes its node in any mode.
    """
    number, steps, nodes = _numbers(run), run.table.ints("step"), run.table.coded("nodes")
    own = nodes.where(lambda text: all(str(name).startswith("aten::") for name in json_list(text)))
    plain = (run.aten != "copy_") & (own | (nodes.codes < 0))
    rows = np.flatnonzero(plain & (number != NULL))
    return len(numbered(steps[rows], number[rows])[0]) - len(np.unique(steps[rows]))


def _numbers(run: Run) -> Ints:
    """Per row, the number of its op, the last one of those that it has with ops around it; NULL without one."""
    column = run.table.ragged("seqId")
    found, some = np.full(run.rows, NULL), np.diff(column.offsets) > 0
    found[some] = column.values[column.offsets[1:][some] - 1]
    return found


def nodes_before(run: Run) -> Floats:
    """Per row, the nodes that were made since the row before it, of the same step and thread.

    The numbers of a row are those of its op, and of ops around it that began before.
    """
    number, found = _numbers(run), np.zeros(run.rows)
    thread = numbered(*(run.table.ints(key) for key in ("step", "pid", "tid")))[1]
    latest: dict[int, int] = {}
    for row in np.flatnonzero(number != NULL).tolist():
        last = latest.get(thread[row], int(number[row]))
        found[row] = max(number[row] - last, 0)
        latest[thread[row]] = max(int(number[row]), last)
    return found
