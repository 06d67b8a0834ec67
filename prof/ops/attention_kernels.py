"""The attention kernels' own ops, below those of ``attention``: sequences of different lengths, and windows.

Same counts over the pairs that the kernel's mask leaves. Sequences packed one after the other come with their
cumulative lengths, which are read too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from pyprof.prof.ops.attention import FAMILY_NAME, Heads, backward, forward, heads_first, unmasked
from pyprof.prof.ops.model import UNKNOWN, Tensor, UnknownArgument, Work, distinct, model
from pyprof.prof.ops.operands import given


@dataclass(frozen=True, slots=True)
class Call:
    """What a kernel is told, each kernel some of it. [batch, sequence, heads, size], or packed sequences."""

    q: Tensor
    k: Tensor
    v: Tensor
    cum_q: Any = None  # cumulative lengths of sequences packed one after the other
    cum_k: Any = None
    max_q: Any = UNKNOWN  # the longest of them
    max_k: Any = UNKNOWN
    used: Any = None  # lengths of what is used of K and V
    slopes: Any = None  # of ALiBi
    bias: Any = None
    bias_gradient: Any = False
    dropout: Any = 0.0
    keep: Any = True  # store the logarithms
    causal: Any = UNKNOWN
    left: Any = None  # a window's keys on both sides
    right: Any = None
    mask_type: Any = 0  # of the memory-efficient kernel
    window: Any = None

    @property
    def packed(self) -> bool:
        return isinstance(self.cum_q, Tensor)


@dataclass(frozen=True, slots=True)
class Band:
    """The pairs that a kernel's mask leaves: distance to the left and right, and how the diagonal is aligned."""

    left: int | None = None
    right: int | None = None
    bottom_right: bool = True

    def pairs(self, queries: int, keys: int) -> int:
        shift = keys - queries if self.bottom_right else 0
        return unmasked(queries, keys, self.left, self.right, shift)


def sequences(call: Call, total_q: int, total_k: int) -> list[tuple[int, int]]:
    """(queries, keys) of each packed sequence: from the cumulative lengths' values, or all equally long if that
    fits.

    The values are data, which a trace does not have (``Tensor.values``). If as many sequences of the longest
    length as there are fill the tensor, that is the answer; otherwise the count depends on what is not known.
    """
    starts_q, starts_k = call.cum_q, call.cum_k if isinstance(call.cum_k, Tensor) else call.cum_q
    if starts_q.values is not None and starts_k.values is not None:
        spans = zip(starts_q.values, starts_q.values[1:], starts_k.values, starts_k.values[1:], strict=False)
        return [(q_end - q, k_end - k) for q, q_end, k, k_end in spans]
    number = starts_q.numel - 1
    if number * call.max_q == total_q and number * call.max_k == total_k:
        return [(call.max_q, call.max_k)] * number
    raise UnknownArgument("the lengths of packed sequences are data that the capture does not hold")


def sequence_first(call: Call, band: Band) -> Heads:
    """[batch, sequence, heads, size], or [all sequences, heads, size] with the cumulative lengths."""
    q, k, v = call.q, call.k, call.v
    heads = q.shape[-2]
    if call.packed:
        batch, length, keys = math.prod(q.shape[:-3]), q.shape[-3], k.shape[-3]
        pairs = sum(band.pairs(*one) for one in sequences(call, batch * length, batch * keys))
        return Heads(heads * pairs, q.shape[-1], v.shape[-1], batch * length * heads)
    batch, length, keys = q.shape[0], q.shape[-3], k.shape[-3]
    return Heads(batch * heads * band.pairs(length, keys), q.shape[-1], v.shape[-1], batch * length * heads)


def kernel_forward(call: Call, heads: Heads) -> Work:
    """The forward pass; what tells lengths and slopes is read too."""
    work = forward(call.q, call.k, call.v, heads, call.bias, call.dropout, call.keep)
    return work + Work(0, distinct(*map(given, (call.cum_q, call.cum_k, call.used, call.slopes))))


def kernel_backward(call: Call, heads: Heads) -> Work:
    """dQ, dK, dV, and the bias' gradient where it is told to be wanted; what tells lengths is read too."""
    wanted = (True, True, True, call.bias_gradient is not UNKNOWN and bool(call.bias_gradient))
    work = backward(call.q, call.k, call.v, heads, call.bias, call.dropout, wanted)
    return work + Work(0, distinct(given(call.cum_q), given(call.cum_k)))


# FlashAttention


def flash_heads(call: Call) -> Heads:
    """Causal is a window without keys to the right; negative or absent limits are none. Aligned at the bottom right."""
    limits = [None if n is None or n is UNKNOWN or n < 0 else int(n) for n in (call.left, call.right)]
    return sequence_first(call, Band(limits[0], 0 if call.causal else limits[1]))


@model(
    "_flash_attention_forward"
    " (q, k, v, cum_q, cum_k, max_q, max_k, dropout, causal, _debug, _scale, left, right, used, slopes)",
    "_flash_attention_forward_no_dropout_inplace"
    " (_o, q, k, v, cum_q, cum_k, max_q, max_k, dropout, causal, _debug, _scale, left, right, used, slopes)",
    family=FAMILY_NAME,
    takes=Call,
)
def flash_kernel(call: Call) -> Work:
    """FlashAttention (flash_fwd_kernel): windows and packed sequences; aligned at the bottom right"""
    return kernel_forward(call, flash_heads(call))


@model(
    "_flash_attention_backward (_dout, q, k, v, _o, _lse, cum_q, cum_k, max_q, max_k, dropout, causal, _state, _unused,"
    " _scale, left, right)",
    family=FAMILY_NAME,
    takes=Call,
)
def flash_kernel_backward(call: Call) -> Work:
    """FlashAttention (flash_bwd_kernel): dQ, dK and dV"""
    return kernel_backward(call, flash_heads(call))


# xFormers' memory-efficient kernel


def efficient_heads(call: Call) -> Heads:
    """custom_mask_type: 0 none, 1 causal from the top left, 2 from the bottom right; a window counts the
    query itself.

    Source: aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_forward.h, CustomMaskType,
    window_size.
    """
    kind = 0 if call.mask_type is None else int(call.mask_type)
    left = None if call.window is None or call.window is UNKNOWN or call.window <= 0 else int(call.window) - 1
    return sequence_first(call, Band(left, 0 if kind else None, bottom_right=kind == 2))


@model(
    "_efficient_attention_forward"
    " (q, k, v, bias, cum_q, cum_k, max_q, max_k, dropout, mask_type, keep, _scale, used, window)",
    family=FAMILY_NAME,
    takes=Call,
)
def efficient_kernel(call: Call) -> Work:
    """The memory-efficient kernel (fmha_cutlassF): [batch, sequence, heads, size]; packed, a batch of 1"""
    return kernel_forward(call, efficient_heads(call))


@model(
    "_efficient_attention_backward (_dout, q, k, v, bias, _o, cum_q, cum_k, max_q, max_k, _lse, dropout, _seed,"
    " _offset, mask_type, bias_gradient, _scale, _splits, window)",
    family=FAMILY_NAME,
    takes=Call,
)
def efficient_kernel_backward(call: Call) -> Work:
    """The memory-efficient kernel (fmha_cutlassB): dQ, dK and dV, and the bias' gradient where it is wanted"""
    return kernel_backward(call, efficient_heads(call))


# cuDNN


def cudnn_heads(call: Call) -> Heads:
    """[batch, heads, sequence, size], or packed sequences as the flash kernel has them."""
    if call.packed:
        return sequence_first(call, Band(None, 0 if call.causal else None, bottom_right=False))
    return heads_first(call.q, call.k, call.v, call.causal)


@model(
    "_cudnn_attention_forward (q, k, v, bias, cum_q, cum_k, max_q, max_k, keep, dropout, causal)",
    family=FAMILY_NAME,
    takes=Call,
)
def cudnn_kernel(call: Call) -> Work:
    """CuDNN's kernel: [batch, heads, sequence, size], or packed sequences as the flash kernel has them"""
    return kernel_forward(call, cudnn_heads(call))


@model(
    "_cudnn_attention_backward _scaled_dot_product_cudnn_attention_backward"
    " (_dout, q, k, v, _o, _lse, _seed, _offset, bias, cum_q, cum_k, max_q, max_k, dropout, causal)",
    family=FAMILY_NAME,
    takes=Call,
)
def cudnn_kernel_backward(call: Call) -> Work:
    """dQ, dK and dV; without packed sequences the cumulative lengths are undefined or empty tensors"""
    if not (isinstance(call.cum_q, Tensor) and call.cum_q.numel > 1):
        call = replace(call, cum_q=None, cum_k=None)
    return kernel_backward(call, cudnn_heads(call))


# Attention of nested tensors, which each device runs in its own way; aligned at the top left, as cuDNN's


@model("jagged_attention (q, k, v, cum_q, cum_k, dropout, causal)", family=FAMILY_NAME, takes=Call)
def jagged(call: Call) -> Work:
    """scaled_dot_product_attention of jagged tensors: [all sequences, heads, size]"""
    return kernel_forward(call, cudnn_heads(call))


@model("jagged_attention.backward (q, k, v, cum_q, cum_k, dropout, causal)", family=FAMILY_NAME, takes=Call)
def jagged_backward(call: Call) -> Work:
    """Five products over the same pairs"""
    return kernel_backward(call, cudnn_heads(call))
