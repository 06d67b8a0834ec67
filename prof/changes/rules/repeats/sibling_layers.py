"""Layers of one kind that are called one after the other with equal inputs, as one layer: its kernels run once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.kernels.parameters import Counts, Shape, in_loops
from pyprof.prof.changes.rules.repeats.merged_rows import Merged, merge, place, with_backward
from pyprof.quantities import rounded

MAINS = ("gemm", "embedding", "indexing")
PRODUCTS, TABLES = ("linear",), ("embedding", "embedding_bag")
CHANGES = {
    PRODUCTS: (
        "Make one layer of those that multiply the same input: nn.Linear(width, 3 * width) for query, key and value, "
        "and chunk(3, dim=-1) of its result."
    ),
    TABLES: (
        "Put tables that are looked up one after the other into one, each one's rows after those of the one before: "
        "one look-up of the indices plus the tables' first rows."
    ),
}


class Call(NamedTuple):
    """A call of a layer, and what calls have in common that one call could do."""

    rows: list[int]
    layer: str
    alike: tuple[object, ...]


@edit_rule("sibling_layers")
def sibling_layers(scenario: Scenario) -> Iterator[Proposal]:
    """Linear layers or tables of one parent, called without any other kernel between them.

    That they have the same input, as query, key and value have, follows from its sizes and from the order: if a layer
    took the result of the one before, an activation would stand between. Numbered layers (of nn.Sequential) whose
    results are as wide as their input are left out for that reason. Tables need not have the same input.

    Refuted by: another kernel between the layers, or one layer called twice.
    """
    run = scenario.run
    groups = [group for group in _groups(run) if len({call.layer for call in group}) == len(group) > 1]
    if not groups:
        yield Abstained("sibling_layers", "no two layers of one parent multiply one input, or look up, in a row")
    for kinds in CHANGES:
        mine = [group for group in groups if group[0].alike[0] in kinds]
        if mine:
            yield _edit(run, mine, kinds)


def _groups(run: Run) -> Iterator[list[Call]]:
    """Calls in a row of layers of one parent that could be one."""
    for _, group in groupby(_calls(run), key=lambda call: call.alike):
        yield list(group)


def _calls(run: Run) -> Iterator[Call]:
    """All calls of layers in the forward pass, in order; of those that could not be one with others, each by itself."""
    steps = run.table.ints("step")
    forward = np.flatnonzero((run.phase == "forward") & (run.role != "")).tolist()
    for (layer, op, lane, step), rows in groupby(
        forward, key=lambda row: (run.layer(row), run.op(row), int(run.lane[row]), int(steps[row]))
    ):
        mine = list(rows)
        parent, _, leaf = layer.rpartition(":")
        sizes = _sizes(run, mine, op, leaf)
        yield Call(mine, layer, (op, parent, lane, step, *sizes) if sizes and parent else (object(),))


def _sizes(run: Run, rows: list[int], op: str, leaf: str) -> tuple[object, ...]:
    """What the calls that one call replaces have in common: a product's rows and depth, a look-up's and its width."""
    mains = [row for row in rows if run.role[row] != "aux" and run.family[row] in MAINS]
    if len(mains) != 1 or op not in (*PRODUCTS, *TABLES):
        return ()
    shapes = [tuple(shape) for shape in run.shapes(mains[0])]
    flat = [shape for shape in shapes if len(shape) == 2]
    if op in PRODUCTS:
        chained = leaf.rpartition(".")[2].isdigit() and len(flat) > 1 and flat[0][1] == flat[-1][1]
        return ("product", flat[0]) if len(flat) > 1 and not chained else ()
    return ("table", flat[0][1], *(shape for shape in shapes if shape != flat[0])) if flat else ()


def _parameters(run: Run, call: Call) -> list[Shape]:
    """The shapes of a layer's weight and bias."""
    main = next(row for row in call.rows if run.role[row] != "aux" and run.family[row] in MAINS)
    shapes: list[Shape] = [tuple(shape) for shape in run.shapes(main)]
    flat: list[Shape] = [shape for shape in shapes if len(shape) == 2]
    if run.family[main] != "gemm":
        return flat[:1]
    wide, deep = flat[-1][1], flat[-1][0]
    weight: Shape = (wide, deep)
    return [weight, *(shape for shape in shapes if shape == (wide,))]


def _edit(run: Run, groups: list[list[Call]], kinds: tuple[str, ...]) -> Edit:
    merged = Merged([], [], [])
    every: list[int] = []
    parameters: Counts = Counter()
    first: Counts = Counter()
    steps = run.table.ints("step")
    for group in groups:
        forward = [row for call in group for row in call.rows]
        rows = with_backward(run, forward, {place(run, row) for row in forward})
        layers = {call.layer for call in group}
        mine = [row for row in rows if run.layer(row) in layers]
        merge(run, mine, len(group), merged, lambda _run, _row: "")
        every += mine
        for call in group:
            theirs = [(int(steps[call.rows[0]]), shape) for shape in _parameters(run, call)]
            parameters.update(theirs)
            first.update(theirs if call is group[0] else ())
    taken = set(merged.rows)
    for loop in in_loops(run, parameters):  # one parameter in place of several, of as many elements
        key = int(steps[loop[0]]), tuple(run.first_shape(loop[0]))
        if first[key] and not taken & set(loop):
            merged.put(loop, float(run.dur[loop].sum()), first[key])
    rows_, ns, left = merged.arrays()
    names = [call.layer.rpartition(":")[2] for call in groups[0]]
    named = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Edit(
        rule="sibling_layers",
        change=CHANGES[kinds],
        why=(
            f"Layers of one kind follow each other in {run.number(len(groups), 'place', 'places')}, such as {named}: "
            f"{rounded(run.count(len(every)))} kernels per {run.unit}, {rounded(run.ms_of(every))} ms"
        ),
        cost=COSTS["sibling_layers"],
        rows=rows_,
        ns=ns,
        left=left,
        deviation=0.2,
    )
