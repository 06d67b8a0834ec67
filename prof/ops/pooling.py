"""Pooling. O elements of the result, E of the input; windows along each dimension by kernel, stride and padding.

maximum     forward 0 flop; backward adds each gradient to its position: O
average     forward k - 1 additions and a division per window of k, padding zeros included: k per element of the result;
            backward a division per element of g, and an addition wherever windows overlap
adaptive    windows from floor(i E / O) to ceil((i + 1) E / O) in each dimension, which may overlap
read        the input (backward: g and the positions, not the input)
write       the result, and int64 positions
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyprof.errors import ModelError, UnknownArgument
from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work
from pyprof.prof.ops.operands import INDEX_BYTES, Out, first_output, moved, number, numel, result_numel
from pyprof.prof.ops.result_types import addition_flop

op = Family("pooling")


def each(value: Any, n: int) -> tuple[int, ...]:
    """A kernel, stride or padding for n dimensions; a single number applies to all."""
    if value is UNKNOWN:
        raise UnknownArgument("the capture does not have the pooling window")
    listed = (value,) if isinstance(value, int) else tuple(value)
    return listed * n if len(listed) == 1 else listed


def pooled(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """The output length in one dimension; no window starts in the padding at the end (aten/native/Pool.h)."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    length = (-(-span // stride) if ceil_mode else span // stride) + 1
    return length - 1 if ceil_mode and (length - 1) * stride >= size + padding else length


def steps(kernel: Any, stride: Any) -> Any:
    """The stride; by default the kernel's size."""
    return kernel if stride is None or (isinstance(stride, (list, tuple)) and not stride) else stride


@dataclass(frozen=True, slots=True)
class Pool:
    """The arguments of max_pool or avg_pool."""

    x: Tensor
    kernel: Any
    stride: Any = None
    padding: Any = 0
    dilation: Any = 1
    ceil_mode: Any = False

    def result_shape(self, n: int, out: Out) -> tuple[int, ...]:
        """The result's shape: from the capture, or computed from the window."""
        described = first_output(out)
        if described is not None:
            return described.shape
        moves = (self.kernel, steps(self.kernel, self.stride), self.padding, self.dilation)
        dimensions = zip(self.x.shape[-n:], *(each(move, n) for move in moves), strict=True)
        ceil = bool(number(self.ceil_mode, False))
        return (*self.x.shape[:-n], *(pooled(size, k, s, p, d, ceil) for size, k, s, p, d in dimensions))


def _max(n: int, positions: bool, call: Pool, out: Out) -> Work:
    if call.kernel is UNKNOWN and not out:
        return Work(0, call.x.nbytes, math.nan)
    count = numel(call.result_shape(n, out))
    return Work(0, call.x.nbytes, moved(count, call.x) + (INDEX_BYTES * count if positions else 0))


def _register_max(n: int) -> None:
    def with_indices(call: Pool, out: Out = None) -> Work:
        """Comparisons; values and positions"""
        return _max(n, True, call, out)

    def values(call: Pool, out: Out = None) -> Work:
        """Comparisons; writes values and positions. In one dimension, positions are only written if a gradient is
        needed."""
        return _max(n, n > 1 or call.x.needs_grad, call, out)

    arguments = "(x, kernel, stride, padding, dilation, ceil_mode)"
    op(f"max_pool{n}d_with_indices {arguments}", takes=Pool)(with_indices)
    op(f"max_pool{n}d {arguments}", takes=Pool)(values)


for _n in (1, 2, 3):
    _register_max(_n)


@op(
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward adaptive_max_pool2d_backward "
    "adaptive_max_pool3d_backward fractional_max_pool2d_backward fractional_max_pool3d_backward"
)
def max_pool_backward(grad: Tensor, self: Tensor) -> Work:
    """dx[position] += g: 1 addition per element of g. Reads g and the positions, writes all of dx."""
    return Work(grad.numel, grad.nbytes + INDEX_BYTES * grad.numel, moved(self.numel, self))


def adaptive_shape(self: Tensor, n: int, size: Any, out: Out) -> tuple[int, ...]:
    """The output shape from the requested size; None keeps a dimension."""
    described = first_output(out)
    if described is not None:
        return described.shape
    wanted: tuple[int | None, ...] = each(size, n)
    return (*self.shape[:-n], *(w if w is not None else s for w, s in zip(wanted, self.shape[-n:], strict=True)))


def spans(inputs: Iterable[int], outputs: Iterable[int]) -> int:
    """Total elements of all adaptive windows: per dimension the sum of the windows' lengths, multiplied.

    The windows cover n elements once, and all but gcd(n, count) of their ends fall within an element, which is in two.
    """
    sides = zip(inputs, outputs, strict=True)
    return math.prod(size + count - math.gcd(size, count) if size and count else 0 for size, count in sides)


def _register_adaptive(n: int) -> None:
    def adaptive_max(self: Tensor, size: Any, *, out: Out = None) -> Work:
        """Comparisons; values and positions"""
        count = numel(adaptive_shape(self, n, size, out))
        return Work(0, self.nbytes, moved(count, self) + INDEX_BYTES * count)

    def adaptive_avg(self: Tensor, size: Any, *, out: Out = None) -> Work:
        """Additions and a division per window: as many flop as the window has elements"""
        shape = adaptive_shape(self, n, size, out)
        flop = numel(self.shape[:-n]) * spans(self.shape[-n:], shape[-n:])
        return Work(flop, self.nbytes, moved(numel(shape), self))

    def whole_backward(self: Tensor, size: Any, *, out: Out = None) -> Work:
        """dx += g / k of each window that holds it"""
        return _adaptive_backward(self.like(adaptive_shape(self, n, size, out)), self, n)

    def backward(grad: Tensor, self: Tensor) -> Work:
        """dx += g / k of each window that holds it"""
        return _adaptive_backward(grad, self, n)

    op(f"adaptive_max_pool{n}d")(adaptive_max)
    op(f"adaptive_avg_pool{n}d")(adaptive_avg)
    op(f"adaptive_avg_pool{n}d.backward")(whole_backward)
    if n > 1:
        op(f"_adaptive_avg_pool{n}d")(adaptive_avg)
        op(f"_adaptive_avg_pool{n}d_backward")(backward)


def _adaptive_backward(grad: Tensor, self: Tensor, n: int) -> Work:
    """1 division per element of g, and 1 addition for each further window that covers an element."""
    shared = numel(self.shape[:-n]) * spans(self.shape[-n:], grad.shape[-n:]) - self.numel
    return Work(grad.numel + max(shared, 0), grad.nbytes, moved(self.numel, self))


def overlap(size: int, count: int, kernel: int, stride: int, padding: int) -> tuple[int, int]:
    """For one dimension: (sum of the windows' lengths, number of elements in any window), without padding."""
    if padding > kernel:
        raise ModelError(f"a padding of {padding} is wider than the window of {kernel}")
    count = min(count, (size + padding - 1) // stride + 1)  # windows that begin before the other side
    if count <= 0:
        return 0, 0
    before = min(-(-padding // stride), count)  # windows that begin in the padding
    inside = min(max((size + padding - kernel) // stride + 1, 0), count)  # windows that end before its other side
    begins = stride * (count * (count - 1) - before * (before - 1)) // 2 - padding * (count - before)
    ends = stride * inside * (inside - 1) // 2 + inside * (kernel - padding) + (count - inside) * size
    last = min((count - 1) * stride - padding + kernel, size)
    return ends - begins, last if stride <= kernel else ends - begins


def _register_avg(n: int) -> None:
    def avg(call: Pool, out: Out = None) -> Work:
        """k - 1 additions and 1 division per element of the result"""
        count = numel(call.result_shape(n, out))
        return Work(count * numel(each(call.kernel, n)) * addition_flop(call.x), call.x.nbytes, moved(count, call.x))

    def backward(grad: Tensor, self: Tensor, kernel: Any, stride: Any = None, padding: Any = 0) -> Work:
        """1 division per element of g, and 1 addition for each further window that covers an element"""
        moves = (each(kernel, n), each(steps(kernel, stride), n), each(padding, n))
        counts = [overlap(*dimension) for dimension in zip(self.shape[-n:], grad.shape[-n:], *moves, strict=True)]
        shared = math.prod(c for c, _ in counts) - math.prod(c for _, c in counts)
        return Work(grad.numel + numel(self.shape[:-n]) * shared, grad.nbytes, moved(self.numel, self))

    def whole_backward(call: Pool, out: Out = None) -> Work:
        """Same as ``avg_pool_backward``"""
        return backward(call.x.like(call.result_shape(n, out)), call.x, call.kernel, call.stride, call.padding)

    arguments = "(x, kernel, stride, padding, ceil_mode)"
    op(f"avg_pool{n}d {arguments}", takes=Pool)(avg)
    if n > 1:
        op(f"avg_pool{n}d_backward")(backward)
    else:
        op(f"avg_pool1d.backward {arguments}", takes=Pool)(whole_backward)


for _n in (1, 2, 3):
    _register_adaptive(_n)
    _register_avg(_n)


@op("max_unpool2d max_unpool3d")
def max_unpool(self: Tensor, positions: Tensor, size: Any = UNKNOWN, *, out: Out = None) -> Work:
    """Writes each value to its position, zeros elsewhere"""
    known = UNKNOWN if size is UNKNOWN else (*self.shape[: -len(size)], *size)
    return Work(0, self.nbytes + INDEX_BYTES * positions.numel, moved(result_numel(out, known), self))


@op("fractional_max_pool2d fractional_max_pool3d")
def fractional_max_pool(self: Tensor, kernel: Any, size: Any, *, out: Out = None) -> Work:
    """Comparisons; values and positions"""
    described = first_output(out)
    count = described.numel if described is not None else numel((*self.shape[: -len(size)], *size))
    return Work(0, self.nbytes, moved(count, self) + INDEX_BYTES * count)
