"""Ops of libraries beside PyTorch that its profiler records by name: flash-attn, xFormers, apex, Liger, bitsandbytes.
What they compute is what PyTorch's own ops do, so their counts are those; only the order of arguments differs.

Where a library launches its kernels outside of an op (Transformer Engine's modules, DeepSpeed's optimizers), the trace
has no sizes, and the work stays unknown. Sources: flash_attn/flash_attn_interface.py 2.6 to 2.8;
xformers/ops/fmha/flash.py 0.0.24 to 0.0.30; apex/normalization; liger_kernel/ops; bitsandbytes/_ops.py 0.45.
"""

from __future__ import annotations

import math
from typing import Any

from pyprof.prof.ops.attention import attention, attention_backward
from pyprof.prof.ops.attention_kernels import Flash
from pyprof.prof.ops.model import Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import dtype_name, given, moved
from pyprof.prof.ops.row_norm import layer_norm, rms_norm

attention_op, norm_op, pointwise_op, gemm_op = Family("attention"), Family("norm"), Family("pointwise"), Family("gemm")
BLOCKS = 4  # bytes of a block's scale in bitsandbytes: float32


attention_op(
    "flash_attn::_flash_attn_forward (q, k, v, dropout, _scale, causal, left, right)",
    "flash_attn::_flash_attn_varlen_forward"
    " (q, k, v, cum_q, cum_k, max_q, max_k, dropout, _scale, causal, left, right)",
    "xformers_flash::flash_fwd (q, k, v, cum_q, cum_k, used, max_q, max_k, dropout, _scale, causal, left, right)",
    takes=Flash,
)(attention)

attention_op(
    "flash_attn::_flash_attn_backward (_dout, q, k, v, _o, _lse, _dq, _dk, _dv, dropout, _scale, causal, left, right)",
    "flash_attn::_flash_attn_varlen_backward (_dout, q, k, v, _o, _lse, _dq, _dk, _dv, cum_q, cum_k, max_q, max_k, "
    "dropout, _scale, causal, left, right)",
    takes=Flash,
)(attention_backward)


@norm_op("FusedLayerNormAffineFunction LigerLayerNormFunction")
def fused_layer_norm(self: Tensor, weight: Tensor, bias: Any = None) -> Work:
    """apex, Liger: as native_layer_norm, over the weight's shape"""
    return layer_norm(self, list(weight.shape), weight, given(bias))


@norm_op("FusedRMSNormAffineFunction LigerRMSNormFunction")
def fused_rms_norm(self: Tensor, weight: Tensor) -> Work:
    """apex, Liger: as _fused_rms_norm, over the weight's shape"""
    return rms_norm(self, list(weight.shape), weight)


@pointwise_op("LigerSiLUMulFunction")
def liger_silu_mul(a: Tensor, b: Tensor) -> Work:
    """silu(a) * b: 4 per element"""
    return Work(4 * a.numel, distinct(a, b), moved(a.numel, a))


@pointwise_op("LigerGELUMulFunction")
def liger_gelu_mul(a: Tensor, b: Tensor) -> Work:
    """gelu(a) * b, by tanh: 10 per element"""
    return Work(10 * a.numel, distinct(a, b), moved(a.numel, a))


@pointwise_op("LigerRopeFunction")
def liger_rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Work:
    """Each pair turned by its place's angle, in place: 3 per element"""
    return Work(3 * (q.numel + k.numel), distinct(q, k, cos, sin), moved(q.numel, q) + moved(k.numel, k))


@pointwise_op("bitsandbytes::dequantize_4bit")
def dequantize_4bit(packed: Tensor, scales: Tensor, _block: Any, _kind: Any, shape: Any, dtype: Any = None) -> Work:
    """Two numbers per byte, each looked up and scaled: 1 per element"""
    numbers = math.prod(shape) if isinstance(shape, (list, tuple)) else 2 * packed.numel
    return Work(numbers, distinct(packed, scales), moved(numbers, packed.like((), dtype_name(dtype) or "")))


@gemm_op("bitsandbytes::gemv_4bit")
def gemv_4bit(x: Tensor, packed: Tensor, shape: Any, scales: Tensor) -> Work:
    """y[..,N] = x[..,K] @ W', W of 4 bits: 2 per element and row; the weights' own scaling is left out"""
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
    """Each row scaled by its largest: 1 per element; int8 and a scale per row written"""
    rows = a.numel // a.shape[-1] if a.shape and a.shape[-1] else 0
    return Work(a.numel, a.nbytes, a.numel + BLOCKS * rows)
