"""Matrix products of inference servers with quantised weights: vLLM, SGLang's sgl_kernel, DeepGEMM, AITER.

flop    2*M*N*K as in ``gemm``; unpacking and scaling the weights is part of the kernel and not counted
read    activations; weights as they are stored (FP8, INT8 1 byte; INT4, FP4 half a byte) with their scales and zeros
write   the result

The orders of arguments are those of the libraries' schemas: vllm csrc/torch_bindings.cpp (0.4 to 0.16), sgl-kernel
csrc/common_extension.cc, deep_gemm csrc/python_api.cpp, aiter/ops/gemm_op_a8w8.py and gemm_op_a16w16.py.
"""

import math
from typing import Any

from pyprof.errors import ShapeError, UnknownArgument
from pyprof.prof.ops.gemm import dimensions, linear, op, product, typed
from pyprof.prof.ops.model import Tensor, Work
from pyprof.prof.ops.operands import Out, given, output


def rows_and_width(x: Tensor) -> tuple[int, int]:
    """M and K of activations [.., K]."""
    if not x.shape:
        raise ShapeError("a product", "activations[.., K]", x.shape)
    return math.prod(x.shape[:-1]), x.shape[-1]


@op("_C::cutlass_scaled_mm (result, a, b, scale_a, scale_b, bias)")
@op("_C::cutlass_scaled_mm_azp (result, a, b, scale_a, scale_b, adjusted, zeros, bias)")
def scaled_into(
    result: Tensor,
    a: Tensor,
    b: Tensor,
    scale_a: Any = None,
    scale_b: Any = None,
    adjusted: Any = None,
    zeros: Any = None,
    bias: Any = None,
) -> Work:
    """result[M,N] = (A[M,K] * scale_a) @ (B[K,N] * scale_b) + bias"""
    m, n, k = dimensions("cutlass_scaled_mm", a, b)
    return product(m * n * k, (a, b, scale_a, scale_b, adjusted, zeros, bias), result)


@op("sgl_kernel::fp8_scaled_mm sgl_kernel::int8_scaled_mm sgl_kernel::fp8_blockwise_scaled_mm")
def scaled(a: Tensor, b: Tensor, scale_a: Any = None, scale_b: Any = None, dtype: Any = None, bias: Any = None) -> Work:
    """C[M,N] = (A[M,K] * scale_a) @ (B[K,N] * scale_b) + bias, in ``dtype``"""
    m, n, k = dimensions("fp8_scaled_mm", a, b)
    return product(m * n * k, (a, b, scale_a, scale_b, given(bias)), typed(Tensor((m, n)), dtype))


@op("_C::cutlass_scaled_fp4_mm sgl_kernel::cutlass_scaled_fp4_mm (result, a, b, scale_a, scale_b, alpha)")
def scaled_fp4(result: Tensor, a: Tensor, b: Tensor, scale_a: Any, scale_b: Any, alpha: Any = None) -> Work:
    """result[M,N] = A[M,K] @ B[N,K]', two elements of FP4 in a byte, a scale per 16 elements"""
    m, half = rows_and_width(a)
    return product(m * b.shape[0] * 2 * half, (a, b, scale_a, scale_b, given(alpha)), result)


@op(
    "deep_gemm::fp8_gemm_nt (a, scale_a, b, scale_b, result, added)",
    "vllm::w8a8_block_fp8_matmul_deepgemm vllm::rocm_aiter_gemm_a8w8 vllm::rocm_aiter_gemm_a8w8_blockscale "
    "vllm::rocm_aiter_triton_gemm_a8w8_blockscale aiter::gemm_a8w8 aiter::gemm_a8w8_blockscale"
    " (a, b, scale_a, scale_b)",
    "sglang::deep_gemm_fp8_fp8_bf16_nt (a, scale_a, b, scale_b, result)",
)
def scaled_linear(
    a: Tensor, b: Tensor, scale_a: Any, scale_b: Any, result: Any = None, added: Any = None, *, out: Out = None
) -> Work:
    """C[M,N] = A[M,K] @ B[N,K]', with a scale per row, per column or per block; bfloat16 unless the result is given"""
    m, k = rows_and_width(a)
    if len(b.shape) != 2 or b.shape[-1] != k:
        raise ShapeError("fp8_gemm_nt", "A[M,K] @ B[N,K]'", f"{a.shape} @ {b.shape}'")
    result = given(result) or output(out, Tensor((m, b.shape[0]), "bfloat16" if a.dtype else ""))
    return product(m * b.shape[0] * k, (a, b, scale_a, scale_b, given(added)), result)


@op("aiter::gemm_a16w16")
def plain_linear(x: Tensor, weight: Tensor, bias: Any = None) -> Work:
    """y[M,N] = x[M,K] @ weight[N,K]' + bias"""
    return linear(x, weight, given(bias))


def columns_of(arguments: tuple[Any, ...], m: int, k: int) -> int:
    """N, from three numbers in a row among the arguments, which are M, N and K."""
    whole = [x if isinstance(x, int) and not isinstance(x, bool) else None for x in arguments]
    for first, n, last in zip(whole, whole[1:], whole[2:], strict=False):
        if (first, last) == (m, k) and n is not None:
            return n
    raise UnknownArgument("the capture does not have the product's sizes: profile with record_shapes=True")


@op("_C::gptq_marlin_gemm _C::marlin_gemm _C::gptq_marlin_24_gemm sgl_kernel::gptq_marlin_gemm")
def marlin(a: Tensor, *arguments: Any) -> Work:
    """C[M,N] = A[M,K] @ W, W packed to 4 or 8 bits in int32; every release has another order of arguments

    Three numbers in a row are M, N and K; the tensors of two dimensions are the weights with their scales and zeros, or
    the result's buffer [M,N]; those of one are the bias and the order of K, or a workspace, which is not counted.
    """
    m, k = rows_and_width(a)
    n = columns_of(arguments, m, k)
    tensors = [x for x in arguments if isinstance(x, Tensor)]
    stored = [x for x in tensors if (len(x.shape) == 2 and x.shape != (m, n)) or x.shape in ((k,), (n,))]
    half = any(len(x.shape) == 2 and x.dtype in ("int16", "uint16") for x in stored)  # 2:4 metadata
    return product(m * n * k // (2 if half else 1), (a, *stored), a.like((m, n)))


@op("_C::machete_mm (a, b, _type, dtype, scales, zeros, _group, channel_scales, token_scales)")
def machete(
    a: Tensor,
    b: Tensor,
    dtype: Any = None,
    scales: Any = None,
    zeros: Any = None,
    channel_scales: Any = None,
    token_scales: Any = None,
) -> Work:
    """C[M,N] = A[M,K] @ W, W packed in int32 [K * bits / 32, N], with scales and zeros per group of K [groups, N]"""
    m, k = rows_and_width(a)
    n = b.shape[-1]
    optional = [given(x) for x in (scales, zeros, channel_scales, token_scales)]
    default = a.dtype if a.itemsize > 1 else ""
    return product(m * n * k, (a, b, *optional), typed(a.like((m, n), default), dtype))


@op("_C::awq_gemm")
def awq(x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor) -> Work:
    """C[M,N] = x[M,K] @ W, W packed as int32 [K, N / 8], with scales [groups, N] and packed zeros"""
    m, k = rows_and_width(x)
    n = packed.shape[-1] * 8
    return product(m * n * k, (x, packed, scales, zeros), x.like((m, n)))
