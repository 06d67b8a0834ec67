"""What all op models need: which arguments are tensors, how shapes broadcast. Types are in ``result_types``.

``UNKNOWN`` is an argument that the capture does not have. Where the schema allows a tensor, it stands for an empty size
list of an NVTX range: ``None``, a number or a 0-dimensional tensor. All three take a few bytes at most, so the models
take it for "no tensor". Where the schema demands a tensor, that is a 0-dimensional one (``required``). Where a number
decides the count, the model uses it, and so raises ``UnknownArgument``.
"""

import math
from collections.abc import Iterable
from typing import Any

from pyprof.errors import ModelError, ShapeError
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work

Out = tuple[Tensor | None, ...] | None  # the descriptions of an op's outputs
INDEX_BYTES = 8  # int64, the type of positions


def given(argument: Any) -> Tensor | None:
    """An optional tensor argument: the tensor, or None if it is absent or unknown."""
    return argument if isinstance(argument, Tensor) else None


def required(argument: Any) -> Tensor:
    """A tensor that the schema requires. If unknown, it is 0-dimensional: its size list in an NVTX range is empty."""
    if isinstance(argument, Tensor):
        return argument
    if argument is UNKNOWN:
        return Tensor(())
    raise ModelError(f"expected a tensor, found {argument!r}")


def number(argument: Any, default: Any) -> Any:
    """The value of an argument, or its default if unknown; nearly every caller leaves such an argument at it."""
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
    """Bytes of ``count`` elements: 0 for no elements, even if the dtype is unknown (NaN)."""
    return count * itemsize if count else 0


def moved(count: int | None, tensor: Tensor) -> float:
    """Bytes of ``count`` elements of the tensor's dtype; NaN if the count or the dtype is unknown."""
    return math.nan if count is None else bytes_of(count, tensor.itemsize)


def first_output(out: Out) -> Tensor | None:
    """The description of an op's first output; None where the capture has none."""
    return out[0] if out else None


def result_numel(out: Out, sizes: Any = UNKNOWN) -> int | None:
    """Elements of the first output: as described, or else from an argument with its sizes; None if both are absent."""
    described = first_output(out)
    if described is not None:
        return described.numel
    return None if sizes is UNKNOWN else numel(sizes)


def output(out: Out, otherwise: Tensor) -> Tensor:
    """The first output as the capture describes it, or else as the arguments imply it.

    If the description has no dtype (NVTX), the dtype that the arguments imply is used.
    """
    described = first_output(out)
    if described is None:
        return otherwise
    return described if described.dtype else Tensor(described.shape, otherwise.dtype, described.strides)


def indices(tensor: Tensor) -> Tensor:
    """An index tensor. If the capture has no dtypes (NVTX), int64 is assumed, torch's default for indices."""
    return tensor if tensor.dtype else Tensor(tensor.shape, "int64", tensor.strides)


def bool_mask(tensor: Tensor) -> Tensor:
    """A mask. If the capture has no dtypes, bool is assumed, the only dtype that masked ops accept."""
    return tensor if tensor.dtype else Tensor(tensor.shape, "bool", tensor.strides)


def broadcast(op: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape by NumPy's broadcasting rule: aligned at the last dimension, sizes of 1 expand."""
    result: list[int] = []
    for shape in shapes:
        result = [1] * (len(shape) - len(result)) + result
        for i, n in enumerate(shape, len(result) - len(shape)):
            if result[i] == 1:
                result[i] = n
            elif n not in (1, result[i]):
                raise ShapeError(op, "shapes that broadcast", " and ".join(map(str, shapes)))
    return tuple(result)


def keys_below(queries: int, keys: int, shift: int) -> int:
    """The number of (query i, key j) pairs with j < i + shift, in closed form."""
    first = min(max(-shift, 0), queries)  # the first query with any key
    last = min(max(keys - shift, 0), queries)  # the first query with all keys
    rising = (last - first) * shift + (first + last - 1) * (last - first) // 2
    return rising + (queries - last) * keys


def elementwise(flop: int, inputs: float, result: Tensor) -> Work:
    """The work of one pass that reads the inputs and writes each element of the result."""
    return Work(flop, inputs, moved(result.numel, result))
