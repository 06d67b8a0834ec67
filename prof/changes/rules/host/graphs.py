"""The step as a CUDA graph: one launch for all kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule, proposed
from pyprof.prof.changes.effect.graph_costs import EQUAL, IN_GRAPH, MANY, sizes_differ
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.host.copies import small_made_often
from pyprof.prof.changes.rules.host.growing_tensors import tensors_grow
from pyprof.prof.changes.rules.host.host_waits import LARGEST, calls_for_memory, copies, single_values
from pyprof.prof.timing.gpus import TO_DEVICE, TO_HOST
from pyprof.quantities import rounded
from pyprof.table.columns import Ints

LEFT = 0.01  # of the host's work: the copies of inputs into the graph, and its launch
GRAPHS = "the run launches or captures CUDA graphs already"
RECOMPUTED = "layers run again in the backward pass (torch.utils.checkpoint), which a graph cannot hold"


@edit_rule("cuda_graph")
def cuda_graph(scenario: Scenario) -> Iterator[Proposal]:
    """All launches of a step as one graph, but for the copies that bring its inputs: what the host does for them stays.

    Refuted by: graphs in the capture or graphs being captured, values read or memory given back within the step,
    tensors whose sizes differ between steps.
    """
    run = scenario.run
    why, needs = _hindrance(scenario)
    if why:
        yield Abstained("cuda_graph", why, needs)
        return
    rows = np.flatnonzero(~copies(run, *TO_DEVICE))  # what copies to the GPU bring is new in each step
    why = (
        f"The host launches {rounded(run.count(run.rows))} kernels and copies per {run.unit}; as a graph, all at once. "
        "What the host does before copies of input data stays"
    )
    yield as_graph(scenario, "cuda_graph", _change(scenario), why, rows)


def as_graph(scenario: Scenario, rule: str, change: str, why: str, rows: Ints) -> Edit:
    """The edit by which a CUDA graph launches these rows, parts of which it may have launched before."""
    in_graph = scenario.in_graph[scenario.places(rows)]
    return Edit(
        rule=rule,
        change=change,
        why=why,
        cost=COSTS["cuda_graph"],
        rows=rows,
        ns=scenario.run.dur[rows] * np.where(in_graph, 1.0, IN_GRAPH),
        left=np.full(len(rows), LEFT),
        deviation=0.05,
        graph=True,
    )


def _change(scenario: Scenario) -> str:
    """How to make the graph, of a model that is compiled by then or is not: compiling it is a change of its own."""
    if scenario.is_compiled:
        how = 'call torch.compile with mode="reduce-overhead"'
    else:
        how = (
            "torch.cuda.make_graphed_callables for the forward and backward pass, torch.cuda.graph for all of it, or "
            'torch.compile(model, mode="reduce-overhead"), which also fuses kernels'
        )
    return f"Launch the step as a CUDA graph: {how}; larger batches help, too."


def _hindrance(scenario: Scenario) -> tuple[str, str]:
    """Why the step cannot be captured as it is, empty if it can, and the rule whose change that needs."""
    run = scenario.run
    if launches_graphs(scenario):
        return GRAPHS, ""
    if run.count(run.rows) < MANY:
        return f"fewer than {MANY} launches per step", ""
    if run.collectives.any() or run.lanes > 1:
        return "collectives between GPUs were not measured in graphs", ""
    read, given = (_held(scenario, rows) for rows in _copied(run))
    values = read[single_values(run)[read]]
    if len(values):
        return f"values are read within the step ({run.trace(int(values[0]))})", "item"
    if len(read):
        small = run.table.ints("bytes")[read].max() <= LARGEST
        where = run.trace(int(read[0]))
        return f"tensors are copied to the host within the step ({where})", "size_sync" if small else ""
    if len(given):
        return f"pageable memory is copied within the step ({run.trace(int(given[0]))})", "pageable_copy"
    if decides_on_host(scenario):
        return "the host copies values to the GPU after it has read some in the same step, and so decides on them", ""
    if recomputes(scenario):
        return RECOMPUTED, "kept_activations"
    if any(edit.rule == "sparse_grad" for edit in scenario.edits):
        return "a sparse gradient's size depends on its indices, which the host waits for", ""
    if tensors_grow(scenario):
        return "a tensor grows by concatenation, so no two steps have the same shapes", "static_cache"
    if len(calls_for_memory(scenario)[0]):
        return "memory is given back to the driver within the step", "allocator"
    _, counts = np.unique(run.table.ints("step"), return_counts=True)
    if run.marked > 1 and np.ptp(counts) > EQUAL * counts.max():
        return "the steps do not launch equally many kernels", ""
    return "sizes of tensors differ from step to step" if sizes_differ(run) else "", ""


def _copied(run: Run) -> tuple[Ints, Ints]:
    """The copies to the host, and those of pageable memory to the GPU, but for input data."""
    inside = run.phase != "data"
    pageable = copies(run, *TO_DEVICE) & copies(run, "Pageable")
    return np.flatnonzero(copies(run, *TO_HOST) & inside), np.flatnonzero(pageable & inside)


def _held(scenario: Scenario, rows: Ints) -> Ints:
    """Those of the copies for which the host waits."""
    calls = scenario.calls(rows)
    return rows[(calls < 0) | ~scenario.released[calls]]


def launches_graphs(scenario: Scenario) -> bool:
    """Whether the capture launches CUDA graphs or records how one is captured, or the step is one."""
    called = bool(scenario.base.host.coded("kind").among("begin capture", "graph").any())
    return called or bool(scenario.run.in_graph.any()) or any(edit.rule == "cuda_graph" for edit in scenario.edits)


def decides_on_host(scenario: Scenario) -> bool:
    """Whether the program, as captured, makes many small copies to the GPU in a step after a copy to the host."""
    run = scenario.base.run
    read, given = _copied(run)
    steps, first = np.unique(run.table.ints("step")[read], return_index=True)
    given = given[small_made_often(run, given)]
    after = dict(zip(steps.tolist(), read[first].tolist(), strict=True))
    step = run.table.ints("step")[given].tolist()
    return any(row > after.get(number, run.rows) for row, number in zip(given.tolist(), step, strict=True))


def recomputes(scenario: Scenario) -> bool:
    """Whether layers run again in the backward pass: torch.utils.checkpoint keeps the state of random numbers for them,
    which cannot be asked for while a graph is captured (PyTorch 2.13)."""
    return next(proposed("kept_activations", scenario), None) is not None
