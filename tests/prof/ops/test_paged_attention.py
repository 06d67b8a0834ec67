"""Attention over a paged cache: the counts of requests of different lengths, worked out by hand from their sums."""

import math

import pytest

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import evaluate, find
from pyprof.prof.ops.model import Tensor, Work
from pyprof.prof.ops.paged_attention import Batch
from pyprof.serving_range import serving_range
from tests.prof.ops.op_cases import declare_tested

H = "bfloat16"
declare_tested(
    "vllm::unified_attention_with_output vllm::unified_attention sglang::unified_attention_with_output "
    "_vllm_fa2_C::varlen_fwd _vllm_fa3_C::fwd sgl_kernel::fwd aiter::paged_attention_ragged aiter::paged_attention_v1 "
    "paged_attention_ragged _C::paged_attention_v1 _C::paged_attention_v2 _rocm_C::paged_attention "
    "vllm::unified_mla_attention_with_output _C::cutlass_mla_decode _C::sm100_cutlass_mla_decode "
    "sgl_kernel::cutlass_mla_decode sgl_kernel::fwd_kvcache_mla _flashmla_C::fwd_kvcache_mla "
    "flashinfer::batch_decode_run flashinfer::batch_prefill_paged_run flashinfer::batch_prefill_ragged_run "
    "flashinfer::batch_mla_run "
    "sglang::store_cache set_kv_buffer_impl _C_cache_ops::concat_and_cache_mla"
)


def t(*shape: int, dtype: str = H) -> Tensor:
    return Tensor(shape, dtype)


def batch(text: str, dtype: str = H, windowed: bool = False) -> Batch:
    return Batch(serving_range(text), dtype, windowed)


UNIFIED = "vllm::unified_attention_with_output"
# Two prompts of 8 and 4 new tokens that attend to 10 keys each: 52 + 34 pairs; two requests that attend to 10 and 20.
PREFILL = "step[EXTEND bs=2 toks=12 c_sq=12 c_sqsq=80 c_sqsk=120 c_sk=20]"
DECODE = "step[DECODE bs=2 g_sq=2 g_sqsq=2 g_sqsk=30 g_sk=30]"


def unified(rows: int, heads: int = 4, keys: int = 2, size: int = 8) -> tuple[Tensor, ...]:
    """Q, K, V and O as vLLM passes them, of a batch padded to that many rows."""
    q, new = t(rows, heads, size), t(rows, keys, size)
    return q, new, new, q


def test_prefill_counts_the_pairs_under_the_causal_mask():
    """86 pairs * 2 products * 2 * 4 heads * 8; Q and O: 12 * 32 elements; K and V: 20 keys * 2 heads * 8."""
    work = evaluate(UNIFIED, unified(12), served=batch(PREFILL))
    assert work == Work(86 * 4 * 4 * 8, 2 * (384 + 2 * 320), 2 * 384)


def test_decode_of_a_padded_graph_counts_the_requests_that_there_are():
    """30 pairs; a batch of 2 in a graph of 8 rows. The cache holds one byte per element."""
    work = evaluate(UNIFIED, unified(8), served=batch(DECODE, "float8_e4m3fn"))
    assert work == Work(30 * 4 * 4 * 8, 2 * 64 + 2 * 30 * 16, 2 * 64)


def test_the_width_of_the_cache_is_not_guessed():
    work = evaluate(UNIFIED, unified(8), served=batch(DECODE, ""))
    assert work.flop == 3840 and math.isnan(work.read)


def test_a_mixed_batch_adds_both():
    text = "step[MIXED bs=4 c=2 g=2 c_sq=12 c_sk=20 c_sqsq=80 c_sqsk=120 g_sq=2 g_sk=30 g_sqsq=2 g_sqsk=30]"
    assert evaluate(UNIFIED, unified(14), served=batch(text)).flop == (86 + 30) * 4 * 4 * 8


def test_heads_may_be_folded_into_the_width():
    q, new = t(12, 32), t(12, 16)
    assert evaluate("vllm::unified_attention", (q, new, new), served=batch(PREFILL)).flop == 86 * 4 * 32
    sglang = evaluate("sglang::unified_attention_with_output", (q, new, new, q), served=batch(PREFILL))
    assert sglang == Work(86 * 4 * 32, 2 * (384 + 2 * 320), 2 * 384)


def test_the_result_tells_the_width_of_folded_heads_of_values():
    """Queries and keys of 8, values of 4: products of 32 and of 16 columns, a result of 12 * 16 elements."""
    work = evaluate(UNIFIED, (t(12, 32), t(12, 16), t(12, 8), t(12, 16)), served=batch(PREFILL))
    assert work == Work(86 * 2 * (32 + 16), 2 * (384 + 20 * 16 + 20 * 8), 2 * 192)


@pytest.mark.parametrize(
    "name", ["aiter::paged_attention_ragged", "aiter::paged_attention_v1", "paged_attention_ragged"]
)
def test_a_cache_among_the_arguments_has_its_own_dtype(name):
    """AITER's order: out, workspace, Q, cached keys and values [pages, page, heads, size]; two queries of 4 heads."""
    cache = t(100, 16, 2, 8, dtype="uint8")
    arguments = (t(2, 4, 8), t(999, dtype="uint8"), t(2, 4, 8), cache, cache)
    work = evaluate(name, arguments, served=batch(DECODE))
    assert work == Work(30 * 4 * 32, 2 * 64 + 2 * 30 * 16, 2 * 64)


def test_the_cache_of_the_first_kernels_has_its_heads_apart():
    """vLLM's first op: key cache [pages, heads, size / 8, page, 8]; the number of heads is an argument."""
    keys, values = t(100, 2, 1, 16, 8), t(100, 2, 8, 16)
    work = Work(30 * 4 * 32, 2 * (64 + 2 * 30 * 16), 2 * 64)
    call, partial = (t(2, 4, 8), keys, values, 2), (t(2, 4, 8), t(2, 4, 9), t(2, 4, 9), t(2, 4, 9, 8))
    assert evaluate("_C::paged_attention_v1", (t(2, 4, 8), *call), served=batch(DECODE)) == work
    for name in ("_C::paged_attention_v2", "_rocm_C::paged_attention"):
        assert evaluate(name, (*partial, *call), served=batch(DECODE)) == work


FLASH = (None, None, None, None, None, None, None, 8, 10, 0.0, 0.35, False)  # cu_seqlens_q .. zero_tensors


@pytest.mark.parametrize(
    ("text", "causal", "left", "pairs"),
    [
        (PREFILL, True, -1, 86),
        (PREFILL, False, -1, 120),
        (PREFILL, True, 20, 86),  # a window as long as all keys
        # one request of 8 queries and 10 keys, at most the 2 keys before each query and itself: 8 * 3
        ("step[EXTEND bs=1 toks=8 c_sq=8 c_sqsq=64 c_sqsk=80 c_sk=10]", True, 2, 24),
    ],
)
def test_windows_and_masks_that_the_op_takes(text, causal, left, pairs):
    cache, q = t(100, 16, 2, 8), t(12, 4, 8)
    arguments = (q, cache, cache, q, *FLASH[1:], causal, left, 0 if causal else -1)
    assert evaluate("_vllm_fa2_C::varlen_fwd", arguments, served=batch(text)).flop == pairs * 4 * 32
    hopper = (q, cache, cache, None, None, None, q, *[None] * 16, 0.35, causal, left, 0 if causal else -1)
    for name in ("_vllm_fa3_C::fwd", "sgl_kernel::fwd"):
        assert evaluate(name, hopper, served=batch(text)).flop == pairs * 4 * 32


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "no server's annotation"),
        (batch("step[DECODE bs=2]"), "no sums"),
        (batch("execute_context_1(888_788544)_generation_0(0)"), "no sums"),
        (batch(PREFILL, windowed=True), "sliding window"),
        (batch("step[TARGET_VERIFY bs=8 g_sq=32 g_sqsq=128 g_sqsk=4000 g_sk=1000]"), "32 tokens, and the call 12 rows"),
    ],
)
def test_what_is_not_known_is_not_counted(given, reason):
    with pytest.raises(UnknownArgument, match=reason):
        evaluate(UNIFIED, unified(12), served=given)


def test_latent_attention():
    """DeepSeek's form, small: 4 heads, D = 6 + 2, Dv = 6, C = 16, R = 2; decode 30 pairs, prefill 86 pairs.

    decode   2 * 4 * (2 * 16 + 2) * 30; reads 30 * 18 elements of the cache
    prefill  2 * 4 * (8 + 6) * 86; reads 20 keys and values of 4 heads
    """
    name = "vllm::unified_mla_attention_with_output"

    def arguments(rows):
        return t(rows, 4, 8), t(rows, 16), t(rows, 1, 2), t(rows, 24)

    decode = evaluate(name, arguments(2), served=batch(DECODE, "uint8"))
    assert decode == Work(8 * 34 * 30, 30 * 18 + 2 * 2 * 32, 2 * 2 * 24)
    one_head = (t(2, 1, 8), t(2, 16), t(2, 1, 2), t(2, 6))  # fewer heads than tokens
    assert evaluate(name, one_head, served=batch(DECODE, "uint8")) == Work(2 * 34 * 30, 30 * 18 + 2 * 2 * 8, 2 * 2 * 6)
    prefill = evaluate(name, arguments(12), served=batch(PREFILL))
    assert prefill == Work(8 * 14 * 86, 2 * 20 * 4 * 14 + 2 * 12 * 32, 2 * 12 * 24)


def test_writes_to_the_cache():
    """SGLang's store_cache: 2 tokens of 16 elements; slots of 8 bytes. The latent form has 16 + 2 elements."""
    cache, slots = t(100, 16, dtype="uint8"), t(2, dtype="int64")
    for name in ("sglang::store_cache", "set_kv_buffer_impl"):
        assert evaluate(name, (t(2, 16), t(2, 16), cache, cache, slots)) == Work(0, 128 + 16, 64)
    mla = (t(2, 16), t(2, 1, 2), t(100, 16, 18, dtype="uint8"), slots)
    assert evaluate("_C_cache_ops::concat_and_cache_mla", mla) == Work(0, 72 + 16, 36)


def test_decoding_from_latent_vectors():
    """30 pairs of 2 requests, 4 heads, C = 16, R = 2: 2 * 4 * (18 + 16) * 30; Q 2 * 4 * 18, 30 * 18 of the cache in a
    byte each, O 2 * 4 * 16."""
    work = Work(2 * 4 * 34 * 30, 2 * 144 + 540, 2 * 128)
    cache, q, rope = t(100, 16, 18, dtype="uint8"), t(2, 4, 16), t(2, 4, 2)
    for name in ("_C::cutlass_mla_decode", "sgl_kernel::cutlass_mla_decode"):
        assert evaluate(name, (q, q, rope, cache), served=batch(DECODE)) == work
    assert evaluate("_C::sm100_cutlass_mla_decode", (q, t(2, 4), q, rope, cache), served=batch(DECODE)) == work
    flash, whole = (t(100, 16, 1, 18, dtype="uint8"), t(2, 1, 4, 18))
    lengths, table = t(2, dtype="int32"), t(2, 9, dtype="int32")
    for name in ("sgl_kernel::fwd_kvcache_mla", "_flashmla_C::fwd_kvcache_mla"):
        assert evaluate(name, (whole, flash, 16, lengths, table, 0.1, True), served=batch(DECODE)) == work
        assert evaluate(name, (whole, flash, None, 16, lengths, table, 0.1), served=batch(DECODE)) == work
        with pytest.raises(UnknownArgument, match="sparse"):
            evaluate(name, (whole, flash, 16, lengths, t(2, 1, 8, dtype="int32")), served=batch(DECODE))


SPACE = (t(999, dtype="uint8"), t(999, dtype="uint8"), (1, 2, 3))
INDEX = t(3, dtype="int32")


def decode_run(layout: int, left: int = -1) -> tuple[object, ...]:
    """FlashInfer's batch decode of 2 requests: 4 query heads, 2 of the cache, size 8, pages of 16."""
    cache = t(100, 16, 2, 8) if layout == 0 else t(100, 2, 16, 8)
    return (*SPACE, t(2, 4, 8), cache, cache, INDEX, INDEX, INDEX, t(2, 4, 8), None, layout, left, False)


def test_flashinfer_decode_in_both_layouts_of_the_cache():
    work = Work(30 * 4 * 32, 2 * 64 + 2 * 2 * 30 * 16, 2 * 64)
    name = "flashinfer::batch_decode_run"
    assert evaluate(name, decode_run(0), served=batch(DECODE)) == work
    assert evaluate(name, decode_run(1), served=batch(DECODE)) == work
    assert find("flashinfer::batch_decode_with_kv_cache_dtype_q_bf16_head_dim_qk_128_run") == name
    with pytest.raises(UnknownArgument, match="sliding window"):
        evaluate(name, decode_run(0, left=8), served=batch(DECODE))  # 10 and 20 keys: how many are within 8 is data
    one = batch("step[DECODE bs=1 g_sq=1 g_sqsq=1 g_sqsk=30 g_sk=30]")
    assert evaluate(name, decode_run(0, left=8), served=one).flop == 9 * 4 * 32  # the 8 keys before it and its own


def paged_run(rows: int, mask: int, left: int = -1) -> tuple[object, ...]:
    cache, q = t(100, 16, 2, 8), t(rows, 4, 8)
    return (*SPACE, q, cache, cache, INDEX, INDEX, INDEX, INDEX, q, None, mask, 0, left, False)


def test_flashinfer_prefill_over_the_cache():
    """A prompt computed in pieces attends to the pieces before it, too: 86 pairs of 12 queries and 20 keys."""
    name = "flashinfer::batch_prefill_paged_run"
    work = Work(86 * 4 * 32, 2 * 384 + 2 * 2 * 20 * 16, 2 * 384)
    assert evaluate(name, paged_run(12, 1), served=batch(PREFILL)) == work
    mixed = batch("step[MIXED bs=4 c=2 g=2 c_sq=12 c_sk=20 c_sqsq=80 c_sqsk=120 g_sq=2 g_sk=30 g_sqsq=2 g_sqsk=30]")
    assert evaluate(name, paged_run(12, 1), served=mixed) == work  # the rows of the prompts alone
    assert evaluate(name, paged_run(2, 0), served=batch(DECODE)).flop == 30 * 4 * 32  # one query each needs no mask
    with pytest.raises(UnknownArgument, match="not causal"):
        evaluate(name, paged_run(12, 0), served=batch(PREFILL))


def test_flashinfer_latent_attention() -> None:
    """4 heads, a latent vector of 16 and 8 for positions. Decode: 30 pairs, 2 (16 + 8) + 2 * 16 each, of 2 queries and
    30 tokens of the cache; prompts in the latent space: 86 pairs."""

    def run(rows: int, mask: int, text: str) -> Work:
        q, positions, pages = t(rows, 4, 16), t(rows, 4, 8), (t(100, 16, 16), t(100, 16, 8))
        arguments = (*SPACE, q, positions, *pages, INDEX, q, None, mask, 4, 16, 0.1, False)
        return evaluate("flashinfer::batch_mla_run", arguments, served=batch(text))

    assert run(2, 0, DECODE) == Work(30 * 4 * 80, 2 * (2 * 4 * 24 + 30 * 24), 2 * 2 * 4 * 16)
    assert run(12, 1, PREFILL) == Work(86 * 4 * 80, 2 * (12 * 4 * 24 + 20 * 24), 2 * 12 * 4 * 16)
    kernel = "dtype_q_bf16_dtype_kv_bf16_dtype_o_bf16_dtype_idx_i32_head_dim_ckv_512_head_dim_kpe_64"
    assert find(f"batch_mla_attention_{kernel}::run") == "flashinfer::batch_mla_run"
    with pytest.raises(UnknownArgument, match="not causal"):
        run(12, 0, PREFILL)


def test_flashinfer_prefill_of_new_tokens_among_themselves():
    """8 and 4 new tokens: 36 + 10 pairs under the causal mask, 64 + 16 without; K and V of 2 heads."""
    q, new = t(12, 4, 8), t(12, 2, 8)

    def run(mask: int, left: int = -1, keys: Tensor = new) -> Work:
        arguments = (*SPACE, q, keys, keys, INDEX, INDEX, q, None, mask, 0, left, False)
        return evaluate("flashinfer::batch_prefill_ragged_run", arguments, served=batch(PREFILL))

    assert run(1) == Work(46 * 4 * 32, 2 * (384 + 2 * 192), 2 * 384)
    assert run(0).flop == 80 * 4 * 32
    for unknown in ({"mask": 2}, {"mask": 1, "left": 4}, {"mask": 1, "keys": t(20, 2, 8)}):
        with pytest.raises(UnknownArgument):
            run(**unknown)
