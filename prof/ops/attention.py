"""Scaled dot product attention: softmax(Q K' * scale + mask) V, under every name that PyTorch has for it.

The arguments of all of these ops are one record, ``Call``; each name lists its own order of them.

flop    the two matrix products over the pairs (query, key) that are not masked out,
            2 * batch * query heads * pairs * (D + Dv)
        where the mask is known from the arguments: causal, sliding window, sequences of different lengths. A
        mask given as a tensor is computed in full. Softmax and scale are not products and not counted.
read    Q, K, V, each at its own number of heads (grouped queries share K and V), the mask at its stored size
write   O, and the logarithm of the softmax' sum for the backward: float32, one per query and head
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

from pyprof.errors import ShapeError, UnknownArgument
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import broadcast, given, moved

op = Family("attention")
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
        keys = 1 + q + k  # Q K' again, dQ, dK
        values = (q or k) + v  # dP, dV
        sizes = self.key_size * keys + self.value_size * values
        return 2 * self.pairs * sizes if q or k or v else 0


def heads_first(q: Tensor, k: Tensor, v: Tensor, causal: Any) -> Heads:
    """[batch.., heads, sequence, size]; K and V may have fewer heads, and a batch of 1."""
    if min(len(q.shape), len(k.shape), len(v.shape)) < 2 or k.shape[-2] != v.shape[-2] or q.shape[-1] != k.shape[-1]:
        raise ShapeError("attention", "Q[..,L,D], K[..,S,D], V[..,S,Dv]", f"{q.shape}, {k.shape}, {v.shape}")
    outer = math.prod(broadcast("attention", q.shape[:-3], k.shape[:-3]) if len(q.shape) > 3 else ())
    heads = q.shape[-3] if len(q.shape) > 2 else 1
    length, keys = q.shape[-2], k.shape[-2]
    rows = outer * heads
    return Heads(rows * unmasked(length, keys, None, 0 if causal else None), q.shape[-1], v.shape[-1], rows * length)


def logarithms(heads: Heads, q: Tensor) -> float:
    """Bytes of the log-sum-exp, float32; NaN where the capture has no types."""
    return heads.rows * 4 if q.dtype else math.nan


@dataclass(frozen=True, slots=True)
class Call:
    """What an attention op is called with, each op with some of it: Q, K, V are [batch, heads, sequence, size]."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Any = None  # added to the scores: a mask, or a bias
    dropout: Any = 0.0
    causal: Any = False
    keep: Any = True  # stores the logarithms for the backward, as is assumed where the capture does not say
    wanted: Any = UNKNOWN  # output_mask of a backward: the gradients of Q, K, V and the mask

    def heads(self) -> Heads:
        return heads_first(self.q, self.k, self.v, self.causal)

    @property
    def lengths(self) -> tuple[Any, ...]:
        """The tensors that say how long packed sequences are; they are read, too."""
        return ()

    def gradients(self) -> tuple[bool, bool, bool, bool]:
        """Which gradients a backward computes: of Q, K, V and the mask. Without an output mask, all but the mask's."""
        if self.wanted is UNKNOWN or self.wanted is None:
            return True, True, True, False
        dq, dk, dv, dmask = self.wanted
        return bool(dq), bool(dk), bool(dv), bool(dmask)

    @property
    def philox_bytes(self) -> int:
        return PHILOX_BYTES if self.dropout is not UNKNOWN and self.dropout else 0


def forward(call: Call, heads: Heads) -> Work:
    """The forward pass over the pairs of ``heads``."""
    stored = logarithms(heads, call.q) if call.keep is UNKNOWN or call.keep else 0
    written = moved(heads.rows * heads.value_size, call.q) + stored + call.philox_bytes
    read = distinct(call.q, call.k, call.v, given(call.mask)) + distinct(*map(given, call.lengths))
    return Work(heads.forward_flop, read, written)


def backward(call: Call, heads: Heads) -> Work:
    """Five products over the pairs of ``heads``, less those for gradients that are not computed."""
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
    "_scaled_dot_product_flash_attention (q, k, v, dropout, causal)",
    "_scaled_dot_product_flash_attention_for_cpu (q, k, v, dropout, causal, mask)",
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"
    " (q, k, v, mask, keep, dropout, causal)",
    takes=Call,
)
def attention(call: Call) -> Work:
    """The two products over the unmasked pairs, whichever kernel runs it"""
    return forward(call, call.heads())


@op("scaled_dot_product_attention.backward (q, k, v, mask, dropout, causal)", takes=Call)
def whole_backward(call: Call) -> Work:
    """Five products, as the fused kernels do, less those for tensors that need no gradient"""
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
    """Five products over the unmasked pairs: dQ, dK and dV, and the mask's gradient where the call asks for it"""
    return backward(call, call.heads())


# ``torch.nn.attention.flex_attention``: attention over the blocks that its block mask lists. A block mask lists, for
# each block of queries, the blocks of keys that are computed: some need no mask inside, of others the products are done
# for the whole block and masked after. Which blocks is the contents of its tensors, so ``pyprof.count`` reads them;
# without contents (fake and meta tensors) the call is uncounted, unless there is no mask. Of a block that reaches over
# the end of a sequence, the pairs that exist count. ``score_mod`` is not counted.


def _heads(q: Tensor, k: Tensor, v: Tensor, blocks: Any, size: tuple[int, int]) -> Heads:
    """The pairs of all heads: those of the listed blocks, ``(number of lists they stand in for, query block, key
    block)`` each; ``None``: all.
    """
    every = heads_first(q, k, v, False)
    if blocks is None:
        return every
    if not isinstance(blocks, tuple):
        raise UnknownArgument("which blocks the mask leaves is data that is not known")
    rows, columns = (
        [min(step, whole - start) for start in range(0, whole, step)]
        for step, whole in zip(size, (q.shape[-2], k.shape[-2]), strict=True)
    )
    return replace(every, pairs=sum(times * rows[i] * columns[j] for times, i, j in blocks))


@op("flex_attention")
def flex(q: Tensor, k: Tensor, v: Tensor, blocks: Any, size: Any = (1, 1), mask: Any = ()) -> Work:
    """2*(D + Dv) a pair of the computed blocks; Q, K, V and the mask's lists read; O and the logarithms written"""
    return forward(Call(q, k, v), _heads(q, k, v, blocks, size)) + Work(0, distinct(mask))


@op("flex_attention_backward")
def flex_backward(q: Tensor, k: Tensor, v: Tensor, blocks: Any, size: Any = (1, 1), mask: Any = ()) -> Work:
    """Five products over the same blocks"""
    return backward(Call(q, k, v), _heads(q, k, v, blocks, size)) + Work(0, distinct(mask))
