"""Multi-head latent attention (MLA): keys and values of all heads are one latent vector of a token, with R positions.

In the generation phase, Q and O stand in the latent space of C elements, so that a (query, key) pair costs each head
2 (C + R) for the score and 2 C for the result, and the cache is read once for all heads. The pairs follow from the
server's annotation, as in ``paged_attention``.
Orders of arguments: vllm csrc/torch_bindings.cpp; sgl-kernel csrc/common_extension.cc and flashmla_extension.cc.
"""

import math
from typing import Any

from pyprof.errors import ShapeError, UnknownArgument
from pyprof.prof.ops.attention import op
from pyprof.prof.ops.model import Tensor, Work
from pyprof.prof.ops.operands import given, moved
from pyprof.prof.ops.paged_attention import Batch, Paged, checked, pairs_of


@op("vllm::unified_mla_attention_with_output (q, latent, rope, result)")
def latent_attention(q: Tensor, latent: Tensor, rope: Tensor, result: Any = None, served: Batch | None = None) -> Work:
    """Multi-head latent attention: keys and values of all heads are one latent vector of C elements and R for positions

    generate  Q and O stand in the latent space: 2 (2 C + R) per pair and head; reads Σk (C + R) elements of the cache
    context   K and V are projected back (ops of their own): 2 (D + Dv) per pair and head; reads Σk of each head
    """
    result = given(result)
    if result is None or len(q.shape) != 3:
        raise UnknownArgument("the capture does not have the result's shape, and so the size of a value")
    heads, size = q.shape[1:]
    value_size = math.prod(result.shape[1:]) // heads
    checked(served, "whole", q.shape[0])
    assert served is not None
    context, generation = checked(served, "context", q.shape[0]), checked(served, "generation", q.shape[0])
    call = Paged(q, latent, latent)
    wide, narrow = latent.shape[-1], rope.shape[-1]
    flop = 2 * heads * (size + value_size) * pairs_of(call, context, served.windowed)
    flop += 2 * heads * (2 * wide + narrow) * pairs_of(call, generation, served.windowed)
    cache = latent.like((), served.cache_dtype)
    read = moved((generation.keys or 0) * (wide + narrow), cache)
    read += moved((context.keys or 0) * heads * (size + value_size), q)
    tokens = (context.tokens or 0) + (generation.tokens or 0)
    return Work(flop, read + moved(tokens * heads * size, q), moved(tokens * heads * value_size, result))


def decode_from_latent(
    queries: tuple[Tensor, ...],
    caches: tuple[Tensor, ...],
    value: int,
    served: Batch | None,
    which: str = "generation",
) -> Work:
    """2 (D + C) per pair and head; reads Q, and of the cache Σk tokens as they are stored; writes C per query and head

    ``queries``: Q [.., heads, D], in one tensor or with the part for positions apart, and ``caches`` likewise;
    ``value``: C; ``which`` requests of the batch.
    """
    heads, tokens = queries[0].shape[-2], math.prod(queries[0].shape[:-2])
    lengths = checked(served, which, tokens)
    assert served is not None and lengths.tokens is not None and lengths.keys is not None
    width = sum(part.shape[-1] for part in queries)
    pairs = pairs_of(Paged(queries[0], caches[0], caches[0]), lengths, served.windowed)
    read = sum(moved(lengths.tokens * heads * part.shape[-1], part) for part in queries)
    read += sum(moved(lengths.keys * part.shape[-1], part) for part in caches)
    result = queries[0] if queries[0].itemsize > 1 else queries[0].like((), "bfloat16")  # no result is stored in fp8
    return Work(2 * heads * (width + value) * pairs, read, moved(lengths.tokens * heads * value, result))


@op(
    "_C::cutlass_mla_decode (result, q, positions, cache)",
    "_C::sm100_cutlass_mla_decode (result, _lse, q, positions, cache)",
    "sgl_kernel::cutlass_mla_decode (result, q, positions, cache)",
)
def cutlass_mla_decode(
    result: Tensor, q: Tensor, positions: Tensor, cache: Tensor, served: Batch | None = None
) -> Work:
    """Q [requests, heads, C], its part for positions [requests, heads, R], the cache [pages, page, C + R]"""
    if len(positions.shape) != 3 or positions.shape[:2] != q.shape[:2]:
        raise ShapeError("cutlass_mla_decode", "Q and its positions [requests, heads, ..]", (q.shape, positions.shape))
    return decode_from_latent((q, positions), (cache,), q.shape[-1], served)


@op("sgl_kernel::fwd_kvcache_mla _flashmla_C::fwd_kvcache_mla")
def flash_mla(q: Tensor, cache: Tensor, *rest: Any, served: Batch | None = None) -> Work:
    """FlashMLA: Q [requests, queries, heads, C + R], the cache [pages, page, 1, elements of a token]

    The first whole number is C; older releases have an empty argument before it. A further tensor of three dimensions
    has the keys that each query chose.
    """
    value = next((x for x in rest if type(x) is int), None)
    if value is None:
        raise UnknownArgument("the capture does not have the size of a value")
    if any(isinstance(x, Tensor) and len(x.shape) == 3 for x in rest):
        raise UnknownArgument("sparse attention: how many keys each query chose is data that the capture does not hold")
    return decode_from_latent((q,), (cache,), value, served)
