"""Edits that make one kernel of several: compiled chains, losses and norms, fused optimizers, stacked gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.measured.swaps import RunCalls, Swap, phases, swap_rule
from pyprof.prof.changes.measured.timed_call import COMPILED, TimedCall
from pyprof.prof.changes.rules.kernels.fusion import CHAIN, chains
from pyprof.prof.ops.model import Tensor

LONGEST = 48  # ops that are compiled together


@swap_rule("fusion")
def compiled_chains(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """Chains of element-wise ops as functions that torch.compile makes one kernel of, layer by layer."""
    chosen = set(edit.rows.tolist())
    for _, chain in chains(calls.run, least=1):
        if chosen.issuperset(chain):
            for rows in _by_layer(calls.run, chain):
                parts = calls.calls(rows)
                if len(parts) > 1:
                    yield Swap(tuple(rows), (TimedCall("chain", (), "", COMPILED, parts=parts),), parts)


def _by_layer(run: Run, chain: list[int]) -> Iterator[list[int]]:
    """A chain in pieces of one step and layer, as a compiled module would have them."""
    step, piece = run.table.ints("step"), list[int]()
    for row in chain:
        other = piece and (step[row] != step[piece[-1]] or run.layer(row) != run.layer(piece[-1]))
        if (other and len(piece) >= CHAIN) or len(piece) >= LONGEST:
            yield piece
            piece = []
        piece.append(row)
    yield piece


@swap_rule("cross_entropy")
def compiled_loss(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """F.cross_entropy, with the cast before it where there is one, compiled: forward, and backward."""
    run = calls.run
    softmaxes = edit.rows[run.aten[edit.rows] == "_log_softmax"]
    logits = next(iter(calls.call(int(softmaxes[0])).arguments), None) if len(softmaxes) else None
    if not isinstance(logits, Tensor):
        return
    casts = edit.rows[(run.aten[edit.rows] == "copy_") & (run.phase[edit.rows] == "forward")]
    cast = bool(len(casts))
    source = next(iter(calls.call(int(casts[0])).arguments[1:]), None) if cast else logits
    given = Tensor(logits.shape, source.dtype if isinstance(source, Tensor) else "")
    for rows, backward in phases(run, edit.rows):
        after = TimedCall("cross_entropy", (given, cast), "bprop" if backward else "", COMPILED)
        yield Swap(tuple(rows.tolist()), (after,) * len(softmaxes), calls.calls(rows.tolist()))


@swap_rule("optimizer")
def fused_step(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """The fused kernel over all parameters of a step."""
    run = calls.run
    mark, kind = ("addcdiv", "adam") if "Adam" in edit.change else ("add_", "sgd")
    marked = [row for row in edit.rows.tolist() if mark in run.aten[row]]
    if kind == "sgd" and any("mul_" in run.aten[row] for row in edit.rows.tolist()):
        kind = "sgd with momentum"
    for step in np.unique(run.table.ints("step")[edit.rows]).tolist():
        rows = edit.rows[run.table.ints("step")[edit.rows] == step].tolist()
        of_step = [row for row in calls.distinct(marked) if row in set(rows)]
        shapes = [shape for row in of_step for shape in _listed(run, row)]
        if shapes and all(numel(list(shape)) for shape in shapes):
            dtype = str(run.dtype[of_step[0]]) or "float32"
            after = TimedCall(kind, (tuple(Tensor(shape, dtype) for shape in shapes),))
            yield Swap(tuple(rows), (after,), calls.calls(rows))


def _listed(run: Run, row: int) -> list[tuple[int, ...]]:
    """The shapes of an op's first argument: a tensor, or a list of them."""
    first: Any = next(iter(run.listed("sizes", row)), [])
    if not isinstance(first, list) or not first:
        return []
    several = isinstance(first[0], list)
    return [tuple(shape) for shape in first if isinstance(shape, list)] if several else [tuple(first)]


@swap_rule("select_in_loop")
def stacked(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """One stack of all pieces' gradients in place of zeros, copies and sums."""
    run = calls.run
    for step in np.unique(run.table.ints("step")[edit.rows]).tolist():
        rows = edit.rows[run.table.ints("step")[edit.rows] == step]
        fills = [row for row in rows.tolist() if run.aten[row] in ("fill_", "zero_")]
        copies = [row for row in rows.tolist() if run.aten[row] == "copy_"]
        if not fills or not copies:
            continue
        whole, piece = run.first_shape(fills[0]), run.first_shape(copies[0])
        dims = [dim for dim in range(len(whole)) if [*whole[:dim], *whole[dim + 1 :]] == piece]
        tensors = round(len(copies) / whole[dims[0]]) if dims else 0
        if tensors:
            pieces = tuple(Tensor(tuple(piece), str(run.dtype[fills[0]])) for _ in range(whole[dims[0]]))
            after = TimedCall("aten::stack", (pieces, dims[0]))
            yield Swap(tuple(rows.tolist()), (after,) * tensors, calls.calls(rows.tolist()))


@swap_rule("pageable_copy")
def pinned(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """Copies of as many bytes of pinned memory, where each remains a copy of its own."""
    size = calls.run.table.ints("bytes")
    for row, left in zip(edit.rows.tolist(), edit.left.tolist(), strict=True):
        if left == 1:
            yield Swap((row,), (TimedCall("copy of pinned memory", (int(size[row]),)),))


@swap_rule("parameter_loop")
def on_lists(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """One op on lists of tensors in place of the same op for each."""
    run = calls.run
    places = run.table.coded("trace").codes
    for step in np.unique(run.table.ints("step")[edit.rows]).tolist():
        rows = edit.rows[run.table.ints("step")[edit.rows] == step]
        after, done = [], list[int]()
        for key in dict.fromkeys(zip(run.aten[rows].tolist(), places[rows].tolist(), strict=True)):
            mine = [r for r in rows.tolist() if (run.aten[r], places[r]) == key]
            call = _listed_call(calls, mine)
            if call is not None:
                after.append(call)
                done += mine
        if done:
            yield Swap(tuple(done), tuple(after), calls.calls(done))


def _listed_call(calls: RunCalls, rows: list[int]) -> TimedCall | None:
    """The op on lists for ops that have the same arguments but for their tensors' sizes; None if they differ."""
    each = calls.calls(rows)
    arguments = list(zip(*(call.arguments for call in each), strict=False))
    merged = []
    for values in arguments:
        tensors = all(isinstance(value, Tensor) and value.shape for value in values)
        if not tensors and len(set(map(repr, values))) > 1:
            return None
        merged.append(tuple(values) if tensors else values[0])
    name = each[0].op.removeprefix("aten::").replace("linalg_vector_norm", "norm")
    return replace(each[0], op=f"aten::_foreach_{name}", arguments=tuple(merged), flop=None)
