"""Matrix products: C[M,N] = A[M,K] @ B[K,N] and every op that is computed as one.

flop    2*M*N*K: M*N dot products of K multiply-adds (real); 8*M*N*K for complex numbers (4 products and 4
        sums). A bias or ``beta * self`` is part of the 2*M*N*K (the first product needs no sum) and adds
        nothing; nor does an activation in the epilogue. Integer and fp8 products count the same, because
        they run on the same units.
read    each operand once, at its stored size; a transposed one has the same bytes
write   C once

Convention: torch/utils/flop_counter.py (mm_flop), which handles neither complex numbers nor bytes.
If a capture has no dtypes, bytes are NaN and the flop is exact for real numbers.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyprof.errors import ShapeError, UnknownArgument
from pyprof.prof.ops.model import UNKNOWN, Family, Parts, Tensor, Unknown, Work, distinct
from pyprof.prof.ops.operands import Out, broadcast, elementwise, given, moved, output
from pyprof.prof.ops.result_types import dtype_name

op = Family("gemm")


def multiply_adds(count: int, *operands: Tensor) -> int:
    """Flop of ``count`` multiply-adds: 2 each, 8 if an operand is complex."""
    return count * (8 if any(t.is_complex for t in operands) else 2)


def multiplies(count: int, *operands: Tensor) -> int:
    """Flop of ``count`` multiplications without additions: 1 each, 6 if an operand is complex (4 products, 2 sums)."""
    return count * (6 if any(t.is_complex for t in operands) else 1)


def product(count: int, operands: tuple[Any, ...], result: Tensor) -> Work:
    """The work of ``count`` multiply-adds that read ``operands`` (absent ones are ignored) and write ``result``.

    With a sparse operand only its stored elements are multiplied: M * N * K becomes nonzero * N.
    """
    present = [t for t in operands if isinstance(t, Tensor)]
    sparse = [t for t in present if t.nonzero is not None]
    if len(sparse) > 1:
        raise UnknownArgument("how many products two sparse operands leave depends on where their elements stand")
    for t in sparse:
        if isinstance(t.nonzero, Unknown):
            raise UnknownArgument("a sparse operand: the capture does not record how many elements it stores")
        count = count // t.numel * (t.nonzero or 0) if t.numel else 0
    return Work(multiply_adds(count, *present), distinct(*present), moved(result.numel, result))


def dimensions(op: str, a: Tensor, b: Tensor) -> tuple[int, int, int]:
    """(M, N, K) of a 2-D product."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        raise ShapeError(op, "A[M,K] @ B[K,N]", f"{a.shape} @ {b.shape}")
    return a.shape[0], b.shape[1], a.shape[1]


def typed(result: Tensor, *dtypes: Any) -> Tensor:
    """The result with the first of the dtypes that is known."""
    return next((result.like(result.shape, name) for name in map(dtype_name, dtypes) if name), result)


@op("mm")
def mm(a: Tensor, b: Tensor, out_dtype: Any = None, *, out: Out = None) -> Work:
    """C[M,N] = A[M,K] @ B[K,N], in A's dtype or ``out_dtype``"""
    m, n, k = dimensions("mm", a, b)
    return product(m * n * k, (a, b), output(out, typed(a.like((m, n)), out_dtype)))


@op("_int_mm")
def int_mm(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """int32 C[M,N] = int8 A[M,K] @ int8 B[K,N]; tensor cores do the multiply-adds, so they count"""
    m, n, k = dimensions("_int_mm", a, b)
    return product(m * n * k, (a, b), output(out, Tensor((m, n), "int32" if a.dtype else "")))


def added(self: Any, beta: Any) -> Tensor | None:
    """The addend, or None if it is not read (beta = 0)."""
    ignored = not isinstance(beta, (str, bool, Tensor)) and beta is not UNKNOWN and beta == 0
    return None if ignored else given(self)


def gradients(a: Tensor, b: Tensor, c: Tensor, count: int, bias: Tensor | None, beta: Any = 1) -> Parts:
    """The backward of a product of two operands: one product per operand that needs a gradient.

    Each product reads dC and the other operand and writes a gradient with the operand's own shape. If the operand
    was broadcast, the sum over the copies is part of the product (a longer K).
    """
    parts: Parts = {}
    if any(t.needs_grad and t.nonzero is not None for t in (a, b)):
        raise UnknownArgument("the gradient of a sparse operand has no model")
    if a.needs_grad:
        parts["dgrad"] = product(count, (c, b), a.like(a.shape))
    if b.needs_grad:
        parts["wgrad"] = product(count, (c, a), b.like(b.shape))
    if bias is not None and bias.needs_grad:
        parts["bias"] = bias_gradient(c, bias, beta)
    return parts


def bias_gradient(c: Tensor, bias: Tensor, beta: Any = 1) -> Work:
    """The sum of dC to the shape of the bias: one addition per element of dC, minus one per element of the bias.

    If the bias has dC's shape, its gradient is dC itself: nothing runs, except a product with beta if it is not 1.
    """
    scale = bias.numel if isinstance(beta, (int, float)) and beta not in (0, 1) else 0
    if bias.numel == c.numel:
        return Work(scale, c.nbytes if scale else 0, moved(c.numel, c) if scale else 0)
    return Work(max(c.numel - bias.numel, 0) + scale, c.nbytes, moved(bias.numel, bias))


@op("bmm")
def bmm(a: Tensor, b: Tensor, out_dtype: Any = None, *, out: Out = None) -> Work:
    """C[i] = A[i] @ B[i]"""
    batch, m, n, k = batched("bmm", a, b)
    return product(batch * m * n * k, (a, b), output(out, typed(a.like((batch, m, n)), out_dtype)))


def batched(op: str, a: Tensor, b: Tensor) -> tuple[int, int, int, int]:
    """(batch, M, N, K) of a 3-D product."""
    if len(a.shape) != 3 or len(b.shape) != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise ShapeError(op, "A[B,M,K] @ B[B,K,N]", f"{a.shape} @ {b.shape}")
    return a.shape[0], a.shape[1], b.shape[2], a.shape[2]


def general(op: str, a: Tensor, b: Tensor) -> tuple[tuple[int, ...], int]:
    """(shape of a @ b, K) by numpy.matmul's rules: 1-D operands are a row and a column, batches broadcast."""
    if not a.shape or not b.shape:
        raise ShapeError(op, "operands of one dimension or more", f"{a.shape} @ {b.shape}")
    k, rows = a.shape[-1], b.shape[-2] if len(b.shape) > 1 else b.shape[0]
    if k != rows:
        raise ShapeError(op, "A[..,M,K] @ B[..,K,N]", f"{a.shape} @ {b.shape}")
    batch = broadcast(op, a.shape[:-2], b.shape[:-2])
    return (*batch, *a.shape[-2:-1], *(b.shape[-1:] if len(b.shape) > 1 else ())), k


@op("matmul linalg_matmul mv")
def matmul(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """A @ B by numpy.matmul's rules; each operand is read once, copies for broadcasting are not counted"""
    shape, k = general("matmul", a, b)
    return product(math.prod(shape) * k, (a, b), output(out, a.like(shape)))


@op("matmul.backward linalg_matmul.backward mv.backward")
def matmul_backward(a: Tensor, b: Tensor) -> Parts:
    """Two products of the forward's size.

    The gradients of a dot product are a vector times a number: 1 multiplication per element, no sum.
    """
    shape, k = general("matmul", a, b)
    return gradients(a, b, a.like(shape), math.prod(shape) * k, None) if shape else dot_backward(a, b)


@op("linear mkldnn_linear", "_mkl_linear mkl::_mkl_linear (x, _packed, weight, bias)")
def linear(x: Tensor, weight: Tensor, bias: Any = None, *, out: Out = None) -> Work:
    """y[..,N] = x[..,K] @ weight[N,K]' + bias[N]; a 1-D weight is a single row, and y has no dimension N"""
    shape, k = linear_shape(x, weight)
    return product(math.prod(shape) * k, (x, weight, given(bias)), output(out, x.like(shape)))


@op("mkldnn::_linear_pointwise")
def linear_pointwise(x: Tensor, second: Tensor, third: Any = None, bias: Any = None, *, out: Out = None) -> Work:
    """``linear`` with an activation: (x, weight, bias, ..);  with a sum or product: (x, addend, weight, bias, ..)

    The arithmetic of the epilogue adds nothing; the addend is read.
    """
    if isinstance(third, Tensor) and len(third.shape) == 2:
        return linear(x, third, bias, out=out) + Work(0, second.nbytes)
    return linear(x, second, third, out=out)


def linear_shape(x: Tensor, weight: Tensor) -> tuple[tuple[int, ...], int]:
    if not x.shape or not weight.shape or x.shape[-1] != weight.shape[-1] or len(weight.shape) > 2:
        raise ShapeError("linear", "x[..,K] @ weight[N,K]'", f"{x.shape} @ {weight.shape}'")
    return (*x.shape[:-1], *weight.shape[:-1]), x.shape[-1]


@op("linear.backward mkldnn_linear.backward")
def linear_gradients(x: Tensor, weight: Tensor, bias: Any = None) -> Parts:
    """Dx = dy @ weight, dweight = dy' @ x, dbias = sum of dy over its rows"""
    shape, k = linear_shape(x, weight)
    return gradients(x, weight, x.like(shape), math.prod(shape) * k, given(bias))


@op("linear_backward mkldnn_linear_backward")
def linear_backward(x: Tensor, dy: Tensor, weight: Tensor, output_mask: Any = UNKNOWN) -> Parts:
    """Used by MPS, nested tensors and mkldnn: the gradients that output_mask = (dx, dweight, dbias) selects"""
    dx, dw, db = output_mask
    shape, k = linear_shape(x, weight)
    bias = Tensor(weight.shape[:1], weight.dtype) if db else None
    x, weight = replace(x, needs_grad=bool(dx), ident=0), replace(weight, needs_grad=bool(dw), ident=0)
    return gradients(x, weight, dy, math.prod(shape) * k, bias)


@op("dot vdot linalg_vecdot")
def dot(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """Sum of a[i] * b[i]; vecdot: along the last dimension, for each vector of a batch"""
    shape = broadcast("dot", a.shape, b.shape)
    return product(math.prod(shape), (a, b), output(out, a.like(shape[:-1])))


@op("dot.backward vdot.backward linalg_vecdot.backward")
def dot_backward(a: Tensor, b: Tensor) -> Parts:
    """Da = dy * b, db = dy * a: one multiplication per element, no sums"""
    shape = broadcast("dot", a.shape, b.shape)
    flop, dy = multiplies(math.prod(shape), a, b), a.like(shape[:-1])
    parts = {"dgrad": (a, b), "wgrad": (b, a)}
    return {name: Work(flop, distinct(dy, t), moved(of.numel, of)) for name, (of, t) in parts.items() if of.needs_grad}


@op("inner")
def inner(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """Dot products of all rows of a with all rows of b; a 0-d operand scales the other one"""
    if not a.shape or not b.shape:
        result = output(out, a.like(a.shape or b.shape))
        return elementwise(multiplies(result.numel, a, b), distinct(a, b), result)
    shape, k = (*a.shape[:-1], *b.shape[:-1]), a.shape[-1]
    if b.shape[-1] != k:
        raise ShapeError("inner", "a[..,K], b[..,K]", f"{a.shape}, {b.shape}")
    return product(math.prod(shape) * k, (a, b), output(out, a.like(shape)))


@op("inner.backward")
def inner_backward(a: Tensor, b: Tensor) -> Parts:
    """Two products of the forward's size; for two vectors, one multiplication per element"""
    if len(a.shape) < 2 and len(b.shape) < 2:
        return dot_backward(a, b)
    shape = (*a.shape[:-1], *b.shape[:-1])
    return gradients(a, b, a.like(shape), math.prod(shape) * a.shape[-1], None)


@op("outer ger")
def outer(a: Tensor, b: Tensor, *, out: Out = None) -> Work:
    """a[M] b[N]': K = 1, so nothing is summed: one multiplication per element"""
    result = output(out, a.like((a.numel, b.numel)))
    return elementwise(multiplies(result.numel, a, b), distinct(a, b), result)


@op("outer.backward ger.backward")
def outer_backward(a: Tensor, b: Tensor) -> Parts:
    """Da = dC @ b, db = dC' @ a: two matrix-vector products"""
    return gradients(a, b, a.like((a.numel, b.numel)), a.numel * b.numel, None)


# Products added to a matrix, C = beta * self + A @ B: each way to multiply gives C's shape and the multiply-adds.

Multiplied = tuple[tuple[int, ...], int]
Way = Callable[[Tensor, Tensor], Multiplied]


def adds_product(names: str, gradient: str) -> Callable[[Way], Way]:
    """Register ops that add a matrix product to ``self``, and the backward of the first one (formula ``gradient``)."""

    def register(multiplied: Way) -> Way:
        def forward(
            self: Any, a: Tensor, b: Tensor, beta: Any = 1, alpha: Any = 1, last: Any = None, *, out: Out = None
        ) -> Work:
            (shape, count), dtype = multiplied(a, b), None
            # (.., out_dtype, beta, alpha), a name or a trace's number, or (.., beta, alpha, use_gelu)
            if isinstance(beta, str) or (isinstance(last, (int, float)) and not isinstance(last, bool)):
                dtype, beta = beta, alpha
            return product(count, (added(self, beta), a, b), output(out, typed(a.like(shape), dtype)))

        def backward(self: Any, a: Tensor, b: Tensor, beta: Any = 1) -> Parts:
            shape, count = multiplied(a, b)
            return gradients(a, b, a.like(shape), count, given(self), beta)

        forward.__doc__, backward.__doc__ = multiplied.__doc__, gradient
        op(names)(forward)
        op(names.partition(" ")[0] + ".backward")(backward)
        return multiplied

    return register


@adds_product(
    "addmm _addmm_activation _sparse_addmm",
    gradient="dA = dC @ B', dB = A' @ dC, and the sum of dC over the rows that self was broadcast along",
)
def matrices(a: Tensor, b: Tensor) -> Multiplied:
    """C = beta * self + A[M,K] @ B[K,N]; self (a bias, or a matrix) is read, unless beta is 0"""
    m, n, k = dimensions("addmm", a, b)
    return (m, n), m * n * k


@adds_product("baddbmm", gradient="Two batched products, and self's sum over what it was broadcast along")
def batches(a: Tensor, b: Tensor) -> Multiplied:
    """beta * self + A @ B for each matrix of the batch"""
    batch, m, n, k = batched("baddbmm", a, b)
    return (batch, m, n), batch * m * n * k


@adds_product("addbmm", gradient="dA[i] = dC @ B[i]', dB[i] = A[i]' @ dC; dC is one matrix and read once")
def summed_batches(a: Tensor, b: Tensor) -> Multiplied:
    """beta * self + sum of A[i] @ B[i]: one product with K = batch * k"""
    shape, count = batches(a, b)
    return shape[1:], count


@adds_product("addmv", gradient="As mv; self's gradient is dy itself, or its sum where self is one number")
def matrix_and_vector(a: Tensor, b: Tensor) -> Multiplied:
    """beta * self + A[M,K] @ x[K]"""
    shape, k = general("addmv", a, b)
    return shape, math.prod(shape) * k


@adds_product("addr", gradient="As outer, and self's share")
def vectors(a: Tensor, b: Tensor) -> Multiplied:
    """self + a b': one multiply-add per element"""
    return (a.numel, b.numel), a.numel * b.numel
