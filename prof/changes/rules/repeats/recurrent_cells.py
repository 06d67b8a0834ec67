"""Cells of recurrent layers in the passes of a loop: which layer of torch.nn a pass computes, told by its ops.

A cell is one of PyTorch's fused ones, or several ops. All amounts of these are counted in states: a product whose
result is three times as large as the state makes three gates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import NamedTuple

import numpy as np

from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.rules.kernels.results_of_ops import READS, results
from pyprof.table.columns import Ints

FUSED = {"_thnn_fused_lstm_cell": "LSTM", "_thnn_fused_gru_cell": "GRU"}
GATES = {"LSTM": 4, "GRU": 3}
MOST = max(GATES.values())
SAMPLED = ("argmax", "multinomial", "topk", "sort", "bernoulli_", "max")  # the next input depends on the result
MOVES = ("copy", "fill", *READS)  # families that compute nothing
CURVED = ("sigmoid", "tanh")
# What a cell has besides its products, which make all gates at once; "sub of one": of a number, as in 1 - update.
FORMS = (
    ("LSTM", {"sigmoid": 3, "tanh": 2, "add": 5, "mul": 3}),
    ("GRU", {"sigmoid": 2, "tanh": 1, "add": 4, "mul": 3, "sub of one": 1}),
    ("GRU", {"sigmoid": 2, "tanh": 1, "add": 4, "mul": 2, "sub": 1}),
)


class Cell(NamedTuple):
    kind: str  # GRU: torch.nn has a layer of this name
    fused: bool
    number: int  # of such cells in a pass
    state: int  # elements of a state
    width: int
    recurrent: list[int]  # places in the pass of the products that take the state; those of the input may be among them
    activations: list[int]  # places in the pass of each cell's last one


def cell_of(run: Run, passes: Ints) -> Cell | str:
    """The cells that each pass consists of; or why it has none of torch.nn's, empty if nothing looks like a cell."""
    rows = passes[1].tolist()
    names = [str(run.aten[row]).rstrip("_") for row in rows]
    fused = [at for at, name in enumerate(names) if name in FUSED]
    if not fused and not set(CURVED) <= set(names):
        return ""
    sampled = next((name for row, name in zip(rows, names, strict=True) if _samples(run, row, name)), "")
    if sampled:
        return f"an op of a loop over cells samples, or is read by the host ({sampled})"
    return _fused_cells(run, rows, fused) if fused else _cells_of_ops(run, rows, names)


def _samples(run: Run, row: int, name: str) -> bool:
    return run.aten[row] in SAMPLED or name == "_local_scalar_dense" or run.family[row] == "rng"


def _fused_cells(run: Run, rows: list[int], ends: list[int]) -> Cell | str:
    """Fused cells, each after the two products of its call: that of its input, and that of its state."""
    kind, inputs, states = FUSED[run.aten[rows[ends[0]]]], [], []
    for end in ends:
        before = [at for at in _before(rows, end) if run.family[rows[at]] == "gemm"][:2]
        if len(before) < 2 or any(call_of(run, rows[at]) != call_of(run, rows[end]) for at in before):
            return "a cell's two products do not stand directly before it"
        states.append(before[0])
        inputs.append(before[1])
    shapes = [shape for shape in run.shapes(rows[states[0]]) if len(shape) > 1]
    if len(shapes) < 2:
        return "the shapes of a cell's products are not known"
    state, width = results(run, rows[states[0]])[0] // GATES[kind], shapes[-1][-1] // GATES[kind]
    reason = _depends(run, rows, inputs, [*states, *ends])
    return reason or Cell(kind, True, len(ends), state, width, states, ends)


def _cells_of_ops(run: Run, rows: list[int], names: list[str]) -> Cell | str:
    """Cells written by hand: products of input and state for all gates at once, and element-wise ops."""
    shape = run.first_shape(rows[names.index("tanh")])
    state, width = numel(shape), shape[-1] if shape else 0
    if not state:
        return "the capture does not have the sizes of a loop's ops"
    counts: Counter[str] = Counter()
    products: dict[int, int] = {}  # place -> gates
    curved, inside = [], []
    for at, (row, name) in enumerate(zip(rows, names, strict=True)):
        size = results(run, row)[0] if run.family[row] == "gemm" and results(run, row) else int(run.largest[row])
        if run.family[row] in MOVES or not size or size % state or size > MOST * state:
            continue  # of another op than the cell
        if run.family[row] == "gemm":
            products[at] = size // state
            continue
        inside.append(at)
        whole = [numel(operand) for operand in run.shapes(row)].count(size)
        counts[name if whole == 2 or name in CURVED else f"{name} of one"] += size // state
        curved += [at] if name == "tanh" else []
    form = next((form for form in FORMS if _has_form(counts, form[1])), None)
    if form is None or set(products.values()) != {GATES[form[0]]}:
        return "the gates of a loop are those of no layer in torch.nn"
    kind, number = form[0], counts["tanh"] // form[1]["tanh"]
    recurrent = [at for at in products if _operand(run, rows[at])[-1] == width]
    if len(recurrent) < number or len(products) > 2 * number:
        return "no product takes the state"
    apart = max(len(curved) // number, 1)
    reason = _depends(run, rows, list(products), inside)
    return reason or Cell(kind, False, number, state, width, recurrent, curved[apart - 1 :: apart])


def _has_form(counts: Counter[str], form: dict[str, int]) -> bool:
    number = counts["tanh"] // form["tanh"]
    return dict(counts) == {name: number * count for name, count in form.items()}


def _before(rows: list[int], place: int) -> list[int]:
    """The other places of a pass, those that come just before this one first; the last ones are in the pass before."""
    return [(place - back) % len(rows) for back in range(1, len(rows))]


def _operand(run: Run, row: int) -> list[int]:
    """The shape of what a product multiplies with its weight."""
    return [shape for shape in run.shapes(row) if len(shape) > 1][-2]


def _depends(run: Run, rows: list[int], products: list[int], own: Container[int]) -> str:
    """Why an input may be made from the step before: another op than a look-up or a cell's (``own``) has made as many
    elements last. Empty if none has."""
    for product in products:
        size = numel(_operand(run, rows[product]))
        maker = next(
            (at for at in _before(rows, product) if at not in products and size in results(run, rows[at])), None
        )
        if maker is not None and maker not in own and run.family[rows[maker]] not in READS:
            return f"an input may come from the step before ({run.op(rows[maker])}, {run.trace(rows[maker])})"
    return ""


def call_of(run: Run, row: int) -> str:
    """The outermost op of PyTorch that a row is part of: aten::lstm_cell."""
    return str((run.listed("nodes", row) or [""])[0])


def gradients(run: Run, passes: Ints, state: int, width: int) -> list[int]:
    """The backward products of these passes whose result is as large as a state: [batch, gates] @ [gates, state]."""
    numbers = run.table.ragged("seqId")
    mine = numbers.take(passes.ravel()).values
    if not len(mine):
        return []
    owner = np.repeat(np.arange(run.rows), np.diff(numbers.offsets))
    rows = np.unique(owner[(numbers.values >= mine.min()) & (numbers.values <= mine.max())])
    steps, first = run.table.ints("step"), passes[0, 0]
    rows = rows[(run.phase[rows] == "backward") & (run.family[rows] == "gemm") & (run.role[rows] != "aux")]
    rows = rows[(steps[rows] == steps[first]) & (run.lane[rows] == run.lane[first])]
    return [row for row in rows.tolist() if results(run, row) == (state,) and run.shapes(row)[-1][-1:] == [width]]
