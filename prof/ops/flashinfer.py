"""FlashInfer's own ops: attention over a paged cache and over new tokens, writes to the cache, positions, sampling.

Its attention ops have names with the dtypes and sizes of a compiled kernel, between a fixed beginning and end. The
lengths of requests follow from the server's annotation, as in ``paged_attention``; windows are arguments.
Orders of arguments: flashinfer/decode.py, prefill.py, page.py, rope.py, sampling.py, csrc/batch_mla_run.cu, 0.2 to 0.6.
Releases whose ``register_custom_op`` does nothing show none of these ops: their kernels belong to the op around the
call.
"""

from dataclasses import dataclass
from typing import Any

from pyprof.errors import ShapeError, UnknownArgument
from pyprof.prof.ops.attention import op
from pyprof.prof.ops.evaluation import alias
from pyprof.prof.ops.latent_attention import decode_from_latent
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import moved
from pyprof.prof.ops.paged_attention import Batch, Paged, decode_attention, paged

pointwise_op, copy_op, sort_op = Family("pointwise"), Family("copy"), Family("sort")

alias(r"flashinfer::batch_decode_with_kv_cache_\w+_run", "flashinfer::batch_decode_run")
alias(r"flashinfer::batch_prefill_with_kv_cache_\w+_paged_run", "flashinfer::batch_prefill_paged_run")
alias(r"flashinfer::batch_prefill_with_kv_cache_\w+_ragged_run", "flashinfer::batch_prefill_ragged_run")
alias(r"batch_mla_attention_\w+::run", "flashinfer::batch_mla_run")  # csrc/batch_mla_pybind.cu, a library per kernel

# How a cache is stored, and which pairs a mask leaves: flashinfer/utils.py, TensorLayout and MaskMode.
NHD, HND = 0, 1
NON_CAUSAL, CAUSAL = 0, 1


def _pages(cache: Tensor, layout: Any) -> Tensor:
    """The cache as [pages, page, heads, size], whatever its layout."""
    if layout is UNKNOWN or len(cache.shape) != 4:
        raise UnknownArgument("the capture does not have the layout of the cache: heads or tokens of a page first")
    pages, a, b, size = cache.shape
    return cache if layout == NHD else cache.like((pages, b, a, size))


@dataclass(frozen=True, slots=True)
class Run:
    """The arguments that the runs over a paged cache have: Q [tokens, heads, D], and the cache in either layout."""

    q: Tensor
    keys: Tensor
    values: Tensor
    result: Any = None
    mask: Any = UNKNOWN
    layout: Any = UNKNOWN
    left: Any = UNKNOWN

    @property
    def paged(self) -> Paged:
        keys, values = _pages(self.keys, self.layout), _pages(self.values, self.layout)
        return Paged(self.q, keys, values, self.result, left=self.left)


@op(
    "flashinfer::batch_decode_run (_s, _i, _plan, q, keys, values, _starts, _pages, _last, result, _lse, layout, left)",
    takes=Run,
)
def batch_decode(call: Run, served: Batch | None = None) -> Work:
    """One query per request that generates, over the paged cache"""
    return decode_attention(call.paged, served)


@op(
    "flashinfer::batch_prefill_paged_run "
    "(_s, _i, _plan, q, keys, values, _q_starts, _starts, _pages, _last, result, _lse, mask, layout, left)",
    takes=Run,
)
def batch_prefill_paged(call: Run, served: Batch | None = None) -> Work:
    """The requests whose tokens the call has rows for, over the paged cache with the new tokens in it

    Without a causal mask the keys may be a part of the cache (a shared prefix), unless each request has one query.
    """
    return paged(call.paged, served, _masked(call.mask, call.q.shape[0], served))


@op("flashinfer::batch_mla_run (_s, _i, _plan, q, positions, latents, rope, _pages, _out, _lse, mask)")
def batch_latent(
    q: Tensor, positions: Tensor, latents: Tensor, rope: Tensor, mask: Any = UNKNOWN, served: Batch | None = None
) -> Work:
    """Latent attention: Q [tokens, heads, C] and its part for positions [.., R], caches [pages, page, C] and [.., R]"""
    if len(q.shape) != 3 or positions.shape[:2] != q.shape[:2]:
        raise ShapeError("batch_mla_run", "Q and its positions [tokens, heads, ..]", (q.shape, positions.shape))
    which = _masked(mask, q.shape[0], served)
    return decode_from_latent((q, positions), (latents, rope), q.shape[-1], served, which)


def _masked(mask: Any, rows: int, served: Batch | None) -> str:
    """Whose tokens the rows of a call are, if the mask says which keys each attends to; else raises UnknownArgument."""
    which = _whose(served, rows)
    lengths = getattr(served.serving, which) if served is not None and served.serving is not None else None
    one_each = lengths is not None and lengths.tokens is not None and lengths.tokens == lengths.requests
    if mask not in (CAUSAL, UNKNOWN) and not (mask == NON_CAUSAL and one_each):
        raise UnknownArgument("which keys each query attends to is data: the mask is not causal")
    return which


def _whose(served: Batch | None, rows: int) -> str:
    """Whose tokens the rows of a call are: of the whole batch, or of its prompts or of what generates alone."""
    if served is None or served.serving is None:
        return "whole"
    parts = {name: getattr(served.serving, name).tokens for name in ("whole", "context", "generation")}
    return next((name for name, tokens in parts.items() if tokens == rows), "whole")


@op(
    "flashinfer::batch_prefill_ragged_run "
    "(_s, _i, _plan, q, keys, values, _q_starts, _starts, result, _lse, mask, _layout, left)"
)
def batch_prefill_ragged(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    result: Any = None,
    mask: Any = UNKNOWN,
    left: Any = UNKNOWN,
    served: Batch | None = None,
) -> Work:
    """New tokens among themselves: (Σq² + Σq) / 2 pairs under a causal mask, Σq² without; a window is not counted

    Keys and values are packed [tokens, heads, size]. If there are more of them than queries, they are a part of the
    cache that was copied, whose lengths are not on record.
    """
    lengths = getattr(served.serving, _whose(served, q.shape[0])) if served is not None and served.serving else None
    if lengths is None or lengths.squares is None or lengths.tokens != q.shape[0] or keys.shape[0] != q.shape[0]:
        raise UnknownArgument("the lengths of packed sequences are data that the capture does not hold")
    if mask not in (NON_CAUSAL, CAUSAL) or (left is not UNKNOWN and left is not None and left >= 0):
        raise UnknownArgument("which keys each query attends to is not on record: another mask, or a window")
    pairs = (lengths.squares + lengths.tokens) // 2 if mask == CAUSAL else lengths.squares
    heads, size = q.shape[-2:]
    written = result if isinstance(result, Tensor) else q
    flop = 2 * heads * (size + values.shape[-1]) * pairs
    return Work(flop, distinct(q, keys, values), moved(lengths.tokens * heads * values.shape[-1], written))


@copy_op("flashinfer::append_paged_kv_cache (keys, values, places, positions, key_cache, value_cache)")
def append_to_cache(
    keys: Tensor, values: Tensor, places: Tensor, positions: Tensor, key_cache: Tensor, value_cache: Tensor
) -> Work:
    """Copies new keys and values to their pages, in the cache's dtype; reads each token's request and position"""
    written = moved(keys.numel, key_cache) + moved(values.numel, value_cache)
    return Work(0, distinct(keys, values, places, positions), written)


@copy_op("flashinfer::append_paged_mla_kv_cache (latent, rope, places, positions, cache, rope_cache)")
def append_latent(
    latent: Tensor, rope: Tensor, places: Tensor, positions: Tensor, cache: Tensor, rope_cache: Tensor
) -> Work:
    """The same for latent vectors and their parts for positions"""
    return append_to_cache(latent, rope, places, positions, cache, rope_cache)


@pointwise_op("flashinfer::apply_rope_pos_ids_cos_sin_cache (q, k, q_out, k_out, angles, positions)")
def rope_from_cache(q: Tensor, k: Tensor, q_out: Tensor, k_out: Tensor, angles: Tensor, positions: Tensor) -> Work:
    """Rotates each pair by its position's angle, 3 per element of the rotated part; the rest is copied"""
    part = angles.shape[-1] / q.shape[-1]
    read = distinct(q, k, positions) + positions.numel * angles.shape[-1] * angles.itemsize
    return Work(int(3 * part * (q.numel + k.numel)), read, moved(q_out.numel, q_out) + moved(k_out.numel, k_out))


@pointwise_op(
    "flashinfer::apply_rope_pos_ids flashinfer::apply_llama31_rope_pos_ids (q, k, q_out, k_out, positions, rotated)"
)
def rope(q: Tensor, k: Tensor, q_out: Tensor, k_out: Tensor, positions: Tensor, rotated: int) -> Work:
    """The same with angles that the kernel computes, which are not counted"""
    flop = 3 * (q.numel + k.numel) * int(rotated) // q.shape[-1]
    return Work(flop, distinct(q, k, positions), moved(q_out.numel, q_out) + moved(k_out.numel, k_out))


@sort_op("flashinfer::sampling_from_probs")
def sample(probabilities: Tensor) -> Work:
    """Adds the probabilities of each row until the sum reaches a random number: at most 1 per element; int32 per row"""
    return Work(probabilities.numel, distinct(probabilities), 4 * probabilities.shape[0])


@sort_op(
    "flashinfer::top_p_sampling_from_probs flashinfer::top_k_sampling_from_probs flashinfer::min_p_sampling_from_probs "
    "flashinfer::top_k_top_p_sampling_from_probs flashinfer::top_p_renorm_probs flashinfer::top_k_renorm_probs "
    "flashinfer::top_k_mask_logits"
)
def sample_best(probabilities: Tensor) -> Work:
    """Passes over each row until enough of it is rejected, or a threshold is found: as often as the data needs"""
    raise UnknownArgument("how often the kernel passes over the probabilities depends on their values")
