"""The attention kernels' own ops, below those of ``attention``: sequences of different lengths, and windows.

Same counts over the pairs that the kernel's mask leaves. Sequences packed one after the other come with their
cumulative lengths, which are read too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pyprof.prof.model import UNKNOWN, Tensor, UnknownArgument, Work, distinct, model
from pyprof.prof.ops.attention import FAMILY_NAME, Heads, backward, forward, heads_first, unmasked
from pyprof.prof.ops.operands import given


@dataclass(frozen=True, slots=True)
class Lengths:
    """Sequences packed one after the other: cumulative lengths of queries and keys, and the longest of each."""

    queries: Any = None
    keys: Any = None
    longest_query: Any = UNKNOWN
    longest_key: Any = UNKNOWN

    @property
    def packed(self) -> bool:
        return isinstance(self.queries, Tensor)


@dataclass(frozen=True, slots=True)
class Band:
    """The pairs that a kernel's mask leaves: distance to the left and right, and how the diagonal is aligned."""

    left: int | None = None
    right: int | None = None
    bottom_right: bool = True

    def pairs(self, queries: int, keys: int) -> int:
        shift = keys - queries if self.bottom_right else 0
        return unmasked(queries, keys, self.left, self.right, shift)


def sequences(total_q: int, total_k: int, lengths: Lengths) -> list[tuple[int, int]]:
    """(queries, keys) of each sequence: from the cumulative lengths' values, or all equally long if that
    fits.

    The values are data, which a trace does not have (``Tensor.values``). If as many sequences of the longest
    length as there are fill the tensor, that is the answer; otherwise the count depends on what is not known.
    """
    starts_q, starts_k = lengths.queries, lengths.keys if isinstance(lengths.keys, Tensor) else lengths.queries
    if starts_q.values is not None and starts_k.values is not None:
        spans = zip(starts_q.values, starts_q.values[1:], starts_k.values, starts_k.values[1:], strict=False)
        return [(q_end - q, k_end - k) for q, q_end, k, k_end in spans]
    number = starts_q.numel - 1
    if number * lengths.longest_query == total_q and number * lengths.longest_key == total_k:
        return [(lengths.longest_query, lengths.longest_key)] * number
    raise UnknownArgument("the lengths of packed sequences are data that the capture does not hold")


def sequence_first(q: Tensor, k: Tensor, v: Tensor, lengths: Lengths, band: Band) -> Heads:
    """[batch, sequence, heads, size], or [all sequences, heads, size] with the cumulative lengths."""
    heads = q.shape[-2]
    if lengths.packed:
        batch, length, keys = math.prod(q.shape[:-3]), q.shape[-3], k.shape[-3]
        pairs = sum(band.pairs(*one) for one in sequences(batch * length, batch * keys, lengths))
        return Heads(heads * pairs, q.shape[-1], v.shape[-1], batch * length * heads)
    batch, length, keys = q.shape[0], q.shape[-3], k.shape[-3]
    return Heads(batch * heads * band.pairs(length, keys), q.shape[-1], v.shape[-1], batch * length * heads)


def flash_band(causal: Any, left: Any, right: Any) -> Band:
    """Causal is a window without keys to the right; negative or absent limits are none."""
    limits = [None if n is None or n is UNKNOWN or n < 0 else int(n) for n in (left, right)]
    return Band(limits[0], 0 if causal else limits[1])


@model("_flash_attention_forward", family=FAMILY_NAME)
def flash_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cum_q: Any = None,
    cum_k: Any = None,
    max_q: Any = UNKNOWN,
    max_k: Any = UNKNOWN,
    dropout: Any = 0.0,
    causal: Any = False,
    _debug: Any = None,
    _scale: Any = None,
    left: Any = None,
    right: Any = None,
    used: Any = None,
    slopes: Any = None,
    *_: Any,
) -> Work:
    """flash_fwd_kernel: windows and packed sequences; aligned at the bottom right"""
    lengths = Lengths(cum_q, cum_k, max_q, max_k)
    work = forward(q, k, v, sequence_first(q, k, v, lengths, flash_band(causal, left, right)), None, dropout)
    return work + Work(0, distinct(given(cum_q), given(cum_k), given(used), given(slopes)))


@model("_flash_attention_forward_no_dropout_inplace", family=FAMILY_NAME)
def flash_kernel_inplace(_o: Tensor, *rest: Any) -> Work:
    """The same, into a tensor of the caller's"""
    return flash_kernel(*rest)


@model("_flash_attention_backward", family=FAMILY_NAME)
def flash_kernel_backward(
    _dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _o: Any = None,
    _lse: Any = None,
    cum_q: Any = None,
    cum_k: Any = None,
    max_q: Any = UNKNOWN,
    max_k: Any = UNKNOWN,
    dropout: Any = 0.0,
    causal: Any = False,
    _state: Any = None,
    _unused: Any = None,
    _scale: Any = None,
    left: Any = None,
    right: Any = None,
    *_: Any,
) -> Work:
    """flash_bwd_kernel"""
    lengths = Lengths(cum_q, cum_k, max_q, max_k)
    work = backward(q, k, v, sequence_first(q, k, v, lengths, flash_band(causal, left, right)), None, dropout)
    return work + Work(0, distinct(given(cum_q), given(cum_k)))


def efficient_band(mask_type: Any, window: Any = None) -> Band:
    """custom_mask_type: 0 none, 1 causal from the top left, 2 from the bottom right; a window counts the
    query itself.

    Source: aten/src/ATen/native/transformers/cuda/mem_eff_attention/kernel_forward.h, CustomMaskType,
    window_size.
    """
    kind = 0 if mask_type is None else int(mask_type)
    left = None if window is None or window is UNKNOWN or window <= 0 else int(window) - 1
    return Band(left, 0 if kind else None, bottom_right=kind == 2)


@model("_efficient_attention_forward", family=FAMILY_NAME)
def efficient_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Any = None,
    cum_q: Any = None,
    cum_k: Any = None,
    max_q: Any = UNKNOWN,
    max_k: Any = UNKNOWN,
    dropout: Any = 0.0,
    mask_type: Any = 0,
    keep: Any = True,
    _scale: Any = None,
    used: Any = None,
    window: Any = None,
    *_: Any,
) -> Work:
    """fmha_cutlassF: [batch, sequence, heads, size]; packed sequences have a batch of 1"""
    heads = sequence_first(q, k, v, Lengths(cum_q, cum_k, max_q, max_k), efficient_band(mask_type, window))
    work = forward(q, k, v, heads, bias, dropout, keep is UNKNOWN or bool(keep))
    return work + Work(0, distinct(given(cum_q), given(cum_k), given(used)))


@model("_efficient_attention_backward", family=FAMILY_NAME)
def efficient_kernel_backward(
    _dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Any = None,
    _o: Any = None,
    cum_q: Any = None,
    cum_k: Any = None,
    max_q: Any = UNKNOWN,
    max_k: Any = UNKNOWN,
    _lse: Any = None,
    dropout: Any = 0.0,
    _seed: Any = None,
    _offset: Any = None,
    mask_type: Any = 0,
    bias_gradient: Any = False,
    _scale: Any = None,
    _splits: Any = None,
    window: Any = None,
    *_: Any,
) -> Work:
    """fmha_cutlassB"""
    heads = sequence_first(q, k, v, Lengths(cum_q, cum_k, max_q, max_k), efficient_band(mask_type, window))
    wanted = bias_gradient is not UNKNOWN and bool(bias_gradient)
    work = backward(q, k, v, heads, bias, dropout, wanted)
    return work + Work(0, distinct(given(cum_q), given(cum_k)))


@model("_cudnn_attention_forward", family=FAMILY_NAME)
def cudnn_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Any = None,
    cum_q: Any = None,
    cum_k: Any = None,
    max_q: Any = UNKNOWN,
    max_k: Any = UNKNOWN,
    keep: Any = True,
    dropout: Any = 0.0,
    causal: Any = False,
    *_: Any,
) -> Work:
    """CuDNN's kernel: [batch, heads, sequence, size], or packed sequences as the flash kernel has them"""
    heads = cudnn_heads(q, k, v, Lengths(cum_q, cum_k, max_q, max_k), causal)
    work = forward(q, k, v, heads, bias, dropout, keep is UNKNOWN or bool(keep))
    return work + Work(0, distinct(given(cum_q), given(cum_k)))


def cudnn_heads(q: Tensor, k: Tensor, v: Tensor, lengths: Lengths, causal: Any) -> Heads:
    if lengths.packed:
        return sequence_first(q, k, v, lengths, Band(None, 0 if causal else None, bottom_right=False))
    return heads_first(q, k, v, causal)


@model("_cudnn_attention_backward", "_scaled_dot_product_cudnn_attention_backward", family=FAMILY_NAME)
def cudnn_backward(
    _dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _o: Any = None,
    _lse: Any = None,
    _seed: Any = None,
    _offset: Any = None,
    bias: Any = None,
    cum_q: Any = None,
    cum_k: Any = None,
    max_q: Any = UNKNOWN,
    max_k: Any = UNKNOWN,
    dropout: Any = 0.0,
    causal: Any = False,
    *_: Any,
) -> Work:
    """dQ, dK and dV"""
    # without packed sequences the cumulative lengths are undefined or empty tensors
    lengths = Lengths(cum_q, cum_k, max_q, max_k) if filled(cum_q) else Lengths()
    return backward(q, k, v, cudnn_heads(q, k, v, lengths, causal), bias, dropout)


def filled(starts: Any) -> bool:
    return isinstance(starts, Tensor) and starts.numel > 1
