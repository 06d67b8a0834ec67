"""Writes by index. Copies count 0 flop; an accumulating write is one addition.

read    the source and the indices (int64 if the capture has no dtypes); if it accumulates, also the indexed elements
write   out of place all of self, which is copied first; in place only the indexed elements, at most all of self
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyprof.prof.ops.evaluation import assumes
from pyprof.prof.ops.indexing import index_count, is_mask
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import bool_mask, indices, moved, number, required, tensors
from pyprof.prof.ops.result_types import addition_flop

op = Family("indexing")


@dataclass(frozen=True, slots=True)
class Write:
    """A write of ``count`` elements into a tensor, and the additions per element; NaN if the count is unknown."""

    into: Tensor
    inputs: float  # bytes of the indices and the source
    count: float
    additions: int = 0
    compares: bool = False  # an extremum, which reads the elements as an addition does
    divides: bool = False  # a mean: a division for each element of the tensor

    def work(self, inplace: bool) -> Work:
        """The work of writing into the tensor itself or, out of place, into a copy of it."""
        flop = round(self.additions * self.count) * addition_flop(self.into) if self.additions else 0
        flop += self.into.numel * addition_flop(self.into) if self.divides else 0
        if not inplace:
            return Work(flop, self.into.nbytes + self.inputs, moved(self.into.numel, self.into))
        touched = math.nan if math.isnan(self.count) else moved(min(round(self.count), self.into.numel), self.into)
        return Work(flop, self.inputs + (touched if self.additions or self.compares else 0), touched)


def writes(names: str, inplace: str) -> Callable[[Callable[..., Write]], Callable[..., Write]]:
    """Register a write for its out-of-place and its in-place ops."""

    def register(function: Callable[..., Write]) -> Callable[..., Write]:
        for ops, is_inplace in ((names, False), (inplace, True)):

            @functools.wraps(function)
            def count(*arguments: Any, is_inplace: bool = is_inplace) -> Work:
                return function(*arguments).work(is_inplace)

            op(ops)(count)
        return function

    return register


EXTREMA = ("amax", "amin")


def _reduction(arguments: tuple[Any, ...], default: str | None) -> Any:
    """The reduction's name, which comes after the source, or ``default`` where ``out=`` or nothing comes there.

    Kineto records no strings. None stands for a name that it left out, and is taken for a sum.
    """
    return default if not arguments or isinstance(arguments[0], Tensor) else arguments[0] or "sum"


@assumes("scatter", "scatter_", "scatter_reduce", "scatter_reduce_", "index_reduce", "index_reduce_")
def _sum_assumed(arguments: tuple[Any, ...]) -> str:
    named = len(arguments) < 5 or isinstance(arguments[4], (str, Tensor))
    return "" if named else "the capture does not name the reduction: taken for a sum"


def _elements(self: Tensor, positions: Tensor, source: Any, reduction: Any) -> Write:
    """Write one element per index; from a larger source, only as many elements are read."""
    if isinstance(source, Tensor) and source.numel > positions.numel:
        source = Tensor(positions.shape, source.dtype)
    additions = 0 if reduction in (None, *EXTREMA) else 1
    inputs = indices(positions).nbytes + distinct(source)
    return Write(self, inputs, positions.numel, additions, reduction in EXTREMA, reduction == "mean")


@writes("scatter", inplace="scatter_")
def scatter(self: Tensor, dim: Any, positions: Tensor, source: Any = None, *arguments: Any) -> Write:
    """self[index] = source, or combined with source if the call has a reduction"""
    return _elements(self, positions, source, _reduction(arguments, None))


@writes("scatter_add scatter_reduce", inplace="scatter_add_ scatter_reduce_")
def scatter_add(self: Tensor, dim: Any, positions: Tensor, source: Tensor, *arguments: Any) -> Write:
    """self[index] += source: 1 addition per index; for a mean also 1 division per element of self"""
    return _elements(self, positions, source, _reduction(arguments, "sum"))


@writes("index_add index_reduce", inplace="index_add_ index_reduce_")
def index_add(self: Tensor, dim: Any, positions: Tensor, source: Tensor, alpha: Any = 1) -> Write:
    """self[index] += alpha * source: per element of the source 1 addition, and 1 product if alpha is not 1"""
    inputs, count = indices(positions).nbytes + distinct(source), required(source).numel
    if alpha in EXTREMA:
        return Write(self, inputs, count, compares=True)
    additions = 1 if isinstance(alpha, (str, Tensor)) or number(alpha, 1) == 1 else 2
    return Write(self, inputs, count, additions, divides=alpha == "mean")


@writes("index_copy", inplace="index_copy_")
def index_copy(self: Tensor, dim: Any, positions: Tensor, source: Tensor) -> Write:
    """self[index] = source"""
    return Write(self, indices(positions).nbytes + distinct(source), required(source).numel)


@writes("index_put _unsafe_index_put", inplace="index_put_ _index_put_impl_")
def index_put(self: Tensor, positions: Any, values: Any, accumulate: Any = False) -> Write:
    """self[i, j, ...] = values, or += with 1 addition per element

    How many elements a mask selects is unknown, unless the number of values shows it. One value for the elements of a
    mask is written by ``masked_fill``, which reads and writes all of self.
    """
    listed = tensors(positions)
    is_fill = isinstance(values, Tensor) and values.numel == 1 and accumulate is not True
    if len(listed) == 1 and is_mask(positions) and is_fill:
        return Write(self, distinct(*listed, values), self.numel, compares=True)
    if positions is UNKNOWN or not listed or is_mask(positions):
        count = values.numel if isinstance(values, Tensor) else 0
        if count <= 1 and accumulate is not True:
            return Write(self, distinct(*listed, values), math.nan)
    else:
        count = index_count(self, positions)
    return Write(self, distinct(*map(indices, listed), values), count, 1 if number(accumulate, False) else 0)


@op("_unsafe_masked_index_put_accumulate")
def masked_index_put(self: Tensor, mask: Tensor, positions: Any, values: Tensor) -> Work:
    """A copy of self, to which the values are added where the mask is set: 1 addition per value"""
    inputs = distinct(bool_mask(mask), *map(indices, tensors(positions)), values)
    return Write(self, inputs, values.numel, 1).work(inplace=False)


@writes("put", inplace="put_")
def put(self: Tensor, positions: Tensor, source: Tensor, accumulate: Any = False) -> Write:
    """self.flat[index] = source, or +="""
    inputs = indices(positions).nbytes + distinct(source)
    return Write(self, inputs, positions.numel, int(number(accumulate, False)))


@op("select_scatter slice_scatter diagonal_scatter as_strided_scatter")
def view_scatter(self: Tensor, source: Tensor) -> Work:
    """Copies self with a part replaced: reads the source and the rest of self, writes all"""
    rest = max(self.numel - source.numel, 0)
    return Work(0, moved(rest, self) + source.nbytes, moved(self.numel, self))
