"""Reductions over all or some dimensions.

E elements of the input, O of the result: a sum takes E - O additions.
read    the input once
write   the result; where an op returns positions too, 8 bytes each

Integer and boolean reductions, minima, maxima and comparisons take 0 flop.
"""

import math
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import INDEX_BYTES, Out, broadcast, first_output, moved, number, numel, required
from pyprof.prof.ops.result_types import REAL_OF, addition_flop, dtype_name, floating, product_flop, result_dtype

op = Family("reduction")


def kept(tensor: Tensor, dim: Any, out: Out = None) -> int:
    """O, the number of elements of the result: as the capture describes it, otherwise from ``dim`` (None: all)."""
    described = first_output(out)
    if described is not None:
        return described.numel
    if len(tensor.shape) < 2:  # whichever dimension it is
        return 1
    if dim is UNKNOWN:
        raise UnknownArgument("the reduced dimensions are not described")
    if dim in (None, (), []):
        return 1
    rank, listed = len(tensor.shape), (dim,) if isinstance(dim, int) else tuple(dim)
    reduced = {d % rank for d in listed} if rank else set()
    return numel(n for i, n in enumerate(tensor.shape) if i not in reduced)


def adds(tensor: Tensor, count: int) -> int:
    """The additions to sum E elements to O results."""
    return max(tensor.numel - count, 0) * addition_flop(tensor)


def optional_dim(arguments: tuple[Any, ...]) -> Any:
    """``dim`` among the arguments after self. A full reduction has at most a dtype there and no keepdim after it.

    sum(self, dtype) has one argument, sum.dim_IntList(self, dim, keepdim, dtype) three, of which a dispatcher may
    omit defaults. The same holds for mean, prod, nansum, any and all.
    """
    if not arguments or (len(arguments) == 1 and (arguments[0] is UNKNOWN or isinstance(arguments[0], str))):
        return None
    return arguments[0]


def typed(self: Tensor, arguments: tuple[Any, ...], integers: str) -> str:
    """The result's dtype: the last argument ``dtype``, or else self's; sums of integers are int64."""
    last = arguments[-1] if arguments and not isinstance(arguments[-1], bool) else None
    asked = dtype_name(last) if len(arguments) in (1, 3) or isinstance(last, Tensor) else None  # a tensor: out=
    return asked or (self.dtype if not self.dtype or floating(self.dtype) else integers)


def result(count: int, dtype: str, out: Out) -> float:
    """Bytes of the result."""
    described = first_output(out)
    return moved(count, Tensor((), described.dtype if described is not None and described.dtype else dtype))


@op("sum nansum")
def sum_(self: Tensor, *arguments: Any, out: Out = None) -> Work:
    """E - O additions"""
    tensor = required(self)
    count = kept(tensor, optional_dim(arguments), out)
    return Work(adds(tensor, count), tensor.nbytes, result(count, typed(tensor, arguments, "int64"), out))


@op("hash_tensor")
def hash_tensor(self: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """Exclusive or of the elements' bits, each widened to 64 bits: no flop; an integer of 8 bytes per result

    Source: torch.hash_tensor's documentation.
    """
    return Work(0, self.nbytes, INDEX_BYTES * kept(self, dim, out))


@op("prod")
def prod(self: Tensor, *arguments: Any, out: Out = None) -> Work:
    """E - O multiplications"""
    sums = sum_(self, *arguments, out=out)
    return Work(sums.flop // (addition_flop(required(self)) or 1) * product_flop(required(self)), sums.read, sums.write)


@op("trace")
def trace(self: Tensor) -> Work:
    """The sum of the diagonal; reads only the diagonal"""
    return sum_(Tensor((min(self.shape),), self.dtype))


@op("mean nanmean")
def mean(self: Tensor, *arguments: Any, out: Out = None) -> Work:
    """E - O additions, O divisions"""
    tensor = required(self)
    count = kept(tensor, optional_dim(arguments), out)
    flop = adds(tensor, count) + count * addition_flop(tensor)
    return Work(flop, tensor.nbytes, result(count, typed(tensor, arguments, "float32"), out))


def spread(self: Tensor, arguments: tuple[Any, ...], out: Out) -> tuple[int, int]:
    """E and O of var and std: overloads (unbiased), (dim, unbiased, keepdim) and (dim, correction, keepdim)"""
    full = not arguments or (len(arguments) == 1 and (isinstance(arguments[0], bool) or arguments[0] is UNKNOWN))
    return self.numel, kept(self, None if full else arguments[0], out)


SPREADS = (  # name, whether a root is taken, whether the mean is a result too, formula
    ("var", False, False, "Two passes: mean E, then subtract, square, add (E - O) and divide (O): 4E"),
    ("std", True, False, "The variance and a root of each: 4E + O"),
    ("var_mean", False, True, "The variance, whose mean is a result too: 4E"),
    ("std_mean", True, True, "The standard deviation, and the mean: 4E + O"),
)


def _register(name: str, root: bool, with_mean: bool, formula: str) -> None:
    def count(self: Tensor, *arguments: Any, out: Out = None) -> Work:
        elements, kept_ = spread(self, arguments, out)
        real = Tensor((), REAL_OF.get(self.dtype, self.dtype))
        each = 8 if self.is_complex else 4
        written = moved(kept_, real) + (moved(kept_, self) if with_mean else 0)
        return Work(each * elements + (kept_ if root else 0), self.nbytes, written)

    count.__doc__ = f"{formula}. Complex: mean 2E, subtract 2E, |z|^2 3E, add and divide E: 8E"
    op(name)(count)


for _row in SPREADS:
    _register(*_row)


def norm_flop(count: int, kept_: int, order: Any, is_complex: bool = False) -> int:
    """p = 2 or other: square, add, root: 2E - O + O;  1: add the absolute values: E - O;  0, infinite: comparisons

    For complex numbers |z| takes 4 more per element; its square 2 more than that of a real number.
    """
    p = float(number(order, 2)) if not isinstance(order, str) else {"fro": 2.0}.get(order, math.inf)
    if p == 0:
        return 0
    absolute = count * (2 if p == 2 else 4) if is_complex else 0
    if math.isinf(p):
        return absolute
    return absolute + (max(count - kept_, 0) if p == 1 else max(2 * count - kept_, 0) + kept_)


def _spread_backward(self: Tensor, arguments: tuple[Any, ...], out: Out, a_row: int) -> Work:
    """dx = (x - mean) * k: mean E, sub, mul; ``a_row`` flop for k per row. Reads x, g and what was saved, writes dx."""
    count, kept_ = spread(self, arguments, out)
    return Work(3 * count + a_row * kept_, self.nbytes + a_row * moved(kept_, self), moved(self.numel, self))


@op("var.backward")
def var_backward(self: Tensor, *arguments: Any, out: Out = None) -> Work:
    """k = g * (2 / (n - 1))"""
    return _spread_backward(self, arguments, out, 1)


@op("std.backward")
def std_backward(self: Tensor, *arguments: Any, out: Out = None) -> Work:
    """k = g / (std * (n - 1)): 1 product and 1 division per row; the deviation was saved by the forward"""
    return _spread_backward(self, arguments, out, 2)


@op("norm")
def norm(self: Tensor, order: Any = 2, dim: Any = None, *arguments: Any, out: Out = None) -> Work:
    """The vector norm: 2E for p = 2. norm.Scalar has no dim; norm.ScalarOpt_dtype has a dtype in its place."""
    place = None if dim is UNKNOWN and not arguments else dim
    return linalg_vector_norm(self, order, None if isinstance(place, str) else place, out=out)


@op("linalg_norm")
def linalg_norm(
    self: Tensor, order: Any = None, dim: Any = None, keepdim: Any = False, dtype: Any = None, *, out: Out = None
) -> Work:
    """A vector norm or, of matrices, the Frobenius norm"""
    along = range(len(self.shape)) if dim is None or dim is UNKNOWN else (dim,) if isinstance(dim, int) else dim
    if order is not None and order is not UNKNOWN and len(along) == 2:
        return linalg_matrix_norm(self, order, dim, keepdim, dtype, out=out)
    return linalg_vector_norm(self, order, dim, keepdim, dtype, out=out)


@op("linalg_matrix_norm")
def linalg_matrix_norm(
    self: Tensor, order: Any = "fro", dim: Any = (-2, -1), keepdim: Any = False, dtype: Any = None, *, out: Out = None
) -> Work:
    """The Frobenius norm, as ``linalg_vector_norm`` over both dimensions; other norms count by the ops that run"""
    if order != "fro":
        raise UnknownArgument(f"the matrix norm {order} counts by the ops that it runs")
    return linalg_vector_norm(self, 2, dim, keepdim, dtype, out=out)


@op("linalg__powsum")
def powsum(
    self: Tensor, order: Any = 2, dim: Any = None, keepdim: Any = False, dtype: Any = None, *, out: Out = None
) -> Work:
    """The sum of |x|^p, a norm without its O roots: 2E - O for p = 2"""
    norm = linalg_vector_norm(self, order, dim, keepdim, dtype, out=out)
    has_root = float(number(order, 2)) not in (0, 1)
    return Work(norm.flop - (kept(self, dim, out) if has_root else 0), norm.read, norm.write)


@op("linalg_vector_norm")
def linalg_vector_norm(
    self: Tensor, order: Any = 2, dim: Any = None, keepdim: Any = False, dtype: Any = None, *, out: Out = None
) -> Work:
    """p = 2: E squares, E - O additions, O roots"""
    kept_ = kept(self, dim, out)
    named = dtype_name(dtype) or self.dtype
    flop = norm_flop(self.numel, kept_, order, self.is_complex)
    return Work(flop, self.nbytes, result(kept_, REAL_OF.get(named, named), out))


@op("frobenius_norm")
def frobenius_norm(self: Tensor, dim: Any = None, keepdim: Any = False, *, out: Out = None) -> Work:
    """As ``linalg_vector_norm`` with p = 2"""
    return linalg_vector_norm(self, 2, dim, keepdim, out=out)


@op("linalg_vector_norm.backward")
def norm_backward(self: Tensor, order: Any = 2, dim: Any = None, *, out: Out = None) -> Work:
    """dx = x * (g / norm): O divisions, E products (2 for complex numbers). Reads x, g and the norm, writes dx."""
    if number(order, 2) not in (2, "fro"):
        raise UnknownArgument(f"the gradient of the norm {order} counts by the ops that run")
    kept_ = kept(self, dim, out)
    return Work(self.numel * addition_flop(self) + kept_, self.nbytes + 2 * moved(kept_, self), moved(self.numel, self))


@op("linalg_norm.backward")
def any_norm_backward(self: Tensor, order: Any = None, dim: Any = None, *, out: Out = None) -> Work:
    """Same as the backward of ``linalg_vector_norm``, if the norm is over all elements or one dimension"""
    along = self.shape if dim is None else (dim,) if isinstance(dim, int) else dim
    if order is not None and len(along) != 1:
        raise UnknownArgument("a matrix norm's backward has no model")
    return norm_backward(self, order, dim, out=out)


@op("norm.backward")
def old_norm_backward(self: Tensor, order: Any = 2, dim: Any = None, *arguments: Any, out: Out = None) -> Work:
    """Same as the backward of ``linalg_vector_norm``"""
    return norm_backward(self, order, None if dim is UNKNOWN and not arguments else dim, out=out)


@op("dist")
def dist(self: Tensor, other: Tensor, p: Any = 2) -> Work:
    """The norm of the difference: the norm's flop plus E"""
    difference = Tensor(broadcast("dist", self.shape, other.shape), result_dtype(self, other))
    flop = difference.numel * addition_flop(difference) + norm_flop(difference.numel, 1, p, difference.is_complex)
    return Work(flop, distinct(self, other), result(1, REAL_OF.get(difference.dtype, difference.dtype), None))


@op("logsumexp special_logsumexp")
def logsumexp(self: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """max + log(sum(exp(x - max))): sub E, exp E, sum E - O, log O, add O; complex: a sum 2, exp 5, log 6"""
    kept_ = kept(self, dim, out)
    dtype = self.dtype if floating(self.dtype) else "float32"
    flop = 9 * self.numel + 6 * kept_ if self.is_complex else 3 * self.numel + kept_
    return Work(flop, self.nbytes, result(kept_, dtype, out))


@op("logsumexp.backward special_logsumexp.backward")
def logsumexp_backward(self: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """dx = g * exp(x - lse): sub, exp, mul (complex: 2, 5, 6). Reads x, g and lse, writes dx."""
    flop = (13 if self.is_complex else 3) * self.numel
    return Work(flop, self.nbytes + 2 * moved(kept(self, dim, out), self), moved(self.numel, self))


@op("count_nonzero")
def count_nonzero(self: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """Integer sums"""
    return Work(0, self.nbytes, INDEX_BYTES * kept(self, dim, out))


def rows(self: Tensor, dim: Any) -> int:
    """The number of rows along a dimension. An unknown dimension is assumed to be the last one, the usual case.

    Its effect is small: per row it changes a sum by one addition, 1 of 4 C flop in a softmax.
    """
    if not self.shape or not self.numel:
        return self.numel
    return self.numel // self.shape[int(number(dim, -1))]
