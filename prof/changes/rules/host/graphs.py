"""The step as a CUDA graph: one launch for all kernels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.base_run import calls_of_memory
from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule, proposed
from pyprof.prof.changes.effect.graph_costs import EQUAL, IN_GRAPH, MANY, sizes_differ
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.host.growing_tensors import tensors_grow
from pyprof.prof.changes.rules.host.host_waits import LARGEST, READ, small_made_often
from pyprof.prof.timing.gpus import TO_DEVICE, TO_HOST, named_rows
from pyprof.quantities import rounded
from pyprof.table.columns import Bools, Ints

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
    hindrance = _hindrance(scenario)
    if hindrance:
        yield hindrance
        return
    rows = np.flatnonzero(~from_host(run))
    yield Edit(
        rule="cuda_graph",
        change=_change(scenario),
        why=(
            f"The host launches {rounded(run.count(run.rows))} kernels and copies per {run.unit}; as a graph, all at "
            "once. What the host does before copies of input data stays"
        ),
        cost=COSTS["cuda_graph"],
        rows=rows,
        ns=run.dur[rows]
        * np.where(scenario.in_graph[scenario.places(rows)], 1.0, IN_GRAPH),  # parts of it may be graphs
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


def _hindrance(scenario: Scenario) -> Abstained | None:
    """Why the step cannot be captured as it is; None if nothing speaks against it."""
    run = scenario.run
    if launches_graphs(scenario):
        return _not(GRAPHS)
    if run.count(run.rows) < MANY:
        return _not(f"fewer than {MANY} launches per step")
    if run.collectives.any() or run.lanes > 1:
        return _not("collectives between GPUs were not measured in graphs")
    copies = (run.texts("kind") == "memcpy") & (run.phase != "data")
    read = _held(scenario, np.flatnonzero(copies & named_rows(run.table, *TO_HOST)))
    values = read[run.aten[read] == READ]
    if len(values):
        return _not(f"values are read within the step ({run.trace(int(values[0]))})", "item")
    if len(read):
        small = run.table.ints("bytes")[read].max() <= LARGEST
        where = run.trace(int(read[0]))
        return _not(f"tensors are copied to the host within the step ({where})", "size_sync" if small else "")
    pageable = copies & named_rows(run.table, *TO_DEVICE) & named_rows(run.table, "Pageable")
    given = _held(scenario, np.flatnonzero(pageable))
    if len(given):
        return _not(f"pageable memory is copied within the step ({run.trace(int(given[0]))})", "pageable_copy")
    if decides_on_host(scenario):
        return _not("the host copies values to the GPU after it has read some in the same step, and so decides on them")
    if recomputes(scenario):
        return _not(RECOMPUTED, "kept_activations")
    if any(edit.rule == "sparse_grad" for edit in scenario.edits):
        return _not("a sparse gradient's size depends on its indices, which the host waits for")
    if tensors_grow(scenario):
        return _not("a tensor grows by concatenation, so no two steps have the same shapes", "static_cache")
    if _memory(scenario):
        return _not("memory is given back to the driver within the step", "allocator")
    if not _alike(run):
        return _not("the steps do not launch equally many kernels")
    return _not("sizes of tensors differ from step to step") if sizes_differ(run) else None


def launches_graphs(scenario: Scenario) -> bool:
    """Whether the capture launches CUDA graphs or records how one is captured, or the step is one."""
    called = bool(scenario.base.host.coded("kind").among("begin capture", "graph").any())
    return called or bool(scenario.run.in_graph.any()) or any(edit.rule == "cuda_graph" for edit in scenario.edits)


def decides_on_host(scenario: Scenario) -> bool:
    """Whether the program, as captured, makes many small copies to the GPU in a step after a copy to the host."""
    run = scenario.base.run
    copies = (run.texts("kind") == "memcpy") & (run.phase != "data")
    given = np.flatnonzero(copies & named_rows(run.table, *TO_DEVICE) & named_rows(run.table, "Pageable"))
    given = given[small_made_often(run, given)]
    read = np.flatnonzero(copies & named_rows(run.table, *TO_HOST))
    steps = run.table.ints("step")
    first = {step: row for row, step in zip(read[::-1].tolist(), steps[read][::-1].tolist(), strict=True)}
    return any(row > first.get(step, run.rows) for row, step in zip(given.tolist(), steps[given].tolist(), strict=True))


def recomputes(scenario: Scenario) -> bool:
    """Whether layers run again in the backward pass: torch.utils.checkpoint keeps the state of random numbers for them,
    which cannot be asked for while a graph is captured (PyTorch 2.13)."""
    return next(proposed("kept_activations", scenario), None) is not None


def from_host(run: Run) -> Bools:
    """A mask of the copies to the GPU: what they bring is new in each step, so they come before a graph's launch."""
    found: Bools = (run.texts("kind") == "memcpy") & named_rows(run.table, *TO_DEVICE)
    return found


def _not(why: str, needs: str = "") -> Abstained:
    return Abstained("cuda_graph", why, needs)


def _held(scenario: Scenario, rows: Ints) -> Ints:
    """Those of the copies for which the host waits."""
    calls = scenario.calls(rows)
    return rows[(calls < 0) | ~scenario.released[calls]]


def _memory(scenario: Scenario) -> bool:
    run, calls = scenario.run, scenario.base.recorded.calls
    within = (calls.start >= int(run.start.min())) & (calls.start < int(run.end.max()))
    return bool((calls_of_memory(scenario.base) & within & calls.among("free") & ~scenario.released).any())


def _alike(run: Run) -> bool:
    """Whether all steps have about the same number of launches."""
    if run.marked < 2:
        return True
    _, counts = np.unique(run.table.ints("step"), return_counts=True)
    return bool(counts.max() - counts.min() <= EQUAL * counts.max())
