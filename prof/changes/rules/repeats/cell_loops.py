"""Python loops over time that compute a recurrent cell for each step, as one call of a recurrent layer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.dtypes import HALF
from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.rules.repeats.merged_rows import START_NS, Merged, merge, place, with_backward
from pyprof.prof.changes.rules.repeats.recurrent_cells import FUSED, GATES, MOST, Cell, call_of, cell_of, gradients
from pyprof.prof.changes.rules.repeats.repeated_passes import repeated_passes
from pyprof.quantities import rounded
from pyprof.table.columns import Ints

LAYERS = ("gru", "lstm", "rnn_tanh", "rnn_relu")  # ops of nn.GRU and the like, where no cuDNN computes them
STEPS = 8  # of a loop, at least
# Of the host's work for a launch as now: cuDNN launches a step's product and cell itself, on an H200's host 10 to 15 µs
# where an op of PyTorch takes 23 (lstm_cells, gru_cells; tests/device/advice_loops.py).
OF_LAUNCH = 0.5
WITHIN = ("pointwise", "copy", "fill")  # families of a cell's ops that its kernel does, all but products
# By whether PyTorch's fused cells are called: what to replace, what the layer has, what a loop does now, what remains
WORDS = {
    True: (
        "the loop over time", "it has the cell's weights (weight_ih_l0, ...)",
        "a cell {times} times", "the cell", "",
    ),
    False: (
        "the ops of each time step", "it has their weights, those of all gates in one (weight_ih_l0, ...),",
        "nn.{kind}'s gates {times} times, op by op", "one kernel for the gates",
        ". No step's input may depend on the result of the step before",
    ),
}  # fmt: skip


@edit_rule("cell_loop")
def cell_loop(scenario: Scenario) -> Iterator[Proposal]:
    """Cells in a loop over time, as nn.LSTM or nn.GRU; the loop's other ops once for all steps.

    Cells are nn.LSTMCell and nn.GRUCell, or products, sigmoid and tanh, as in cells written by hand. One call is
    possible if no step's input depends on the result of the step before. So the rule abstains where an op in the loop
    samples, and where what the cell multiplies was last made, in the elements' number, by another op of the loop than a
    look-up.

    Refuted by: a step's input that depends on the result of the step before.
    """
    loops, reasons = _loops(scenario.run)
    if not loops:
        why = f"no cell of a recurrent layer is called {STEPS} times or more within a step"
        yield Abstained("cell_loop", next(iter(reasons), why))
    for kind, fused in dict.fromkeys((cell.kind, cell.fused) for _, cell in loops):
        yield _edit(scenario, [loop for loop in loops if (loop[1].kind, loop[1].fused) == (kind, fused)])


def _loops(run: Run) -> tuple[list[tuple[Ints, Cell]], list[str]]:
    """The passes and the cell of each loop over cells, and why the passes of other loops are not cells."""
    taken = np.zeros(run.rows, bool)
    loops, reasons = [], []
    for passes in repeated_passes(run, STEPS):
        if taken[passes].any() or call_of(run, int(passes[0, 0])).removeprefix("aten::") in LAYERS:
            continue
        found = cell_of(run, passes)
        if isinstance(found, Cell):
            taken[passes] = True
            loops.append((passes, found))
        elif found:
            reasons.append(found)
    return loops, reasons


def _edit(scenario: Scenario, loops: list[tuple[Ints, Cell]]) -> Edit:
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
        within = [] if cell.fused else [row for row in mine if _is_within(run, row, cell.state)]
        merged.rows += kept
        merged.ns += ns
        merged.left += [OF_LAUNCH] * len(kept)
        merged.put([*helpers, *within], 0.0, 0)
        merge(run, sorted(set(mine) - set(within)), len(passes), merged)
        every += rows
    rows_, ns_, left = merged.arrays()
    kind, times = loops[0][1].kind, rounded(sum(len(passes) for passes, _ in loops) / len(loops))
    what, weights, does, remains, unless = WORDS[loops[0][1].fused]
    verbs = ("loop calls", "loops call") if loops[0][1].fused else ("loop computes", "loops compute")
    return Edit(
        rule="cell_loop",
        change=(
            f"Replace {what} by one call of nn.{kind}: {weights} and takes all steps' inputs; call the other layers of "
            "the loop once, on all steps' results."
        ),
        why=(
            f"{run.number(len(loops), *verbs)} {does.format(kind=kind, times=times)}; with what else is in it, and the "
            f"backward pass, {rounded(run.count(len(every)))} launches and {rounded(run.ms_of(every))} ms. Only the "
            f"product with the state and {remains} must run step by step; "
            f"{rounded(run.ms(float(ns_.sum())))} ms are expected{unless}"
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


def _is_within(run: Run, row: int, state: int) -> bool:
    """Whether an op is one on a cell's states that its one kernel does."""
    return run.family[row] in WITHIN and 0 < run.largest[row] <= MOST * state and run.largest[row] % state == 0


def _cells(run: Run, passes: Ints, cell: Cell, rows: list[int]) -> tuple[list[int], list[float]]:
    """The rows that remain for each step, and what they take: one product with the state and one kernel, each way."""
    calls, mine = len(passes) * cell.number, set(rows)
    kept: list[int] = []
    ns: list[float] = []
    for backward in (False, True):
        way = [row for row in rows if (run.phase[row] == "backward") == backward]
        gates = np.sort(passes[:, cell.activations].ravel()).tolist()
        products = np.sort(passes[:, cell.recurrent].ravel()).tolist()
        if backward:
            gates = [row for row in way if _goes_back(run, row, cell)]
            products = [row for row in gradients(run, passes, cell.state, cell.width) if row in mine]
        own = gates if cell.fused else [row for row in way if _is_within(run, row, cell.state)]
        taking = float(run.dur[[*products, *_helpers(run, rows, products)]].sum()) / max(len(products), 1)
        for some, each in ((products, taking), (gates, _gates_ns(run, cell, own, calls))):
            chosen = [some[number * len(some) // calls] for number in range(calls)] if len(some) > calls else some
            kept += chosen
            ns += [each] * len(chosen)
    return kept, ns


def _goes_back(run: Run, row: int, cell: Cell) -> bool:
    """Whether a row of the backward pass is that of a cell's last activation, or of a fused cell."""
    if cell.fused:
        return any(str(run.aten[row]).startswith(name) for name in FUSED)
    return bool(run.aten[row] == "tanh_backward" and run.largest[row] == cell.state)


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
    return min(now, START_NS + moved) if moved == moved and not cell.fused else now
