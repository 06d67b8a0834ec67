"""Programs that only run forward, and all the same record what a backward pass would need."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.limits.occupancy import json_list
from pyprof.quantities import rounded
from pyprof.table.columns import Floats

TRAINING = ("backward", "optimizer")
NODES = 16  # of autograd's graph per step, at least
# What the host needs for a node, in what a small op takes it: to make it, keep tensors for it and free both. With
# torch.inference_mode, each node saved 3.0 and 4.1 µs of text generation on an H200's host, where a small op took 21 to
# 27 µs (tests/device/plan_held7/storyteller.py, 12,578 nodes); on a CPU, 1.7 to 2.6 µs in an encoder, a residual
# network, an MLP and the same decoder, whose ops took 3 to 7.
OF_OP = 0.15


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
        why = "the numbers of autograd do not grow: nothing is recorded"
        known = whole.records_gradients
        yield Abstained(
            "inference_mode", why if known else "no op has a number of autograd's, as where it records none"
        )
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
    if bool((phases.among(*TRAINING) | ways.among("bprop")).any()):
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
    number, steps, nodes = run.table.ragged("seqId"), run.table.ints("step"), run.table.coded("nodes")
    own = nodes.where(lambda text: all(str(name).startswith("aten::") for name in json_list(text)))
    plain = (run.aten != "copy_") & (own | (nodes.codes < 0))
    rows = np.repeat(np.arange(run.rows), np.diff(number.offsets))
    found = set(zip(steps[rows[plain[rows]]].tolist(), number.values[plain[rows]].tolist(), strict=True))
    return len(found) - len({step for step, _ in found})


def nodes_before(run: Run) -> Floats:
    """Per row, the nodes that were made since the row before it, of the same step and thread.

    The numbers of a row are those of its op, and of ops around it that began before.
    """
    number, steps, threads = run.table.ragged("seqId"), run.table.ints("step"), run.table.ints("tid")
    pids, found = run.table.ints("pid"), np.zeros(run.rows)
    latest: dict[tuple[int, int, int], int] = {}
    for row in np.flatnonzero(np.diff(number.offsets) > 0).tolist():
        key = (int(steps[row]), int(pids[row]), int(threads[row]))
        last = int(number.values[number.offsets[row] : number.offsets[row + 1]].max())
        found[row] = max(last - latest.get(key, last), 0)
        latest[key] = max(last, latest.get(key, last))
    return found
