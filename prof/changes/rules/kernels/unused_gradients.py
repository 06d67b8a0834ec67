"""Gradients that nothing uses: of networks that are not trained, such as teachers and frozen first layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.quantities import rounded
from pyprof.table.columns import NULL, Ints

ADDED = ("add_", "add")
FILLED = ("zero_", "fill_", "_foreach_zero_")
PRODUCTS = ("gemm", "conv")
# Nodes of autograd whose second operand may be a parameter; the products of attention have none.
WEIGHTED = (
    "AddmmBackward",
    "MmBackward",
    "LinearBackward",
    "ConvolutionBackward",
    "EmbeddingBackward",
    "AddbmmBackward",
)
NAMED = 2  # networks


class _Pass(NamedTuple):
    """A backward pass of a step."""

    rows: Ints
    adds: list[int]  # rows that add the gradient of a parameter that is not trained to one that is there
    unused: dict[int, str]  # the layer of each node with such parameters, by the node's number
    trained: set[int]  # the numbers of all others with weights


@edit_rule("unused_gradients")
def unused_gradients(scenario: Scenario) -> Iterator[Proposal]:
    """Gradients of parameters that are added to ones that are there, in each step already the first time.

    An optimizer's parameters are cleared between its steps, so autograd sets their gradients the first time. What is
    never cleared is not trained. If no gradient leaves the lowest of consecutive layers of that kind, everything that
    the backward pass does in them goes; otherwise what computes the parameters' gradients alone.

    Refuted by: gradients that are cleared, or summed up over several backward passes of a step.
    """
    run = scenario.run
    seen: set[str] = set()
    steps = [list(_passes(run, step, seen)) for step in _steps(run)]
    reason = _why_not(run, steps)
    if reason:
        yield Abstained("unused_gradients", reason)
        return
    passes = [each for step in steps for each in step if each.unused]
    rows = np.unique(np.concatenate([_unused(run, each) for each in passes]))
    names = list(dict.fromkeys(name for each in passes for name in _networks(run, each)))
    of = f" of {', '.join(names[:NAMED])}{' and others' if len(names) > NAMED else ''}" if names else ""
    yield Edit(
        rule="unused_gradients",
        change=(
            f"Do not compute gradients{of} that nothing uses: call requires_grad_(False) on parameters that are not "
            "trained. Where nothing before them is trained, either, call them under torch.no_grad()."
        ),
        why=(
            f"Per {run.unit}, the gradients of {rounded(sum(len(each.adds) for each in steps[-1]))} parameters are "
            "added to ones that are there already: nothing clears them, as where nothing trains them. "
            f"{run.number(rows, 'kernel', 'kernels')} of {rounded(run.ms_of(rows))} ms make them"
        ),
        cost=COSTS["unused_gradients"],
        rows=rows,
        ns=np.zeros(len(rows)),
        left=np.zeros(len(rows)),
        deviation=0.05,
    )


def _why_not(run: Run, steps: Sequence[Sequence[_Pass]]) -> str:
    adds = np.flatnonzero(run.mentions("nodes", "AccumulateGrad") & np.isin(run.aten, ADDED))
    if not len(adds):
        return "no gradient is added to one that is there"
    if run.collectives.any():
        return "in a distributed run, gradients may be added to the buckets that are sent"
    sizes = {str(run.first_shape(row)) for row in adds.tolist()}
    fills = np.flatnonzero(np.isin(run.aten, FILLED) & (run.phase != "backward")).tolist()
    if any(str(run.first_shape(row)) in sizes or run.aten[row].startswith("_foreach") for row in fills):
        return "gradients are filled with zeros, so that all of them are added to what is there"
    marks = run.table.ints("step")
    if len(np.unique(marks[(run.phase == "backward") & (marks != NULL)])) > len(steps):
        return "some steps have a backward pass and no optimizer: gradients are accumulated over steps"
    if len(steps) < 2:
        return "the capture has fewer than two steps with an optimizer"
    if not all(any(each.unused for each in step) for step in steps):
        return (
            "gradients are set before others are added to them in the same step, or in some steps: they are accumulated"
        )
    if not all(any(each.trained for each in step) for step in steps):
        return "no gradient is set, as if none was ever cleared"
    return ""


def _steps(run: Run) -> list[int]:
    """The steps with an optimizer and a backward pass."""
    steps = run.table.ints("step")
    trained, backward = (steps[run.phase == phase] for phase in ("optimizer", "backward"))
    found: list[int] = np.intersect1d(trained, backward).tolist()
    return [step for step in found if step != NULL]


def _passes(run: Run, step: int, seen: set[str]) -> Iterator[_Pass]:
    """The backward passes of a step: of each lane, backward rows in a row.

    ``seen``: the layers that have had gradients since the last optimizer's step of the step before, which may be
    those of this step's first one; "" for one without a name. Afterwards, the same for the next step.
    """
    here = np.flatnonzero(run.table.ints("step") == step)
    phase = run.phase[here]
    last = int(here[phase == "optimizer"][-1])
    bounds = np.flatnonzero((np.diff((phase == "backward").astype(int)) != 0) | (np.diff(run.lane[here]) != 0)) + 1
    later: set[str] = set()
    for rows in np.split(here, bounds):
        if run.phase[rows[0]] == "backward":
            yield _pass(run, rows, seen)
            later |= {run.layer(row) for row in rows.tolist()} if rows[0] > last else set()
    seen.clear()
    seen.update(later)


def _pass(run: Run, rows: Ints, seen: set[str]) -> _Pass:
    accumulated, last = run.mentions("nodes", "AccumulateGrad"), -1
    weighted: dict[int, str] = {}
    layer: dict[int, str] = {}
    added: dict[int, list[int]] = {}
    for row in rows.tolist():
        number = int(run.node_number[row])
        if accumulated[row] and run.aten[row] in ADDED and last >= 0:
            added.setdefault(int(run.node_number[last]), []).append(row)
        elif number != NULL and not accumulated[row]:
            last = row
            layer[number] = run.layer(row)
            if any(str(node).startswith(WEIGHTED) for node in run.listed("nodes", row)):
                weighted.setdefault(number, run.layer(row))
    unused = {node: name for node, name in weighted.items() if node in added and name not in seen}
    unused |= _called_again(run, rows, weighted, {unused[node]: added[node] for node in unused})
    alone = [
        row
        for node, of_node in added.items()
        if node in unused or (node not in weighted and layer[node] not in seen)
        for row in of_node
    ]
    seen.update(layer.values())
    return _Pass(rows, alone if unused else [], unused, set(weighted) - set(unused))


def _called_again(run: Run, rows: Ints, weighted: dict[int, str], added: dict[str, list[int]]) -> dict[int, str]:
    """Further nodes with the parameters of those whose gradients are ``added``, from other calls of the same layers.

    Autograd sums the gradients of all calls before it adds them to what is there. Two networks of one class have no
    such sums.
    """
    sums = Counter(str(run.first_shape(row)) for row in rows.tolist() if _is_sum(run, row))
    times = Counter(weighted.values())
    same = {
        name
        for name, of_name in added.items()
        if all(sums[str(run.first_shape(row))] >= times[name] - 1 for row in of_name)
    }
    return {node: name for node, name in weighted.items() if name and name in same}


def _is_sum(run: Run, row: int) -> bool:
    outer = str((run.listed("nodes", row) or [""])[0])
    return run.aten[row] in ADDED and not outer.startswith("torch::autograd") and "Backward" not in outer


def _unused(run: Run, each: _Pass) -> Ints:
    """The rows of a backward pass that nothing needs."""
    number = run.node_number[each.rows]
    found = [np.array(each.adds, np.int64)]
    for nodes in _stretches(run, each):
        within = each.rows[(number >= nodes[0]) & (number <= nodes[-1])]
        if _leaves(run, each.rows[number == nodes[0]]):
            found += [_of_weight(run, within[run.node_number[within] == node]) for node in nodes]
        else:
            found.append(within)
    return np.concatenate(found)


def _stretches(run: Run, each: _Pass) -> Iterator[list[int]]:
    """The nodes of consecutive layers that are not trained, in order.

    Where a layer comes again, or takes what needs no gradient, another call begins.
    """
    nodes: list[int] = []
    number = run.node_number[each.rows]
    for node in sorted([*each.unused, *each.trained]):
        name = each.unused.get(node)
        names = [each.unused[other] for other in nodes]
        if nodes and (name is None or (name and name in names) or not _leaves(run, each.rows[number == node])):
            yield nodes
            nodes = []
        if name is not None:
            nodes.append(node)
    if nodes:
        yield nodes


def _leaves(run: Run, rows: Ints) -> bool:
    """Whether a node with a weight computes its input's gradient, too, by a second product."""
    return len(_products(run, rows)) > 1


def _products(run: Run, rows: Ints) -> Ints:
    found: Ints = rows[np.isin(run.family[rows], PRODUCTS) & (run.role[rows] != "aux")]
    return found


def _of_weight(run: Run, rows: Ints) -> Ints:
    """The rows of a node that compute its parameters' gradients: the last of its products, and the bias's sum.

    The input's gradient comes first. Of the helper kernels between both, those that turn a result back are its own.
    """
    products = _products(run, rows)
    if len(products) < 2:
        return rows
    turned = run.mentions("kShortName", "nhwcToNchw")[rows]
    found: Ints = rows[(rows >= products[-1]) | ((rows > products[-2]) & ~turned)]
    return found


def _networks(run: Run, each: _Pass) -> Iterator[str]:
    """What the layers of each stretch have in common."""
    number = run.node_number[each.rows]
    for nodes in _stretches(run, each):
        paths = [run.listed("layer", row) for row in each.rows[np.isin(number, nodes)].tolist()]
        known = [path for path in paths if path]
        if known:
            same = [parts[0] for parts in zip(*known, strict=False) if len(set(parts)) == 1]
            yield str(same[-1] if same else known[0][0])
