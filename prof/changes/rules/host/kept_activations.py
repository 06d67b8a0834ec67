"""Activations kept, where activation checkpointing runs forward passes again in the backward pass."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.quantities import rounded
from pyprof.table.columns import Ints

SAME = 0.9  # of the time of forward kernels in the backward pass: the share of those that ran in the forward pass, too
NAMED = 3  # layers
NODE = re.compile(r"Backward\d*$")


@edit_rule("kept_activations")
def kept_activations(scenario: Scenario) -> Iterator[Proposal]:
    """Forward kernels that run in the backward pass as they did in the forward pass: they and their launches go.

    Refuted by: other calls than those of the forward pass, and formulas of the nodes that they run in, such as products
    in ``MmBackward0``: gradients of gradients (``create_graph=True``) repeat nothing.
    """
    run = scenario.run
    rows = np.flatnonzero((run.phase == "backward") & (run.texts("dir") == "fprop"))
    if not len(rows):
        yield Abstained("kept_activations", "nothing runs again in the backward pass")
        return
    called = np.array([row for row in rows.tolist() if not _is_formula(run, row)], np.int64)
    if not len(called) or float(run.dur[_again(run, called)].sum()) < SAME * float(run.dur[called].sum()):
        yield Abstained("kept_activations", "forward ops in the backward pass are not those of the forward pass")
        return
    layers = list(dict.fromkeys(name for name in (run.layer(row).partition(":")[0] for row in rows.tolist()) if name))
    of = f" of {', '.join(layers[:NAMED])}{' and others' if len(layers) > NAMED else ''}" if layers else ""
    yield Edit(
        rule="kept_activations",
        change=(
            "Keep activations in place of recomputing them: call the layers without torch.utils.checkpoint, as many of "
            "them as the memory allows."
        ),
        why=(
            f"{run.number(rows, 'kernel', 'kernels')}{of} run a second time in the backward pass: "
            f"{rounded(run.ms_of(rows))} ms"
        ),
        cost=COSTS["kept_activations"],
        rows=rows,
        ns=np.zeros(len(rows)),
        left=np.zeros(len(rows)),
        deviation=0.1,
    )


def _is_formula(run: Run, row: int) -> bool:
    """Whether a node calls the op itself, as the gradient of a product is two products: what runs again is called by
    the program, within any node."""
    nodes = run.listed("nodes", row)
    return len(nodes) == 2 and str(nodes[0]).lower().startswith(str(run.aten[row]).replace("_", ""))


def _again(run: Run, rows: Ints) -> Ints:
    """Those of the rows that the forward pass of the same step has as often, by op, the ops around it, and sizes.

    The layers' paths differ: where a layer runs again, those around it do not.
    """

    def key(row: int) -> tuple[int, str, int]:
        calls = [str(node) for node in run.listed("nodes", row)]
        within = next((place for place in reversed(range(len(calls))) if NODE.search(calls[place])), -1)
        return int(steps[row]), " ".join([*calls[within + 1 :], str(run.aten[row])]), int(sizes[row])

    steps, sizes = run.table.ints("step"), run.table.coded("sizes").codes
    left = Counter(map(key, np.flatnonzero(run.phase == "forward").tolist()))
    found = []
    for row in rows.tolist():
        if left[key(row)] > 0:
            left[key(row)] -= 1
            found.append(row)
    return np.array(found, np.int64)
