"""Attention over a paged cache of keys and values: requests of different lengths in one call, as servers run it.

The lengths of the requests are data on the GPU, which no capture records. The server's annotation of the batch has sums
over the requests (``pyprof.serving_range``), with q the tokens that one computes and k those that it attends to:

flop    2 * (D + Dv) * query heads * Σ pairs, where the causal mask leaves q*k - q(q - 1)/2 pairs of a request
read    Q of the batch's tokens, and of the cache Σk keys and values of the key heads, at the width they are stored in
write   O of the batch's tokens

A CUDA graph computes more rows than the batch has tokens; those do not count. Each layer is taken to attend to all
keys: a sliding window is known only where the op takes it as an argument, the kernel's name tells, or the layers of
the same sizes run another kernel for lack of one (prof/work/batches.py). Then the pairs follow from the sums for a
batch of one request, or if the window is longer than all keys together.

The sums do not fit a call with fewer queries than the batch has tokens (a draft model, half a batch).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.attention import op, unmasked
from pyprof.prof.ops.attention_kernels import limit
from pyprof.prof.ops.evaluation import alias, assumes
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import given, moved
from pyprof.serving_range import Lengths, ServingRange

copy_op = Family("copy")
NO_ANNOTATION = "the lengths of the requests are not on record: no server's annotation is around the launch"
NO_SUMS = (
    "the server's annotation has no sums over the requests' lengths: vLLM writes them with detailed_trace_annotation, "
    "SGLang with detailed_annotations"
)
WINDOW = "a sliding window, and the lengths of the single requests are not on record"


@dataclass(frozen=True, slots=True)
class Batch:
    """What is known of the batch that a call of attention belongs to."""

    serving: ServingRange | None = None
    cache_dtype: str = ""  # of the cached keys and values, from the ops that write them; empty if unknown
    windowed: bool = False  # whether kernels' names show a sliding window; its length is not in them


@dataclass(frozen=True, slots=True)
class Paged:
    """The arguments of such an op: Q [tokens, heads, D] or [tokens, heads * D]; K and V those of the new tokens, or the
    cache [pages, page, heads, D]."""

    q: Tensor
    k: Tensor
    v: Tensor
    out: Any = None
    heads: Any = None  # of the keys, where the cache has another layout
    causal: Any = True
    left: Any = None  # keys in the window to the left and to the right
    right: Any = None

    @property
    def key_width(self) -> int:
        """Elements of one token's keys."""
        return self._width(self.k, self.q.shape[-1])

    @property
    def value_width(self) -> int:
        return self._width(self.v, self._value_size)

    @property
    def out_width(self) -> int:
        """Elements of one token's result: query heads * Dv."""
        out = given(self.out)
        if out is not None and out.shape and out.shape[0] == self.q.shape[0]:
            return math.prod(out.shape[1:])
        return self.query_width // self.q.shape[-1] * self._value_size if len(self.q.shape) > 2 else self.query_width

    @property
    def query_width(self) -> int:
        return math.prod(self.q.shape[1:])

    @property
    def _value_size(self) -> int:
        return self.q.shape[-1] if self.heads is not None else self.v.shape[-1]

    def _width(self, tensor: Tensor, size: int) -> int:
        if self.heads is not None:
            return int(self.heads) * size
        return math.prod(tensor.shape[-2:] if len(tensor.shape) > 2 else tensor.shape[-1:])

    @property
    def is_cache(self) -> bool:
        """Whether K and V are the cache itself, whose dtype is then known."""
        return len(self.k.shape) > 3


def pairs_of(call: Paged, lengths: Lengths, windowed: bool) -> int:
    """The (query, key) pairs of these requests that the mask leaves; raises UnknownArgument if unknown."""
    causal, pairs = lengths.causal_pairs, lengths.products
    if causal is None or pairs is None or lengths.keys is None:
        raise UnknownArgument(NO_SUMS)
    left = limit(call.left)
    masked = call.causal is UNKNOWN or bool(call.causal)
    if windowed or (left is not None and left < lengths.keys):
        if left is None or lengths.requests != 1:
            raise UnknownArgument(WINDOW)
        queries = lengths.tokens or 0
        return unmasked(queries, lengths.keys, left, 0 if masked else limit(call.right), lengths.keys - queries)
    return causal if masked else pairs


def checked(batch: Batch | None, lengths: str, rows: int) -> Lengths:
    """The batch's ``context``, ``generation`` or ``whole`` lengths; raises UnknownArgument if they are unknown or do
    not fit a call with as many rows."""
    if batch is None or batch.serving is None:
        raise UnknownArgument(NO_ANNOTATION)
    found: Lengths = getattr(batch.serving, lengths)
    if not found.is_detailed or found.tokens is None:
        raise UnknownArgument(NO_SUMS)
    if found.tokens > rows:
        raise UnknownArgument(
            f"the batch has {found.tokens} tokens, and the call {rows} rows: it is not the whole batch"
        )
    return found


def paged(call: Paged, batch: Batch | None, which: str = "whole") -> Work:
    """The work of a call for these requests of the batch."""
    lengths = checked(batch, which, call.q.shape[0])
    assert batch is not None and lengths.tokens is not None and lengths.keys is not None
    pairs = pairs_of(call, lengths, batch.windowed)
    flop = 2 * pairs * (call.query_width + call.out_width)
    keys, values = call.k, call.v
    if not call.is_cache:  # the new tokens' own; the cache may store another dtype
        keys, values = keys.like((), batch.cache_dtype), values.like((), batch.cache_dtype)
    cached = moved(lengths.keys * call.key_width, keys) + moved(lengths.keys * call.value_width, values)
    result = given(call.out) or (call.q if call.q.itemsize > 1 else call.q.like((), ""))  # no result is stored in fp8
    read = moved(lengths.tokens * call.query_width, call.q) + cached
    return Work(flop, read, moved(lengths.tokens * call.out_width, result))


CUDA_FLASH = "_cum_k, _used, _pad, _table, _slopes, _max_q, _max_k, _dropout, _scale, _zero, causal, left, right"
HOPPER = (
    "_k_new, _v_new, _qv, out, _cum_q, _cum_k, _cum_new, _used_q, _used_k, _max_q, _max_k, _table, _index, _pad, _cos, "
    "_sin, _rotary, _q_scale, _k_scale, _v_scale, _scale, causal, left, right"
)


@op(
    "vllm::unified_attention_with_output sglang::unified_attention_with_output (q, k, v, out)",
    "vllm::unified_attention (q, k, v)",
    f"_vllm_fa2_C::varlen_fwd (q, k, v, out, _cum_q, {CUDA_FLASH})",
    f"_vllm_fa3_C::fwd sgl_kernel::fwd (q, k, v, {HOPPER})",
    takes=Paged,
)
def serving_attention(call: Paged, served: Batch | None = None) -> Work:
    """2 (D + Dv) per pair and query head of all requests; reads the cache once per key head"""
    return paged(call, served)


@op(
    "paged_attention_ragged aiter::paged_attention_ragged aiter::paged_attention_v1 (out, _workspace, q, k, v)",
    "_C::paged_attention_v1 (out, q, k, v, heads)",
    "_C::paged_attention_v2 _rocm_C::paged_attention (out, _sums, _maxima, _parts, q, k, v, heads)",
    takes=Paged,
)
def decode_attention(call: Paged, served: Batch | None = None) -> Work:
    """The same for the requests that generate, one query each"""
    if served is not None and served.serving is not None and served.serving.phase == "":
        return paged(call, served)
    return paged(replace(call, causal=True), served, "generation")


@assumes(
    "vllm::unified_attention_with_output",
    "vllm::unified_attention",
    "sglang::unified_attention_with_output",
    "paged_attention_ragged",
    "aiter::paged_attention_ragged",
)
def all_keys(_: tuple[Any, ...]) -> str:
    return "every layer attends to all keys of a request (captures do not record sliding windows)"


# The names that SGLang's kernel_shape_profiler.py gives to what it wraps: a number follows.
alias(r"sglang_profiler::\w*?_paged_attention_ragged_\d+", "paged_attention_ragged")


@copy_op("_C_cache_ops::concat_and_cache_mla")
def concat_and_cache_mla(latent: Tensor, rope: Tensor, cache: Tensor, slots: Tensor) -> Work:
    """Copies the latent vectors and their positions' parts to their slots in the cache, in the cache's dtype"""
    return Work(0, distinct(latent, rope, slots), moved(latent.numel + rope.numel, cache))


@copy_op("sglang::store_cache set_kv_buffer_impl")
def store_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor) -> Work:
    """SGLang: copies new keys and values to their slots in the cache, in the cache's dtype"""
    return Work(0, distinct(key, value, slots), moved(key.numel, key_cache) + moved(value.numel, value_cache))


alias(r"sglang_profiler::\w*?_set_kv_buffer_impl_\d+", "set_kv_buffer_impl")

# Where ops that write the cache have it among their arguments.
CACHE_PLACES = {
    "_C_cache_ops::reshape_and_cache_flash": 2,
    "_C_cache_ops::reshape_and_cache": 2,
    "_C_cache_ops::concat_and_cache_mla": 2,
    "sglang::store_cache": 2,
    "set_kv_buffer_impl": 2,
}
