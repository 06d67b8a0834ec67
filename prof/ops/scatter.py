"""Writes by index. Copies are free; an accumulating write is an addition.

read    the source and the indices (int64 where the capture has no types); where a write accumulates, what it adds to
write   out of place all of self, which is copied first; in place the indexed elements only
"""

from __future__ import annotations

import math
from typing import Any

from pyprof.prof.ops.indexing import index_count, is_mask
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, distinct, model
from pyprof.prof.ops.operands import addition_flop, indices, moved, number, required, tensors

FAMILY_NAME = "indexing"


def scattered(self: Tensor, index: Tensor, source: Any, additions: int, count: int, inplace: bool) -> Work:
    """A write of ``count`` elements by index: into a copy of self, or into self."""
    flop = additions * count * addition_flop(self)
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
    """self[index] = source, or combined with it where the call has a reduction"""
    return scattered(self, positions, _part(source, positions), _reduces(arguments), positions.numel, False)


@model("scatter_", family=FAMILY_NAME)
def scatter_(self: Tensor, dim: Any, positions: Tensor, source: Any = None, *arguments: Any) -> Work:
    """As ``scatter``, in place"""
    return scattered(self, positions, _part(source, positions), _reduces(arguments), positions.numel, True)


@model("scatter_add", "scatter_reduce", family=FAMILY_NAME)
def scatter_add(self: Tensor, dim: Any, positions: Tensor, source: Tensor, *arguments: Any) -> Work:
    """self[index] += source: an addition per index"""
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
    """self[index] += alpha * source: an addition per element of the source, a product where alpha is not 1"""
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


def _put(self: Tensor, positions: Any, values: Any, accumulate: Any, inplace: bool) -> Work:
    listed = tensors(positions)
    if positions is UNKNOWN or not listed or is_mask(positions):
        count = values.numel if isinstance(values, Tensor) else 0
        if count <= 1 and accumulate is not True:
            inputs = distinct(*listed, values) + (0 if inplace else self.nbytes)
            return Work(0, inputs, math.nan if inplace else moved(self.numel, self))
    else:
        count = index_count(self, positions)
    flop = count * addition_flop(self) if number(accumulate, False) else 0
    inputs = distinct(*map(indices, listed), values)
    if not inplace:
        return Work(flop, self.nbytes + inputs, moved(self.numel, self))
    return Work(flop, inputs + (moved(count, self) if number(accumulate, False) else 0), moved(count, self))


@model("index_put", "_unsafe_index_put", family=FAMILY_NAME)
def index_put(self: Tensor, positions: Any, values: Any, accumulate: Any = False) -> Work:
    """self[i, j, ...] = values, or += with an addition per element; all of self is copied"""
    return _put(self, positions, values, accumulate, False)


@model("index_put_", "_index_put_impl_", family=FAMILY_NAME)
def index_put_(self: Tensor, positions: Any, values: Any, accumulate: Any = False) -> Work:
    """As ``index_put``, in place: only the indexed elements are touched"""
    return _put(self, positions, values, accumulate, True)


@model("put", family=FAMILY_NAME)
def put(self: Tensor, positions: Tensor, source: Tensor, accumulate: Any = False) -> Work:
    """self.flat[index] = source, or +=; all of self is copied"""
    return scattered(self, positions, source, int(number(accumulate, False)), positions.numel, False)


@model("put_", family=FAMILY_NAME)
def put_(self: Tensor, positions: Tensor, source: Tensor, accumulate: Any = False) -> Work:
    """As ``put``, in place"""
    return scattered(self, positions, source, int(number(accumulate, False)), positions.numel, True)


@model("select_scatter slice_scatter diagonal_scatter as_strided_scatter", family=FAMILY_NAME)
def view_scatter(self: Tensor, source: Tensor) -> Work:
    """A copy of self with a part replaced: read the rest of self and the source, write all"""
    rest = max(self.numel - source.numel, 0)
    return Work(0, moved(rest, self) + source.nbytes, moved(self.numel, self))
