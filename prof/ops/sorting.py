"""What compares: extrema, medians, tests, sorts and searches, 0 flop; and scans.

read    the input once
write   the result; where an op returns positions too, 8 bytes each
A scan of E elements in R rows takes E - R additions.
"""

import math
from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Family, Parts, Tensor, Work, distinct
from pyprof.prof.ops.operands import (
    INDEX_BYTES,
    Out,
    broadcast,
    first_output,
    moved,
    number,
    numel,
    required,
    result_numel,
)
from pyprof.prof.ops.pointwise import apply
from pyprof.prof.ops.reduction import kept, result, rows
from pyprof.prof.ops.result_types import addition_flop, dtype_name, floating, product_flop, result_dtype

scan_op, sort_op, op = Family("scan"), Family("sort"), Family("reduction")


@op("amax.backward amin.backward")
def amax_backward(self: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """g / (number of equal maxima) where x is the maximum: 1 division per row. Reads x, g and the result, writes dx."""
    kept_ = kept(self, dim, out)
    return Work(kept_, self.nbytes + 2 * moved(kept_, self), moved(self.numel, self))


@op("amax amin")
def amax(self: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """Comparisons"""
    return Work(0, self.nbytes, moved(kept(self, dim, out), self))


@op("aminmax _aminmax")
def aminmax(self: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """Comparisons; writes two results"""
    return Work(0, self.nbytes, 2 * moved(kept(self, dim, out), self))


@op("kthvalue (self, _k, dim)")
def values_and_positions(self: Tensor, dim: Any = -1, out: Out = None) -> Work:
    """Comparisons; a value and its position of each reduced row"""
    kept_ = kept(self, dim, out)
    return Work(0, self.nbytes, moved(kept_, self) + INDEX_BYTES * kept_)


@op("max min")
def max_(self: Tensor, *arguments: Any, out: Out = None) -> Work:
    """max(self): one value; max(self, dim): values and positions; max(self, other): element-wise"""
    other = arguments[0] if arguments else None
    if isinstance(other, Tensor) and len(arguments) == 1:
        shape = broadcast("max", self.shape, other.shape)
        return Work(0, distinct(self, other), moved(numel(shape), Tensor((), result_dtype(self, other))))
    if other is None:
        return Work(0, self.nbytes, moved(1, self))
    return values_and_positions(self, other, out)


@op("median nanmedian mode")
def median(self: Tensor, *arguments: Any, out: Out = None) -> Work:
    """median(self): one value; median(self, dim): values and positions"""
    return values_and_positions(self, arguments[0], out) if arguments else Work(0, self.nbytes, moved(1, self))


@op("argmax argmin")
def argmax(self: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """Comparisons; positions only"""
    return Work(0, self.nbytes, INDEX_BYTES * kept(self, dim, out))


@op("allclose")
def allclose(self: Tensor, other: Tensor) -> Work:
    """|a - b| <= atol + rtol * |b|, as ``isclose``; writes one byte"""
    return Work(apply("isclose", (self, other), 3, 12).flop, distinct(self, other), 1)


@op("any all equal")
def any_(self: Tensor, *arguments: Any, out: Out = None) -> Work:
    """Comparisons; writes one byte per result"""
    other = arguments[0] if arguments else None
    if isinstance(other, Tensor):
        return Work(0, distinct(self, other), 1)
    return Work(0, required(self).nbytes, kept(required(self), other, out))


@op("value_selecting_reduction_backward")
def selecting_backward(grad: Tensor, dim: Any, positions: Tensor, sizes: Any = UNKNOWN, *, out: Out = None) -> Work:
    """dx is g at the positions, 0 elsewhere: reads g and the positions, writes dx once"""
    return Work(0, grad.nbytes + INDEX_BYTES * positions.numel, moved(result_numel(out, sizes), grad))


def selected(self: Tensor, count: int) -> Work:
    return Work(0, moved(count, self) + INDEX_BYTES * count, moved(self.numel, self))


@op("max.backward min.backward median.backward nanmedian.backward mode.backward")
def max_backward(self: Tensor, *arguments: Any, out: Out = None) -> Work | Parts:
    """max(self, dim): g goes to the saved positions. max(self): g goes to every equal maximum, found by comparison"""
    other = arguments[0] if arguments else None
    if other is None:
        return Work(0, self.nbytes + 2 * moved(1, self), moved(self.numel, self))
    if not isinstance(other, Tensor):
        return selected(self, kept(self, other, out))
    grad = numel(broadcast("max", self.shape, other.shape))
    reads = moved(grad, self) + distinct(self, other)
    wanted = {"self": self, "other": other}
    return {name: Work(grad - t.numel, reads, moved(t.numel, t)) for name, t in wanted.items() if t.needs_grad}


@op("kthvalue.backward")
def kthvalue_backward(self: Tensor, k: Any, dim: Any = -1, *, out: Out = None) -> Work:
    """g goes to the saved positions"""
    return selected(self, kept(self, dim, out))


@scan_op("cumsum _cumsum")
def cumsum(self: Tensor, dim: Any, dtype: Any = None, *, out: Out = None) -> Work:
    """1 addition per element except the first of each row: E - R"""
    named = dtype_name(dtype) or (self.dtype if floating(self.dtype) else "int64")
    return Work((self.numel - rows(self, dim)) * addition_flop(self), self.nbytes, result(self.numel, named, out))


@scan_op("cumprod _cumprod")
def cumprod(self: Tensor, dim: Any, dtype: Any = None, *, out: Out = None) -> Work:
    """1 multiplication per element except the first of each row: E - R"""
    nbytes = cumsum(self, dim, dtype, out=out)
    return Work((self.numel - rows(self, dim)) * product_flop(self), nbytes.read, nbytes.write)


@scan_op("cumsum.backward")
def cumsum_backward(self: Tensor, dim: Any) -> Work:
    """The cumulative sum from the end, the same work; PyTorch flips, sums and flips"""
    return cumsum(self, dim)


@scan_op("logcumsumexp _logcumsumexp")
def logcumsumexp(self: Tensor, dim: Any) -> Work:
    """logaddexp (sub, exp, log1p, add) = 4, complex 16, per element except the first of each row"""
    price = 16 if self.is_complex else 4
    return Work(price * (self.numel - rows(self, dim)), self.nbytes, moved(self.numel, self))


@scan_op("cummax cummin _cummax_helper _cummin_helper")
@sort_op("sort msort")
def cummax(self: Tensor) -> Work:
    """Comparisons. Reads the values, writes values and positions, each once; a radix sort's passes move more."""
    return Work(0, self.nbytes, moved(self.numel, self) + INDEX_BYTES * self.numel)


@sort_op("sort.backward")
def sort_backward(self: Tensor) -> Work:
    """g goes to the saved positions"""
    return selected(self, self.numel)


@sort_op("argsort")
def argsort(self: Tensor) -> Work:
    """Comparisons; positions only"""
    return Work(0, self.nbytes, INDEX_BYTES * self.numel)


def _top(self: Tensor, k: Any, dim: Any, out: Out) -> int:
    described = first_output(out)
    return described.numel if described is not None else rows(self, dim) * int(k)


@sort_op("topk")
def topk(self: Tensor, k: Any, dim: Any = -1, *, out: Out = None) -> Work:
    """Comparisons; writes k values and positions per row"""
    count = _top(self, k, dim, out)
    return Work(0, self.nbytes, moved(count, self) + INDEX_BYTES * count)


@sort_op("topk.backward")
def topk_backward(self: Tensor, k: Any, dim: Any = -1, *, out: Out = None) -> Work:
    """g goes to the saved positions"""
    return selected(self, _top(self, k, dim, out))


@sort_op("unique _unique _unique2 unique_dim unique_consecutive unique_dim_consecutive")
def unique(self: Tensor, *, out: Out = None) -> Work:
    """Comparisons; the number of distinct values is known only from the outputs"""
    return Work(0, self.nbytes, math.nan if not out else sum(t.nbytes for t in out if t is not None))


@sort_op("searchsorted", "bucketize (self, sequence, int32)")
def searchsorted(sequence: Tensor, self: Any, int32: Any = False, *, out: Out = None) -> Work:
    """Comparisons; the whole sequence counts as read, though a search touches fewer elements; positions are int64,
    or int32 on request"""
    count = self.numel if isinstance(self, Tensor) else 1
    described = first_output(out)
    positions = (4 if number(int32, False) is True else INDEX_BYTES) * count
    return Work(0, distinct(sequence, self), described.nbytes if described is not None else positions)


@sort_op("bincount")
def bincount(self: Tensor, weights: Any = None, *, out: Out = None) -> Work:
    """Counts integers (0 flop), or adds a weight per element (1); the number of bins is known only from the outputs"""
    described = first_output(out)
    flop = self.numel if isinstance(weights, Tensor) else 0
    return Work(flop, distinct(self, weights), math.nan if described is None else described.nbytes)


@sort_op("histc")
def histc(self: Tensor, bins: Any = 100, *, out: Out = None) -> Work:
    """Comparisons; writes one count per bin, in self's dtype"""
    described = first_output(out)
    return Work(0, self.nbytes, moved(described.numel if described is not None else int(bins), self))
