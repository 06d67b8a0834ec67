"""Ops that fill tensors: with one value, sequences of numbers, indices of triangles. 0 flop, except for windows.

write   the result

If neither the capture nor the arguments give the size and dtype of the result, the bytes are NaN, not 0.
"""

import math
from typing import Any

from pyprof.prof.ops.model import UNKNOWN, Family, Tensor, Work, distinct
from pyprof.prof.ops.operands import Out, elementwise, first_output, keys_below, moved, output, required, tensors
from pyprof.prof.ops.result_types import dtype_name, type_of_number

op, pointwise_op = Family("fill"), Family("pointwise")


@op("fill_ fill zero_ zero fill_diagonal_")
def fill_(self: Tensor, value: Any = None, *, out: Out = None) -> Work:
    """Writes every element; reads the value if it is a tensor"""
    return elementwise(0, distinct(value), output(out, required(self)))


def filled(out: Out, size: Any, dtype: str) -> Work:
    """The work of writing a new tensor, as the capture describes it, or else by its size and dtype arguments."""
    result = first_output(out)
    if result is None:
        result = Tensor((size,) if isinstance(size, int) else tuple(size), dtype)
    return Work(0, 0, moved(result.numel, result))


@op("zeros ones")
def zeros(size: Any, dtype: Any = None, *, out: Out = None) -> Work:
    """Writes every element of a new tensor; the default dtype is float32"""
    return filled(out, size, "" if dtype is UNKNOWN else dtype_name(dtype) or "float32")


@op("full", "scalar_tensor (value, dtype)")
def full(size: Any = (), value: Any = 0, dtype: Any = None, *, out: Out = None) -> Work:
    """Writes every element of a new tensor, whose default dtype follows from the value"""
    kind = type_of_number(value) if isinstance(value, int) else "float32"
    return filled(out, size, "" if dtype is UNKNOWN else dtype_name(dtype) or kind)


@op("new_zeros new_ones", "new_full (self, size, _value, dtype)")
def new_zeros(self: Tensor, size: Any, dtype: Any = None, *, out: Out = None) -> Work:
    """As ``zeros`` and ``full``, in self's type"""
    return filled(out, size, dtype_name(dtype) or self.dtype)


@op("_new_zeros_with_same_feature_meta")
def new_tangent(self: Tensor, other: Tensor, self_num_batch_dims: int = 0) -> Work:
    """Zeros of other's shape and type, once for each of self's first dimensions, which vmap maps over"""
    return filled(None, (*self.shape[: int(self_num_batch_dims)], *other.shape), other.dtype)


@op("zeros_like ones_like", "full_like (self, _value, dtype)")
def zeros_like(self: Tensor, dtype: Any = None, *, out: Out = None) -> Work:
    """Writes as many elements as self has; self is not read"""
    return elementwise(0, 0, output(out, Tensor(required(self).shape, dtype_name(dtype) or required(self).dtype)))


@op("arange")
def arange(*bounds: Any, out: Out = None) -> Work:
    """Writes ceil((end - start) / step) elements: int64 for integers, else float32. Their arithmetic is not counted.

    ``arange(end)``, ``arange(start, end)`` and ``arange(start, end, step)`` differ in how many numbers precede the
    dtype.
    A trace records the dtype as a number as well, so only captures that have the outputs are certain.
    """
    described = first_output(out)
    if described is not None:
        return Work(0, 0, moved(described.numel, described))
    result = next((x for x in bounds if isinstance(x, Tensor)), None)  # the argument out=, which the call resizes
    before = bounds[: bounds.index(result)] if result is not None else bounds[: max(1, len(bounds) - 4)]
    numbers = [x for x in before if isinstance(x, (int, float)) and not isinstance(x, bool)]
    if not numbers:
        return Work(0, 0, math.nan)
    start, end, step = ([0, *numbers, 1] if len(numbers) == 1 else [*numbers, 1])[:3]
    dtype = "int64" if all(isinstance(x, int) for x in numbers) else "float32"
    asked = dtype_name(bounds[-4]) if len(bounds) > 4 else None
    typed = asked if result is None else result.dtype
    return Work(0, 0, moved(math.ceil((end - start) / step), Tensor((), typed or dtype)))


@op("linspace (start, end, steps, dtype)", "logspace (start, end, steps, _base, dtype)")
def linspace(start: Any, end: Any, steps: Any, dtype: Any = None, *, out: Out = None) -> Work:
    """Writes ``steps`` elements; their arithmetic is not counted"""
    return filled(out, steps, dtype_name(dtype) or "float32")


@op("tril_indices")
def tril_indices(row: Any, col: Any, offset: Any = 0, *, out: Out = None) -> Work:
    """Write two int64 per element of the triangle"""
    described = first_output(out)
    if described is not None:
        return Work(0, 0, moved(described.numel, described))
    return Work(0, 0, 2 * 8 * keys_below(row, col, 1 + offset))


@op("triu_indices")
def triu_indices(row: Any, col: Any, offset: Any = 0) -> Work:
    """Write two int64 per element of the triangle"""
    return Work(0, 0, 2 * 8 * (row * col - keys_below(row, col, offset)))


@op("eye")
def eye(n: Any, *arguments: Any, out: Out = None) -> Work:
    """Writes an n by n, or n by m, matrix. After n and m stand the dtype and three more arguments, or ``out=``."""
    m = next(iter(arguments), None) if len(arguments) != 4 else None
    dtype = dtype_name(arguments[-4]) if len(arguments) > 3 else next(map(dtype_name, tensors(arguments)), None)
    return filled(out, (n, m if isinstance(m, int) else n), dtype or "float32")


WINDOWS = (  # name, FLOPs per element, formula
    ("hann hamming", 4, "a - b cos(2 pi n / N)"),
    ("blackman", 8, "a - b cos(2 pi n / N) + c cos(4 pi n / N)"),
    ("bartlett", 3, "1 - |2 n / N - 1|"),
    ("kaiser", 8, "i0(beta sqrt(1 - x x)) / i0(beta), x = 2 n / N - 1"),
)


def _register_window(names: str, flop: int, formula: str) -> None:
    def window(length: int, *arguments: Any, out: Out = None) -> Work:
        dtype = dtype_name(arguments[-4]) if len(arguments) > 3 else next(map(dtype_name, tensors(arguments)), None)
        return filled(out, length, dtype or "float32") + Work(flop * length)

    window.__doc__ = f"{formula}: {flop} flop per element. The dtype and three more arguments come last"
    pointwise_op(" ".join(f"{name}_window" for name in names.split()))(window)


for _row in WINDOWS:
    _register_window(*_row)
