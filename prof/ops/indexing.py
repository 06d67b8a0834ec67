"""Reading and writing by index or mask. Comparisons and copies are free; an accumulating write is an addition.

read    the elements that are gathered, and the indices (int64 where the capture does not tell) or the mask (bool)
write   the result. Out of place, a scatter copies all of self first; in place it touches only the indexed elements:
        reads them where it accumulates, and writes them
"""

from __future__ import annotations

import math
from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, distinct, model
from pyprof.prof.ops.operands import (
    Out,
    bool_mask,
    broadcast,
    first_output,
    floating,
    indices,
    moved,
    number,
    numel,
    required,
    result_numel,
    tensors,
)

FAMILY_NAME = "indexing"


def gathered(self: Tensor, count: int, *positions: Tensor) -> Work:
    """A copy of so many elements of self."""
    return Work(0, moved(count, self) + distinct(*map(indices, positions)), moved(count, self))


@model("index_select", family=FAMILY_NAME)
def index_select(self: Tensor, dim: Any, positions: Tensor, *, out: Out = None) -> Work:
    """A copy of n slices; where the capture does not tell the dimension (NVTX), bytes are not known either"""
    described, index = first_output(out), required(positions)
    if described is not None:
        return gathered(self, described.numel, index)
    if len(self.shape) < 2:
        return gathered(self, index.numel, index)
    if not isinstance(dim, int):
        return Work(0, math.nan, math.nan)
    return gathered(self, self.numel // (self.shape[dim] or 1) * index.numel, index)


@model("index_select.backward", "index_select_backward", family=FAMILY_NAME)
def index_select_backward(self: Tensor, dim: Any, positions: Any, *arguments: Any) -> Work:
    """dx[index] += g: an addition an element of g. Writes all of dx, reads g and the indices.

    aten::index_select_backward(grad, self_sizes, dim, index) has other arguments than the forward op.
    """
    if isinstance(dim, (tuple, list)):
        index = indices(arguments[0])
        return Work(self.numel * unit(self), self.nbytes + index.nbytes, moved(numel(dim), self))
    index = indices(positions)
    count = self.numel // (self.shape[dim] or 1) * index.numel
    return Work(count * unit(self), moved(count, self) + index.nbytes, moved(self.numel, self))


def unit(tensor: Tensor) -> int:
    """What an addition costs: nothing for integers."""
    return (2 if tensor.is_complex else 1) if floating(tensor.dtype) else 0


@model("gather", "take_along_dim", family=FAMILY_NAME)
def gather(self: Tensor, dim: Any, positions: Any = None) -> Work:
    """An element of self an index. ``take_along_dim`` has the indices before the dimension."""
    index = dim if isinstance(dim, Tensor) else required(positions)
    return gathered(self, index.numel, index)


@model("gather_backward", family=FAMILY_NAME)
def gather_backward(grad: Tensor, self: Tensor, dim: Any, positions: Tensor) -> Work:
    """dx[index] += g, into zeros"""
    return _into_zeros(grad, self, positions)


@model("gather.backward", family=FAMILY_NAME)
def gather_whole_backward(self: Tensor, dim: Any, positions: Tensor) -> Work:
    """dx[index] += g, into zeros"""
    return _into_zeros(self.like(positions.shape), self, positions)


def _into_zeros(grad: Tensor, self: Tensor, positions: Tensor) -> Work:
    return Work(grad.numel * unit(grad), grad.nbytes + indices(positions).nbytes, moved(self.numel, self))


@model("take", family=FAMILY_NAME)
def take(self: Tensor, positions: Tensor) -> Work:
    """An element of self an index"""
    return gathered(self, positions.numel, positions)


@model("take.backward", family=FAMILY_NAME)
def take_backward(self: Tensor, positions: Tensor) -> Work:
    """dx[index] += g, into zeros"""
    return _into_zeros(self.like(positions.shape), self, positions)


def scattered(self: Tensor, index: Tensor, source: Any, additions: int, count: int, inplace: bool) -> Work:
    """A write of ``count`` elements by index: into a copy of self, or into self."""
    flop = additions * count * unit(self)
    inputs = indices(index).nbytes + distinct(source)
    if not inplace:
        return Work(flop, self.nbytes + inputs, moved(self.numel, self))
    return Work(flop, inputs + (moved(count, self) if additions else 0), moved(count, self))


REDUCING = {"add": 1, "sum": 1, "multiply": 1, "prod": 1, "mean": 1, "amax": 0, "amin": 0}


def _reduces(arguments: tuple[Any, ...]) -> int:
    name = next((a for a in arguments if isinstance(a, str)), None)
    return 0 if name is None else REDUCING.get(name, 1)


@model("scatter", family=FAMILY_NAME)
def scatter(self: Tensor, dim: Any, positions: Tensor, source: Any = None, *arguments: Any) -> Work:
    """self[index] = source, or combined with it where the op is told a reduction"""
    return scattered(self, positions, _part(source, positions), _reduces(arguments), positions.numel, False)


@model("scatter_", family=FAMILY_NAME)
def scatter_(self: Tensor, dim: Any, positions: Tensor, source: Any = None, *arguments: Any) -> Work:
    """As ``scatter``, in place"""
    return scattered(self, positions, _part(source, positions), _reduces(arguments), positions.numel, True)


@model("scatter_add", "scatter_reduce", family=FAMILY_NAME)
def scatter_add(self: Tensor, dim: Any, positions: Tensor, source: Tensor, *arguments: Any) -> Work:
    """self[index] += source: an addition an index"""
    additions = _reduces(arguments) if arguments else 1
    return scattered(self, positions, _part(source, positions), additions, positions.numel, False)


@model("scatter_add_", "scatter_reduce_", family=FAMILY_NAME)
def scatter_add_(self: Tensor, dim: Any, positions: Tensor, source: Tensor, *arguments: Any) -> Work:
    """As ``scatter_add``, in place"""
    additions = _reduces(arguments) if arguments else 1
    return scattered(self, positions, _part(source, positions), additions, positions.numel, True)


def _part(source: Any, positions: Tensor) -> Any:
    """The source is read as far as there are indices."""
    if isinstance(source, Tensor) and source.numel > positions.numel:
        return Tensor(positions.shape, source.dtype)
    return source


@model("index_add", "index_reduce", family=FAMILY_NAME)
def index_add(self: Tensor, dim: Any, positions: Tensor, source: Tensor, alpha: Any = 1) -> Work:
    """self[index] += alpha * source: an addition an element of the source, a product where alpha is not 1"""
    return scattered(self, positions, source, _times(alpha), required(source).numel, False)


@model("index_add_", "index_reduce_", family=FAMILY_NAME)
def index_add_(self: Tensor, dim: Any, positions: Tensor, source: Tensor, alpha: Any = 1) -> Work:
    """As ``index_add``, in place"""
    return scattered(self, positions, source, _times(alpha), required(source).numel, True)


def _times(alpha: Any) -> int:
    return 1 if isinstance(alpha, str) or number(alpha, 1) == 1 else 2


@model("index_copy", family=FAMILY_NAME)
def index_copy(self: Tensor, dim: Any, positions: Tensor, source: Tensor) -> Work:
    """self[index] = source"""
    return scattered(self, positions, source, 0, required(source).numel, False)


@model("index_copy_", family=FAMILY_NAME)
def index_copy_(self: Tensor, dim: Any, positions: Tensor, source: Tensor) -> Work:
    """As ``index_copy``, in place"""
    return scattered(self, positions, source, 0, required(source).numel, True)


def _slice(self: Tensor, dim: Any, index: Tensor) -> int | None:
    return None if dim is UNKNOWN else self.numel // (self.shape[dim] or 1) * index.numel


@model("index_fill", family=FAMILY_NAME)
def index_fill(self: Tensor, dim: Any, positions: Tensor, value: Any = 0) -> Work:
    """self[index] = value, out of place: all of self is copied"""
    return Work(0, self.nbytes + indices(positions).nbytes + distinct(value), moved(self.numel, self))


@model("index_fill_", family=FAMILY_NAME)
def index_fill_(self: Tensor, dim: Any, positions: Tensor, value: Any = 0) -> Work:
    """self[index] = value: the indexed slices are written"""
    count = _slice(self, dim, positions) if self.shape else 1
    return Work(0, indices(positions).nbytes + distinct(value), moved(count, self))


def index_count(self: Tensor, positions: Any) -> int:
    """Elements of ``self[positions]``: the indices' common shape in place of the dimensions that they index.

    A missing index (None, or an empty size) keeps its dimension. Of a mask only the outputs tell how much it selects.
    """
    listed = tuple(positions)
    used = [p if isinstance(p, Tensor) else None for p in listed] + [None] * (len(self.shape) - len(listed))
    common = broadcast("index", *(p.shape for p in used if p is not None))
    return numel(common) * numel(n for n, p in zip(self.shape, used, strict=False) if p is None)


def _is_mask(positions: Any) -> bool:
    return any(p.dtype in ("bool", "uint8") for p in tensors(positions))


@model("index _unsafe_index _index", family=FAMILY_NAME)
def index(self: Tensor, positions: Any, *, out: Out = None) -> Work:
    """self[i, j, ...]: a copy of the indexed elements; indices that the capture does not tell are left out"""
    described = first_output(out)
    listed = tensors(positions)
    if described is None and (positions is UNKNOWN or not listed or _is_mask(positions)):
        return Work(0, math.nan, math.nan)
    count = described.numel if described is not None else index_count(self, positions)
    return gathered(self, count, *listed)


def _put(self: Tensor, positions: Any, values: Any, accumulate: Any, inplace: bool) -> Work:
    listed = tensors(positions)
    if positions is UNKNOWN or not listed or _is_mask(positions):
        count = values.numel if isinstance(values, Tensor) else 0
        if count <= 1 and accumulate is not True:
            inputs = distinct(*listed, values) + (0 if inplace else self.nbytes)
            return Work(0, inputs, math.nan if inplace else moved(self.numel, self))
    else:
        count = index_count(self, positions)
    flop = count * unit(self) if number(accumulate, False) else 0
    inputs = distinct(*map(indices, listed), values)
    if not inplace:
        return Work(flop, self.nbytes + inputs, moved(self.numel, self))
    return Work(flop, inputs + (moved(count, self) if number(accumulate, False) else 0), moved(count, self))


@model("index_put", "_unsafe_index_put", family=FAMILY_NAME)
def index_put(self: Tensor, positions: Any, values: Any, accumulate: Any = False) -> Work:
    """self[i, j, ...] = values, or += with an addition an element; all of self is copied"""
    return _put(self, positions, values, accumulate, False)


@model("index_put_", "_index_put_impl_", family=FAMILY_NAME)
def index_put_(self: Tensor, positions: Any, values: Any, accumulate: Any = False) -> Work:
    """As ``index_put``, in place: only the indexed elements are touched"""
    return _put(self, positions, values, accumulate, True)


@model("index.backward", family=FAMILY_NAME)
def index_backward(self: Tensor, positions: Any, *, out: Out = None) -> Work:
    """dx[i, j, ...] += g, into zeros: an addition an element of g. Reads g and the indices, writes all of dx."""
    described = first_output(out)
    count = described.numel if described is not None else index_count(self, positions)
    inputs = moved(count, self) + distinct(*map(indices, tensors(positions)))
    return Work(count * unit(self), inputs, moved(self.numel, self))


@model("masked_fill", "masked_fill_", family=FAMILY_NAME)
def masked_fill(self: Tensor, mask: Tensor, value: Any = None) -> Work:
    """A selection between self and the value; self is read and written whole, in place too"""
    shape = broadcast("masked_fill", self.shape, required(mask).shape)
    return Work(0, distinct(self, bool_mask(required(mask)), value), moved(numel(shape), self))


@model("masked_select", family=FAMILY_NAME)
def masked_select(self: Tensor, mask: Tensor, *, out: Out = None) -> Work:
    """What the mask selects; how much only the outputs tell. Self and the mask are read whole."""
    return Work(0, distinct(self, bool_mask(mask)), moved(result_numel(out), self))


@model("masked_select.backward", "masked_scatter.backward", family=FAMILY_NAME)
def masked_select_backward(self: Tensor, mask: Tensor, *, out: Out = None) -> Work:
    """dx is 0 but for g where the mask says so: read g and the mask, write dx"""
    taken = moved(result_numel(out), self)
    return Work(0, taken + bool_mask(mask).nbytes, moved(self.numel, self))


@model("masked_scatter_backward", family=FAMILY_NAME)
def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Any = UNKNOWN, *, out: Out = None) -> Work:
    """g where the mask says so, packed: read g and the mask, write the source's gradient"""
    count = result_numel(out, sizes)
    return Work(0, distinct(grad, bool_mask(mask)), moved(count, grad))


@model("put", family=FAMILY_NAME)
def put(self: Tensor, positions: Tensor, source: Tensor, accumulate: Any = False) -> Work:
    """self.flat[index] = source, or +=; all of self is copied"""
    return scattered(self, positions, source, int(number(accumulate, False)), positions.numel, False)


@model("put_", family=FAMILY_NAME)
def put_(self: Tensor, positions: Tensor, source: Tensor, accumulate: Any = False) -> Work:
    """As ``put``, in place"""
    return scattered(self, positions, source, int(number(accumulate, False)), positions.numel, True)


@model("isin", family=FAMILY_NAME)
def isin(elements: Any, tests: Any) -> Work:
    """Comparisons; a byte an element"""
    return Work(0, distinct(elements, tests), required(elements).numel if isinstance(elements, Tensor) else 1)


@model("masked_scatter", family=FAMILY_NAME)
def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Work:
    """A selection between self and the source's next element; all three read whole"""
    return Work(0, distinct(self, bool_mask(mask), source), moved(self.numel, self))


@model("nonzero", "argwhere", family=FAMILY_NAME)
def nonzero(self: Tensor, *, out: Out = None) -> Work:
    """int64 coordinates of what is not zero; how many only the outputs tell"""
    described = first_output(out)
    return Work(0, self.nbytes, math.nan if described is None else 8 * described.numel)


@model("one_hot", family=FAMILY_NAME)
def one_hot(self: Tensor, classes: Any = -1, *, out: Out = None) -> Work:
    """int64 zeros and ones"""
    described = first_output(out)
    count = described.numel if described is not None else self.numel * classes if number(classes, -1) > 0 else None
    return Work(0, indices(self).nbytes, math.nan if count is None else 8 * count)


@model("select_backward slice_backward diagonal_backward unfold_backward _narrow_backward", family=FAMILY_NAME)
def view_backward(grad: Tensor, sizes: Any = UNKNOWN, *, out: Out = None) -> Work:
    """dx is 0 but for g in the part that the view showed: read g, write all of dx"""
    count = result_numel(out, sizes)
    return Work(0, required(grad).nbytes, moved(count, grad))


@model("select_scatter slice_scatter diagonal_scatter as_strided_scatter", family=FAMILY_NAME)
def view_scatter(self: Tensor, source: Tensor) -> Work:
    """A copy of self with a part replaced: read the rest of self and the source, write all"""
    rest = max(self.numel - source.numel, 0)
    return Work(0, moved(rest, self) + source.nbytes, moved(self.numel, self))
