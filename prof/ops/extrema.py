"""Reductions that compare: maxima, minima, medians, their positions, and tests. 0 flop.

read    the input once
write   the result; where an op returns positions too, 8 bytes each
"""

from __future__ import annotations

from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Family, Parts, Tensor, Work, distinct
from pyprof.prof.ops.operands import INDEX_BYTES, Out, broadcast, moved, numel, required, result_dtype, result_numel
from pyprof.prof.ops.reduction import kept

op = Family("reduction")


@op("amax.backward amin.backward")
def amax_backward(self: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """g / (how many are equal) where x is the maximum: a division per row. Reads x, g and the result, writes dx."""
    kept_ = kept(self, dim, out)
    return Work(kept_, self.nbytes + 2 * moved(kept_, self), moved(self.numel, self))


@op("amax amin")
def amax(self: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """Comparisons"""
    return Work(0, self.nbytes, moved(kept(self, dim, out), self))


@op("aminmax _aminmax")
def aminmax(self: Tensor, dim: Any = None, *, out: Out = None) -> Work:
    """Comparisons; two results"""
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


@op("any all equal allclose")
def any_(self: Tensor, *arguments: Any, out: Out = None) -> Work:
    """Comparisons; a byte each"""
    other = arguments[0] if arguments else None
    if isinstance(other, Tensor):
        return Work(0, distinct(self, other), 1)
    return Work(0, required(self).nbytes, kept(required(self), other, out))


@op("value_selecting_reduction_backward")
def selecting_backward(grad: Tensor, dim: Any, positions: Tensor, sizes: Any = UNKNOWN, *, out: Out = None) -> Work:
    """dx is 0 but for g at the positions: read g and the positions, write dx once"""
    count = result_numel(out, sizes)
    written = moved(count, grad)
    return Work(0, grad.nbytes + INDEX_BYTES * positions.numel, written)


def selected(self: Tensor, count: int) -> Work:
    return Work(0, moved(count, self) + INDEX_BYTES * count, moved(self.numel, self))


@op("max.backward min.backward median.backward nanmedian.backward mode.backward")
def max_backward(self: Tensor, *arguments: Any, out: Out = None) -> Work | Parts:
    """max(self, dim): g goes to the saved positions. max(self): g to every equal maximum, found by comparison"""
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
