"""Embedding lookups: n indices, rows of D elements, B bags.

read    the gathered rows, one per index even if indices repeat, and the indices (int64 if dtypes are unknown)
write   the result; in the backward, the gradient of the whole table
Bag offsets and the auxiliary int64 results of embedding_bag (bag of each index, bag sizes, maxima) are not counted.
"""

import math
from dataclasses import dataclass
from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work
from pyprof.prof.ops.operands import Out, first_output, given, indices, moved, number, required

op = Family("embedding")
SUM, MEAN, MAX = 0, 1, 2


@op("embedding")
def embedding(weight: Tensor, positions: Tensor) -> Work:
    """Copies n rows"""
    index = indices(required(positions))
    gathered = moved(index.numel * weight.shape[-1], weight)
    return Work(0, gathered + index.nbytes, gathered)


@op(
    "embedding_dense_backward embedding_backward embedding_sparse_backward "
    "(grad, positions, num_weights, _padding, scale)"
)
def embedding_backward(
    grad: Tensor, positions: Tensor, num_weights: Any = UNKNOWN, scale: Any = False, *, out: Out = None
) -> Work:
    """dtable[index] += g: n D additions (and n D divisions if scaled by frequency). Writes the whole table."""
    index = indices(required(positions))
    described = first_output(out)
    rows = described.shape[0] if described is not None else None if num_weights is UNKNOWN else int(num_weights)
    written = math.nan if rows is None else moved(rows * grad.shape[-1], grad)
    flop = grad.numel * (2 if number(scale, False) is True else 1)
    return Work(flop, grad.nbytes + index.nbytes, written)


@op("renorm")
def renorm(self: Tensor) -> Work:
    """The norm of each slice (2 per element) and its scaling (1 per element, counted for all slices)"""
    return Work(3 * self.numel, self.nbytes, moved(self.numel, self))


@op("embedding_renorm")
def embedding_renorm(self: Tensor, positions: Tensor) -> Work:
    """The norm of each gathered row (2 per element) and its scaling (1 per element, counted for all rows)"""
    index = indices(required(positions))
    count = index.numel * self.shape[-1]
    return Work(3 * count, moved(count, self) + index.nbytes, moved(count, self))


def mode_of(mode: Any) -> int:
    """The number of the mode; if the capture lacks it, sum, the default of aten::_embedding_bag."""
    return {"sum": SUM, "mean": MEAN, "max": MAX}[mode] if isinstance(mode, str) else int(number(mode, SUM))


@dataclass(frozen=True, slots=True)
class Bags:
    """The arguments of embedding_bag."""

    weight: Tensor
    positions: Tensor
    offsets: Any = None
    mode: Any = SUM
    per_sample_weights: Any = None
    last: Any = False

    def count(self, out: Out) -> int:
        """B, the number of bags: the output's rows, or those of 2-D indices, or the offsets without an included end."""
        described = first_output(out)
        if described is not None:
            return described.shape[0]
        if len(self.positions.shape) == 2:
            return self.positions.shape[0]
        return required(self.offsets).numel - (1 if self.last is True else 0)


ARGUMENTS = "(weight, positions, offsets, _scale, mode, _sparse, per_sample_weights, last)"
BACKWARD_ARGUMENTS = "_bag_of, _sizes, _maxima, num_weights, _scale, mode"


@op(f"embedding_bag _embedding_bag _embedding_bag_forward_only {ARGUMENTS}", takes=Bags)
def embedding_bag(call: Bags, out: Out = None) -> Work:
    """The sum of each bag's rows: (n - B) D additions; for mean plus B D divisions; for max 0; with weights plus n D
    products"""
    index, size = indices(call.positions), call.weight.shape[-1]
    count = call.count(out)
    kind, weighted = mode_of(call.mode), given(call.per_sample_weights)
    adds = 0 if kind == MAX else max(index.numel - count, 0) * size
    flop = adds + (count * size if kind == MEAN else 0) + (index.numel * size if weighted else 0)
    read = moved(index.numel * size, call.weight) + index.nbytes + (weighted.nbytes if weighted else 0)
    return Work(flop, read, moved(count * size, call.weight))


@op(f"embedding_bag.backward _embedding_bag.backward {ARGUMENTS}", takes=Bags)
def embedding_bag_whole_backward(call: Bags, out: Out = None) -> Work:
    """dtable[index] += g of its bag: n D additions; for mean plus B D divisions; for max B D additions

    Writes the whole table. Weights get the gradient of ``_embedding_bag_per_sample_weights_backward``.
    """
    rows, size = call.weight.shape[0], call.weight.shape[-1]
    grad, weighted = call.weight.like((call.count(out), size)), given(call.per_sample_weights)
    work = Work()
    if call.weight.needs_grad:
        work += embedding_bag_backward(grad, call.positions, rows, call.mode, weighted)
    if weighted is not None and weighted.needs_grad:
        work += weights_backward(grad, call.weight, call.positions)
    return work


@op("_embedding_bag_per_sample_weights_backward")
def weights_backward(grad: Tensor, weight: Tensor, positions: Tensor) -> Work:
    """dw[i] = the row of index i times g of its bag: 2 n D; reads the gathered rows, writes n numbers"""
    index, count = indices(positions), positions.numel * weight.shape[-1]
    return Work(2 * count, moved(count, weight) + grad.nbytes + index.nbytes, moved(positions.numel, weight))


@op(f"_embedding_bag_dense_backward (grad, positions, {BACKWARD_ARGUMENTS}, per_sample_weights)")
@op(f"_embedding_bag_backward (grad, positions, _offsets, {BACKWARD_ARGUMENTS}, _sparse, per_sample_weights)")
def embedding_bag_backward(
    grad: Tensor, positions: Tensor, num_weights: Any = UNKNOWN, mode: Any = SUM, per_sample_weights: Any = None
) -> Work:
    """dtable[index] += g of its bag"""
    index, weighted = indices(positions), given(per_sample_weights)
    size, kind = grad.shape[-1], mode_of(mode)
    flop = grad.numel if kind == MAX else index.numel * size * (2 if weighted else 1)
    flop += grad.numel if kind == MEAN else 0
    read = grad.nbytes + index.nbytes + (weighted.nbytes if weighted else 0)
    return Work(flop, read, math.nan if num_weights is UNKNOWN else moved(int(num_weights) * size, grad))
