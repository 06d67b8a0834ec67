"""Writes by index. Copies are free; an accumulating write is an addition.

read    the source and the indices (int64 where the capture has no types); where a write accumulates, what it adds to
write   out of place all of self, which is copied first; in place the indexed elements only
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyprof.prof.ops.indexing import index_count, is_mask
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import indices, moved, number, required, tensors
from pyprof.prof.ops.result_types import addition_flop

op = Family("indexing")


@dataclass(frozen=True, slots=True)
class Write:
    """A write of ``count`` elements into a tensor, with so many additions each; NaN where the count is not known."""

    into: Tensor
    inputs: float  # bytes of the indices and the source
    count: float
    additions: int = 0

    def work(self, inplace: bool) -> Work:
        """Into the tensor itself, or into a copy of it."""
        flop = round(self.additions * self.count) * addition_flop(self.into) if self.additions else 0
        if not inplace:
            return Work(flop, self.into.nbytes + self.inputs, moved(self.into.numel, self.into))
        touched = math.nan if math.isnan(self.count) else moved(round(self.count), self.into)
        return Work(flop, self.inputs + (touched if self.additions else 0), touched)


def writes(names: str, inplace: str) -> Callable[[Callable[..., Write]], Callable[..., Write]]:
    """Register a write under its out-of-place and its in-place names."""

    def register(function: Callable[..., Write]) -> Callable[..., Write]:
        for ops, is_inplace in ((names, False), (inplace, True)):

            @functools.wraps(function)
            def count(*arguments: Any, is_inplace: bool = is_inplace) -> Work:
                return function(*arguments).work(is_inplace)

            op(ops)(count)
        return function

    return register


REDUCING = {"add": 1, "sum": 1, "multiply": 1, "prod": 1, "mean": 1, "amax": 0, "amin": 0}


def _reduces(arguments: tuple[Any, ...]) -> int:
    name = next((a for a in arguments if isinstance(a, str)), None)
    return 0 if name is None else REDUCING.get(name, 1)


def _elements(self: Tensor, positions: Tensor, source: Any, additions: int) -> Write:
    """An element per index; of a larger source only as much is read."""
    if isinstance(source, Tensor) and source.numel > positions.numel:
        source = Tensor(positions.shape, source.dtype)
    return Write(self, indices(positions).nbytes + distinct(source), positions.numel, additions)


@writes("scatter", inplace="scatter_")
def scatter(self: Tensor, dim: Any, positions: Tensor, source: Any = None, *arguments: Any) -> Write:
    """self[index] = source, or combined with it where the call has a reduction"""
    return _elements(self, positions, source, _reduces(arguments))


@writes("scatter_add scatter_reduce", inplace="scatter_add_ scatter_reduce_")
def scatter_add(self: Tensor, dim: Any, positions: Tensor, source: Tensor, *arguments: Any) -> Write:
    """self[index] += source: an addition per index"""
    return _elements(self, positions, source, _reduces(arguments) if arguments else 1)


@writes("index_add index_reduce", inplace="index_add_ index_reduce_")
def index_add(self: Tensor, dim: Any, positions: Tensor, source: Tensor, alpha: Any = 1) -> Write:
    """self[index] += alpha * source: an addition per element of the source, a product where alpha is not 1"""
    additions = 1 if isinstance(alpha, str) or number(alpha, 1) == 1 else 2
    return Write(self, indices(positions).nbytes + distinct(source), required(source).numel, additions)


@writes("index_copy", inplace="index_copy_")
def index_copy(self: Tensor, dim: Any, positions: Tensor, source: Tensor) -> Write:
    """self[index] = source"""
    return Write(self, indices(positions).nbytes + distinct(source), required(source).numel)


@writes("index_put _unsafe_index_put", inplace="index_put_ _index_put_impl_")
def index_put(self: Tensor, positions: Any, values: Any, accumulate: Any = False) -> Write:
    """self[i, j, ...] = values, or += with an addition per element

    How many elements a mask selects is not known, unless the values are as many.
    """
    listed = tensors(positions)
    if positions is UNKNOWN or not listed or is_mask(positions):
        count = values.numel if isinstance(values, Tensor) else 0
        if count <= 1 and accumulate is not True:
            return Write(self, distinct(*listed, values), math.nan)
    else:
        count = index_count(self, positions)
    return Write(self, distinct(*map(indices, listed), values), count, 1 if number(accumulate, False) else 0)


@writes("put", inplace="put_")
def put(self: Tensor, positions: Tensor, source: Tensor, accumulate: Any = False) -> Write:
    """self.flat[index] = source, or +="""
    inputs = indices(positions).nbytes + distinct(source)
    return Write(self, inputs, positions.numel, int(number(accumulate, False)))


@op("select_scatter slice_scatter diagonal_scatter as_strided_scatter")
def view_scatter(self: Tensor, source: Tensor) -> Work:
    """A copy of self with a part replaced: read the rest of self and the source, write all"""
    rest = max(self.numel - source.numel, 0)
    return Work(0, moved(rest, self) + source.nbytes, moved(self.numel, self))
