"""Look-ups. n indices, rows of D elements, B bags.

read    the gathered rows, one for each index though some may repeat, and the indices (int64 where not told)
write   the result; backward all of the table's gradient
Bag offsets and the auxiliary int64 results of embedding_bag (bag of each index, bag sizes, maxima) are left out.
"""

from __future__ import annotations

import math
from typing import Any

from pyprof.prof.model import UNKNOWN, Tensor, Work, model
from pyprof.prof.ops.operands import Out, given, indices, moved, number, required

FAMILY_NAME = "embedding"
SUM, MEAN, MAX = 0, 1, 2


@model("embedding", family=FAMILY_NAME)
def embedding(weight: Tensor, positions: Tensor, *_: Any) -> Work:
    """A copy of n rows"""
    index = indices(required(positions))
    gathered = moved(index.numel * weight.shape[-1], weight)
    return Work(0, gathered + index.nbytes, gathered)


@model("embedding_dense_backward", "embedding_backward", "embedding_sparse_backward", family=FAMILY_NAME)
def embedding_backward(
    grad: Tensor,
    positions: Tensor,
    num_weights: Any = UNKNOWN,
    padding_idx: Any = None,
    scale: Any = False,
    *_: Any,
    out: Out = None,
) -> Work:
    """dtable[index] += g: n D additions (and divisions where scaled by frequency). Writes the whole table."""
    index = indices(required(positions))
    told = out[0] if out else None
    rows = told.shape[0] if told is not None else None if num_weights is UNKNOWN else int(num_weights)
    written = math.nan if rows is None else moved(rows * grad.shape[-1], grad)
    flop = grad.numel * (2 if number(scale, False) is True else 1)
    return Work(flop, grad.nbytes + index.nbytes, written)


@model("renorm", family=FAMILY_NAME)
def renorm(self: Tensor, *_: Any) -> Work:
    """The norm of each slice (2 an element), and its scaling (1, counted for all)"""
    return Work(3 * self.numel, self.nbytes, moved(self.numel, self))


@model("embedding_renorm", family=FAMILY_NAME)
def embedding_renorm(self: Tensor, positions: Tensor, *_: Any) -> Work:
    """The norm of each gathered row (2 an element), and its scaling (1, counted for all)"""
    index = indices(required(positions))
    count = index.numel * self.shape[-1]
    return Work(3 * count, moved(count, self) + index.nbytes, moved(count, self))


def bags(positions: Tensor, offsets: Any, last: Any) -> int:
    """B: a bag a row of two-dimensional indices, else a bag an offset, less the end where it is given."""
    if len(positions.shape) == 2:
        return positions.shape[0]
    return required(offsets).numel - (1 if last is True else 0)


def mode_of(mode: Any) -> int:
    """sum where it is not told, the default of aten::_embedding_bag."""
    return {"sum": SUM, "mean": MEAN, "max": MAX}[mode] if isinstance(mode, str) else int(number(mode, SUM))


@model("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", family=FAMILY_NAME)
def embedding_bag(
    weight: Tensor,
    positions: Tensor,
    offsets: Any = None,
    scale: Any = False,
    mode: Any = SUM,
    sparse: Any = False,
    per_sample_weights: Any = None,
    last: Any = False,
    *_: Any,
    out: Out = None,
) -> Work:
    """The sum of each bag's rows: (n - B) D additions; mean B D divisions more; max none; weights n D products"""
    index, size = indices(positions), weight.shape[-1]
    told = out[0] if out else None
    count = told.shape[0] if told is not None else bags(positions, offsets, last)
    kind, weighted = mode_of(mode), given(per_sample_weights)
    adds = 0 if kind == MAX else max(index.numel - count, 0) * size
    flop = adds + (count * size if kind == MEAN else 0) + (index.numel * size if weighted else 0)
    read = moved(index.numel * size, weight) + index.nbytes + (weighted.nbytes if weighted else 0)
    return Work(flop, read, moved(count * size, weight))


@model("embedding_bag.backward", "_embedding_bag.backward", family=FAMILY_NAME)
def embedding_bag_whole_backward(
    weight: Tensor,
    positions: Tensor,
    offsets: Any = None,
    scale: Any = False,
    mode: Any = SUM,
    sparse: Any = False,
    per_sample_weights: Any = None,
    last: Any = False,
    *_: Any,
    out: Out = None,
) -> Work:
    """dtable[index] += g of its bag: n D additions; mean B D divisions more; max B D additions

    Writes the whole table.
    """
    index, size = indices(positions), weight.shape[-1]
    told = out[0] if out else None
    count = told.shape[0] if told is not None else bags(positions, offsets, last)
    return _bag_backward(weight.like((count, size)), index, weight.shape[0], mode, given(per_sample_weights))


def _bag_backward(grad: Tensor, index: Tensor, rows: int | None, mode: Any, weighted: Tensor | None) -> Work:
    size, kind = grad.shape[-1], mode_of(mode)
    flop = grad.numel if kind == MAX else index.numel * size * (2 if weighted else 1)
    flop += grad.numel if kind == MEAN else 0
    read = grad.nbytes + index.nbytes + (weighted.nbytes if weighted else 0)
    return Work(flop, read, math.nan if rows is None else moved(rows * size, grad))


@model("_embedding_bag_dense_backward", family=FAMILY_NAME)
def embedding_bag_backward(
    grad: Tensor,
    positions: Tensor,
    offset2bag: Any,
    sizes: Any,
    maxima: Any,
    num_weights: Any = UNKNOWN,
    scale: Any = False,
    mode: Any = SUM,
    per_sample_weights: Any = None,
    *_: Any,
) -> Work:
    """dtable[index] += g of its bag"""
    rows = None if num_weights is UNKNOWN else int(num_weights)
    return _bag_backward(grad, indices(positions), rows, mode, given(per_sample_weights))


@model("_embedding_bag_backward", family=FAMILY_NAME)
def embedding_bag_any_backward(
    grad: Tensor,
    positions: Tensor,
    offsets: Any,
    offset2bag: Any,
    sizes: Any,
    maxima: Any,
    num_weights: Any = UNKNOWN,
    scale: Any = False,
    mode: Any = SUM,
    sparse: Any = False,
    per_sample_weights: Any = None,
    *_: Any,
) -> Work:
    """dtable[index] += g of its bag"""
    return embedding_bag_backward(
        grad, positions, offset2bag, sizes, maxima, num_weights, scale, mode, per_sample_weights
    )
