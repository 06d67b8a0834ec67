"""What all op models need: which arguments are tensors, how shapes broadcast. Types are in ``result_types``.

``UNKNOWN`` is an argument that the capture does not have. Where the schema allows a tensor, it stands for an empty size
list of an NVTX range: ``None``, a number or a 0-dimensional tensor. All three take a few bytes at most, so the models
take it for "no tensor". Where the schema demands a tensor, that is a 0-dimensional one (``required``). Where a number
decides the count, the model uses it, and so raises ``UnknownArgument``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pyprof.errors import ModelError, ShapeError
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work

Out = tuple[Tensor | None, ...] | None  # the descriptions of an op's outputs
INDEX_BYTES = 8  # int64, the type of positions


def given(argument: Any) -> Tensor | None:
    """An optional tensor argument: the tensor, or None where there is none or the capture does not have it."""
    return argument if isinstance(argument, Tensor) else None


def required(argument: Any) -> Tensor:
    """A tensor that the schema demands; an NVTX range writes a 0-dimensional one as an empty, so unknown, size list."""
    if isinstance(argument, Tensor):
        return argument
    if argument is UNKNOWN:
        return Tensor(())
    raise ModelError(f"expected a tensor, found {argument!r}")


def number(argument: Any, default: Any) -> Any:
    """The value of an argument whose default nearly every caller keeps; the default where the value is unknown."""
    return default if argument is UNKNOWN or argument is None else argument


def tensors(argument: Any) -> tuple[Tensor, ...]:
    """The tensors of an argument that is a tensor, a list of tensors, or neither."""
    if isinstance(argument, Tensor):
        return (argument,)
    if isinstance(argument, (tuple, list)):
        return tuple(item for item in argument if isinstance(item, Tensor))
    return ()


def numel(shape: Iterable[int]) -> int:
    return math.prod(shape)


def bytes_of(count: int, itemsize: float) -> float:
    """Bytes of ``count`` elements: 0 where there are none, even of a type that is not known (NaN)."""
    return count * itemsize if count else 0


def moved(count: int | None, tensor: Tensor) -> float:
    """Bytes of ``count`` elements of the tensor's type; NaN where the count or the type is not known."""
    return math.nan if count is None else bytes_of(count, tensor.itemsize)


def first_output(out: Out) -> Tensor | None:
    """The description of an op's first output; None where the capture has none."""
    return out[0] if out else None


def result_numel(out: Out, sizes: Any = UNKNOWN) -> int | None:
    """Elements of the first output: as described, else by an argument that lists its sizes; None where neither is."""
    described = first_output(out)
    if described is not None:
        return described.numel
    return None if sizes is UNKNOWN else numel(sizes)


def output(out: Out, otherwise: Tensor) -> Tensor:
    """The first output where the capture describes it, else what the arguments say it must be.

    A description without a type (NVTX) takes the type that the arguments imply.
    """
    described = first_output(out)
    if described is None:
        return otherwise
    return described if described.dtype else Tensor(described.shape, otherwise.dtype, described.strides)


def indices(tensor: Tensor) -> Tensor:
    """An index tensor. Where the capture has no types (NVTX), int64 is assumed: torch's default for indices."""
    return tensor if tensor.dtype else Tensor(tensor.shape, "int64", tensor.strides)


def bool_mask(tensor: Tensor) -> Tensor:
    """A mask. Where the capture has no types, bool: the only type that masked ops take."""
    return tensor if tensor.dtype else Tensor(tensor.shape, "bool", tensor.strides)


def broadcast(op: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape, by NumPy's rule: aligned at the last dimension, 1 stretches."""
    result: list[int] = []
    for shape in shapes:
        result = [1] * (len(shape) - len(result)) + result
        for i, n in enumerate(shape, len(result) - len(shape)):
            if result[i] == 1:
                result[i] = n
            elif n not in (1, result[i]):
                raise ShapeError(op, "shapes that broadcast", " and ".join(map(str, shapes)))
    return tuple(result)


def elementwise(flop: int, inputs: float, result: Tensor) -> Work:
    """One pass: read the inputs, write each element of the result."""
    return Work(flop, inputs, moved(result.numel, result))
