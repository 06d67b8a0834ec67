"""A recorded aten op as a call: its overload in this torch, and a value for each argument of its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from pyprof.dtypes import DTYPES
from pyprof.marker import Marker
from pyprof.prof.ops.evaluation import find
from pyprof.prof.ops.model import FAMILY, UNKNOWN, Tensor
from pyprof.rerun.new_inputs import NORMAL, Contents, NewInputs, NotRecreated
from pyprof.rerun.valid_values import index_bounds, is_index, is_positive, is_probability, is_seed, list_bounds

_NUMBERS = frozenset({"int64", "float64", "bool", "complex128"})  # the dtypes of tensors that wrap a Python number
_NUMERIC = (bool, int, float)
# By the numbers that Kineto records: c10/core/ScalarType.h, Layout.h and MemoryFormat.h
CONSTANTS: Mapping[str, Mapping[int, Any]] = {
    "ScalarType": {row.number: getattr(torch, name) for name, row in DTYPES.items()
                   if row.number is not None and hasattr(torch, name)},
    "Layout": {0: torch.strided},
    "MemoryFormat": {0: torch.contiguous_format, 1: torch.preserve_format, 2: torch.channels_last,
                     3: torch.channels_last_3d},
}  # fmt: skip


def aten_overload(op: str, arguments: Sequence[Any]) -> Any:
    """The overload whose schema the recorded arguments fit. Raises NotRecreated if the op has no model, or none fits.

    A model is required because an op may do anything: some read files.
    """
    name = op.removeprefix("aten::").partition(".")[0]
    packet = getattr(torch.ops.aten, name, None) if find(op) and name.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        raise NotRecreated(_no_op(op))
    overloads = [each for each in (getattr(packet, name) for name in packet.overloads()) if _makes_tensors(each)]
    for undefined in (False, True):  # some ops of C++ take undefined tensors where their schema has a tensor
        fitting = [each for each in overloads if _fits(each._schema.arguments, arguments, undefined)]
        if fitting:
            return min(fitting, key=lambda each: len(each._schema.arguments))
    raise NotRecreated(f"no overload of {op[:60]} in this torch takes the recorded arguments")


def _no_op(op: str) -> str:
    """Why an op cannot be called by its name."""
    if FAMILY.get(find(op) or "") == "collective" or op.startswith(("nccl:", "record_param_comms")):
        return "a collective: it needs the other ranks"
    if op.startswith("triton_"):
        return "a kernel that torch.compile generated"
    if not op.startswith("aten::"):
        return f"{op[:60]} is no op of torch's own"
    return f"{op[:60]} is no op of this torch that pyprof has a model of"


def _makes_tensors(overload: Any) -> bool:
    """Whether it is an op on tensors. TorchScript has others of the same names, on numbers and lists."""
    return any("Tensor" in str(each.type) for each in (*overload._schema.returns, *overload._schema.arguments))


def _fits(schema: Sequence[Any], arguments: Sequence[Any], undefined: bool) -> bool:
    """Whether each recorded argument has the kind that the schema wants. Arguments that follow must have defaults."""
    if len(arguments) > len(schema) or not all(each.has_default_value() for each in schema[len(arguments) :]):
        return False
    pairs = ((str(each.type), value) for each, value in zip(schema, arguments, strict=False))
    return all((undefined and value is None) or _fits_kind(kind, value) for kind, value in pairs)


def _fits_kind(kind: str, value: Any) -> bool:
    if isinstance(value, Tensor):
        return kind in ("Tensor", "Optional[Tensor]")
    if isinstance(value, tuple) and any(isinstance(item, Tensor) for item in value):
        return kind.startswith(("List[Tensor]", "List[Optional[Tensor]]"))
    if kind == "Tensor" or (kind.startswith("List[Tensor]") and value != ()):
        return False
    if isinstance(value, _NUMERIC):
        return not kind.startswith("List") and "Tensor" not in kind and kind != "str"
    if isinstance(value, (list, tuple)):
        return kind.startswith(("List", "Optional[List"))
    return True  # None, UNKNOWN or a text, from which alone no kind follows


def aten_arguments(
    op: str, schema: Sequence[Any], values: Sequence[Any], markers: Sequence[Marker], inputs: NewInputs
) -> list[Any]:
    """A value for each argument of the schema, up to the last one recorded."""
    name = op.removeprefix("aten::").partition(".")[0]
    contents = _contents(name, schema, values)
    made = []
    for position, (argument, value) in enumerate(zip(schema, values, strict=False)):
        if isinstance(value, Tensor):
            made.append(inputs.tensor(value, contents[position]))
        elif isinstance(value, tuple) and any(isinstance(item, Tensor) for item in value):
            bounds = list_bounds(name, values) if position == 1 else {}
            usual = Contents(is_positive=is_positive(argument.name))
            made.append([_item(item, bounds.get(place), usual, inputs) for place, item in enumerate(value)])
        else:
            made.append(_plain(argument, value, markers, inputs.device))
    return made


def _item(item: Any, below: int | None, usual: Contents, inputs: NewInputs) -> Any:
    if not isinstance(item, Tensor):
        return None
    is_indices = below is not None and item.dtype in ("int64", "int32")
    return inputs.tensor(item, Contents(below=below) if is_indices else usual)


def _contents(name: str, schema: Sequence[Any], values: Sequence[Any]) -> list[Contents]:
    """What each tensor may contain."""
    bounds = index_bounds(name, values)
    has_dimensions = any(isinstance(value, Tensor) and value.shape for value in values)
    found = []
    for position, (argument, value) in enumerate(zip(schema, values, strict=False)):
        if not isinstance(value, Tensor):
            found.append(NORMAL)
        elif position in bounds:
            found.append(Contents(below=bounds[position]))
        elif is_seed(argument.name):
            found.append(Contents(is_seed=True))
        elif value.dtype in ("int64", "int32") and is_index(argument.name):
            raise NotRecreated(f"what the indices {argument.name} point at is not known")
        else:
            is_number = not value.shape and value.dtype in _NUMBERS and has_dimensions and argument.name == "other"
            found.append(Contents(None, is_probability(name, position), is_positive(argument.name), on_host=is_number))
    return found


def _plain(argument: Any, value: Any, markers: Sequence[Marker], device: torch.device) -> Any:
    """The value of an argument that is no tensor."""
    kind = str(argument.type)
    if "Device" in kind:
        return device
    if value is UNKNOWN or value is None:
        return _missing(argument, kind, markers)
    if kind in ("str", "Optional[str]") and not isinstance(value, str):
        raise NotRecreated(f"{argument.name} is not recorded")
    if isinstance(value, str) and "str" not in kind:
        raise NotRecreated(f"{argument.name}={value[:40]!r} is not understood")
    if isinstance(value, (list, tuple)):
        return list(value)
    return _constant(str(argument.real_type).removeprefix("Optional[").removesuffix("]"), argument.name, value)


def _constant(kind: str, name: str, value: Any) -> Any:
    """torch's own constant, where the number stands for one. torch would look up any number without a check."""
    if kind not in CONSTANTS:
        return value
    if type(value) is not int or value not in CONSTANTS[kind]:
        raise NotRecreated(f"{name}={str(value)[:40]} is not understood")
    return CONSTANTS[kind][value]


def _missing(argument: Any, kind: str, markers: Sequence[Marker]) -> Any:
    """An argument that is not recorded: profilers leave out None, and texts, which only the user's call has."""
    for marker in reversed(markers):
        for given in marker.args:
            if given.get("name") == argument.name and isinstance(given.get("value"), str) and "str" in kind:
                return given["value"]
    if argument.has_default_value() and (argument.default_value is None or "str" not in kind):
        return argument.default_value
    if kind.startswith("Optional") or kind == "Tensor":  # torch takes None for an undefined tensor
        return None
    if argument.has_default_value() and not _has_choice(argument):
        return argument.default_value
    raise NotRecreated(f"{argument.name} is not recorded")


def _has_choice(argument: Any) -> bool:
    """Whether the op may have run with another text than the default. Without the user's call nobody knows."""
    return isinstance(argument.default_value, str)
