"""Segments of a tensor, and histograms: each element is added to the sum of its segment or counted in its bin.

E elements, O results. Comparisons, searches and counts take 0 flop.
read    the input once, with lengths, offsets, edges and weights
write   the results
A trace does not record the name of a reduction, which is then taken for a sum.
"""

import math
from typing import Any

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import assumes
from pyprof.prof.ops.model import Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import given, indices, moved, tensors
from pyprof.prof.ops.result_types import addition_flop, product_flop

op, sort_op = Family("reduction"), Family("sort")


@assumes("segment_reduce")
def _sum_assumed(arguments: tuple[Any, ...]) -> str:
    named = len(arguments) > 1 and isinstance(arguments[1], str)
    return "" if named else "the capture does not name the reduction: taken for a sum"


def results(data: Tensor, lengths: Any, offsets: Any, axis: Any) -> int:
    """O: the segments, of which the offsets have one less along their last dimension, times the dimensions after."""
    along, inner = given(lengths), math.prod(data.shape[int(axis) + 1 :])
    if along is not None:
        return along.numel * inner
    ends = given(offsets)
    if ends is None or not ends.shape:
        raise UnknownArgument("the capture has neither the segments' lengths nor their offsets")
    return math.prod(ends.shape[:-1]) * max(ends.shape[-1] - 1, 0) * inner


@op("segment_reduce (data, reduce, lengths, _indices, offsets, axis)")
def segment_reduce(data: Tensor, reduce: Any = "sum", lengths: Any = None, offsets: Any = None, axis: Any = 0) -> Work:
    """The sum (or product) of each segment: E - O; the mean O divisions more; maximum and minimum 0"""
    count = results(data, lengths, offsets, axis)
    price = product_flop(data) if reduce == "prod" else addition_flop(data)
    flop = 0 if reduce in ("max", "min") else max(data.numel - count, 0) * price
    flop += count * addition_flop(data) if reduce == "mean" else 0
    return Work(flop, data.nbytes + distinct(*map(indices, tensors((lengths, offsets)))), moved(count, data))


@op("_segment_reduce_backward (grad, result, data, reduce, lengths, offsets)")
def segment_reduce_backward(
    grad: Tensor, result: Tensor, data: Tensor, reduce: Any = "sum", lengths: Any = None, offsets: Any = None
) -> Work:
    """dx is g of its segment: a copy; mean: g / n, O;  maximum, minimum: g / (number of equal ones), O, at those;
    product: g y / x, O + E. All but sum and mean read x and y, too."""
    flop = {"mean": grad.numel, "max": grad.numel, "min": grad.numel, "prod": grad.numel + data.numel}.get(reduce, 0)
    used = (result, data) if reduce in ("max", "min", "prod") else ()
    read = distinct(grad, *used, *map(indices, tensors((lengths, offsets))))
    return Work(flop, read, moved(data.numel, data))


def _binned(self: Tensor, rows: int, bins: int, edges: int, weight: Any, density: Any, *also: Any) -> Work:
    """The work of putting ``rows`` values into bins; writes the bins and ``edges`` numbers."""
    flop = (rows if given(weight) else 0) + (4 * bins - 1 if density is True else 0)
    return Work(flop * addition_flop(self), distinct(self, given(weight), *also), moved(bins + edges, self))


@sort_op("histogram")
def histogram(self: Tensor, bins: Any = 100, *arguments: Any) -> Work:
    """Weights 1 addition per element; a density: sum, width, product and division per bin. Writes bins and edges

    histogram(self, edges, weight, density) and histogram(self, bins, range, weight, density)
    """
    if isinstance(bins, Tensor):
        weight, density = (*arguments, None, None)[:2]
        return _binned(self, self.numel, max(bins.numel - 1, 0), bins.numel, weight, density, bins)
    _range, weight, density = (*arguments, None, None, None)[:3]
    return _binned(self, self.numel, int(bins), int(bins) + 1, weight, density)


@sort_op("_histogramdd_from_bin_cts (self, bins, _range, weight, density)", "_histogramdd_from_bin_tensors")
def histogramdd(self: Tensor, bins: Any, weight: Any = None, density: Any = False) -> Work:
    """As ``histogram`` for points [.., D]: weights 1 addition per point. Writes one count per cell"""
    points = math.prod(self.shape[:-1])
    edges = tensors(bins)
    cells = math.prod(max(t.numel - 1, 0) for t in edges) if edges else math.prod(bins)
    return _binned(self, points, cells, 0, weight, density, *edges)


@sort_op("_histogramdd_bin_edges")
def histogramdd_edges(self: Tensor, bins: Any, limits: Any = None) -> Work:
    """The smallest and largest number of each dimension: comparisons; none are read if the call gives a range"""
    return Work(0, 0 if isinstance(limits, (list, tuple)) else self.nbytes, moved(sum(n + 1 for n in bins), self))
