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
from dataclasses import dataclass
from typing import Any

from pyprof.prof.ops.model import UNKNOWN, ShapeError, Tensor, Work, distinct, model
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
    q: Tensor, k: Tensor, v: Tensor, heads: Heads, mask: Any = None, dropout: Any = 0.0, keep: Any = True
) -> Work:
    """The forward pass; ``keep``: the logarithms are stored for the backward, as they are where nothing is told."""
    stored = logarithms(heads, q) if keep is UNKNOWN or keep else 0
    written = moved(heads.rows * heads.value_size, q) + stored + philox(dropout)
    return Work(heads.forward_flop, distinct(q, k, v, given(mask)), written)


Wanted = tuple[bool, bool, bool, bool]  # gradients: of Q, K, V and the mask
OF_ALL_BUT_THE_MASK: Wanted = (True, True, True, False)


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    heads: Heads,
    mask: Any = None,
    dropout: Any = 0.0,
    wanted: Wanted = OF_ALL_BUT_THE_MASK,
) -> Work:
    """All five products, less those for gradients that nobody wants."""
    if not any(wanted[:3]):
        return Work()
    size = heads.rows * heads.value_size  # of O and dO
    read = distinct(q, k, v, given(mask)) + 2 * moved(size, q) + logarithms(heads, q) + philox(dropout)
    gradients = [t for t, want in zip((q, k, v, given(mask)), wanted, strict=True) if want and t is not None]
    return Work(heads.backward_flop(*wanted[:3]), read, sum(moved(t.numel, t) for t in gradients))


# The API, and the ops whose arguments are [batch, heads, sequence, size]


@model(
    "scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps"
    " _scaled_dot_product_fused_attention_overrideable (q, k, v, mask, dropout, causal)",
    "_scaled_dot_product_flash_attention (q, k, v, dropout, causal)",
    "_scaled_dot_product_flash_attention_for_cpu (q, k, v, dropout, causal, mask)",
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"
    " (q, k, v, mask, keep, dropout, causal)",
    family=FAMILY_NAME,
)
def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, dropout: Any = 0.0, causal: Any = False, keep: Any = True
) -> Work:
    """The algorithm, whichever backend runs it"""
    return forward(q, k, v, heads_first(q, k, v, causal), mask, dropout, keep)


@model("scaled_dot_product_attention.backward", family=FAMILY_NAME)
def attention_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, dropout: Any = 0.0, causal: Any = False
) -> Work:
    """Five products, as the fused kernels do, less those for tensors that need no gradient"""
    bias = given(mask)
    wanted = (q.needs_grad, k.needs_grad, v.needs_grad, bias is not None and bias.needs_grad)
    return backward(q, k, v, heads_first(q, k, v, causal), mask, dropout, wanted)


@model(
    "_scaled_dot_product_flash_attention_backward"
    " (_dout, q, k, v, _o, _lse, _cum_q, _cum_k, _max_q, _max_k, dropout, causal)",
    "_scaled_dot_product_flash_attention_for_cpu_backward (_dout, q, k, v, _o, _lse, dropout, causal, mask)",
    "_scaled_dot_product_efficient_attention_backward"
    " (_dout, q, k, v, mask, _o, _lse, _seed, _offset, dropout, wanted, causal)",
    "_scaled_dot_product_fused_attention_overrideable_backward"
    " (_dout, q, k, v, mask, wanted, _o, _lse, _cum_q, _cum_k, _max_q, _max_k, dropout, causal)",
    family=FAMILY_NAME,
)
def kernel_backward(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, dropout: Any = 0.0, causal: Any = False, wanted: Any = UNKNOWN
) -> Work:
    """dQ, dK and dV, and the mask's gradient where grad_input_mask asks for it"""
    dq, dk, dv, db = OF_ALL_BUT_THE_MASK if wanted is UNKNOWN or wanted is None else wanted
    return backward(q, k, v, heads_first(q, k, v, causal), mask, dropout, (bool(dq), bool(dk), bool(dv), bool(db)))
