"""The arguments of a user's call, as its marker describes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pyprof.marker import Marker
from pyprof.prof.ops.model import UNKNOWN, Tensor

__all__ = ["call_arguments", "tensors_within"]

_NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}  # JSON has no such numbers


def call_arguments(marker: Marker) -> tuple[Any, ...]:
    """Arguments of an API call from its marker, in call order."""
    return tuple(_argument(argument) for argument in marker.args)


def _argument(argument: Mapping[str, Any]) -> Any:
    if argument.get("type", "") == "tensor":
        stride = argument.get("stride")
        shape = tuple(argument.get("shape", ()))
        return Tensor(shape, str(argument.get("dtype", "")), tuple(stride) if stride else None)
    if "items" in argument:
        return tuple(_argument(item) for item in argument["items"])
    value = argument.get("value", UNKNOWN)
    return _NUMBERS.get(value, value) if isinstance(value, str) else value


def tensors_within(arguments: Sequence[Any]) -> list[Tensor]:
    """The tensors among the arguments and in their lists, in order."""
    tensors: list[Tensor] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            tensors.append(argument)
        elif isinstance(argument, tuple):
            tensors += tensors_within(argument)
    return tensors
