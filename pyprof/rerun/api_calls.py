"""A user's call from its marker: torch's function of that name, and a value for each argument."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from pyprof.marker import Marker
from pyprof.prof.ops.evaluation import find, function_of
from pyprof.prof.ops.marker_arguments import call_arguments
from pyprof.prof.ops.model import UNKNOWN, Tensor
from pyprof.rerun.new_inputs import Contents, NewInputs, NotRecreated
from pyprof.rerun.valid_values import api_bounds, is_index, is_positive, is_probability

NAMESPACES: Mapping[str, Any] = {
    "torch": torch,
    "torch.nn.functional": torch.nn.functional,
    "torch.special": torch.special,
    "torch.linalg": torch.linalg,
    "torch.fft": torch.fft,
    "Tensor": torch.Tensor,
}
INTEGERS = ("int64", "int32")


@cache
def _overridable() -> dict[Any, frozenset[str]]:
    """The functions of each namespace that take tensors, by torch's own list."""
    found = torch.overrides.get_overridable_functions()
    return {owner: frozenset(each.__name__ for each in functions) for owner, functions in found.items()}


def api_function(marker: Marker) -> Callable[..., Any]:
    """torch's function. Raises NotRecreated if it is not one that takes tensors and that pyprof has a model of."""
    owner = NAMESPACES.get(marker.mod)
    listed = marker.op in _overridable().get(owner, ()) or (
        marker.mod == "torch" and hasattr(torch.ops.aten, marker.op)
    )
    known = owner is not None and listed and find(function_of(marker.op))
    function = getattr(owner, marker.op, None) if known else None
    if not callable(function):
        raise NotRecreated(f"{marker.mod[:40]}.{marker.op[:40]} is no function of torch that pyprof has a model of")
    return function  # type: ignore[no-any-return]  # of a namespace of torch


def api_arguments(marker: Marker, inputs: NewInputs) -> tuple[list[Any], dict[str, Any]]:
    """The positional and named arguments. Raises NotRecreated if the marker was cut or holds an object."""
    described = call_arguments(marker)
    names = [str(argument.get("name", "")) for argument in marker.args]
    bounds = api_bounds(marker.op, described)
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for place, (name, recorded, argument) in enumerate(zip(names, marker.args, described, strict=True)):
        below = bounds.get(place) if isinstance(argument, Tensor) and argument.dtype in INTEGERS else None
        value = _value(marker.op, place, name, recorded, argument, below, inputs)
        if named or (name and place and marker.mod != "Tensor"):
            named[name] = value
        else:
            positional.append(value)
    return positional, named


def _value(
    op: str, place: int, name: str, recorded: Mapping[str, Any], argument: Any, below: int | None, inputs: NewInputs
) -> Any:
    kind = recorded["type"]
    if isinstance(argument, Tensor):
        if recorded.get("layout") or recorded.get("class"):
            raise NotRecreated(f"{name or 'an argument'} is a {recorded.get('layout') or recorded.get('class')} tensor")
        if below is None and argument.dtype in INTEGERS and is_index(name):
            raise NotRecreated(f"what the indices {name} point at is not known")
        return inputs.tensor(argument, Contents(below, is_probability(op, place), is_positive(name)))
    if "len" in recorded or recorded.get("cut"):
        raise NotRecreated(f"{name or 'an argument'} was too long for the capture")
    if "items" in recorded:
        return [_listed(item, Contents(is_positive=is_positive(name)), inputs) for item in argument]
    if kind == "device":
        return inputs.device
    if kind in ("dtype", "layout", "memory_format") and isinstance(argument, str):
        return getattr(torch, argument, None)
    if argument is UNKNOWN or kind in ("slice", "ellipsis", "..."):
        raise NotRecreated(f"{name or 'an argument'} ({kind[:40]}) is not recorded")
    return tuple(argument) if isinstance(argument, list) else argument


def _listed(item: Any, contents: Contents, inputs: NewInputs) -> Any:
    if isinstance(item, Tensor):
        return inputs.tensor(item, contents)
    if item is UNKNOWN:
        raise NotRecreated("an item of a list is not recorded")
    return item
