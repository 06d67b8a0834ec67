"""Matrix products: C[M,N] = A[M,K] @ B[K,N] and everything that is one in disguise.

flop    2*M*N*K: M*N dot products of K multiply-adds (real); 8*M*N*K for complex numbers (4 products and 4
        sums). A bias or ``beta * self`` rides in the same 2*M*N*K (the first product needs no sum) and adds
        nothing; so does an activation in the epilogue. Integer and fp8 products count as the same
        multiply-adds: they run on the same units.
read    each operand once, at its stored size; a transposed one has the same bytes
write   C once

Convention: torch/utils/flop_counter.py (mm_flop), which knows neither complex numbers nor bytes.
Where a capture tells no types, bytes are NaN and the flop is exact for real numbers.
"""

from __future__ import annotations

import math
from typing import Any

from pyprof.prof.model import UNKNOWN, Parts, ShapeError, Tensor, Work, distinct, model
from pyprof.prof.ops.operands import Out, broadcast, dtype_name, given, moved, output, required

FAMILY_NAME = "gemm"


def multiply_adds(count: int, *operands: Tensor) -> int:
    """Flop of so many multiply-adds: 2 each, 8 where an operand is complex."""
    return count * (8 if any(t.is_complex for t in operands) else 2)


def multiplies(count: int, *operands: Tensor) -> int:
    """Flop of so many products without a sum: 1 each, 6 where an operand is complex (4 products, 2 sums)."""
    return count * (6 if any(t.is_complex for t in operands) else 1)


def product(count: int, operands: tuple[Any, ...], result: Tensor) -> Work:
    """``count`` multiply-adds over the operands (the absent ones among them are free) into ``result``."""
    present = [t for t in operands if isinstance(t, Tensor)]
    return Work(multiply_adds(count, *present), distinct(*present), moved(result.numel, result))


def dimensions(op: str, a: Tensor, b: Tensor) -> tuple[int, int, int]:
    """(M, N, K) of a 2-D product."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        raise ShapeError(op, "A[M,K] @ B[K,N]", f"{a.shape} @ {b.shape}")
    return a.shape[0], b.shape[1], a.shape[1]


def typed(result: Tensor, *dtypes: Any) -> Tensor:
    """The result in the first dtype that is given."""
    return next((result.like(result.shape, name) for name in map(dtype_name, dtypes) if name), result)


@model("mm", family=FAMILY_NAME)
def mm(a: Tensor, b: Tensor, out_dtype: Any = None, *, out: Out = None) -> Work:
    """C[M,N] = A[M,K] @ B[K,N], in A's type or ``out_dtype``"""
    m, n, k = dimensions("mm", a, b)
    return product(m * n * k, (a, b), output(out, typed(a.like((m, n)), out_dtype)))


@model("_int_mm", family=FAMILY_NAME)
def int_mm(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """int32 C[M,N] = int8 A[M,K] @ int8 B[K,N]; tensor cores do the multiply-adds, so they count"""
    m, n, k = dimensions("_int_mm", a, b)
    return product(m * n * k, (a, b), output(out, Tensor((m, n), "int32" if a.dtype else "")))


@model("addmm", "_addmm_activation", family=FAMILY_NAME)
def addmm(self: Any, a: Tensor, b: Tensor, beta: Any = 1, *_: Any, out: Out = None) -> Work:
    """C = beta * self + A[M,K] @ B[K,N]; self (a bias, or a matrix) is read, unless beta is 0"""
    m, n, k = dimensions("addmm", a, b)
    result = typed(a.like((m, n)), beta if isinstance(beta, str) else None)
    return product(m * n * k, (added(self, beta), a, b), output(out, result))


def added(self: Any, beta: Any) -> Tensor | None:
    """The addend, where it is read at all: beta = 0 ignores it."""
    ignored = not isinstance(beta, (str, bool, Tensor)) and beta is not UNKNOWN and beta == 0
    return None if ignored else given(self)


@model("addmm.backward", family=FAMILY_NAME)
def addmm_backward(self: Any, a: Tensor, b: Tensor, beta: Any = 1, *_: Any) -> Parts:
    """DA = dC @ B', dB = A' @ dC, and the sum of dC over the rows that self was broadcast along"""
    m, n, _k = dimensions("addmm", a, b)
    return gradients(a, b, a.like((m, n)), math.prod(dimensions("addmm", a, b)), given(self), beta)


def gradients(a: Tensor, b: Tensor, c: Tensor, count: int, bias: Tensor | None, beta: Any = 1) -> Parts:
    """The backward of a product of two: one product more for each operand that wants a gradient.

    Each reads dC and the other operand and writes the gradient at the operand's own size: where an operand
    was broadcast, the sum over the copies is part of the product (a longer K).
    """
    parts: Parts = {}
    if a.needs_grad:
        parts["dgrad"] = product(count, (c, b), dense(a))
    if b.needs_grad:
        parts["wgrad"] = product(count, (c, a), dense(b))
    if bias is not None and bias.needs_grad:
        parts["bias"] = bias_gradient(c, bias, beta)
    return parts


def dense(a: Tensor) -> Tensor:
    """A gradient: its operand's shape and type, contiguous."""
    return a.like(a.shape)


def bias_gradient(c: Tensor, bias: Tensor, beta: Any = 1) -> Work:
    """The sum of dC down to the bias' shape: one sum for each element but the first of each result.

    A bias of dC's own shape gets dC itself: nothing runs, unless beta has to be multiplied in.
    """
    scale = bias.numel if isinstance(beta, (int, float)) and beta not in (0, 1) else 0
    if bias.numel == c.numel:
        return Work(scale, c.nbytes if scale else 0, moved(c.numel, c) if scale else 0)
    return Work(c.numel - bias.numel + scale, c.nbytes, moved(bias.numel, bias))


@model("bmm", family=FAMILY_NAME)
def bmm(a: Tensor, b: Tensor, out_dtype: Any = None, *, out: Out = None) -> Work:
    """C[i] = A[i] @ B[i]"""
    batch, m, n, k = batched("bmm", a, b)
    return product(batch * m * n * k, (a, b), output(out, typed(a.like((batch, m, n)), out_dtype)))


def batched(op: str, a: Tensor, b: Tensor) -> tuple[int, int, int, int]:
    """(batch, M, N, K) of a 3-D product."""
    if len(a.shape) != 3 or len(b.shape) != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise ShapeError(op, "A[B,M,K] @ B[B,K,N]", f"{a.shape} @ {b.shape}")
    return a.shape[0], a.shape[1], b.shape[2], a.shape[2]


@model("baddbmm", family=FAMILY_NAME)
def baddbmm(self: Any, a: Tensor, b: Tensor, beta: Any = 1, *_: Any, out: Out = None) -> Work:
    """Beta * self + A @ B, a batch of them"""
    batch, m, n, k = batched("baddbmm", a, b)
    result = typed(a.like((batch, m, n)), beta if isinstance(beta, str) else None)
    return product(batch * m * n * k, (added(self, beta), a, b), output(out, result))


@model("baddbmm.backward", family=FAMILY_NAME)
def baddbmm_backward(self: Any, a: Tensor, b: Tensor, beta: Any = 1, *_: Any) -> Parts:
    """Two batched products, and self's sum over what it was broadcast along"""
    batch, m, n, k = batched("baddbmm", a, b)
    return gradients(a, b, a.like((batch, m, n)), batch * m * n * k, given(self), beta)


@model("addbmm", family=FAMILY_NAME)
def addbmm(self: Any, a: Tensor, b: Tensor, beta: Any = 1, *_: Any, out: Out = None) -> Work:
    """Beta * self + sum of A[i] @ B[i]: one product with K = batch * k"""
    batch, m, n, k = batched("addbmm", a, b)
    return product(batch * m * n * k, (added(self, beta), a, b), output(out, a.like((m, n))))


@model("addbmm.backward", family=FAMILY_NAME)
def addbmm_backward(self: Any, a: Tensor, b: Tensor, beta: Any = 1, *_: Any) -> Parts:
    """dA[i] = dC @ B[i]', dB[i] = A[i]' @ dC; dC is one matrix and read once"""
    batch, m, n, k = batched("addbmm", a, b)
    return gradients(a, b, a.like((m, n)), batch * m * n * k, given(self), beta)


def general(op: str, a: Tensor, b: Tensor) -> tuple[tuple[int, ...], int]:
    """(shape of a @ b, K) by numpy.matmul's rules: 1-D operands are a row and a column, batches broadcast."""
    if not a.shape or not b.shape:
        raise ShapeError(op, "operands of one dimension or more", f"{a.shape} @ {b.shape}")
    k, rows = a.shape[-1], b.shape[-2] if len(b.shape) > 1 else b.shape[0]
    if k != rows:
        raise ShapeError(op, "A[..,M,K] @ B[..,K,N]", f"{a.shape} @ {b.shape}")
    batch = broadcast(op, a.shape[:-2], b.shape[:-2])
    return (*batch, *a.shape[-2:-1], *(b.shape[-1:] if len(b.shape) > 1 else ())), k


@model("matmul", "linalg_matmul", family=FAMILY_NAME)
def matmul(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """By numpy.matmul's rules; each operand read once, whatever copies are made to broadcast"""
    shape, k = general("matmul", a, b)
    return product(math.prod(shape) * k, (a, b), output(out, a.like(shape)))


@model("matmul.backward", "linalg_matmul.backward", family=FAMILY_NAME)
def matmul_backward(a: Tensor, b: Tensor, *_: Any) -> Parts:
    """Two products of the forward's size.

    A dot product's gradients are a vector times a number: 1 product an element, no sum.
    """
    shape, k = general("matmul", a, b)
    if shape:
        return gradients(a, b, a.like(shape), math.prod(shape) * k, None)
    return dot_backward(a, b)


@model(
    "linear",
    "mkldnn_linear",
    "_mkl_linear",
    "mkl::_mkl_linear",
    "mkldnn::_linear_pointwise",
    family=FAMILY_NAME,
)
def linear(x: Tensor, weight: Tensor, bias: Any = None, *_: Any, out: Out = None) -> Work:
    """y[..,N] = x[..,K] @ weight[N,K]' + bias[N]; a 1-D weight is one row without N"""
    shape, k = linear_shape(x, weight)
    result = output(out, x.like(shape))
    return product(math.prod(shape) * k, (x, weight, given(bias)), result)


def linear_shape(x: Tensor, weight: Tensor) -> tuple[tuple[int, ...], int]:
    if not x.shape or not weight.shape or x.shape[-1] != weight.shape[-1] or len(weight.shape) > 2:
        raise ShapeError("linear", "x[..,K] @ weight[N,K]'", f"{x.shape} @ {weight.shape}'")
    return (*x.shape[:-1], *weight.shape[:-1]), x.shape[-1]


@model("linear.backward", "mkldnn_linear.backward", family=FAMILY_NAME)
def linear_gradients(x: Tensor, weight: Tensor, bias: Any = None, *_: Any) -> Parts:
    """Dx = dy @ weight, dweight = dy' @ x, dbias = sum of dy over its rows"""
    shape, k = linear_shape(x, weight)
    return gradients(x, weight, x.like(shape), math.prod(shape) * k, given(bias))


@model("linear_backward", "mkldnn_linear_backward", family=FAMILY_NAME)
def linear_backward(x: Tensor, dy: Tensor, weight: Tensor, output_mask: Any = UNKNOWN, *_: Any) -> Parts:
    """The op of MPS, nested tensors and mkldnn: what output_mask = (dx, dweight, dbias) asks for"""
    dx, dw, db = output_mask
    shape, k = linear_shape(x, weight)
    bias = Tensor(weight.shape[:1], weight.dtype) if db else None
    return gradients(
        Tensor(x.shape, x.dtype, x.strides, needs_grad=bool(dx)),
        Tensor(weight.shape, weight.dtype, weight.strides, needs_grad=bool(dw)),
        dy,
        math.prod(shape) * k,
        bias,
    )


@model("mv", family=FAMILY_NAME)
def mv(a: Tensor, x: Tensor, *, out: Out = None) -> Work:
    """y[M] = A[M,K] @ x[K]"""
    return matmul(a, x, out=out)


@model("mv.backward", family=FAMILY_NAME)
def mv_backward(a: Tensor, x: Tensor, *_: Any) -> Parts:
    """DA = dy x' (M*K products, counted as the multiply-adds of a K = 1 product), dx = A' @ dy"""
    return matmul_backward(a, x)


@model("addmv", family=FAMILY_NAME)
def addmv(self: Any, a: Tensor, x: Tensor, beta: Any = 1, *_: Any, out: Out = None) -> Work:
    """Beta * self + A[M,K] @ x[K]"""
    shape, k = general("addmv", a, x)
    return product(math.prod(shape) * k, (added(self, beta), a, x), output(out, a.like(shape)))


@model("addmv.backward", family=FAMILY_NAME)
def addmv_backward(self: Any, a: Tensor, x: Tensor, beta: Any = 1, *_: Any) -> Parts:
    """As mv; self's gradient is dy itself, or its sum where self is one number"""
    shape, k = general("addmv", a, x)
    return gradients(a, x, a.like(shape), math.prod(shape) * k, given(self), beta)


@model("dot", "vdot", "linalg_vecdot", family=FAMILY_NAME)
def dot(a: Tensor, b: Tensor, *_: Any, out: Out = None) -> Work:
    """Sum of a[i] * b[i]; vecdot along the last dimension of a batch"""
    shape = broadcast("dot", a.shape, b.shape)
    return product(math.prod(shape), (a, b), output(out, a.like(shape[:-1])))


@model("dot.backward", "vdot.backward", "linalg_vecdot.backward", family=FAMILY_NAME)
def dot_backward(a: Tensor, b: Tensor, *_: Any) -> Parts:
    """Da = dy * b, db = dy * a: one product an element each, no sums"""
    shape = broadcast("dot", a.shape, b.shape)
    return scaled_vectors(a, b, a.like(shape[:-1]), math.prod(shape))


def scaled_vectors(a: Tensor, b: Tensor, c: Tensor, count: int) -> Parts:
    """Both gradients of a product without sums in the backward: dC times the other operand."""
    parts: Parts = {}
    if a.needs_grad:
        parts["dgrad"] = Work(multiplies(count, a, b), distinct(c, b), moved(a.numel, a))
    if b.needs_grad:
        parts["wgrad"] = Work(multiplies(count, a, b), distinct(c, a), moved(b.numel, b))
    return parts


@model("inner", family=FAMILY_NAME)
def inner(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """All rows of a with all rows of b, summed over their last dimensions; a 0-d operand scales"""
    if not a.shape or not b.shape:
        result = output(out, a.like(a.shape or b.shape))
        return Work(multiplies(result.numel, a, b), distinct(a, b), moved(result.numel, result))
    shape, k = (*a.shape[:-1], *b.shape[:-1]), a.shape[-1]
    if b.shape[-1] != k:
        raise ShapeError("inner", "a[..,K], b[..,K]", f"{a.shape}, {b.shape}")
    return product(math.prod(shape) * k, (a, b), output(out, a.like(shape)))


@model("inner.backward", family=FAMILY_NAME)
def inner_backward(a: Tensor, b: Tensor, *_: Any) -> Parts:
    """Two products of the forward's size; for two vectors, a product an element"""
    if len(a.shape) < 2 and len(b.shape) < 2:
        return dot_backward(a, b)
    shape = (*a.shape[:-1], *b.shape[:-1])
    return gradients(a, b, a.like(shape), math.prod(shape) * a.shape[-1], None)


@model("outer", "ger", family=FAMILY_NAME)
def outer(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """a[M] b[N]': K = 1, so nothing is summed: one product an element"""
    result = output(out, a.like((a.numel, b.numel)))
    return Work(multiplies(result.numel, a, b), distinct(a, b), moved(result.numel, result))


@model("outer.backward", "ger.backward", family=FAMILY_NAME)
def outer_backward(a: Tensor, b: Tensor, *_: Any) -> Parts:
    """Da = dC @ b, db = dC' @ a: two matrix-vector products"""
    return gradients(a, b, a.like((a.numel, b.numel)), a.numel * b.numel, None)


@model("addr", family=FAMILY_NAME)
def addr(self: Any, a: Tensor, b: Tensor, beta: Any = 1, *_: Any, out: Out = None) -> Work:
    """Self + a b': the product and the sum of a K = 1 product are one multiply-add"""
    shape = (a.numel, b.numel)
    return product(math.prod(shape), (added(self, beta), a, b), output(out, a.like(shape)))


@model("addr.backward", family=FAMILY_NAME)
def addr_backward(self: Any, a: Tensor, b: Tensor, beta: Any = 1, *_: Any) -> Parts:
    """As outer, and self's share"""
    shape = (a.numel, b.numel)
    return gradients(a, b, a.like(shape), math.prod(shape), given(self), beta)


@model("kron", family=FAMILY_NAME)
def kron(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """Every element of a times every element of b: one product each"""
    rank = max(len(a.shape), len(b.shape))
    left, right = ((1,) * (rank - len(t.shape)) + t.shape for t in (a, b))
    result = output(out, a.like(tuple(m * n for m, n in zip(left, right, strict=True))))
    return Work(multiplies(result.numel, a, b), distinct(a, b), moved(result.numel, result))


@model("tensordot", family=FAMILY_NAME)
def tensordot(a: Tensor, b: Tensor, dims_a: Any = UNKNOWN, dims_b: Any = UNKNOWN, *, out: Out = None) -> Work:
    """Sum over dims_a of a against dims_b of b"""
    free_a, k = split_dims(a, dims_a)
    free_b = split_dims(b, dims_b)[0]
    shape = (*free_a, *free_b)
    return product(math.prod(shape) * k, (a, b), output(out, a.like(shape)))


@model("tensordot.backward", family=FAMILY_NAME)
def tensordot_backward(a: Tensor, b: Tensor, dims_a: Any, dims_b: Any, *_: Any) -> Parts:
    """Two products of the forward's size"""
    free_a, k = split_dims(a, dims_a)
    free_b = split_dims(b, dims_b)[0]
    shape = (*free_a, *free_b)
    return gradients(a, b, a.like(shape), math.prod(shape) * k, None)


def split_dims(a: Tensor, dims: Any) -> tuple[tuple[int, ...], int]:
    """(sizes of the dimensions that stay, product of those that are summed over)"""
    summed = {d % len(a.shape) for d in dims}
    stay = tuple(n for i, n in enumerate(a.shape) if i not in summed)
    return stay, math.prod(a.shape[i] for i in summed)


# Block-scaled, grouped and weight-quantised products


def unpacked(k: int, a: Tensor) -> int:
    """K in numbers: float4_e2m1fn_x2 holds two in a byte."""
    return k * 2 if a.dtype.endswith("_x2") else k


@model("_scaled_mm", family=FAMILY_NAME)
def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Any = None,
    scale_b: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    *_: Any,
    out: Out = None,
) -> Work:
    """(A * scale_a) @ (B * scale_b) + bias in ``out_dtype``; scales (one, a row's, or a block's each) are
    read once.

    The product with the scales is part of the epilogue. An empty size list is a 0-d scale: 4 bytes of
    float32. ``out_dtype`` comes as a name; a trace has its number (c10/core/ScalarType.h). Absent, it is A's
    type.
    """
    m, n, k = dimensions("_scaled_mm", a, b)
    scales = [Tensor((), "float32") if s is UNKNOWN and a.dtype else s for s in (scale_a, scale_b)]
    result = output(out, typed(a.like((m, n)), out_dtype))
    return product(m * n * unpacked(k, a), (a, b, *scales, given(bias), given(scale_result)), result)


@model("_scaled_mm_v2", family=FAMILY_NAME)
def scaled_mm_v2(
    a: Tensor,
    b: Tensor,
    scale_a: Any = (),
    _recipe_a: Any = (),
    _swizzle_a: Any = (),
    scale_b: Any = (),
    _recipe_b: Any = (),
    _swizzle_b: Any = (),
    bias: Any = None,
    out_dtype: Any = None,
    *_: Any,
    out: Out = None,
) -> Work:
    """_scaled_mm with lists of scales (torch 2.10 and later)"""
    m, n, k = dimensions("_scaled_mm_v2", a, b)
    result = output(out, typed(a.like((m, n)), out_dtype))
    work = product(m * n * unpacked(k, a), (a, b, given(bias)), result)
    return work + Work(0, distinct(scale_a, scale_b))


def grouped(a: Tensor, b: Tensor, offs: Any) -> tuple[tuple[int, ...], int]:
    """(shape, multiply-adds) of a grouped product; ``offs`` ends where the last group does: all of it is
    used.

    [M,K] @ [G,K,N]: each group some rows of A       -> [M,N]     M*N*K
    [G,M,K] @ [K,N]: each group some columns of B    -> [M,N]     M*N*K
    [M,K] @ [K,N]:   each group a slice of K         -> [G,M,N]   M*N*K
    [G,M,K] @ [G,K,N]: a batch                       -> [G,M,N]   G*M*N*K
    """
    ranks = (len(a.shape), len(b.shape))
    if ranks not in ((2, 3), (3, 2), (2, 2), (3, 3)):
        raise ShapeError("_grouped_mm", "operands of 2 or 3 dimensions", f"{a.shape} @ {b.shape}")
    m, k, n = a.shape[-2], unpacked(a.shape[-1], a), b.shape[-1]
    if ranks == (3, 3):
        return (a.shape[0], m, n), a.shape[0] * m * n * k
    groups = (required(offs).numel,) if ranks == (2, 2) else ()
    return (*groups, m, n), m * n * k


@model("_grouped_mm", family=FAMILY_NAME)
def grouped_mm(
    a: Tensor, b: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None, *_: Any, out: Out = None
) -> Work:
    """A product for each group of rows, columns or slices of K (mixtures of experts)"""
    shape, count = grouped(a, b, offs)
    return product(count, (a, b, given(offs), given(bias)), output(out, typed(a.like(shape), out_dtype)))


@model("_scaled_grouped_mm", family=FAMILY_NAME)
def scaled_grouped_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Any = None,
    scale_b: Any = None,
    offs: Any = None,
    bias: Any = None,
    scale_result: Any = None,
    out_dtype: Any = None,
    *_: Any,
    out: Out = None,
) -> Work:
    """_grouped_mm of fp8 with scales; bfloat16 where no ``out_dtype`` is given"""
    shape, count = grouped(a, b, offs)
    result = output(out, typed(a.like(shape, "bfloat16" if a.dtype else ""), out_dtype))
    read = (a, b, given(scale_a), given(scale_b), given(offs), given(bias), given(scale_result))
    return product(count, read, result)


@model("_weight_int8pack_mm", family=FAMILY_NAME)
def weight_int8pack_mm(x: Tensor, weight: Tensor, scales: Any = None, *, out: Out = None) -> Work:
    """y[M,N] = x[M,K] @ (int8 weight[N,K] * scales[N])'"""
    shape, k = linear_shape(x, weight)
    return product(math.prod(shape) * k, (x, weight, given(scales)), output(out, x.like(shape)))


@model("_weight_int4pack_mm", family=FAMILY_NAME)
def weight_int4pack_mm(x: Tensor, weight: Tensor, _group: Any = None, scales: Any = None, *, out: Out = None) -> Work:
    """y[M,N] = x[M,K] @ weight', which is packed as int32[N/8, K/(tiles*16), 32, tiles/2]: 8 numbers each

    Source: aten/src/ATen/native/cuda/int4mm.cu, _convert_weight_to_int4pack_cuda.
    """
    n = weight.shape[0] * 8 if len(weight.shape) == 4 else weight.shape[0]
    result = output(out, x.like((*x.shape[:-1], n)))
    return product(x.numel * n, (x, weight, given(scales)), result)


@model(
    "_weight_int4pack_mm_for_cpu",
    "_weight_int4pack_mm_with_scales_and_zeros",
    "_mixed_dtypes_linear",
    family=FAMILY_NAME,
)
def weight_packed_mm(x: Tensor, weight: Tensor, *rest: Any, out: Out = None) -> Work:
    """y[M,N] = x[M,K] @ weight', weight quantised and packed along K: N rows, scales and bias read once"""
    result = output(out, x.like((*x.shape[:-1], weight.shape[0])))
    return product(x.numel * result.shape[-1], (x, weight, *rest), result)


@model("_sparse_semi_structured_linear", "_sparse_semi_structured_mm", family=FAMILY_NAME)
def sparse24_mm(a: Tensor, second: Tensor, third: Tensor, *rest: Any, out: Out = None) -> Work:
    """2:4 sparsity: half of the products are done. ``mm(packed[M,K/2], meta, dense[K,N])``,
    ``linear(dense[..,K], packed[N,K/2], meta)``"""
    packed_first = len(third.shape) == 2 and a.shape[-1] * 2 == third.shape[0]
    m_or_n, half, other = (
        (a.shape[0], a.shape[1], third.shape[1])
        if packed_first
        else (second.shape[0], second.shape[1], math.prod(a.shape[:-1]))
    )
    shape = (m_or_n, other) if packed_first else (*a.shape[:-1], m_or_n)
    return product(m_or_n * half * other, (a, second, third, *rest), output(out, a.like(shape)))


# Products that a program writes as one op and a library runs as several


@model("bilinear", family=FAMILY_NAME)
def bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Any = None, *, out: Out = None) -> Work:
    """y[..,o] = x1[..,i] weight[o,i,j] x2[..,j] + bias[o]

    flop    2 * rows * O * J * (I + 1): first x1 @ weight, then the sum with x2
    """
    o, i, j = weight.shape
    rows = math.prod(x1.shape[:-1])
    result = output(out, x1.like((*x1.shape[:-1], o)))
    return product(rows * o * j * (i + 1), (x1, x2, weight, given(bias)), result)


@model("cdist", "_cdist_forward", family="distance")
def cdist(x1: Tensor, x2: Tensor, p: Any = 2.0, *_: Any, out: Out = None) -> Work:
    """y[..,P,R]: the p-norm of the difference of each row of x1[..,P,M] to each of x2[..,R,M]

    flop    a pair and element: a difference, its power (p = 2: a product; p = 1, 0, inf: none; else 1), a
            sum, but one sum less a pair; and a root at the end (p = 2 and other powers)
    ``_euclidean_dist`` computes the same by a matrix product; its traces show ``mm`` or ``bmm`` with K = M +
    2.
    """
    shape = (*broadcast("cdist", x1.shape[:-2], x2.shape[:-2]), x1.shape[-2], x2.shape[-2])
    m, pairs = x1.shape[-1], math.prod(shape)
    plain = p in (0, 1, math.inf) if p is not UNKNOWN else bool(p)
    flop = pairs * (2 * m - 1 if plain else 3 * m) if m else 0
    result = output(out, x1.like(shape))
    return Work(flop, distinct(x1, x2), moved(result.numel, result))


@model("chain_matmul", "linalg_multi_dot", family=FAMILY_NAME)
def chain_matmul(matrices: tuple[Tensor, ...], *_: Any) -> Work:
    """A1 @ A2 @ ... in the cheapest order; each intermediate is written and read

    The order minimises multiply-adds by dynamic programming (Cormen et al., section 15.2), as
    linalg.multi_dot does.
    """
    ends = [
        m if len(m.shape) > 1 else m.like((1, *m.shape) if i == 0 else (*m.shape, 1)) for i, m in enumerate(matrices)
    ]
    best: dict[tuple[int, int], tuple[int, Work, Tensor]] = {(i, i): (0, Work(), m) for i, m in enumerate(ends)}
    for width in range(1, len(ends)):
        for i in range(len(ends) - width):
            best[i, i + width] = min(
                (joined(best[i, s], best[s + 1, i + width]) for s in range(i, i + width)),
                key=lambda chain: chain[0],
            )
    return best[0, len(ends) - 1][1]


def joined(left: tuple[int, Work, Tensor], right: tuple[int, Work, Tensor]) -> tuple[int, Work, Tensor]:
    """Two chains and the product of their results: (multiply-adds, work, result)."""
    m, n, k = dimensions("chain_matmul", left[2], right[2])
    return left[0] + right[0] + m * n * k, left[1] + right[1] + mm(left[2], right[2]), left[2].like((m, n))
