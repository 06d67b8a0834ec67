"""Scans, and what sorts or searches.

A scan of E elements in R rows takes E - R additions. Sorting compares: 0 flop; positions take 8 bytes each.
"""

from __future__ import annotations

import math
from typing import Any

from pyprof.prof.ops.extrema import selected
from pyprof.prof.ops.model import Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import INDEX_BYTES, Out, addition_flop, dtype_name, first_output, floating, moved, number
from pyprof.prof.ops.reduction import result, rows

scan_op, sort_op = Family("scan"), Family("sort")


@scan_op("cumsum cumprod _cumsum _cumprod")
def cumsum(self: Tensor, dim: Any, dtype: Any = None, *, out: Out = None) -> Work:
    """An addition per element but the first of each row: E - R"""
    named = dtype_name(dtype) or (self.dtype if floating(self.dtype) else "int64")
    return Work((self.numel - rows(self, dim)) * addition_flop(self), self.nbytes, result(self.numel, named, out))


@scan_op("cumsum.backward")
def cumsum_backward(self: Tensor, dim: Any) -> Work:
    """The sum from behind: the same work; PyTorch flips, sums and flips"""
    return cumsum(self, dim)


@scan_op("logcumsumexp _logcumsumexp")
def logcumsumexp(self: Tensor, dim: Any) -> Work:
    """logaddexp (sub, exp, log1p, add) an element but the first of each row"""
    return Work(4 * (self.numel - rows(self, dim)), self.nbytes, moved(self.numel, self))


@scan_op("cummax cummin")
@sort_op("sort msort")
def cummax(self: Tensor) -> Work:
    """Comparisons. Read the values, write values and positions, each once; a radix sort's passes move more."""
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
    return described.numel if described is not None else rows(self, number(dim, -1)) * int(k)


@sort_op("topk")
def topk(self: Tensor, k: Any, dim: Any = -1, *, out: Out = None) -> Work:
    """Comparisons; k values and positions per row"""
    count = _top(self, k, dim, out)
    return Work(0, self.nbytes, moved(count, self) + INDEX_BYTES * count)


@sort_op("topk.backward")
def topk_backward(self: Tensor, k: Any, dim: Any = -1, *, out: Out = None) -> Work:
    """g goes to the saved positions"""
    return selected(self, _top(self, k, dim, out))


@sort_op("unique _unique _unique2 unique_dim unique_consecutive unique_dim_consecutive")
def unique(self: Tensor, *, out: Out = None) -> Work:
    """Comparisons; only the outputs say how many values differ"""
    return Work(0, self.nbytes, math.nan if not out else sum(t.nbytes for t in out if t is not None))


@sort_op("searchsorted", "bucketize (self, sequence)")
def searchsorted(sequence: Tensor, self: Any, *, out: Out = None) -> Work:
    """Comparisons; the sequence counts whole though a search touches its logarithm; positions are int64"""
    count = self.numel if isinstance(self, Tensor) else 1
    described = first_output(out)
    return Work(0, distinct(sequence, self), described.nbytes if described is not None else INDEX_BYTES * count)


@sort_op("bincount")
def bincount(self: Tensor, weights: Any = None, *, out: Out = None) -> Work:
    """An integer count per element, or an addition of its weight; only the outputs say how many bins there are"""
    described = first_output(out)
    flop = self.numel if isinstance(weights, Tensor) else 0
    return Work(flop, distinct(self, weights), math.nan if described is None else described.nbytes)


@sort_op("histc")
def histc(self: Tensor, bins: Any = 100, *, out: Out = None) -> Work:
    """Comparisons; a count a bin, in self's type"""
    described = first_output(out)
    return Work(0, self.nbytes, moved(described.numel if described is not None else int(bins), self))
