"""Scaled dot product attention: softmax(Q K' * scale + mask) V, by every backend's name and argument order.

flop    the two matrix products over the pairs (query, key) that are not masked out,
            2 * batch * query heads * pairs * (D + Dv)
        where the mask is known from the arguments: causal, sliding window, sequences of different lengths. A
        mask given as a tensor is computed in full. Softmax and scale are not products and not counted.
read    Q, K, V, each at its own number of heads (grouped queries share K and V), the mask at its stored size
write   O, and the logarithm of the softmax' sum for the backward: float32, one a query and head
        dropout: the random generator's seed and offset, 16 bytes; its mask is never stored
Backward, five products over the same pairs: Q K' again (D), dP = dO V' (Dv), dV = P' dO (Dv), dQ = dS K (D),
dK = dS' Q (D): 2 * batch * query heads * pairs * (3 D + 2 Dv). It reads Q, K, V, O, dO, the logarithms and
the mask, and writes dQ, dK, dV.

Source: FlashAttention-2 (Dao 2023), section 3; torch/utils/flop_counter.py, sdpa_flop and
sdpa_backward_flop_count, which ignore every mask. PyTorch's causal mask is aligned at the top left (key <=
query), that of the flash kernels called directly at the bottom right, like their windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from pyprof.prof.model import (
    UNKNOWN,
    Parts,
    ShapeError,
    Tensor,
    UnknownArgument,
    Work,
    distinct,
    evaluate,
    model,
    total,
)
from pyprof.prof.ops.gemm import gradients, linear
from pyprof.prof.ops.operands import broadcast, given, moved

FAMILY_NAME = "attention"
PHILOX_BYTES = 16  # seed and offset of the random generator, int64 each


def keys_below(queries: int, keys: int, shift: int) -> int:
    """Sum over the queries i of the keys j < i + shift, in closed form."""
    first = min(max(-shift, 0), queries)  # from here on there are keys
    last = min(max(keys - shift, 0), queries)  # from here on all keys are below
    rising = (last - first) * shift + (first + last - 1) * (last - first) // 2
    return rising + (queries - last) * keys


def unmasked(queries: int, keys: int, left: int | None, right: int | None, shift: int = 0) -> int:
    """Pairs with -left <= key - query - shift <= right; None: no limit on that side."""
    upper = queries * keys if right is None else keys_below(queries, keys, shift + right + 1)
    lower = 0 if left is None else keys_below(queries, keys, shift - left)
    return max(0, upper - lower)


def square(queries: int, keys: int, causal: Any) -> int:
    """Pairs of one sequence: all, or those of PyTorch's causal mask (aligned at the top left)."""
    return unmasked(queries, keys, None, 0 if causal else None)


@dataclass(frozen=True, slots=True)
class Heads:
    """What the products need: unmasked pairs over all batches and query heads, sizes of a key and a value."""

    pairs: int
    key_size: int
    value_size: int
    rows: int  # queries, over all batches and heads

    @property
    def forward_flop(self) -> int:
        return 2 * self.pairs * (self.key_size + self.value_size)

    def backward_flop(self, q: bool = True, k: bool = True, v: bool = True) -> int:
        """Five products, less those for gradients that nobody wants."""
        sizes = (
            self.key_size  # Q K' again
            + (self.value_size if q or k else 0)  # dP
            + (self.value_size if v else 0)
            + self.key_size * (q + k)
        )
        return 2 * self.pairs * sizes if q or k or v else 0


def heads_first(q: Tensor, k: Tensor, v: Tensor, causal: Any) -> Heads:
    """[batch.., heads, sequence, size]; K and V may have fewer heads, and a batch of 1."""
    if min(len(q.shape), len(k.shape), len(v.shape)) < 2 or k.shape[-2] != v.shape[-2] or q.shape[-1] != k.shape[-1]:
        raise ShapeError("attention", "Q[..,L,D], K[..,S,D], V[..,S,Dv]", f"{q.shape}, {k.shape}, {v.shape}")
    outer = math.prod(broadcast("attention", q.shape[:-3], k.shape[:-3]) if len(q.shape) > 3 else ())
    heads = q.shape[-3] if len(q.shape) > 2 else 1
    length, keys = q.shape[-2], k.shape[-2]
    rows = outer * heads
    return Heads(rows * square(length, keys, causal), q.shape[-1], v.shape[-1], rows * length)


def logarithms(heads: Heads, q: Tensor) -> float:
    """Bytes of the log-sum-exp: float32; not known where no type is."""
    return heads.rows * 4 if q.dtype else math.nan


def philox(dropout: Any) -> int:
    return PHILOX_BYTES if dropout is not UNKNOWN and dropout else 0


def forward(
    q: Tensor, k: Tensor, v: Tensor, heads: Heads, mask: Any = None, dropout: Any = 0.0, keep: bool = True
) -> Work:
    """The forward pass; ``keep``: the logarithms are stored for the backward."""
    written = moved(heads.rows * heads.value_size, q) + (logarithms(heads, q) if keep else 0) + philox(dropout)
    return Work(heads.forward_flop, distinct(q, k, v, given(mask)), written)


def backward(
    q: Tensor, k: Tensor, v: Tensor, heads: Heads, mask: Any = None, dropout: Any = 0.0, mask_gradient: bool = False
) -> Work:
    """All five products; ``needs_grad`` of Q, K and V says which gradients are wanted."""
    wanted = [t for t in (q, k, v) if t.needs_grad]
    if not wanted:
        return Work()
    size = heads.rows * heads.value_size  # of O and dO
    read = distinct(q, k, v, given(mask)) + 2 * moved(size, q) + logarithms(heads, q) + philox(dropout)
    bias = given(mask)
    write = sum(moved(t.numel, t) for t in wanted)
    write += moved(bias.numel, bias) if mask_gradient and bias is not None else 0
    return Work(heads.backward_flop(q.needs_grad, k.needs_grad, v.needs_grad), read, write)


# The API, and the ops whose arguments are [batch, heads, sequence, size]


@model(
    "scaled_dot_product_attention",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_attention_math_for_mps",
    "_scaled_dot_product_fused_attention_overrideable",
    family=FAMILY_NAME,
)
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, dropout: Any = 0.0, causal: Any = False, *_: Any
) -> Work:
    """The algorithm, whichever backend runs it"""
    return forward(q, k, v, heads_first(q, k, v, causal), mask, dropout)


@model("scaled_dot_product_attention.backward", family=FAMILY_NAME)
def attention_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, dropout: Any = 0.0, causal: Any = False, *_: Any
) -> Work:
    """Five products, as the fused kernels do"""
    bias = given(mask)
    wanted = bias is not None and bias.needs_grad
    return backward(q, k, v, heads_first(q, k, v, causal), mask, dropout, wanted)


@model("_scaled_dot_product_flash_attention", family=FAMILY_NAME)
def flash(q: Tensor, k: Tensor, v: Tensor, dropout: Any = 0.0, causal: Any = False, *_: Any) -> Work:
    """FlashAttention; always stores the logarithms"""
    return forward(q, k, v, heads_first(q, k, v, causal), None, dropout)


@model("_scaled_dot_product_flash_attention_for_cpu", family=FAMILY_NAME)
def flash_for_cpu(
    q: Tensor, k: Tensor, v: Tensor, dropout: Any = 0.0, causal: Any = False, mask: Any = None, *_: Any
) -> Work:
    """The CPU's fused kernel"""
    return forward(q, k, v, heads_first(q, k, v, causal), mask, dropout)


@model("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention", family=FAMILY_NAME)
def efficient(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Any = None,
    keep: Any = True,
    dropout: Any = 0.0,
    causal: Any = False,
    *_: Any,
) -> Work:
    """XFormers' memory-efficient kernel, and cuDNN's"""
    return forward(q, k, v, heads_first(q, k, v, causal), bias, dropout, keep is UNKNOWN or bool(keep))


@model("_scaled_dot_product_flash_attention_backward", family=FAMILY_NAME)
def flash_backward(
    _dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _o: Any = None,
    _lse: Any = None,
    _cum_q: Any = None,
    _cum_k: Any = None,
    _max_q: Any = None,
    _max_k: Any = None,
    dropout: Any = 0.0,
    causal: Any = False,
    *_: Any,
) -> Work:
    """dQ, dK and dV"""
    return backward(q, k, v, heads_first(q, k, v, causal), None, dropout)


@model("_scaled_dot_product_flash_attention_for_cpu_backward", family=FAMILY_NAME)
def flash_for_cpu_backward(
    _dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _o: Any = None,
    _lse: Any = None,
    dropout: Any = 0.0,
    causal: Any = False,
    mask: Any = None,
    *_: Any,
) -> Work:
    """dQ, dK and dV"""
    return backward(q, k, v, heads_first(q, k, v, causal), mask, dropout)


@model("_scaled_dot_product_efficient_attention_backward", family=FAMILY_NAME)
def efficient_backward(
    _dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Any = None,
    _o: Any = None,
    _lse: Any = None,
    _seed: Any = None,
    _offset: Any = None,
    dropout: Any = 0.0,
    wanted: Any = UNKNOWN,
    causal: Any = False,
    *_: Any,
) -> Work:
    """dQ, dK, dV and the bias' gradient, by grad_input_mask"""
    return by_mask(q, k, v, bias, dropout, causal, wanted)


def by_mask(q: Tensor, k: Tensor, v: Tensor, bias: Any, dropout: Any, causal: Any, wanted: Any) -> Work:
    """The gradients that a mask of four asks for; all but the bias' where it is not known."""
    dq, dk, dv, db = (True, True, True, False) if wanted is UNKNOWN or wanted is None else wanted
    heads = heads_first(q, k, v, causal)
    q, k, v = (replace(t, needs_grad=bool(w)) for t, w in ((q, dq), (k, dk), (v, dv)))
    return backward(q, k, v, heads, bias, dropout, bool(db))


@model("_scaled_dot_product_fused_attention_overrideable_backward", family=FAMILY_NAME)
def overrideable_backward(
    _dout: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Any = None,
    wanted: Any = UNKNOWN,
    _o: Any = None,
    _lse: Any = None,
    _cum_q: Any = None,
    _cum_k: Any = None,
    _max_q: Any = None,
    _max_k: Any = None,
    dropout: Any = 0.0,
    causal: Any = False,
    *_: Any,
) -> Work:
    """A device backend's own kernel"""
    return by_mask(q, k, v, bias, dropout, causal, wanted)


# The kernels' own ops: sequences of different lengths, windows


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


# Multi-head attention: projections around it


@dataclass(frozen=True, slots=True)
class Projections:
    """Multi-head attention's parameters: weight[3E,E] (or three) and bias[3E] in, weight[E,E] and bias[E] out."""

    heads: int
    weights: tuple[Tensor, ...]  # one for Q, K and V together, or three
    bias: Tensor | None
    out_weight: Tensor
    out_bias: Tensor | None


def inputs(q: Tensor, k: Tensor, v: Tensor, p: Projections) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    """(input, weight, bias) of each input projection: the same tensor is projected once, with its weights'
    rows.

    Source: torch.nn.functional._in_projection_packed.
    """
    size = q.shape[-1]
    if len(p.weights) == 3:
        own = None if p.bias is None else p.bias.like((size,))
        return [(x, w, own) for x, w in zip((q, k, v), p.weights, strict=True)]
    groups: list[tuple[Tensor, int]] = []
    for x in (q, k, v):
        if groups and same(groups[-1][0], x):
            groups[-1] = (x, groups[-1][1] + 1)
        else:
            groups.append((x, 1))
    weight = p.weights[0]
    rows = weight.shape[0] // 3
    return [
        (
            x,
            replace(weight, shape=(n * rows, size), strides=None, ident=0),
            None if p.bias is None else replace(p.bias, shape=(n * rows,), ident=0),
        )
        for x, n in groups
    ]


def same(a: Tensor, b: Tensor) -> bool:
    return a is b or (a.ident != 0 and a.ident == b.ident)


def mha(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    p: Projections,
    axes: tuple[int, int],
    mask: Any,
    dropout: Any,
    causal: Any,
    weights: int,
) -> Parts:
    """Input projections, attention, output projection; ``axes``: batch and sequence; ``weights``: elements of
    the attention weights if they are returned.

    The heads lie side by side in E, so splitting and joining them is a view.
    """
    ins = inputs(q, k, v, p)
    core = split_heads(q, k, v, p, axes)
    joined = q.like((*q.shape[:-1], p.out_weight.shape[1]))
    attended = forward(*core, heads_first(*core, causal), mask, dropout)
    return {
        "in_proj": sum((linear(x, w, b) for x, w, b in ins), Work()),
        "attention": attended + Work(0, 0, moved(weights, q)),
        "out_proj": linear(joined, p.out_weight, p.out_bias),
    }


def split_heads(
    q: Tensor, k: Tensor, v: Tensor, p: Projections, axes: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """[batch, heads, sequence, size of a head]"""
    batch, sequence = axes
    single = len(q.shape) == 2  # one sequence without a batch dimension
    size = (p.out_weight.shape[1]) // p.heads
    shapes = [(1 if single else x.shape[batch], p.heads, x.shape[0 if single else sequence], size) for x in (q, k, v)]
    queries, keys, values = (q.like(shape) for shape in shapes)
    return queries, keys, values


@model("multi_head_attention_forward", family=FAMILY_NAME)
def multi_head_attention_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _embed: Any,
    heads: int,
    in_weight: Any,
    in_bias: Any = None,
    _bias_k: Any = None,
    _bias_v: Any = None,
    _zero: Any = False,
    dropout: Any = 0.0,
    out_weight: Any = None,
    out_bias: Any = None,
    training: Any = True,
    padding_mask: Any = None,
    need_weights: Any = True,
    mask: Any = None,
    _separate: Any = False,
    q_weight: Any = None,
    k_weight: Any = None,
    v_weight: Any = None,
    _static_k: Any = None,
    _static_v: Any = None,
    average: Any = True,
    causal: Any = False,
) -> Parts:
    """torch.nn.functional's: [sequence, batch, E]. Returned attention weights are averaged over the heads."""
    p = Projections(
        heads, tensors_of(in_weight, q_weight, k_weight, v_weight), given(in_bias), out_weight, given(out_bias)
    )
    attn_mask, is_causal = masks(padding_mask, mask, need_weights, causal)
    returned = pairs_of(q, k) * (1 if average else heads) if need_weights else 0
    return mha(q, k, v, p, (1, 0), attn_mask, dropout if training else 0.0, is_causal, returned)


def tensors_of(packed: Any, *separate: Any) -> tuple[Tensor, ...]:
    return (packed,) if isinstance(packed, Tensor) else tuple(t for t in separate if isinstance(t, Tensor))


def masks(padding: Any, mask: Any, need_weights: Any, causal: Any) -> tuple[Any, bool]:
    """The mask that attention reads. A causal hint replaces it, where no weights and no padding are asked for."""
    if causal and given(padding) is None and not need_weights:
        return None, True
    return mask if given(mask) is not None else padding, False


def pairs_of(q: Tensor, k: Tensor) -> int:
    """Elements of one head's attention weights, over the batch."""
    return q.shape[0] * k.shape[0] * (q.shape[1] if len(q.shape) > 2 else 1)


@model("multi_head_attention_forward.backward", family=FAMILY_NAME)
def multi_head_attention_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _embed: Any,
    heads: int,
    in_weight: Any,
    in_bias: Any = None,
    _bias_k: Any = None,
    _bias_v: Any = None,
    _zero: Any = False,
    dropout: Any = 0.0,
    out_weight: Any = None,
    out_bias: Any = None,
    training: Any = True,
    padding_mask: Any = None,
    need_weights: Any = True,
    mask: Any = None,
    _separate: Any = False,
    q_weight: Any = None,
    k_weight: Any = None,
    v_weight: Any = None,
    _static_k: Any = None,
    _static_v: Any = None,
    _average: Any = True,
    causal: Any = False,
) -> Parts:
    """Both projections' gradients, and attention's five products"""
    p = Projections(
        heads, tensors_of(in_weight, q_weight, k_weight, v_weight), given(in_bias), out_weight, given(out_bias)
    )
    attn_mask, is_causal = masks(padding_mask, mask, need_weights, causal)
    core = split_heads(q, k, v, p, (1, 0))
    joined = q.like((*q.shape[:-1], p.out_weight.shape[1]))
    return {
        "out_proj": linear_gradients(joined, p.out_weight, p.out_bias),
        "attention": backward(*core, heads_first(*core, is_causal), attn_mask, dropout if training else 0.0),
        "in_proj": sum((linear_gradients(*one) for one in inputs(q, k, v, p)), Work()),
    }


def linear_gradients(x: Tensor, weight: Tensor, bias: Tensor | None) -> Work:
    """dx, dweight and dbias of one projection."""
    y = x.like((*x.shape[:-1], weight.shape[0]))
    return total(gradients(x, weight, y, y.numel * x.shape[-1], bias))


@model("_native_multi_head_attention", "_triton_multi_head_attention", family=FAMILY_NAME)
def native_multi_head_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    _embed: Any,
    heads: int,
    in_weight: Tensor,
    in_bias: Any,
    out_weight: Tensor,
    out_bias: Any,
    mask: Any = None,
    need_weights: Any = False,
    average: Any = True,
    *_: Any,
) -> Parts:
    """The inference path of nn.MultiheadAttention: [batch, sequence, E]"""
    p = Projections(heads, (in_weight,), given(in_bias), out_weight, given(out_bias))
    returned = 0
    if need_weights is not UNKNOWN and need_weights:
        returned = q.shape[0] * q.shape[1] * k.shape[1] * (heads if average is False else 1)
    return mha(q, k, v, p, (0, 1), mask, 0.0, False, returned)


@model("_transformer_encoder_layer_fwd", family=FAMILY_NAME)
def transformer_encoder_layer(
    x: Tensor,
    _embed: Any,
    heads: int,
    in_weight: Tensor,
    in_bias: Any,
    out_weight: Tensor,
    out_bias: Any,
    use_gelu: Any,
    _norm_first: Any,
    _eps: Any,
    norm1: Tensor,
    norm1_bias: Any,
    norm2: Tensor,
    norm2_bias: Any,
    up: Tensor,
    up_bias: Any,
    down: Tensor,
    down_bias: Any,
    mask: Any = None,
    *_: Any,
) -> Parts:
    """The inference path of nn.TransformerEncoderLayer: attention, two products, two norms, two sums, an activation"""
    p = Projections(heads, (in_weight,), given(in_bias), out_weight, given(out_bias))
    hidden = x.like((*x.shape[:-1], up.shape[0]))
    norms = [
        evaluate("native_layer_norm", (x, x.shape[-1:], w, b, 1e-5))
        for w, b in ((norm1, norm1_bias), (norm2, norm2_bias))
    ]
    return mha(x, x, x, p, (0, 1), mask, 0.0, False, 0) | {
        "up": linear(x, up, given(up_bias)),
        "activation": total(evaluate("gelu" if use_gelu else "relu", (hidden,))),
        "down": linear(hidden, down, given(down_bias)),
        "norm": sum(map(total, norms), Work()),
        "residual": sum((total(evaluate("add", (x, x.like(x.shape), 1))) for _sum in range(2)), Work()),
    }
