"""torch.compile of the whole model: its element-wise kernels in fewer ones, and what compiled code takes the host."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.kernels.fused_kernels import Fused, fused_kernels, fusible
from pyprof.quantities import rounded
from pyprof.table.columns import Bools, Floats, Ints

# The host's time for a kernel of compiled code, in units of that for a kernel of the same program's own ops (three
# programs that train on an H200: 1.2 to 1.35, one in inference: 1.1; tests/device/advice_whole.py), and for a call of a
# compiled graph, ns: its guards and the function around it.
HOST, GRAPH_NS = 1.25, 100_000.0
COMPILED = ("fusion",)  # changes that compile a part of the model, and so are parts of compiling it whole


@edit_rule("compile")
def compile_model(scenario: Scenario) -> Iterator[Proposal]:
    """Every element-wise kernel, norm, softmax, sum and copy of the model, fused with its neighbours.

    Products stay. What the host needs is in proportion to the kernels that remain, and a constant for each graph.

    Refuted by: compiled kernels, or graphs, in the run.
    """
    run = scenario.run
    hindrance = _hindrance(scenario)
    if hindrance:
        yield Abstained("compile", hindrance)
        return
    inside = _model(run)
    found = list(fused_kernels(run, fusible(run) & inside))
    if not any(fused.ns(run) < run.dur[fused.rows].sum() for fused in found):
        yield Abstained(
            "compile", "no neighbouring element-wise kernels, norms or copies of the model, by their shapes"
        )
        return
    yield _edit(scenario, np.flatnonzero(inside), found)


def _hindrance(scenario: Scenario) -> str:
    run = scenario.run
    if bool((run.family == "compiled").any()):
        return "the run has compiled kernels already"
    part = next((edit.rule for edit in scenario.edits if edit.rule in COMPILED), "")
    if part:
        return f"the plan compiles parts of the model already ({part})"
    if run.in_graph.any():
        return "the run launches CUDA graphs"
    if run.lanes > 1 or run.collectives.any():
        return "compiled code between collectives was not measured"
    return ""


def _model(run: Run) -> Bools:
    """A mask of the model's rows: where layers are recorded, those with one, so that the loss is left out."""
    inside: Bools = np.isin(run.phase, ("forward", "backward", "other", ""))
    layers = run.names("layer")
    return inside & layers if bool((layers & inside).any()) else inside


def _edit(scenario: Scenario, rows: Ints, found: list[Fused]) -> Edit:
    run = scenario.run
    ns, gone = run.dur.copy(), np.zeros(run.rows, bool)
    for fused in found:
        kept = max(fused.rows, key=lambda row: run.dur[row])
        ns[fused.rows], gone[fused.rows] = 0.0, True
        ns[kept], gone[kept] = fused.ns(run), False
    remain = len(rows) - int(gone[rows].sum()) + sum(fused.launches - 1 for fused in found)
    left = np.where(gone[rows], 0.0, _host(scenario, rows, gone, remain))
    taken = np.array([row for fused in found for row in fused.rows if len(fused.rows) > 1 or ns[row] < run.dur[row]])
    before, after = run.ms_of(taken), run.ms(float(ns[taken].sum()))
    return Edit(
        rule="compile",
        change=_change(scenario),
        why=(
            f"{run.number(taken, 'element-wise kernel, norm or copy', 'element-wise kernels, norms and copies')} take "
            f"{rounded(before)} ms; fused with their neighbours, {rounded(after)} ms are expected. Compiled, the model "
            f"makes {rounded(run.count(remain))} launches in place of {rounded(run.count(len(rows)))}, for each of "
            f"which the host takes {HOST} times as long{_graphed(scenario)}. Graph breaks, which a capture cannot "
            "show, would keep more of them"
        ),
        cost=COSTS["compile"],
        rows=rows,
        ns=ns[rows],
        left=left,
        deviation=0.35,
    )


def _graphed(scenario: Scenario) -> str:
    """That launches cost the host little, where a graph makes them all at once."""
    made = any(edit.rule == "cuda_graph" for edit in scenario.edits)
    return ", were they not in a graph" if made else ""


def _change(scenario: Scenario) -> str:
    """How to compile the model where the plan has changed how it is called before."""
    made = {edit.rule for edit in scenario.edits}
    if "fp8" in made:
        how = "The change to FP8 has done so: there is no more to write."
    elif "cuda_graph" in made:
        how = 'In place of its graph, call model = torch.compile(model, mode="reduce-overhead") once, before the loop.'
    else:
        how = "Call model = torch.compile(model) once, before the loop."
    return f"Compile the whole model. {how}"


def _host(scenario: Scenario, rows: Ints, gone: Bools, remain: int) -> float:
    """The factor on the host's work for each launch that remains."""
    base, run = scenario.base, scenario.run
    calls = scenario.calls(rows)
    known = calls >= 0
    now = launching(scenario)
    all_of_it, kept = (float(now[np.unique(calls[m])].sum()) for m in (known, known & ~gone[rows]))
    graphs = 2 if bool((run.phase[rows] == "backward").any()) else 1
    constant = GRAPH_NS * graphs * run.steps * run.lanes / base.own_share
    return (HOST * all_of_it * remain / max(len(rows), 1) + constant) / max(kept, 1.0)


def launching(scenario: Scenario) -> Floats:
    """Per call that launches: the captured time in ns that the host spends on it, its pauses left out."""
    base = scenario.base
    each = np.where(base.pauses, 0.0, base.segment) + np.where(base.slowed, base.own, 0.0)
    found = np.zeros(len(each))
    made = base.unit >= 0
    np.add.at(found, base.unit[made], each[made])
    return found
