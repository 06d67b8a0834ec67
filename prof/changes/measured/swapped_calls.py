"""What edits replace by which calls, but for attention: the same calls with other types, sizes or layouts, and one call
in place of several (compiled chains, losses and norms, fused optimizers, stacked gradients).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.product import LINE, product_of
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.changes.measured.swapped_attention import PLACES, fused_call
from pyprof.prof.changes.measured.swaps import RunCalls, Swap, call_change, swap_rule, with_tensors
from pyprof.prof.changes.measured.timed_call import COMPILED, TF32, TimedCall, channels_last
from pyprof.prof.changes.rules.kernels.fusion import CHAIN, chains
from pyprof.prof.changes.rules.products.alignment import padded_to
from pyprof.prof.ops.model import UNKNOWN, Tensor

NORMS = ("aten::native_batch_norm", "aten::native_batch_norm_backward")
AFTER_CAST = 8  # rows between a weight's cast and its product
LONGEST = 48  # ops that are compiled together


@call_change("alignment")
def padded(calls: RunCalls, edit: Edit, row: int, call: TimedCall) -> TimedCall | None:
    """A product with its odd leading dimensions padded to 16 bytes. Convolutions are left to the rule."""
    product = product_of(calls.run, row)
    first = next((value for value in call.arguments if isinstance(value, Tensor)), None)
    if product is None or not product.leads or first is None or first.dtype not in ITEM_BYTES:
        return None
    item = ITEM_BYTES[first.dtype]
    odd = {size: padded_to(size, item) for dim, size in product.leads if size * item % LINE and product.of(dim) > 1}

    def changed(tensor: Tensor) -> Tensor:
        shape = tuple(odd.get(size, size) for size in tensor.shape)
        strides = tensor.strides and tuple(odd.get(stride, stride) for stride in tensor.strides)
        return replace(tensor, shape=shape, strides=strides)

    return with_tensors(call, changed) if odd else None


@call_change("tf32")
def tf32(calls: RunCalls, edit: Edit, row: int, call: TimedCall) -> TimedCall:
    """The same product with TF32 allowed."""
    return replace(call, mode=TF32)


@call_change("amp")
def narrowed(calls: RunCalls, edit: Edit, row: int, call: TimedCall) -> TimedCall | None:
    """A call whose operands become narrow. Those of which only some do keep the rule's estimate, as casts do."""
    run = calls.run
    if run.family[row] == "rnn":
        return None
    if run.aten[row] in PLACES and run.aten[row].startswith("_efficient"):
        return fused_call(run, row, edit.dtype, "")
    return with_tensors(call, lambda t: replace(t, dtype=edit.dtype) if t.dtype == "float32" else t, mode="")


@call_change("channels_last")
def in_nhwc(calls: RunCalls, edit: Edit, row: int, call: TimedCall) -> TimedCall | None:
    """A convolution or batch norm of tensors in channels last, by an op that chooses its kernels by the layout."""
    values = call.arguments
    if call.op in ("aten::_conv_depthwise2d", "aten::conv_depthwise3d") and len(values) > 6:
        x, weight, _, bias, stride, padding, dilation = values[:7]
        groups = x.shape[1] if isinstance(x, Tensor) and len(x.shape) > 1 else 1
    elif call.op == "aten::cudnn_convolution" and len(values) > 5:
        (x, weight, padding, stride, dilation, groups), bias = values[:6], None
    elif call.op not in ("aten::convolution_backward", *NORMS):
        return None
    if call.op.startswith(("aten::_conv", "aten::conv_", "aten::cudnn")):
        zeros = tuple(0 for _ in padding) if isinstance(padding, (tuple, list)) else UNKNOWN
        arguments = (x, weight, bias, stride, padding, dilation, False, zeros, groups)
        call = replace(call, op="aten::convolution", arguments=arguments)
    return with_tensors(call, lambda tensor: replace(tensor, strides=channels_last(tensor.shape)))


@swap_rule("weight_casts")
def uncast(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """The products that follow casts of their weights: they found these in the cache, and will not."""
    run = calls.run
    for row in edit.rows.tolist():
        weight = sorted(run.first_shape(row))
        near = range(row + 1, min(row + AFTER_CAST, run.rows))
        found = next((i for i in near if run.family[i] == "gemm" and run.role[i] != "aux"), -1)
        if found >= 0 and len(weight) == 2 and any(sorted(shape) == weight for shape in run.shapes(found)):
            yield Swap(calls.rows_of(found), (calls.call(found),))


@swap_rule("fusion")
def compiled_chains(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """Chains of element-wise ops as functions that torch.compile makes one kernel of, layer by layer."""
    chosen = set(edit.rows.tolist())
    for _, chain in chains(calls.run, least=1):
        if chosen.issuperset(chain):
            for rows in _by_layer(calls.run, chain):
                parts = calls.calls(rows)
                if len(parts) > 1:
                    yield Swap(rows, (TimedCall("chain", (), "", COMPILED, parts=parts),), parts)


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
    run, rows = calls.run, edit.rows
    softmaxes = rows[run.aten[rows] == "_log_softmax"]
    logits = next(iter(calls.call(int(softmaxes[0])).arguments), None) if len(softmaxes) else None
    if not isinstance(logits, Tensor):
        return
    casts = rows[(run.aten[rows] == "copy_") & (run.phase[rows] == "forward")]
    cast = bool(len(casts))
    source = next(iter(calls.call(int(casts[0])).arguments[1:]), None) if cast else logits
    given = Tensor(logits.shape, source.dtype if isinstance(source, Tensor) else "")
    back = (run.phase[rows] == "backward") | (run.texts("dir")[rows] == "bprop")
    for mine, direction in ((rows[~back].tolist(), ""), (rows[back].tolist(), "bprop")):
        if mine:
            after = TimedCall("cross_entropy", (given, cast), direction, COMPILED)
            yield Swap(mine, (after,) * len(softmaxes), calls.calls(mine))


@swap_rule("optimizer")
def fused_step(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """The fused kernel over all parameters of a step."""
    run = calls.run
    mark, kind = ("addcdiv", "adam") if "Adam" in edit.change else ("add_", "sgd")
    if kind == "sgd" and any("mul_" in run.aten[row] for row in edit.rows.tolist()):
        kind = "sgd with momentum"
    marked = calls.distinct([row for row in edit.rows.tolist() if mark in run.aten[row]])
    for rows in calls.by_step(edit.rows):
        of_step = [row for row in marked if row in set(rows)]
        shapes = [shape for row in of_step for shape in _listed(run, row)]
        if shapes and all(numel(list(shape)) for shape in shapes):
            dtype = str(run.dtype[of_step[0]]) or "float32"
            after = TimedCall(kind, (tuple(Tensor(shape, dtype) for shape in shapes),))
            yield Swap(rows, (after,), calls.calls(rows))


def _listed(run: Run, row: int) -> list[tuple[int, ...]]:
    """The shapes of an op's first argument: a tensor, or a list of them."""
    first: Any = next(iter(run.listed("sizes", row)), [])
    if not isinstance(first, list) or not first:
        return []
    return (
        [tuple(shape) for shape in first if isinstance(shape, list)] if isinstance(first[0], list) else [tuple(first)]
    )


@swap_rule("select_in_loop")
def stacked(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """One stack of all pieces' gradients in place of zeros, copies and sums."""
    run = calls.run
    for rows in calls.by_step(edit.rows):
        fills = [row for row in rows if run.aten[row] in ("fill_", "zero_")]
        copies = [row for row in rows if run.aten[row] == "copy_"]
        if not fills or not copies:
            continue
        whole, piece = run.first_shape(fills[0]), run.first_shape(copies[0])
        dims = [dim for dim in range(len(whole)) if [*whole[:dim], *whole[dim + 1 :]] == piece]
        tensors = round(len(copies) / whole[dims[0]]) if dims else 0
        if tensors:
            pieces = (Tensor(tuple(piece), str(run.dtype[fills[0]])),) * whole[dims[0]]
            yield Swap(rows, (TimedCall("aten::stack", (pieces, dims[0])),) * tensors, calls.calls(rows))


@swap_rule("pageable_copy")
def pinned(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """Copies of as many bytes of pinned memory, where each remains a copy of its own."""
    size = calls.run.table.ints("bytes")
    for row in edit.rows[edit.left == 1].tolist():
        yield Swap([row], (TimedCall("copy of pinned memory", (int(size[row]),)),))


@swap_rule("parameter_loop")
def on_lists(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """One op on lists of tensors in place of the same op for each."""
    run = calls.run
    places = run.table.coded("trace").codes
    for rows in calls.by_step(edit.rows):
        groups: dict[tuple[str, int], list[int]] = {}
        for row in rows:
            groups.setdefault((run.aten[row], int(places[row])), []).append(row)
        found = [(mine, call) for mine in groups.values() if (call := _listed_call(calls, mine)) is not None]
        if done := [row for mine, _ in found for row in mine]:
            yield Swap(done, tuple(call for _, call in found), calls.calls(done))


def _listed_call(calls: RunCalls, rows: list[int]) -> TimedCall | None:
    """The op on lists for ops that have the same arguments but for their tensors' sizes; None if they differ."""
    each, merged = calls.calls(rows), []
    for values in zip(*(call.arguments for call in each), strict=False):
        tensors = all(isinstance(value, Tensor) and value.shape for value in values)
        if not tensors and len(set(map(repr, values))) > 1:
            return None
        merged.append(values if tensors else values[0])
    name = each[0].op.removeprefix("aten::").replace("linalg_vector_norm", "norm")
    return replace(each[0], op=f"aten::_foreach_{name}", arguments=tuple(merged), flop=None)
