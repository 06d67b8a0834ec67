"""Reading and writing by index or mask. Comparisons and copies count 0 flop; an accumulating write is one addition.

read    the gathered elements, and the indices (int64 if the capture has no dtypes) or the mask (bool)
write   the result. Out of place, a scatter first copies all of self; in place it writes only the indexed elements, and
        reads them if it accumulates
"""

import math
from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct, model
from pyprof.prof.ops.operands import Out, bool_mask, broadcast, indices, moved, number, required, result_numel, tensors
from pyprof.prof.ops.result_types import addition_flop

op = Family("indexing")
POSITION = Tensor((), "int64")  # the dtype of the positions that an op writes


def gathered(self: Tensor, count: int, *positions: Tensor) -> Work:
    """The work of copying ``count`` elements of self and reading the indices."""
    return Work(0, moved(count, self) + distinct(*map(indices, positions)), moved(count, self))


@op("index_select")
def index_select(self: Tensor, dim: Any, positions: Tensor, *, out: Out = None) -> Work:
    """Copies n slices; if the capture lacks the dimension (NVTX), the bytes are unknown"""
    count, index = result_numel(out), required(positions)
    if count is not None:
        return gathered(self, count, index)
    if len(self.shape) < 2:
        return gathered(self, index.numel, index)
    return gathered(self, _slices(self, dim, index), index) if isinstance(dim, int) else Work(0, math.nan, math.nan)


def _slices(self: Tensor, dim: int, index: Tensor) -> int:
    """The number of elements in the slices that an index selects, one per index."""
    return self.numel // (self.shape[dim] or 1) * index.numel


@op("index_select.backward index_select_backward")
def index_select_backward(self: Tensor, dim: Any, positions: Any, *arguments: Any) -> Work:
    """dx[index] += g: 1 addition per element of g. Writes all of dx, reads g and the indices.

    aten::index_select_backward(grad, self_sizes, dim, index) takes different arguments from the forward op.
    """
    if isinstance(dim, (tuple, list)):
        index = indices(arguments[0])
        return Work(self.numel * addition_flop(self), self.nbytes + index.nbytes, moved(math.prod(dim), self))
    index = indices(positions)
    count = _slices(self, dim, index)
    return Work(count * addition_flop(self), moved(count, self) + index.nbytes, moved(self.numel, self))


@op("gather", "take (self, positions)")
def gather(self: Tensor, dim: Any = None, positions: Any = None) -> Work:
    """Copies one element of self per index"""
    index = required(positions)
    return gathered(self, index.numel, index)


@op("take_along_dim")
def take_along_dim(self: Tensor, positions: Tensor, dim: Any = None) -> Work:
    """As ``gather``; self and the indices are broadcast in the other dimensions"""
    if not isinstance(dim, int) or len(self.shape) != len(positions.shape):
        return gathered(self, positions.numel, positions)
    along, rest = positions.shape[dim], [(*t.shape[:dim], *t.shape[dim:][1:]) for t in (self, positions)]
    return gathered(self, along * math.prod(broadcast("take_along_dim", *rest)), positions)


@op("gather_backward (grad, self, _dim, positions)")
def gather_backward(grad: Tensor, self: Tensor, positions: Tensor) -> Work:
    """dx[index] += g, into zeros"""
    return Work(grad.numel * addition_flop(grad), grad.nbytes + indices(positions).nbytes, moved(self.numel, self))


@op("gather.backward (self, _dim, positions)", "take.backward (self, positions)")
def gather_whole_backward(self: Tensor, positions: Tensor) -> Work:
    """dx[index] += g, into zeros"""
    return gather_backward(self.like(positions.shape), self, positions)


@op("index_fill")
def index_fill(self: Tensor, dim: Any, positions: Tensor, value: Any = 0) -> Work:
    """self[index] = value, out of place: copies all of self"""
    return Work(0, self.nbytes + indices(positions).nbytes + distinct(value), moved(self.numel, self))


@op("index_fill_")
def index_fill_(self: Tensor, dim: Any, positions: Tensor, value: Any = 0) -> Work:
    """self[index] = value: writes the indexed slices"""
    count: int | None = 1
    if self.shape:
        count = None if dim is UNKNOWN else _slices(self, dim, positions)
    return Work(0, indices(positions).nbytes + distinct(value), moved(count, self))


def index_count(self: Tensor, positions: Any) -> int:
    """The number of elements in ``self[positions]``: the indices' broadcast shape replaces the indexed dimensions.

    A missing index (None, or an empty size) keeps its dimension. How many elements a mask selects is known only from
    the recorded outputs.
    """
    listed = tuple(positions)
    used = [p if isinstance(p, Tensor) else None for p in listed] + [None] * (len(self.shape) - len(listed))
    common = broadcast("index", *(p.shape for p in used if p is not None))
    return math.prod(common) * math.prod(n for n, p in zip(self.shape, used, strict=False) if p is None)


def is_mask(positions: Any) -> bool:
    return any(p.dtype in ("bool", "uint8") for p in tensors(positions))


@op("index _unsafe_index _index")
def index(self: Tensor, positions: Any, *, out: Out = None) -> Work:
    """self[i, j, ...]: copies the indexed elements; indices that the capture lacks are not counted"""
    count, listed = result_numel(out), tensors(positions)
    if count is None and (positions is UNKNOWN or not listed or is_mask(positions)):
        return Work(0, math.nan, math.nan)
    return gathered(self, index_count(self, positions) if count is None else count, *listed)


@op("_unsafe_masked_index")
def masked_index(self: Tensor, mask: Tensor, positions: Any, *, out: Out = None) -> Work:
    """self[i, j, ...] where the mask is set, a number elsewhere; every element counts as copied"""
    found = index(self, positions, out=out)
    return Work(0, found.read + bool_mask(mask).nbytes, found.write)


@op("index.backward")
def index_backward(self: Tensor, positions: Any, *, out: Out = None) -> Work:
    """dx[i, j, ...] += g, into zeros: 1 addition per element of g. Reads g and the indices, writes all of dx."""
    count = result_numel(out)
    count = index_count(self, positions) if count is None else count
    inputs = moved(count, self) + distinct(*map(indices, tensors(positions)))
    return Work(count * addition_flop(self), inputs, moved(self.numel, self))


@model("masked_fill", "masked_fill_", family="pointwise")  # as ``where``: every element is read and written
def masked_fill(self: Tensor, mask: Tensor, value: Any = None) -> Work:
    """Selects self or the value; reads and writes all of self, also in place"""
    shape = broadcast("masked_fill", self.shape, required(mask).shape)
    return Work(0, distinct(self, bool_mask(required(mask)), value), moved(math.prod(shape), self))


@op("masked_select")
def masked_select(self: Tensor, mask: Tensor, *, out: Out = None) -> Work:
    """Copies the selected elements, whose number only the outputs show. Reads all of self and the mask."""
    return Work(0, distinct(self, bool_mask(mask)), moved(result_numel(out), self))


@op("masked_select.backward masked_scatter.backward")
def masked_select_backward(self: Tensor, mask: Tensor, *, out: Out = None) -> Work:
    """dx is g at the selected elements, 0 elsewhere: reads g and the mask, writes dx"""
    return Work(0, moved(result_numel(out), self) + bool_mask(mask).nbytes, moved(self.numel, self))


@op("masked_scatter_backward")
def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Any = UNKNOWN, *, out: Out = None) -> Work:
    """Packs the selected elements of g: reads g and the mask, writes the source's gradient"""
    return Work(0, distinct(grad, bool_mask(mask)), moved(result_numel(out, sizes), grad))


@op("isin")
def isin(elements: Any, tests: Any) -> Work:
    """Comparisons; writes one byte per element"""
    return Work(0, distinct(elements, tests), required(elements).numel if isinstance(elements, Tensor) else 1)


@op("masked_scatter")
def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Work:
    """Selects self or the next element of the source; reads all of self, mask and source"""
    shape = broadcast("masked_scatter", self.shape, mask.shape)
    return Work(0, distinct(self, bool_mask(mask), source), moved(math.prod(shape), self))


@op("nonzero argwhere")
def nonzero(self: Tensor, *, out: Out = None) -> Work:
    """Writes int64 coordinates of the nonzero elements, whose number only the outputs show"""
    return Work(0, self.nbytes, moved(result_numel(out), POSITION))


@op("one_hot")
def one_hot(self: Tensor, classes: Any = -1, *, out: Out = None) -> Work:
    """Writes int64 zeros and ones"""
    count = result_numel(out)
    if count is None and number(classes, -1) > 0:
        count = self.numel * classes
    return Work(0, indices(self).nbytes, moved(count, POSITION))


@op("unfold_backward")
def unfold_backward(grad: Tensor, sizes: Any, dim: Any, size: Any, step: Any) -> Work:
    """Each window's g is added to dx: elements of g less those of dx that a window covers, if windows overlap"""
    windows = grad.shape[int(dim) % max(len(sizes), 1)]  # the windows' elements are one more dimension of g, its last
    covered = min(size, step) * (windows - 1) + size if windows else 0
    lines = grad.numel // (windows * size or 1)
    flop = (grad.numel - lines * covered) * addition_flop(grad)
    return Work(flop, grad.nbytes, moved(math.prod(sizes), grad))


@op("select_backward slice_backward diagonal_backward _narrow_backward")
def view_backward(grad: Tensor, sizes: Any = UNKNOWN, *, out: Out = None) -> Work:
    """dx is g in the part that the view selected, 0 elsewhere: reads g, writes all of dx"""
    count = result_numel(out, sizes)
    return Work(0, required(grad).nbytes, moved(count, grad))
