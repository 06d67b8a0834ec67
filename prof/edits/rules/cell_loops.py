"""Python loops over time that call a recurrent cell for each step, as one call of a recurrent layer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pyprof.prof.advice import Run
from pyprof.prof.advice.run_columns import numel
from pyprof.prof.edits.costs import COSTS
from pyprof.prof.edits.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.edits.rules.host_waits import released_by
from pyprof.prof.edits.rules.mask_loops import with_backward
from pyprof.prof.edits.rules.merged_rows import Merged, merge, place
from pyprof.prof.edits.scenario import Scenario
from pyprof.quantities import rounded

CELLS = {  # PyTorch's fused cells
    "_thnn_fused_lstm_cell": "LSTM",
    "_thnn_fused_gru_cell": "GRU",
}
STEPS = 8  # of a loop, at least
LONGER = 2.0  # times the usual number of rows between two cells end a loop
# Of the host's work for a launch as now: cuDNN launches a step's product and cell itself, on an H200's host 10 to 15 µs
# where an op of PyTorch takes 23 (lstm_cells, gru_cells; tests/device/advice_loops.py).
OF_LAUNCH = 0.5
READS = ("embedding", "indexing")  # families of kernels that fetch a step's input
SAMPLED = ("argmax", "multinomial", "topk", "sort", "bernoulli_", "max")  # the next input depends on the result


@edit_rule("cell_loop")
def cell_loop(scenario: Scenario) -> Iterator[Proposal]:
    """nn.LSTMCell or nn.GRUCell in a loop over time, as nn.LSTM or nn.GRU; the loop's other ops once for all steps.

    That is possible if no step's input depends on the result of the step before. So the rule abstains where an op in
    the loop samples, and where what the cell multiplies was last made, in the elements' number, by another op of the
    loop than a look-up.
    """
    run = scenario.run
    found: list[tuple[list[int], list[int]]] = []
    why = f"no cell of a recurrent layer is called {STEPS} times or more within a step"
    for cells in _loops(run):
        extent = _extent(run, cells)
        reason = _depends(run, cells, extent)
        if reason:
            why = reason
        else:
            found.append((cells, extent))
    if not found:
        yield Abstained("cell_loop", why)
    for kind in dict.fromkeys(str(run.aten[cells[0]]) for cells, _ in found):
        yield _edit(scenario, [pair for pair in found if run.aten[pair[0][0]] == kind], CELLS[kind])


def _loops(run: Run) -> list[list[int]]:
    """The rows of each loop's cells: of one layer and line in one step."""
    found: dict[tuple[str, str, int, int], list[int]] = {}
    steps = run.table.ints("step")
    for row in np.flatnonzero(np.isin(run.aten, tuple(CELLS)) & (run.phase != "backward")).tolist():
        key = (run.layer(row), place(run, row), int(run.lane[row]), int(steps[row]))
        found.setdefault(key, []).append(row)
    return [rows for every in found.values() for rows in _in_a_row(run, every) if len(rows) >= STEPS]


def _in_a_row(run: Run, cells: list[int]) -> Iterator[list[int]]:
    """Cells between which there are no other passes over the model, nor much more than usual."""
    usual = float(np.median(np.diff(cells))) if len(cells) > 1 else 0.0
    begin = 0
    for at, (a, b) in enumerate(pairwise(cells), 1):
        if b - a > LONGER * usual or np.isin(run.phase[a:b], ("backward", "optimizer", "data")).any():
            yield cells[begin:at]
            begin = at
    yield cells[begin:]


def _extent(run: Run, cells: list[int]) -> list[int]:
    """All rows of the loop: before its first cell and after its last one as many as there are between two, at most."""
    lines = {place(run, row) for row in range(cells[-2], cells[-1])}
    each = int(np.median(np.diff(cells)))
    first, last = cells[0], cells[-1]
    while first > max(cells[0] - each + 1, 0) and _belongs(run, first - 1, cells[0], lines):
        first -= 1
    while last + 1 < min(cells[-1] + each, run.rows) and _belongs(run, last + 1, cells[-1], lines):
        last += 1
    # What makes an input stands before its cell, so that an iteration begins there, and the first one does.
    ahead = max(cells[1] - cells[0] - (last - cells[-1]), 1)
    return [row for row in range(max(first, cells[0] - ahead + 1), last + 1) if run.phase[row] != "backward"]


def _belongs(run: Run, row: int, cell: int, lines: set[str]) -> bool:
    return bool(run.lane[row] == run.lane[cell]) and place(run, row) in lines


def _products(run: Run, cell: int) -> list[int]:
    """The rows of a cell's call before its own kernel: two products, of its input and its state, and their casts."""
    rows, row = [], cell - 1
    while row >= 0 and run.aten[row] not in CELLS and _call(run, row) == _call(run, cell):
        rows.append(row)
        row -= 1
    mains = [row for row in rows if run.family[row] == "gemm" and run.role[row] != "aux"]
    return sorted(rows) if len(mains) == 2 else []


def _call(run: Run, row: int) -> str:
    """The outermost op of PyTorch that a row is part of: aten::lstm_cell."""
    return str((run.listed("nodes", row) or [""])[0])


def _depends(run: Run, cells: list[int], extent: list[int]) -> str:
    """Why a step's input may depend on the step before; empty if nothing speaks for it."""
    if not all(_products(run, cell) for cell in cells):
        return "a cell's two products do not stand directly before it"
    sampled = next((row for row in extent if run.aten[row] in SAMPLED), None)
    if sampled is not None:
        return f"an op of the loop samples the next input ({run.aten[sampled]}, {run.trace(sampled)})"
    for before, cell in pairwise(cells):
        begin = _products(run, cell)[0]
        size = _input(run, cell)
        if not size:
            return "the shapes of a cell's products are not known"
        for row in range(begin - 1, before, -1):
            if run.role[row] != "aux" and size in made(run, row):
                if run.family[row] not in READS and run.aten[row] not in CELLS:
                    return f"a cell's input may come from the step before ({run.op(row)}, {run.trace(row)})"
                break
    return ""


def _input(run: Run, cell: int) -> int:
    """The elements of what a cell's first product multiplies with its weight; 0 if unknown."""
    products = [row for row in _products(run, cell) if run.family[row] == "gemm" and run.role[row] != "aux"]
    shapes = [shape for shape in run.shapes(products[0]) if len(shape) == 2]
    return numel(shapes[0]) if shapes else 0


def made(run: Run, row: int) -> tuple[int, ...]:
    """The elements of an op's result, or what they may be, as far as its operands tell."""
    shapes = [shape for shape in run.shapes(row) if numel(shape)]
    if run.family[row] == "gemm" and len(shapes) > 1:
        left, right = shapes[-2:]
        return (numel([*left[:-1], right[-1]]),)
    if run.family[row] in READS and len(shapes) > 1:  # indices of the result's shape, or one for each vector
        return numel(shapes[-1]), numel(shapes[-1]) * shapes[0][-1]
    return (int(run.largest[row]),)


def _edit(scenario: Scenario, loops: list[tuple[list[int], list[int]]], kind: str) -> Edit:
    run = scenario.run
    merged = Merged([], [], [])
    reads: list[int] = []
    taken: set[int] = set()
    for cells, extent in loops:
        found = with_backward(run, extent, {place(run, row) for row in extent})
        rows = [row for row in found if row not in taken]  # of stacked cells, each loop has the other's rows, too
        reads += [row for row in rows if run.aten[row] == "_local_scalar_dense"]
        kept = _in_turn(run, rows)
        for row in kept:
            merged.rows.append(row)
            merged.ns.append(float(run.dur[row]))
            merged.left.append(OF_LAUNCH)
        once = [row for row in rows if row not in kept and run.aten[row] != "_local_scalar_dense"]
        merge(run, once, len(cells), merged)
        taken.update(rows)
    merged.put(reads, 0.0, 0)
    rows_, ns, left = merged.arrays()
    times, every = sum(len(cells) for cells, _ in loops) / len(loops), sorted(taken)
    return Edit(
        rule="cell_loop",
        change=(
            f"Replace the loop over time by one call of nn.{kind}: it has the cell's weights (weight_ih_l0, ...) and "
            "takes all steps' inputs; call the other layers of the loop once, on all steps' results."
        ),
        why=(
            f"{run.number(len(loops), 'loop calls', 'loops call')} a cell {rounded(times)} times; with what else is in "
            f"it, and the backward pass, {rounded(run.count(len(every)))} launches and {rounded(run.ms_of(every))} ms. "
            f"Only the product with the state and the cell must run step by step; {rounded(run.ms(float(ns.sum())))} "
            "ms are expected"
        ),
        cost=COSTS["cell_loop"],
        rows=rows_,
        ns=ns,
        left=left,
        deviation=0.25,
        released=released_by(scenario, np.array(reads, np.int64)),
    )


def _in_turn(run: Run, rows: list[int]) -> set[int]:
    """The rows that remain for each step: the cells, forward and backward, and one product for each."""
    kept: set[int] = set()
    for row in rows:
        if any(str(run.aten[row]).startswith(cell) for cell in CELLS):
            kept.add(row)
            beside = _products(run, row) if run.phase[row] != "backward" else _gradient(run, row)
            mains = [each for each in beside if run.family[each] == "gemm" and run.role[each] != "aux"]
            kept.update(each for each in beside if mains and each >= mains[-1])
    return kept


def _gradient(run: Run, cell: int) -> list[int]:
    """The product that gives the state's gradient, after a cell's backward kernel: [batch, gates] @ [gates, state]."""
    for row in range(cell + 1, min(cell + 40, run.rows)):
        if str(run.aten[row]) == str(run.aten[cell]):
            break
        shapes = [shape for shape in run.shapes(row) if len(shape) == 2]
        batched = len(shapes) > 1 and shapes[-2][:1] == run.first_shape(cell)[:1]
        if run.family[row] == "gemm" and run.role[row] != "aux" and batched and place(run, row) == place(run, cell):
            return [row]
    return []
