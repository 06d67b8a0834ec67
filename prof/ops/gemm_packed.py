"""Matrix products of packed operands: fp8 and fp4 with scales, groups, quantised weights, 2:4 sparsity.

flop    2*M*N*K as in ``gemm``, for the products that are computed; scaling is part of the epilogue
read    operands as they are stored (packed), scales, offsets and bias once
write   the result, in the requested dtype
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from pyprof.errors import ShapeError
from pyprof.prof.ops.gemm import dimensions, linear_shape, op, product, typed
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, given, moved, output, required
from pyprof.prof.ops.result_types import dtype_name


def unpacked(k: int, a: Tensor) -> int:
    """K in elements: float4_e2m1fn_x2 packs two into a byte."""
    return k * 2 if a.dtype.endswith("_x2") else k


@dataclass(frozen=True, slots=True)
class Scaled:
    """A product of two operands, with scales that are part of the epilogue."""

    a: Tensor
    b: Tensor
    scale_a: Any = None  # one, a row's, a block's each, or a list of them
    scale_b: Any = None
    offs: Any = None
    bias: Any = None
    scale_result: Any = None
    out_dtype: Any = None


@op("_scaled_mm (a, b, scale_a, scale_b, bias, scale_result, out_dtype)", takes=Scaled)
def scaled_mm(call: Scaled, out: Out = None) -> Work:
    """(A * scale_a) @ (B * scale_b) + bias in ``out_dtype``; scales (one in total, per row or per block) are read once

    The product with the scales is part of the epilogue. An empty size list is a 0-d scale: 4 bytes of float32.
    ``out_dtype`` is a name, in a trace a number (c10/core/ScalarType.h). If absent, it is A's dtype.
    """
    a, b = call.a, call.b
    m, n, k = dimensions("_scaled_mm", a, b)
    scales = [Tensor((), "float32") if s is UNKNOWN and a.dtype else s for s in (call.scale_a, call.scale_b)]
    result = output(out, typed(a.like((m, n)), call.out_dtype))
    return product(m * n * unpacked(k, a), (a, b, *scales, given(call.bias), given(call.scale_result)), result)


@op(
    "_scaled_mm_v2 (a, b, scale_a, _recipe_a, _swizzle_a, scale_b, _recipe_b, _swizzle_b, bias, out_dtype)",
    takes=Scaled,
)
def scaled_mm_v2(call: Scaled, out: Out = None) -> Work:
    """``_scaled_mm`` with lists of scales (torch 2.10 and later)"""
    unscaled = scaled_mm(replace(call, scale_a=None, scale_b=None), out)
    return unscaled + Work(0, distinct(call.scale_a, call.scale_b))


@op("_grouped_mm (a, b, offs, bias, out_dtype)", takes=Scaled)
def grouped_mm(call: Scaled, out: Out = None) -> Work:
    """One product per group; a group is some rows, some columns or a slice of K (mixtures of experts)"""
    shape, count = grouped(call.a, call.b, call.offs)
    result = output(out, typed(call.a.like(shape), call.out_dtype))
    return product(count, (call.a, call.b, given(call.offs), given(call.bias)), result)


@op("_scaled_grouped_mm (a, b, scale_a, scale_b, offs, bias, scale_result, out_dtype)", takes=Scaled)
def scaled_grouped_mm(call: Scaled, out: Out = None) -> Work:
    """``_grouped_mm`` for fp8 with scales; writes bfloat16 unless ``out_dtype`` is given"""
    default = "bfloat16" if call.a.dtype else ""
    unscaled = grouped_mm(replace(call, out_dtype=dtype_name(call.out_dtype) or default), out)
    return unscaled + Work(0, distinct(given(call.scale_a), given(call.scale_b), given(call.scale_result)))


@op(
    "_scaled_grouped_mm_v2 (a, b, scale_a, _recipe_a, _swizzle_a, scale_b, _recipe_b, _swizzle_b, offs, bias, "
    "out_dtype)",
    takes=Scaled,
)
def scaled_grouped_mm_v2(call: Scaled, out: Out = None) -> Work:
    """``_scaled_grouped_mm`` with lists of scales (torch 2.10 and later)"""
    unscaled = scaled_grouped_mm(replace(call, scale_a=None, scale_b=None), out)
    return unscaled + Work(0, distinct(call.scale_a, call.scale_b))


def grouped(a: Tensor, b: Tensor, offs: Any) -> tuple[tuple[int, ...], int]:
    """(shape, multiply-adds) of a grouped product. ``offs`` ends with the end of the last group, so every row is in a
    group.

    [M,K] @ [G,K,N]: a group is some rows of A       -> [M,N]     M*N*K
    [G,M,K] @ [K,N]: a group is some columns of B    -> [M,N]     M*N*K
    [M,K] @ [K,N]:   a group is a slice of K         -> [G,M,N]   M*N*K
    [G,M,K] @ [G,K,N]: a batched product             -> [G,M,N]   G*M*N*K
    """
    ranks = (len(a.shape), len(b.shape))
    if ranks not in ((2, 3), (3, 2), (2, 2), (3, 3)):
        raise ShapeError("_grouped_mm", "operands of 2 or 3 dimensions", f"{a.shape} @ {b.shape}")
    m, k, n = a.shape[-2], unpacked(a.shape[-1], a), b.shape[-1]
    if ranks == (3, 3):
        return (a.shape[0], m, n), a.shape[0] * m * n * k
    groups = (required(offs).numel,) if ranks == (2, 2) else ()
    return (*groups, m, n), m * n * k


@op("_weight_int8pack_mm")
def weight_int8pack_mm(x: Tensor, weight: Tensor, scales: Any = None, *, out: Out = None) -> Work:
    """y[M,N] = x[M,K] @ (int8 weight[N,K] * scales[N])'"""
    shape, k = linear_shape(x, weight)
    return product(math.prod(shape) * k, (x, weight, given(scales)), output(out, x.like(shape)))


@op("_weight_int4pack_mm")
def weight_int4pack_mm(x: Tensor, weight: Tensor, _group: Any = None, scales: Any = None, *, out: Out = None) -> Work:
    """y[M,N] = x[M,K] @ weight', packed as int32[N/8, K/(tiles*16), 32, tiles/2] with 8 weights per int32

    Source: aten/src/ATen/native/cuda/int4mm.cu, _convert_weight_to_int4pack_cuda.
    """
    n = weight.shape[0] * 8 if len(weight.shape) == 4 else weight.shape[0]
    return product(x.numel * n, (x, weight, given(scales)), output(out, x.like((*x.shape[:-1], n))))


@op("_mixed_dtypes_linear")
def mixed_dtypes_linear(x: Tensor, weight: Tensor, scales: Tensor, bias: Any = None) -> Work:
    """y[M,N] = x[M,K] @ (weight * scales[N]) + bias, the weight [K,N] of 8 bits or [K,N/2] with two of 4 bits in a byte

    Source: aten/src/ATen/native/cuda/MixedDtypesLinear.cu.
    """
    if not x.shape or len(weight.shape) != 2 or x.shape[-1] != weight.shape[0]:
        raise ShapeError("_mixed_dtypes_linear", "x[..,K] @ weight[K,N]", f"{x.shape} @ {weight.shape}")
    n = scales.numel
    return product(x.numel * n, (x, weight, scales, given(bias)), x.like((*x.shape[:-1], n)))


@op("_weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros")
def weight_packed_mm(x: Tensor, weight: Tensor, *rest: Any, out: Out = None) -> Work:
    """y[M,N] = x[M,K] @ weight', the weight quantised and packed along K: N rows; scales and bias are read once"""
    result = output(out, x.like((*x.shape[:-1], weight.shape[0])))
    return product(x.numel * result.shape[-1], (x, weight, *rest), result)


@op("_cslt_sparse_mm")
def cslt_sparse_mm(a: Tensor, dense: Tensor, *rest: Any, out: Out = None) -> Work:
    """2:4 sparsity by cuSPARSELt: packed[M, K/2 and metadata] @ dense[K,N], half of the products are computed

    ``a`` holds the values and 2 bits of position per value: K/2 + K/16 columns of 16-bit values. The hardware counters
    of the tensor cores also count the skipped products.
    """
    k, n = dense.shape
    return product(a.shape[0] * k * n // 2, (a, dense, *rest), output(out, dense.like((a.shape[0], n))))


@op("_sparse_semi_structured_linear _sparse_semi_structured_mm")
def sparse24_mm(a: Tensor, second: Tensor, third: Tensor, *rest: Any, out: Out = None) -> Work:
    """2:4 sparsity: half of the products are computed

    ``mm(packed[M,K/2], meta, dense[K,N])`` and ``linear(dense[..,K], packed[N,K/2], meta)``
    """
    if len(third.shape) == 2 and a.shape[-1] * 2 == third.shape[0]:
        shape: tuple[int, ...] = (a.shape[0], third.shape[1])
        half = a.shape[1]
    else:
        shape, half = (*a.shape[:-1], second.shape[0]), second.shape[1]
    return product(math.prod(shape) * half, (a, second, third, *rest), output(out, a.like(shape)))


@op("_sparse_semi_structured_addmm (bias, packed, meta, dense, _alpha, _beta, dtype)")
def sparse24_addmm(bias: Any, packed: Tensor, meta: Tensor, dense: Tensor, dtype: Any = None) -> Work:
    """bias[M] + packed[M,K/2] @ dense[K,N]: half of the products are computed"""
    m, half = packed.shape
    result = typed(dense.like((m, dense.shape[-1])), dtype)
    return product(result.numel * half, (given(bias), packed, meta, dense), result)


# 2:4 sparsity: of four neighbours two are kept. Choosing them compares, and takes 0 flop.
copy_op = Family("copy")


@copy_op("_cslt_compress")
def cslt_compress(dense: Tensor, *, out: Out = None) -> Work:
    """Reads the matrix, writes half of its values and 2 bits of position for each"""
    sixteenths = 10 if dense.itemsize == 1 else 9  # metadata of 2 bits fill 1/8 of a value of 16 bits, 1/4 of 8 bits
    result = output(out, dense.like((dense.numel * sixteenths // 16,)))
    return Work(0, dense.nbytes, moved(result.numel, result))


@copy_op("_sparse_semi_structured_tile _sparse_semi_structured_apply")
def sparse24_tile(dense: Tensor, masks: Any = None, *, out: Out = None) -> Work:
    """Reads the matrix (and the masks of an earlier choice), writes it packed along its rows and along its columns

    ``tile`` also writes the places and the masks, whose sizes only the outputs tell.
    """
    if out:
        written = sum(moved(t.numel, t) for t in out if t is not None)
    else:
        written = moved(dense.numel, dense) if isinstance(masks, Tensor) else math.nan
    return Work(0, distinct(dense, given(masks)), written)


@copy_op("_sparse_semi_structured_apply_dense")
def sparse24_apply_dense(dense: Tensor, masks: Tensor) -> Work:
    """Writes the matrix with zeros where the masks do not keep an element"""
    return Work(0, distinct(dense, masks), moved(dense.numel, dense))
