"""Scaled dot product attention: softmax(Q K' * scale + mask) V, under all its names in PyTorch.

The record ``Call`` holds the arguments of all these ops; the table gives each op's order of arguments.

flop    two matrix products over the (query, key) pairs that are not masked out,
            2 * batch * query heads * pairs * (D + Dv)
        where the mask is known from the arguments: causal, sliding window, sequences of different lengths. A
        mask given as a tensor is computed in full. Softmax and scale are not products and not counted.
read    Q, K, V, each with its own number of heads (grouped queries share K and V), the mask at its stored size
write   O, and for the backward the logarithm of each softmax sum: float32, one per query and head
        dropout: the random generator's seed and offset, 16 bytes; the dropout mask is never stored
Backward, five products over the same pairs: Q K' again (D), dP = dO V' (Dv), dV = P' dO (Dv), dQ = dS K (D),
dK = dS' Q (D): 2 * batch * query heads * pairs * (3 D + 2 Dv). It reads Q, K, V, O, dO, the logarithms and
the mask, and writes dQ, dK, dV.

Source: FlashAttention-2 (Dao 2023), section 3; torch/utils/flop_counter.py, sdpa_flop and
sdpa_backward_flop_count, which ignore every mask. PyTorch's causal mask is aligned at the top left (key <=
query); the flash kernels, when called directly, align causal masks and windows at the bottom right.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from pyprof.errors import ShapeError, UnknownArgument
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import broadcast, given, keys_below, moved

op = Family("attention")


def unmasked(queries: int, keys: int, left: int | None, right: int | None, shift: int = 0) -> int:
    """The number of pairs with -left <= key - query - shift <= right; None: no limit on that side."""
    upper = queries * keys if right is None else keys_below(queries, keys, shift + right + 1)
    lower = 0 if left is None else keys_below(queries, keys, shift - left)
    return max(0, upper - lower)


@dataclass(frozen=True, slots=True)
class Heads:
    """The sizes for the products: unmasked pairs over all batches and query heads, elements per key and per value."""

    pairs: int
    key_size: int
    value_size: int
    rows: int  # queries, over all batches and heads

    def backward_flop(self, q: bool = True, k: bool = True, v: bool = True) -> int:
        """FLOPs of the five products, without those for gradients that are not computed."""
        keys = 1 + q + k  # Q K' again, dQ, dK
        values = (q or k) + v  # dP, dV
        sizes = self.key_size * keys + self.value_size * values
        return 2 * self.pairs * sizes if q or k or v else 0


def heads_first(q: Tensor, k: Tensor, v: Tensor, causal: Any) -> Heads:
    """The sizes for tensors [batch.., heads, sequence, size]; K and V may have fewer heads, and batches broadcast."""
    if min(len(q.shape), len(k.shape), len(v.shape)) < 2 or k.shape[-2] != v.shape[-2] or q.shape[-1] != k.shape[-1]:
        raise ShapeError("attention", "Q[..,L,D], K[..,S,D], V[..,S,Dv]", f"{q.shape}, {k.shape}, {v.shape}")
    outer = math.prod(broadcast("attention", q.shape[:-3], k.shape[:-3], v.shape[:-3]))
    heads = max(t.shape[-3] if len(t.shape) > 2 else 1 for t in (q, k, v))
    length, keys = q.shape[-2], k.shape[-2]
    rows = outer * heads
    return Heads(rows * unmasked(length, keys, None, 0 if causal else None), q.shape[-1], v.shape[-1], rows * length)


def result_like(q: Tensor) -> Tensor:
    """A tensor of O's dtype: that of Q, for fp8 bfloat16 (torch/nn/attention/_fa3.py, 2.13)."""
    return q.like((), "bfloat16") if q.dtype.startswith("float8") else q


def logarithms(heads: Heads, q: Tensor) -> float:
    """Bytes of the log-sum-exp, float32; NaN where the capture has no dtypes."""
    return heads.rows * 4 if q.dtype else math.nan


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of attention ops, of which each op has some. Q, K, V are [batch, heads, sequence, size]."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Any = None  # added to the scores: a mask, or a bias
    dropout: Any = 0.0
    causal: Any = False
    keep: Any = True  # the logarithms are stored for the backward; assumed where the capture does not record it
    wanted: Any = UNKNOWN  # output_mask of a backward: which gradients to compute, of Q, K, V and the mask

    def heads(self) -> Heads:
        return heads_first(self.q, self.k, self.v, self.causal)

    @property
    def lengths(self) -> tuple[Any, ...]:
        """The tensors with the lengths of packed sequences; they are read, too."""
        return ()

    def gradients(self) -> tuple[bool, bool, bool, bool]:
        """Which gradients a backward computes, of Q, K, V and the mask; without an output mask, all but the mask's."""
        if self.wanted is UNKNOWN or self.wanted is None:
            return True, True, True, False
        dq, dk, dv, dmask = self.wanted
        return bool(dq), bool(dk), bool(dv), bool(dmask)

    @property
    def philox_bytes(self) -> int:
        """The random generator's seed and offset, int64 each."""
        return 16 if self.dropout is not UNKNOWN and self.dropout else 0


def forward(call: Call, heads: Heads) -> Work:
    """The forward pass over the pairs of ``heads``."""
    stored = logarithms(heads, call.q) if call.keep is UNKNOWN or call.keep else 0
    written = moved(heads.rows * heads.value_size, result_like(call.q)) + stored + call.philox_bytes
    read = distinct(call.q, call.k, call.v, given(call.mask)) + distinct(*map(given, call.lengths))
    return Work(2 * heads.pairs * (heads.key_size + heads.value_size), read, written)


def backward(call: Call, heads: Heads) -> Work:
    """Five products over the pairs of ``heads``, without those for gradients that are not computed."""
    wanted = call.gradients()
    lengths = Work(0, distinct(*map(given, call.lengths)))
    if not any(wanted[:3]):
        return lengths
    size = heads.rows * heads.value_size  # of O and dO
    read = distinct(call.q, call.k, call.v, given(call.mask)) + 2 * moved(size, call.q)
    read += logarithms(heads, call.q) + call.philox_bytes
    operands = zip((call.q, call.k, call.v, given(call.mask)), wanted, strict=True)
    written = sum(moved(t.numel, t) for t, want in operands if want and t is not None)
    return lengths + Work(heads.backward_flop(*wanted[:3]), read, written)


@op(
    "scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps "
    "_scaled_dot_product_fused_attention_overrideable (q, k, v, mask, dropout, causal)",
    "_scaled_dot_product_flash_attention_for_cpu (q, k, v, dropout, causal, mask)",
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"
    " (q, k, v, mask, keep, dropout, causal)",
    takes=Call,
)
def attention(call: Call) -> Work:
    """Two products over the unmasked pairs, independent of the kernel"""
    return forward(call, call.heads())


@op("_scaled_dot_product_flash_attention")
def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: Any = 0.0,
    causal: Any = False,
    third: Any = None,
    fourth: Any = None,
    fifth: Any = None,
) -> Work:
    """Two products over the unmasked pairs; for fp8, scales of Q, K and V are read, too, and O is bfloat16

    (q, k, v, dropout, causal, ..) or, with scales, (q, k, v, q_scale, k_scale, v_scale, dropout, causal, ..)
    """
    if isinstance(dropout, (int, float)) or dropout is UNKNOWN:
        return attention(Call(q, k, v, None, dropout, causal))
    scales = distinct(given(dropout), given(causal), given(third))
    return attention(Call(q, k, v, None, fourth, fifth)) + Work(0, scales)


@op("scaled_dot_product_attention.backward (q, k, v, mask, dropout, causal)", takes=Call)
def whole_backward(call: Call) -> Work:
    """Five products, as in the fused kernels, without those for tensors that need no gradient"""
    mask = given(call.mask)
    needed = (call.q.needs_grad, call.k.needs_grad, call.v.needs_grad, mask is not None and mask.needs_grad)
    return backward(replace(call, wanted=needed), call.heads())


@op(
    "_scaled_dot_product_flash_attention_backward (_dout, q, k, v, _o, _lse, _cum_q, _cum_k, _max_q, _max_k, dropout, "
    "causal)",
    "_scaled_dot_product_flash_attention_for_cpu_backward (_dout, q, k, v, _o, _lse, dropout, causal, mask)",
    "_scaled_dot_product_efficient_attention_backward (_dout, q, k, v, mask, _o, _lse, _seed, _offset, dropout, "
    "wanted, causal)",
    "_scaled_dot_product_fused_attention_overrideable_backward (_dout, q, k, v, mask, wanted, _o, _lse, _cum_q, "
    "_cum_k, _max_q, _max_k, dropout, causal)",
    takes=Call,
)
def attention_backward(call: Call) -> Work:
    """Five products over the unmasked pairs: dQ, dK and dV, and the mask's gradient where the call requests it"""
    return backward(call, call.heads())


# ``torch.nn.attention.flex_attention``: attention over the blocks that its block mask lists. A block mask lists, for
# each block of queries, the blocks of keys that are computed. In a full block, no pair is masked; in a partial block,
# all products are computed and masked afterwards. The lists are the contents of the mask's tensors, so ``pyprof.count``
# reads them. Without contents (fake and meta tensors) the call is not counted, unless there is no mask. In a block that
# extends past the end of a sequence, only existing pairs count. ``score_mod`` is not counted.


def _heads(q: Tensor, k: Tensor, v: Tensor, blocks: Any, size: tuple[int, int]) -> Heads:
    """The sizes with the pairs over all heads. ``blocks`` lists the computed blocks (None: all of them) as ``(number of
    batches and heads that share the entry, query block, key block)``."""
    every = heads_first(q, k, v, False)
    if blocks is None:
        return every
    if not isinstance(blocks, tuple):
        raise UnknownArgument("which blocks the mask leaves is data that is not known")
    rows = [min(size[0], q.shape[-2] - start) for start in range(0, q.shape[-2], size[0])]
    columns = [min(size[1], k.shape[-2] - start) for start in range(0, k.shape[-2], size[1])]
    return replace(every, pairs=sum(times * rows[i] * columns[j] for times, i, j in blocks))


@op("flex_attention")
def flex(q: Tensor, k: Tensor, v: Tensor, blocks: Any, size: Any = (1, 1), mask: Any = ()) -> Work:
    """2*(D + Dv) per pair in the computed blocks; reads Q, K, V and the mask's lists; writes O and the logarithms"""
    return forward(Call(q, k, v), _heads(q, k, v, blocks, size)) + Work(0, distinct(mask))


@op("flex_attention_backward")
def flex_backward(q: Tensor, k: Tensor, v: Tensor, blocks: Any, size: Any = (1, 1), mask: Any = ()) -> Work:
    """Five products over the same blocks"""
    return backward(Call(q, k, v), _heads(q, k, v, blocks, size)) + Work(0, distinct(mask))
