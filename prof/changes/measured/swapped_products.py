"""Edits that change the types, sizes or layout of calls, and otherwise leave them what they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.product import LINE, product_of
from pyprof.prof.changes.measured.swapped_attention import fused_call
from pyprof.prof.changes.measured.swaps import RunCalls, Swap, swap_rule, with_tensors
from pyprof.prof.changes.measured.timed_call import TF32, TimedCall, channels_last
from pyprof.prof.changes.rules.products.alignment import padded_to
from pyprof.prof.ops.model import UNKNOWN, Tensor

FUSED = ("_efficient_attention_forward", "_efficient_attention_backward")
NORMS = ("aten::native_batch_norm", "aten::native_batch_norm_backward")
AFTER_CAST = 8  # rows between a weight's cast and its product


@swap_rule("alignment")
def padded(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """Products with their odd leading dimensions padded to 16 bytes. Convolutions are left to the rule."""
    for row in calls.distinct(edit.rows):
        rows, call = calls.rows_of(row), calls.call(row)
        product = product_of(calls.run, row)
        first = next((value for value in call.arguments if isinstance(value, Tensor)), None)
        if product is None or not product.leads or first is None or first.dtype not in ITEM_BYTES:
            continue
        item = ITEM_BYTES[first.dtype]
        odd = {size: padded_to(size, item) for dim, size in product.leads if size * item % LINE and product.of(dim) > 1}
        if odd:
            yield Swap(tuple(rows), (with_tensors(call, partial(_padded, odd)),), (call,))


def _padded(odd: dict[int, int], tensor: Tensor) -> Tensor:
    shape = tuple(odd.get(size, size) for size in tensor.shape)
    strides = tensor.strides and tuple(odd.get(stride, stride) for stride in tensor.strides)
    return replace(tensor, shape=shape, strides=strides)


@swap_rule("tf32")
def tf32(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """The same products with TF32 allowed."""
    for rows, call in calls.each(edit.rows):
        yield Swap(tuple(rows), (replace(call, mode=TF32),), (call,))


@swap_rule("amp")
def narrowed(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """Calls whose operands become narrow. Those of which only some do keep the rule's estimate, as casts do."""
    run = calls.run
    for row in calls.distinct(edit.retyped):
        rows, call = calls.rows_of(row), calls.call(row)
        narrow = with_tensors(call, lambda t: replace(t, dtype=edit.dtype) if t.dtype == "float32" else t, mode="")
        after = fused_call(run, row, edit.dtype, "") if run.aten[row] in FUSED else narrow
        if after is not None and run.family[row] != "rnn":
            yield Swap(tuple(rows), (after,), (call,))


@swap_rule("channels_last")
def in_nhwc(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """Convolutions and batch norms of tensors in channels last."""
    for rows, call in calls.each(edit.rows):
        same = _any_backend(call)
        if same is not None:
            moved = with_tensors(same, lambda tensor: replace(tensor, strides=channels_last(tensor.shape)))
            yield Swap(tuple(rows), (moved,), (call,))


def _any_backend(call: TimedCall) -> TimedCall | None:
    """The call by an op that chooses its kernels by the layout; None if there is none."""
    values = call.arguments
    if call.op in ("aten::convolution_backward", *NORMS):
        return call
    if call.op in ("aten::_conv_depthwise2d", "aten::conv_depthwise3d") and len(values) > 6:
        x, weight, _, bias, stride, padding, dilation = values[:7]
        groups = x.shape[1] if isinstance(x, Tensor) and len(x.shape) > 1 else 1
    elif call.op == "aten::cudnn_convolution" and len(values) > 5:
        (x, weight, padding, stride, dilation, groups), bias = values[:6], None
    else:
        return None
    zeros = tuple(0 for _ in padding) if isinstance(padding, (tuple, list)) else UNKNOWN
    arguments = (x, weight, bias, stride, padding, dilation, False, zeros, groups)
    return replace(call, op="aten::convolution", arguments=arguments)


@swap_rule("weight_casts")
def uncast(calls: RunCalls, edit: Edit) -> Iterator[Swap]:
    """The products that follow casts of their weights: they found these in the cache, and will not."""
    run = calls.run
    for row in edit.rows.tolist():
        weight = sorted(run.first_shape(row))
        near = range(row + 1, min(row + AFTER_CAST, run.rows))
        found = next((i for i in near if run.family[i] == "gemm" and run.role[i] != "aux"), -1)
        if found >= 0 and len(weight) == 2 and any(sorted(shape) == weight for shape in run.shapes(found)):
            yield Swap(tuple(calls.rows_of(found)), (calls.call(found),))
