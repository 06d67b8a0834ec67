"""Kernels of inference servers that PyTorch calls as ops: vLLM's ``_C`` and ``_C_cache_ops`` (vLLM 0.10).

Their results come first among the arguments, and in-place ones read and write their operands.
"""

from __future__ import annotations

from typing import Any

from pyprof.prof.ops.model import Family, Tensor, Work, distinct, model
from pyprof.prof.ops.operands import moved

norm_op, pointwise_op, copy_op = Family("norm"), Family("pointwise"), Family("copy")


@norm_op("_C::rms_norm")
def rms_norm(result: Tensor, self: Tensor, weight: Tensor) -> Work:
    """x * rsqrt(mean(x x) + eps) * w: 4E + 2R; nothing is saved"""
    rows = self.numel // (weight.numel or 1)
    return Work(4 * self.numel + 2 * rows, distinct(self, weight), moved(result.numel, result))


@norm_op("_C::fused_add_rms_norm")
def fused_add_rms_norm(self: Tensor, residual: Tensor, weight: Tensor) -> Work:
    """residual += x; x = rms_norm(residual): 5E + 2R; both are read and written"""
    rows = self.numel // (weight.numel or 1)
    written = moved(self.numel, self) + moved(residual.numel, residual)
    return Work(5 * self.numel + 2 * rows, distinct(self, residual, weight), written)


@pointwise_op("_C::silu_and_mul _C::gelu_and_mul _C::gelu_tanh_and_mul")
def gated(result: Tensor, self: Tensor) -> Work:
    """act(a) * b of x's halves, the activation counted as silu: 4 per element of the result; an estimate for gelu"""
    return Work(4 * result.numel, distinct(self), moved(result.numel, result))


@pointwise_op("_C::rotary_embedding")
def rotary_embedding(positions: Tensor, query: Tensor, key: Any, head_size: int, cache: Tensor) -> Work:
    """Each pair turned by its position's angle: 4 products, 2 sums, so 3 per element of the rotated part; in place"""
    part = cache.shape[-1] / head_size
    heads = [tensor for tensor in (query, key) if isinstance(tensor, Tensor)]
    turned = int(sum(tensor.numel for tensor in heads) * part)
    angles = positions.numel * cache.shape[-1] * cache.itemsize
    rotated = sum(moved(int(tensor.numel * part), tensor) for tensor in heads)
    return Work(3 * turned, distinct(positions) + rotated + angles, rotated)


@copy_op("_C_cache_ops::reshape_and_cache_flash _C_cache_ops::reshape_and_cache")
def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor) -> Work:
    """New keys and values to their slots of the cache, in the cache's type"""
    written = moved(key.numel, key_cache) + moved(value.numel, value_cache)
    return Work(0, distinct(key, value, slots), written)


@model(
    "vllm::inplace_fused_experts vllm::outplace_fused_experts sglang::inplace_fused_experts "
    "sglang::outplace_fused_experts",
    family="gemm",
)
def fused_experts(self: Tensor, up: Tensor, down: Tensor, _weights: Tensor, chosen: Tensor) -> Work:
    """Each token through k experts: up[E,2I,H], a gated activation (not counted), down[E,H,I]

    flop  2 * tokens * k * (H * 2I + I * H)
    read  the tokens, the router's choice, the weights of as many experts as the tokens can reach (an upper bound)
    """
    picks = chosen.numel
    experts, wide, hidden = up.shape
    reached = min(experts, picks) / experts if experts else 0
    weights = (up.nbytes + down.nbytes) * reached
    flop = 2 * picks * (hidden * wide + down.shape[1] * down.shape[2])
    return Work(flop, distinct(self, chosen, _weights) + weights, moved(self.numel, self))


@pointwise_op("_moe_C::topk_softmax")
def topk_softmax(weights: Tensor, chosen: Tensor, _places: Any, scores: Tensor) -> Work:
    """A softmax of each token's scores (4E - R), then the best k: comparisons"""
    rows = scores.numel // scores.shape[-1] if scores.shape and scores.shape[-1] else 0
    written = moved(weights.numel, weights) + moved(chosen.numel, chosen)
    return Work(4 * scores.numel - rows, distinct(scores), written)


@pointwise_op("_moe_C::moe_sum")
def moe_sum(self: Tensor, result: Tensor) -> Work:
    """A token's k results added"""
    return Work(max(self.numel - result.numel, 0), distinct(self), moved(result.numel, result))


@copy_op("_moe_C::moe_align_block_size _moe_C::moe_permute _moe_C::moe_unpermute")
def moe_places(chosen: Tensor) -> Work:
    """Where each token goes: integers; at least the choice is read"""
    return Work(0, distinct(chosen), 0)
