"""Python loops over time that compute a recurrent cell for each step, as one call of a recurrent layer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pyprof.dtypes import HALF
from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.host.host_waits import released_by
from pyprof.prof.changes.rules.repeats.merged_rows import START_NS, Merged, merge, place, with_backward
from pyprof.prof.changes.rules.repeats.recurrent_cells import (
    GATES,
    MOST,
    READS,
    SAMPLED,
    Cell,
    cell_of,
    gradients,
    made,
)
from pyprof.prof.changes.rules.repeats.repeated_passes import repeated_passes
from pyprof.quantities import rounded
from pyprof.table.columns import Ints

CELLS = {  # PyTorch's fused cells
    "_thnn_fused_lstm_cell": "LSTM",
    "_thnn_fused_gru_cell": "GRU",
}
LAYERS = ("gru", "lstm", "rnn_tanh", "rnn_relu")  # ops of nn.GRU and the like, where no cuDNN computes them
STEPS = 8  # of a loop, at least
LONGER = 2.0  # times the usual number of rows between two cells end a loop
# Of the host's work for a launch as now: cuDNN launches a step's product and cell itself, on an H200's host 10 to 15 µs
# where an op of PyTorch takes 23 (lstm_cells, gru_cells; tests/device/advice_loops.py).
OF_LAUNCH = 0.5
WITHIN = ("pointwise", "copy", "fill")  # families of a cell's ops that its kernel does, all but products
CURVED = ("tanh_backward", "threshold_backward")


@edit_rule("cell_loop")
def cell_loop(scenario: Scenario) -> Iterator[Proposal]:
    """Cells in a loop over time, as nn.LSTM, nn.GRU or nn.RNN; the loop's other ops once for all steps.

    Cells are nn.LSTMCell and nn.GRUCell, or products, sigmoid and tanh, as in cells written by hand and nn.RNNCell. One
    call is possible if no step's input depends on the result of the step before. So the rule abstains where an op in
    the loop samples, and where what the cell multiplies was last made, in the elements' number, by another op of the
    loop than a look-up.

    Refuted by: a step's input that depends on the result of the step before.
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
    loops, reasons = _by_hand(run)
    if not found and not loops:
        yield Abstained("cell_loop", why if _loops(run) else next(iter(reasons), why))
    for name in dict.fromkeys(cell.kind for _, cell in loops):
        yield _edit_by_hand(scenario, [loop for loop in loops if loop[1].kind == name])
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


def _by_hand(run: Run) -> tuple[list[tuple[Ints, Cell]], list[str]]:
    """(passes, their cells) of each loop over cells made of several ops; and why other loops' passes are none."""
    taken = np.zeros(run.rows, bool)
    loops, reasons = [], []
    for passes in repeated_passes(run, STEPS):
        call = _call(run, int(passes[0, 0])).removeprefix("aten::")
        if taken[passes].any() or call in LAYERS or np.isin(run.aten[passes[1]], tuple(CELLS)).any():
            continue
        found = cell_of(run, passes)
        if isinstance(found, Cell) and all(_by_strides(run, passes, at) for at in found.recurrent):
            found = "each pass takes a state of its own, a slice of what was there before the loop"
        if isinstance(found, Cell):
            taken[passes] = True
            loops.append((passes, found))
        elif found:
            reasons.append(found)
    return loops, reasons


def _edit_by_hand(scenario: Scenario, loops: list[tuple[Ints, Cell]]) -> Edit:
    run = scenario.run
    merged = Merged([], [], [])
    every: list[int] = []
    for passes, cell in loops:
        forward = _whole(run, passes)
        rows = with_backward(run, forward, {place(run, row) for row in forward})
        rows = sorted(set(rows) - set(every))
        kept, ns = _cells(run, passes, cell, rows)
        helpers = set(_helpers(run, rows, kept))
        mine = [row for row in rows if row not in kept and row not in helpers]
        within = [row for row in mine if run.family[row] in WITHIN and _is_state(run, row, cell.state)]
        merged.rows += kept
        merged.ns += ns
        merged.left += [OF_LAUNCH] * len(kept)
        merged.put([*helpers, *within], 0.0, 0)
        merge(run, sorted(set(mine) - set(within)), len(passes), merged)
        every += rows
    rows_, ns_, left = merged.arrays()
    kind, times = loops[0][1].kind, sum(len(passes) for passes, _ in loops) / len(loops)
    return Edit(
        rule="cell_loop",
        change=(
            f"Replace the ops of each time step by one call of nn.{kind}: it has their weights, those of all gates in "
            "one (weight_ih_l0, ...), and takes all steps' inputs; call other layers of the loop once, on all steps' "
            "results."
        ),
        why=(
            f"{run.number(len(loops), 'loop computes', 'loops compute')} nn.{kind}'s gates {rounded(times)} times, op "
            f"by op; with what else is in it, and the backward pass, {rounded(run.count(len(every)))} launches and "
            f"{rounded(run.ms_of(every))} ms. Only the product with the state and one kernel for the gates must run "
            f"step by step; {rounded(run.ms(float(ns_.sum())))} ms are expected. No step's input may depend on the "
            "result of the step before"
        ),
        cost=COSTS["cell_loop"],
        rows=rows_,
        ns=ns_,
        left=left,
        deviation=0.25,
    )


def _whole(run: Run, passes: Ints) -> list[int]:
    """All rows of these passes, with helper kernels before the first and after the last one."""
    first, last, op = int(passes[0, 0]), int(passes[-1, -1]), run.table.ints("opId")
    while first > 0 and run.role[first - 1] == "aux" and op[first - 1] == op[first]:
        first -= 1
    while last + 1 < run.rows and run.role[last + 1] == "aux" and op[last + 1] == op[last]:
        last += 1
    return [row for row in range(first, last + 1) if run.phase[row] != "backward" and run.lane[row] == run.lane[first]]


def _is_state(run: Run, row: int, state: int) -> bool:
    return bool(0 < run.largest[row] <= MOST * state and run.largest[row] % state == 0)


def _cells(run: Run, passes: Ints, cell: Cell, rows: list[int]) -> tuple[list[int], list[float]]:
    """The rows that remain for each step, and what they take: one product with the state and one kernel, each way."""
    calls = len(passes) * cell.number
    products = np.sort(passes[:, cell.recurrent].ravel()).tolist()
    mine = set(rows)
    back = [row for row in gradients(run, passes, cell.state, cell.width) if row in mine]
    bent = [row for row in rows if run.aten[row] in CURVED and run.largest[row] == cell.state]
    bent = [row for row in bent if run.phase[row] == "backward"]
    own = [row for row in rows if run.family[row] in WITHIN and _is_state(run, row, cell.state)]
    kept: list[int] = []
    ns: list[float] = []
    for gates, given in ((np.sort(passes[:, cell.activations].ravel()).tolist(), products), (bent, back)):
        phase = [row for row in own if (run.phase[row] == "backward") == (gates is bent)]
        for some, each in ((given, _product_ns(run, cell, given, rows)), (gates, _gates_ns(run, cell, phase, calls))):
            chosen = _thinned(some, calls)
            kept += chosen
            ns += [each] * len(chosen)
    return kept, ns


def _thinned(rows: list[int], count: int) -> list[int]:
    """So many of these rows, evenly spread; all if they are fewer."""
    return [rows[place * len(rows) // count] for place in range(count)] if len(rows) > count else rows


def _product_ns(run: Run, cell: Cell, products: list[int], rows: list[int]) -> float:
    """What one product for all gates takes: as long as now, or, in place of one for each gate, by its work."""
    if not products:
        return 0.0
    whole = float(run.dur[[*products, *_helpers(run, rows, products)]].sum()) / len(products)
    parts, code = len(cell.recurrent) * cell.share / cell.number, int(run.limits.unit.codes[products[0]])
    if parts <= 1 or run.device is None or code < 0:
        return whole * max(parts, 1.0)
    flop, nbytes = float(run.flop[products].mean()), float(run.nbytes[products].mean())
    at_once = run.product_ns(parts * flop, parts * nbytes, run.limits.unit.values[code])
    return max(whole, min(at_once, whole * parts)) if at_once == at_once else whole * parts


def _helpers(run: Run, rows: list[int], of: list[int]) -> list[int]:
    """The helper kernels of the ops that these rows belong to."""
    op = run.table.ints("opId")
    ops = set(op[of].tolist())
    return [row for row in rows if run.role[row] == "aux" and int(op[row]) in ops]


def _gates_ns(run: Run, cell: Cell, rows: list[int], calls: int) -> float:
    """What one kernel takes for all gates of a cell: for each, two sums to add up and one result, and the states."""
    now = float(run.dur[rows].sum()) / calls
    itemsize = 2 if rows and run.dtype[rows[0]] in HALF else 4
    moved = 1e9 * (3 * GATES[cell.kind] + 2) * cell.state * itemsize / run.bandwidth
    return min(now, START_NS + moved) if moved == moved else now


def _operand(run: Run, row: int) -> int:
    """The place of what a product multiplies with its weight among its arguments; -1 if unknown."""
    matrices = [place for place, shape in enumerate(run.shapes(row)) if len(shape) == 2]
    return matrices[-2] if len(matrices) > 1 else -1


def _strides(run: Run, row: int, place: int) -> list[int]:
    """The strides of a matrix among an op's arguments; empty if unknown."""
    listed = run.listed("strides", row)
    found = listed[place] if place < len(listed) else []
    return found if isinstance(found, list) and [type(each) for each in found] == [int, int] else []


def _by_strides(run: Run, passes: Ints, at: int) -> bool:
    """Whether the rows of the product's input are as far apart as those of x[:, t] with as many steps, or more; or, of
    an input that is cast directly before, the rows of that."""
    rows = passes[1].tolist()
    operand = _operand(run, rows[at])
    if operand < 0:
        return False
    shape = run.shapes(rows[at])[operand]
    copies = [row for row in rows if run.aten[row] == "copy_" and run.first_shape(row) == shape]
    cast = rows[at - 1] in copies
    strides = _strides(run, rows[at - 1], 1) if cast else _strides(run, rows[at], operand)
    if not strides or strides[1] != 1 or any(_strides(run, row, 0) == strides for row in copies):  # or it is written
        return False
    return strides[0] % shape[1] == 0 and strides[0] >= len(passes) * shape[1]
