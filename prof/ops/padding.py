"""Padding, and windows of an image as columns. 0 flop, except for sums where windows or reflections overlap.

read    the input
write   the result
"""

import math
from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work
from pyprof.prof.ops.operands import Out, first_output, moved, numel, result_numel

op = Family("copy")


@op("im2col")
def im2col(self: Tensor, kernel: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1, *, out: Out = None) -> Work:
    """Reads the image, writes every window as a column"""
    count = result_numel(out)
    if count is None:
        sides = zip(self.shape[-2:], kernel, dilation, padding, stride, strict=True)
        steps = numel((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in sides)
        count = numel(self.shape[:-2]) * numel(kernel) * steps
    return Work(0, self.nbytes, moved(count, self))


@op("unfold_copy")
def unfold_copy(self: Tensor, dim: int, size: int, step: int) -> Work:
    """Copies the windows along one dimension"""
    along = self.shape[dim] if self.shape else 1
    count = (self.numel // along if along else 0) * ((along - size) // step + 1) * size
    return Work(0, self.nbytes, moved(count, self))


@op("col2im")
def col2im(self: Tensor, size: Any, kernel: Any = None) -> Work:
    """Sums all windows at each position. Flop: elements of the columns - elements of the image, if windows overlap"""
    count = self.numel // (self.shape[-1] * self.shape[-2]) * (self.shape[-2] // numel(kernel)) * numel(size)
    return Work(max(self.numel - count, 0), self.nbytes, moved(count, self))


def _pads(*kinds: str) -> tuple[str, ...]:
    return tuple(f"{kind}_pad{n}d" for kind in kinds for n in (1, 2, 3))


def padded(shape: tuple[int, ...], pad: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The padded shape, and what is left of the source's: negative pads crop. ``pad`` starts at the last dimension."""
    after, kept = list(shape), list(shape)
    for i, (before, behind) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        after[-1 - i] += before + behind
        kept[-1 - i] += min(before, 0) + min(behind, 0)
    return tuple(after), tuple(kept)


@op("constant_pad_nd pad _pad_circular", *_pads("reflection", "replication"))
def constant_pad_nd(self: Tensor, pad: Any, *, out: Out = None) -> Work:
    """Reads the part of self that is kept, writes the padded result; a negative pad (the backward of padding) crops"""
    if pad is UNKNOWN:
        result = first_output(out)
        return Work(0, self.nbytes, math.nan if result is None else moved(result.numel, result))
    after, kept = padded(self.shape, tuple(pad))
    return Work(0, moved(min(self.stored, numel(kept)), self), moved(numel(after), self))


@op("pad.backward")
def pad_backward(self: Tensor, pad: Any, mode: Any = "constant", *, out: Out = None) -> Work:
    """constant: reads the interior of g, writes dx;  reflect and others: reads g, adds where elements coincide"""
    after, kept = padded(self.shape, tuple(pad))
    if mode in ("constant", None, UNKNOWN):
        return Work(0, moved(numel(kept), self), moved(self.numel, self))
    return pad_nd_backward(self.like(after), self)


@op(*(f"{name}_backward" for name in _pads("reflection", "replication")))
def pad_nd_backward(grad: Tensor, self: Tensor) -> Work:
    """Adds each element of g to one of dx. Flop: elements of g - elements of dx. Reads g, writes dx."""
    return Work(max(grad.numel - self.numel, 0), grad.nbytes, moved(self.numel, self))
