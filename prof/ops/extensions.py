"""Ops of other libraries that the profiler records by name: flash-attn, xFormers, apex, Liger, bitsandbytes, vLLM.
What they compute is what PyTorch's own ops do, so their counts are those; only the order of arguments differs.

Where a library launches its kernels outside of an op (Transformer Engine's modules, DeepSpeed's optimizers), the trace
has no sizes, and the work stays unknown.
Sources: flash_attn/flash_attn_interface.py 2.6 to 2.8; xformers/ops/fmha/flash.py 0.0.24 to 0.0.30; apex/normalization;
liger_kernel/ops; bitsandbytes/_ops.py 0.45.
"""

import math
from typing import Any

from pyprof.prof.ops.attention import attention, attention_backward
from pyprof.prof.ops.attention_kernels import Flash
from pyprof.prof.ops.model import Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import given, moved
from pyprof.prof.ops.result_types import dtype_name
from pyprof.prof.ops.row_norm import layer_norm, rms_norm

attention_op, norm_op, pointwise_op = Family("attention"), Family("norm"), Family("pointwise")
gemm_op, copy_op = Family("gemm"), Family("copy")


MASK = "dropout, _scale, causal, left, right"
GRADIENTS = "_dout, q, k, v, _o, _lse, _dq, _dk, _dv"
attention_op(
    f"flash_attn::_flash_attn_forward (q, k, v, {MASK})",
    f"flash_attn::_flash_attn_varlen_forward (q, k, v, cum_q, cum_k, max_q, max_k, {MASK})",
    f"xformers_flash::flash_fwd (q, k, v, cum_q, cum_k, used, max_q, max_k, {MASK})",
    takes=Flash,
)(attention)
attention_op(
    f"flash_attn::_flash_attn_backward ({GRADIENTS}, {MASK})",
    f"flash_attn::_flash_attn_varlen_backward ({GRADIENTS}, cum_q, cum_k, max_q, max_k, {MASK})",
    takes=Flash,
)(attention_backward)


@norm_op("FusedLayerNormAffineFunction LigerLayerNormFunction")
def fused_layer_norm(self: Tensor, weight: Tensor, bias: Any = None) -> Work:
    """apex, Liger: as native_layer_norm, over the weight's shape"""
    return layer_norm(self, list(weight.shape), weight, given(bias))


@norm_op("FusedRMSNormAffineFunction LigerRMSNormFunction")
def fused_rms_norm(self: Tensor, weight: Tensor) -> Work:
    """apex, Liger: same as _fused_rms_norm, over the weight's shape"""
    return rms_norm(self, list(weight.shape), weight)


@pointwise_op("LigerSiLUMulFunction")
def liger_silu_mul(a: Tensor, b: Tensor) -> Work:
    """silu(a) * b: 4 per element"""
    return Work(4 * a.numel, distinct(a, b), moved(a.numel, a))


@pointwise_op("LigerGELUMulFunction")
def liger_gelu_mul(a: Tensor, b: Tensor) -> Work:
    """gelu(a) * b with the tanh form: 10 per element"""
    return Work(10 * a.numel, distinct(a, b), moved(a.numel, a))


@pointwise_op("LigerRopeFunction")
def liger_rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Work:
    """Rotates each pair of elements by its position's angle, in place: 3 per element"""
    return Work(3 * (q.numel + k.numel), distinct(q, k, cos, sin), moved(q.numel, q) + moved(k.numel, k))


@pointwise_op("bitsandbytes::dequantize_4bit")
def dequantize_4bit(packed: Tensor, scales: Tensor, _block: Any, _kind: Any, shape: Any, dtype: Any = None) -> Work:
    """Two elements per byte, each looked up and scaled: 1 per element"""
    numbers = math.prod(shape) if isinstance(shape, (list, tuple)) else 2 * packed.numel
    return Work(numbers, distinct(packed, scales), moved(numbers, packed.like((), dtype_name(dtype) or "")))


@gemm_op("bitsandbytes::gemv_4bit")
def gemv_4bit(x: Tensor, packed: Tensor, shape: Any, scales: Tensor) -> Work:
    """y[..,N] = x[..,K] @ W', W of 4 bits: 2 per element of W and row of x; scaling the weights is not counted"""
    n, k = shape
    rows = x.numel // k if k else 0
    return Work(2 * rows * n * k, distinct(x, packed, scales), moved(rows * n, x))


@gemm_op("bitsandbytes::int8_linear_matmul")
def int8_linear(a: Tensor, b: Tensor) -> Work:
    """int32 C[..,N] = int8 A[..,K] @ int8 B[N,K]'"""
    rows = math.prod(a.shape[:-1])
    return Work(2 * rows * b.numel, distinct(a, b), 4 * rows * b.shape[0])


@pointwise_op("bitsandbytes::int8_vectorwise_quant")
def int8_rows(a: Tensor) -> Work:
    """Scales each row by its largest element: 1 per element; writes int8 and a scale per row"""
    rows = a.numel // a.shape[-1] if a.shape and a.shape[-1] else 0
    return Work(a.numel, a.nbytes, a.numel + 4 * rows)  # a float32 scale


# Kernels of inference servers: vLLM's ``_C`` and ``_C_cache_ops`` (vLLM 0.10), SGLang's ``sgl_kernel`` and AMD's
# ``aiter``. Their results come first among the arguments, and in-place ones read and write their operands.


@norm_op("_C::rms_norm sgl_kernel::rmsnorm aiter::rmsnorm flashinfer::rmsnorm flashinfer::rmsnorm_quant")
def vllm_rms_norm(result: Tensor, self: Tensor, weight: Tensor) -> Work:
    """x * rsqrt(mean(x x) + eps) * w: 4E + 2R; nothing is saved"""
    rows = self.numel // (weight.numel or 1)
    return Work(4 * self.numel + 2 * rows, distinct(self, weight), moved(result.numel, result))


@norm_op("aiter::rms_norm (self, weight)")
def aiter_rms_norm(self: Tensor, weight: Tensor) -> Work:
    """The same into a new tensor"""
    return vllm_rms_norm(self.like(self.shape), self, weight)


@norm_op("sgl_kernel::gemma_rmsnorm flashinfer::gemma_rmsnorm")
def gemma_rms_norm(result: Tensor, self: Tensor, weight: Tensor) -> Work:
    """x * rsqrt(mean(x x) + eps) * (1 + w): 5E + 2R"""
    return vllm_rms_norm(result, self, weight) + Work(self.numel)


@norm_op("sgl_kernel::gemma_fused_add_rmsnorm flashinfer::gemma_fused_add_rmsnorm")
def gemma_fused_add_rms_norm(self: Tensor, residual: Tensor, weight: Tensor) -> Work:
    """residual += x; x = rms_norm(residual) with 1 + w: 6E + 2R; both are read and written"""
    return fused_add_rms_norm(self, residual, weight) + Work(self.numel)


@norm_op("aiter::add_rmsnorm aiter::rmsnorm2d_fwd_with_add_ck (result, self, residual, total, weight)")
def add_rms_norm(result: Tensor, self: Tensor, residual: Tensor, total: Tensor, weight: Tensor) -> Work:
    """total = x + residual; result = rms_norm(total): 5E + 2R; reads x and residual, writes both results"""
    rows = self.numel // (weight.numel or 1)
    written = moved(result.numel, result) + moved(total.numel, total)
    return Work(5 * self.numel + 2 * rows, distinct(self, residual, weight), written)


@norm_op("_C::fused_add_rms_norm sgl_kernel::fused_add_rmsnorm flashinfer::fused_add_rmsnorm")
def fused_add_rms_norm(self: Tensor, residual: Tensor, weight: Tensor) -> Work:
    """residual += x; x = rms_norm(residual): 5E + 2R; both are read and written"""
    rows = self.numel // (weight.numel or 1)
    written = moved(self.numel, self) + moved(residual.numel, residual)
    return Work(5 * self.numel + 2 * rows, distinct(self, residual, weight), written)


@pointwise_op(
    "_C::silu_and_mul _C::gelu_and_mul _C::gelu_tanh_and_mul sgl_kernel::silu_and_mul sgl_kernel::gelu_and_mul "
    "sgl_kernel::gelu_tanh_and_mul aiter::silu_and_mul aiter::gelu_and_mul aiter::gelu_tanh_and_mul "
    "flashinfer::silu_and_mul flashinfer::gelu_and_mul flashinfer::gelu_tanh_and_mul"
)
def gated(result: Tensor, self: Tensor) -> Work:
    """act(a) * b, a and b the halves of x: 4 per element of the result, as for silu; an estimate for gelu"""
    return Work(4 * result.numel, distinct(self), moved(result.numel, result))


@pointwise_op("_C::rotary_embedding sgl_kernel::rotary_embedding")
def rotary_embedding(positions: Tensor, query: Tensor, key: Any, head_size: int, cache: Tensor) -> Work:
    """Rotates each pair by its position's angle, in place: 4 products, 2 sums, so 3 per element of the rotated part"""
    part = cache.shape[-1] / head_size
    heads = [tensor for tensor in (query, key) if isinstance(tensor, Tensor)]
    turned = int(sum(tensor.numel for tensor in heads) * part)
    angles = positions.numel * cache.shape[-1] * cache.itemsize
    rotated = sum(moved(int(tensor.numel * part), tensor) for tensor in heads)
    return Work(3 * turned, distinct(positions) + rotated + angles, rotated)


@copy_op("_C_cache_ops::reshape_and_cache_flash _C_cache_ops::reshape_and_cache")
def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor) -> Work:
    """Copies new keys and values to their slots in the cache, in the cache's dtype"""
    return Work(0, distinct(key, value, slots), moved(key.numel, key_cache) + moved(value.numel, value_cache))


@pointwise_op("_moe_C::topk_softmax")
def topk_softmax(weights: Tensor, chosen: Tensor, _places: Any, scores: Tensor) -> Work:
    """A softmax of each token's scores (4E - R), then the best k: comparisons"""
    rows = scores.numel // scores.shape[-1] if scores.shape and scores.shape[-1] else 0
    return Work(4 * scores.numel - rows, distinct(scores), moved(weights.numel, weights) + moved(chosen.numel, chosen))


@pointwise_op("_moe_C::moe_sum")
def moe_sum(self: Tensor, result: Tensor) -> Work:
    """Adds the k results of each token"""
    return Work(max(self.numel - result.numel, 0), distinct(self), moved(result.numel, result))


@copy_op("_moe_C::moe_align_block_size _moe_C::moe_permute _moe_C::moe_unpermute")
def moe_places(chosen: Tensor) -> Work:
    """Computes where each token goes: integers, 0 flop; reads at least the choice"""
    return Work(0, distinct(chosen), 0)
