"""Describe a call's arguments in the forms of marker.py, and compute the key under which a description is remembered.

No tensor's data is read: no `.item()`, no copy, no synchronization, no repr. A Tensor subclass's shape is read without
calling its `__torch_function__`. A description is made once per distinct call; the key is computed for every call.
"""

import inspect
import math
from collections.abc import Iterable
from types import EllipsisType, NoneType
from typing import Any

import torch
from torch.nn import Parameter

from pyprof.capture.targets import Parameters, Target
from pyprof.interruption import is_from_outside
from pyprof.marker import LONG_LIST, MAX_TEXT, PACKED, Marker, format_marker
from pyprof.packed_weights import unpacked

TRACE_ROOM = 20_000  # characters kept free for the call stack, out of the MAX_TEXT characters of a marker
_DEEPEST = 4  # the deepest nesting of lists that is described
_AS_THEY_ARE = (bool, int, str, NoneType)
_AS_STRINGS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
PLAIN = frozenset({*_AS_THEY_ARE, *_AS_STRINGS, float, complex, EllipsisType})  # hashable; the key holds type and value

_SCALARS = (int, float, bool, complex, type(None))  # accepted where a Tensor is expected


class StepAside(Exception):
    """Raised for a call on fake tensors, which computes nothing and gets no marker."""


def text(target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], autocast: str | None) -> str:
    """The marker's text for one call, without the call stack. Raises StepAside for fake tensors.

    The user's classes may raise any other exception; the caller catches it.
    """
    described = [describe(arg, name) for name, arg in zip(_names(target, args), args, strict=True)]
    described += [describe(arg, name) for name, arg in kwargs.items()]
    return format_marker(Marker(target.mod, target.op, described, autocast), MAX_TEXT - TRACE_ROOM)


def describe(arg: Any, name: str = "", depth: int = 0) -> dict[str, Any]:
    """Describe one argument in one of marker.py's forms. A value of any other type is described by its type's name."""
    kind = type(arg)
    if isinstance(arg, torch.Tensor):
        return {"name": name, **_tensor(arg)}
    form: dict[str, Any] = {"name": name, "type": kind.__name__}
    if kind in _AS_THEY_ARE:
        form["value"] = arg
    elif kind is float:
        form["value"] = arg if math.isfinite(arg) else str(arg)
    elif kind in _AS_STRINGS:
        form["value"] = str(arg).removeprefix("torch.")
    elif kind is complex or kind is EllipsisType:
        form["value"] = str(arg)
    elif kind is slice:
        form["value"] = ":".join("" if part is None else _part(part) for part in (arg.start, arg.stop, arg.step))
    elif isinstance(arg, (list, tuple)):
        form |= _sequence(arg, depth)
    elif kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        form |= {"shape": list(arg.shape), "dtype": str(arg.dtype)}
    elif kind is torch.ScriptObject and (packed := _packed(arg)) is not None:
        shape, dtype, *moves = packed
        items = [{"type": "tensor", "shape": list(shape), "dtype": dtype}]
        form |= {"type": PACKED, "items": items + [{"type": type(each).__name__, "value": each} for each in moves]}
    return form


def _packed(arg: Any) -> tuple[Any, ...] | None:
    """The sizes of a packed weight; None for another object, and where torch cannot unpack it."""
    with torch._C.DisableTorchFunction():
        try:
            return unpacked(arg)
        except (RuntimeError, AttributeError) as error:
            if is_from_outside(error):
                raise
            return None


def key_of(arg: Any) -> Any:
    """A hashable key of everything on which the argument's description depends; mode.py inlines it for usual types."""
    kind = type(arg)
    if isinstance(arg, torch.Tensor):
        return _tensor_key(arg)
    if kind in PLAIN:
        return kind, arg
    if kind is slice:
        return kind, key_of(arg.start), key_of(arg.stop), key_of(arg.step)
    if isinstance(arg, (list, tuple)):
        return kind, len(arg), *_item_keys(arg[:LONG_LIST])
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return kind, arg.shape, arg.dtype
    if kind is torch.ScriptObject:
        return kind, _packed(arg)
    return kind


def _item_keys(items: list[Any] | tuple[Any, ...]) -> Iterable[Any]:
    """One key per item. Fast for lists of plain tensors, since optimizers pass hundreds of them."""
    try:  # the layout is part of the key because the strides of some sparse tensors are meaningless
        return [
            (item.shape, item.dtype, item.stride(), item.device, item.layout)
            if (kind := type(item)) is torch.Tensor or kind is Parameter
            else key_of(item)
            for item in items
        ]
    except RuntimeError as error:  # sparse CSR and nested tensors have no strides
        if is_from_outside(error):
            raise
        return map(key_of, items)


def _part(part: Any) -> str:
    return str(part) if type(part) is int else type(part).__name__


def _sequence(items: Any, depth: int) -> dict[str, Any]:
    if depth >= _DEEPEST:
        return {"len": len(items)}
    form: dict[str, Any] = {"len": len(items)} if len(items) > LONG_LIST else {}
    described = [describe(item, depth=depth + 1) for item in items[:LONG_LIST]]
    if all("value" in item and "len" not in item and not isinstance(item["value"], list) for item in described):
        return {**form, "value": [item["value"] for item in described]}
    for item in described:
        del item["name"]
    return {**form, "items": described}


def _sizes(sizes: Any) -> list[int]:
    return [size if type(size) is int else -1 for size in sizes]


def _is_fake(kind: type) -> bool:
    return kind.__module__.startswith("torch._subclasses.")


def _tensor(tensor: torch.Tensor) -> dict[str, Any]:
    kind = type(tensor)
    if _is_fake(kind):
        raise StepAside
    with torch._C.DisableTorchFunctionSubclass():
        form: dict[str, Any] = {"type": "tensor", "shape": _shape(tensor), "dtype": str(tensor.dtype)[6:]}
        if tensor.layout != torch.strided:
            form["layout"] = str(tensor.layout)[6:]
        elif not tensor.is_nested and not tensor.is_contiguous():
            form["stride"] = _sizes(tensor.stride())
        if tensor.device.type != ("cuda" if torch.cuda.is_initialized() else "cpu"):
            form["device"] = str(tensor.device)
    if kind is not torch.Tensor and kind is not Parameter:
        form["class"] = kind.__name__
    return form


def _shape(tensor: torch.Tensor) -> list[int]:
    if tensor.is_nested and tensor.layout == torch.strided:  # to read the sizes would read data, the number is known
        return [tensor.size(0)] + [-1] * (tensor.dim() - 1)
    return _sizes(tensor.shape)


def _tensor_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    kind = type(tensor)
    if _is_fake(kind):
        raise StepAside
    with torch._C.DisableTorchFunctionSubclass():
        strided = tensor.layout == torch.strided and not tensor.is_nested
        strides = tensor.stride() if strided else None
        shape = tuple(_shape(tensor))
        return kind, shape, tensor.dtype, strides, tensor.device, tensor.layout, tensor.is_nested


# The parameter names of positional arguments, so that a marker says `stride` and not "the fourth argument". They are
# looked up once per distinct call, never while a known call repeats.


def _names(target: Target, args: tuple[Any, ...]) -> list[str]:
    """One name per argument, "" where it is not certain.

    A Python function has a signature. A builtin has operator schemas, one per overload: a name is certain if all
    overloads that accept these arguments agree on it.
    """
    if target.parameters is None:
        parameters = _python_parameters(target.func)
        target.parameters = [parameters] if parameters else _schema_parameters(target)
    fitting = [p for p in target.parameters if inspect.isfunction(target.func) or _fits(p, args)]
    columns = zip(*(p[: len(args)] for p in fitting), strict=bool(fitting[1:]))
    choices = [{name for name, _ in column} for column in columns]  # the overloads' names of each parameter
    certain = [choice.pop() if len(choice) == 1 else "" for choice in choices]
    return certain + [""] * (len(args) - len(certain))


def _python_parameters(func: Any) -> Parameters:
    if not inspect.isfunction(func):
        return []
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError) as error:
        if is_from_outside(error):
            raise
        return []
    return [(parameter.name, True) for parameter in parameters if parameter.kind in named]


def _schema_parameters(target: Target) -> list[Parameters]:
    """The positional parameters of each overload."""
    only_schema = getattr(target.func, "_schema", None)  # an OpOverload has exactly one schema
    op = target.op.split(".")[0]
    schemas = [only_schema] if only_schema is not None else torch._C._jit_get_schemas_for_operator(f"aten::{op}")
    first = "self" if target.mod == "Tensor" else "input"  # the schemas' `self` is called `input` in PyTorch functions
    overloads = [[a for a in schema.arguments if not a.kwarg_only] for schema in schemas]
    return [[(first if a.name == "self" else a.name, _takes_tensor(str(a.type))) for a in o] for o in overloads]


def _takes_tensor(kind: str) -> bool:
    return "Tensor" in kind and "List" not in kind and "[]" not in kind


def _fits(parameters: Parameters, args: tuple[Any, ...]) -> bool:
    return len(parameters) >= len(args) and all(
        takes_tensor == isinstance(arg, torch.Tensor) or (takes_tensor and isinstance(arg, _SCALARS))
        for (_, takes_tensor), arg in zip(parameters, args, strict=False)
    )
