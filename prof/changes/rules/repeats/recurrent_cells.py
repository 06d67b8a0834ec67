"""Cells of recurrent layers made of several ops: which layer of torch.nn a pass of a loop computes, told by its ops.

All amounts are counted in states: a product whose result is three times as large as the state makes three gates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.table.columns import Ints

READS = ("embedding", "indexing")  # families of kernels that fetch a step's input
SAMPLED = ("argmax", "multinomial", "topk", "sort", "bernoulli_", "max")  # the next input depends on the result
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
# What the gates of a cell apply: (sigmoid, tanh). A relu in place of RNN's tanh counts as one.
APPLIED = {"LSTM": (3, 2), "GRU": (2, 1), "RNN": (0, 1)}
MOST = max(GATES.values())
MOVES = ("copy", "fill", *READS)  # families that compute nothing
ARITHMETIC = ("add", "sub", "mul", "addcmul", "lerp")
RELU = ("relu", "clamp_min", "threshold")
NO_GATES = "a loop has no gates, so that the capture does not show whether each pass needs the one before"
AHEAD = 8  # rows before a loop's first pass, among which its first state is filled with zeros


class Product(NamedTuple):
    at: int  # its place in the pass
    batch: int
    inner: int
    states: int  # how many states its result is as large as


class Cell(NamedTuple):
    kind: str  # GRU: torch.nn has a layer of this name
    number: int  # of such cells in a pass
    state: int  # elements of a state
    width: int
    recurrent: list[int]  # places in the pass of the products that take the state; those of the input may be among them
    share: float  # of these products' work that the states are
    activations: list[int]  # places in the pass of each cell's last one


def cell_of(run: Run, passes: Ints) -> Cell | str:
    """The cells that each pass consists of; or why it has none of torch.nn's, empty if nothing looks like a cell."""
    found = _cell_of(run, passes)
    gated = all(name in [str(aten).rstrip("_") for aten in run.aten[passes[1]]] for name in ("sigmoid", "tanh"))
    return found if isinstance(found, Cell) or gated or found == NO_GATES else ""


def _cell_of(run: Run, passes: Ints) -> Cell | str:
    rows = passes[1].tolist()
    names = [str(run.aten[row]).rstrip("_") for row in rows]
    curved = [at for at, name in enumerate(names) if name == "tanh"]
    if not curved and "sigmoid" not in names:
        curved = [at for at, name in enumerate(names) if name in RELU]
    if not curved:
        return ""
    shape = run.first_shape(rows[curved[0]])
    state, width = numel(shape), shape[-1] if shape else 0
    if not state:
        return "the capture does not have the sizes of a loop's ops"
    curved = [at for at in curved if run.largest[rows[at]] == state]
    sampled = next((name for row, name in zip(rows, names, strict=True) if _samples(run, row, name)), "")
    if sampled:
        return f"an op of a loop over cells samples, or is read by the host ({sampled})"
    products = [each for at, row in enumerate(rows) if (each := _product(run, row, at, state))]
    if not any(each.inner == width for each in products) and not any(each.inner > width for each in products):
        return "no product takes the state"
    used = {each.at for each in products}
    counts: Counter[str] = Counter()
    for at, (row, name) in enumerate(zip(rows, names, strict=True)):
        if at in used or run.family[row] in MOVES:
            continue
        size = int(run.largest[row])
        if not size or size % state or size > MOST * state:
            continue  # of another op than the cell
        if at in curved:
            name = "tanh"
        if name not in ("sigmoid", "tanh", *ARITHMETIC):
            return f"no cell of torch.nn has this op ({name}, {run.trace(row)})"
        counts.update(_counted(run, row, name, size // state))
    counts["add"] += sum(each.states for each in products if _adds_states(run, rows[each.at], state))
    kind = next((kind for kind, each in APPLIED.items() if _applies(counts, *each)), "")
    if not kind:
        return "the gates of a loop are those of no layer in torch.nn"
    number = counts["tanh"] // APPLIED[kind][1]
    way = _matches(kind, number, counts, products, width)
    if not way or (kind == "GRU" and not _resets_late(names, curved, products)):
        return f"a loop with the gates of nn.{kind} has other ops"
    reason = _depends(run, rows, state, products, way == "joined")
    if reason:
        return reason
    if kind == "RNN" and not _carries(run, passes, state, width):
        return NO_GATES
    takes = [each for each in products if each.inner == width] if way != "joined" else products
    share = number * GATES[kind] / sum(each.states for each in takes)
    apart = max(len(curved) // number, 1)
    return Cell(kind, number, state, width, [each.at for each in takes], min(share, 1.0), curved[apart - 1 :: apart])


def _samples(run: Run, row: int, name: str) -> bool:
    return run.aten[row] in SAMPLED or name == "_local_scalar_dense" or run.family[row] == "rng"


def _product(run: Run, row: int, at: int, state: int) -> Product | None:
    """A product of which the result is as large as some states; None for others, as an output layer's."""
    shapes = [shape for shape in run.shapes(row) if len(shape) > 1]
    if run.family[row] != "gemm" or len(shapes) < 2:
        return None
    left, right = shapes[-2:]
    size = numel(left[:-1]) * right[-1]
    if not size or size % state or size > MOST * state:
        return None
    return Product(at, numel(left[:-1]), left[-1], size // state)


def _counted(run: Run, row: int, name: str, states: int) -> dict[str, int]:
    """What an op adds to the counts of a pass."""
    full = int(run.largest[row])
    operands = [numel(shape) for shape in run.shapes(row)]
    whole, others = operands.count(full), [size for size in operands if size not in (0, full)]
    if name in ("sigmoid", "tanh"):
        return {name: states}
    if name == "mul":
        return {name: states if whole == 2 else MOST * MOST}  # by a scalar or a vector: of no cell
    if name == "addcmul":
        return {"add": states, "mul": states}
    if name == "lerp":
        return {"add": states, "mul": states, "difference": states}
    if name == "sub":
        return {"difference" if whole == 2 else "rest": states}
    if whole == 2:
        return {"add": states}
    return {} if all(size == run.shapes(row)[operands.index(full)][-1] for size in others) else {"other": 1}  # a bias


def _adds_states(run: Run, row: int, state: int) -> bool:
    """Whether a product adds its result to a whole tensor, and not to a bias alone: torch.addmm(x, h, weight)."""
    shapes = [shape for shape in run.shapes(row) if shape]
    return run.aten[row] in ("addmm", "baddbmm") and len(shapes[0]) > 1 and numel(shapes[0]) % state == 0


def _applies(counts: Counter[str], sigmoid: int, tanh: int) -> bool:
    return counts["tanh"] % tanh == 0 and counts["sigmoid"] * tanh == counts["tanh"] * sigmoid


def _matches(kind: str, number: int, counts: Counter[str], products: list[Product], width: int) -> str:
    """How the products of a pass take input and state, if the ops are those of so many cells; empty if they are not.

    "apart": the state by products of its own; "joined": side by side with the input.
    """
    gates, total = GATES[kind], sum(each.states for each in products)
    of_state = sum(each.states for each in products if each.inner == width)
    way = ""
    if number * gates <= of_state and total % gates == 0 and total <= 2 * number * gates:
        way = "apart"
    elif kind != "GRU" and total == number * gates and all(each.inner > width for each in products):
        way = "joined"
    joins = gates if way == "apart" else 0
    others = counts["other"] == 0
    if kind == "GRU":
        updated = (counts["mul"], counts["difference"], counts["rest"])
        others = others and updated in ((3 * number, 0, number), (2 * number, number, 0))
    else:
        others = others and counts["difference"] == counts["rest"] == 0
        others = others and counts["mul"] == (3 * number if kind == "LSTM" else 0)
    return way if others and counts["add"] == number * (joins + (kind != "RNN")) else ""


def _resets_late(names: list[str], curved: list[int], products: list[Product]) -> bool:
    """Whether the reset gate multiplies the state's product, as in nn.GRU, and not the state itself.

    One product for all gates leaves no other way; else a multiplication stands between the last product and tanh.
    """
    if all(each.states == GATES["GRU"] for each in products):
        return True
    places = {each.at for each in products}
    for at in curved:
        before = [(at - back) % len(names) for back in range(1, len(names))]
        between = before[: next((number for number, place in enumerate(before) if place in places), 0)]
        if not any(names[place] in ("mul", "addcmul") for place in between):
            return False
    return True


def _depends(run: Run, rows: list[int], state: int, products: list[Product], joined: bool) -> str:
    """Why an input may be made of a state: another op of the loop makes as many elements; empty if nothing does."""
    inputs = {each.batch * each.inner - (state if joined else 0) for each in products}
    mine = {each.at for each in products}
    for at, row in enumerate(rows):
        if at in mine or run.family[row] in READS:
            continue
        size = int(run.largest[row])
        if run.aten[row] in ("cat", "stack"):
            parts = list(_parts(run, row))
            if joined and len(parts) == 2:
                continue  # the input and the state
            results = inputs if joined else {sum(parts)}
        elif run.family[row] in MOVES or (size % state == 0 and size <= MOST * state and run.family[row] != "gemm"):
            continue
        else:
            results = set(made(run, row))
        if results & inputs:
            return f"an input may come from the step before ({run.op(row)}, {run.trace(row)})"
    return ""


def _parts(run: Run, row: int) -> Iterator[int]:
    """The elements of each tensor of a list that an op takes."""
    for each in run.listed("sizes", row)[:1]:
        if isinstance(each, list):
            yield from (numel(shape) for shape in each if numel(shape))


def made(run: Run, row: int) -> tuple[int, ...]:
    """The elements of an op's result, or what they may be, as far as its operands tell."""
    shapes = [shape for shape in run.shapes(row) if numel(shape)]
    if run.family[row] == "gemm" and len(shapes) > 1:
        left, right = shapes[-2:]
        return (numel([*left[:-1], right[-1]]),)
    if run.family[row] in READS and len(shapes) > 1:  # indices of the result's shape, or one for each vector
        return numel(shapes[-1]), numel(shapes[-1]) * shapes[0][-1]
    return (int(run.largest[row]),)


def _carries(run: Run, passes: Ints, state: int, width: int) -> bool:
    """Whether a state goes from pass to pass: one is filled with zeros before them, or has one gradient fewer.

    The first pass may be another one, as autocast casts weights in it.
    """
    first = int(passes[0, 0])
    steps = run.table.ints("step")
    before = np.arange(max(first - AHEAD - int(passes[1, 0]) + first, 0), first)
    before = before[(run.phase[before] != "backward") & (steps[before] == steps[first])]
    zeros = before[np.isin(run.aten[before], ("fill_", "zero_")) & np.isin(run.largest[before], (state, 2 * state))]
    if len(zeros):
        return True
    return len(gradients(run, passes, state, width)) % len(passes) == len(passes) - 1


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
    return [row for row in rows.tolist() if made(run, row) == (state,) and run.shapes(row)[-1][-1:] == [width]]
