"""Describe a call's arguments in the forms of marker.py, and compute the key under which a description is remembered.

No tensor's data is read: no `.item()`, no copy, no synchronization, no repr. A Tensor subclass's shape is read without
calling its `__torch_function__`. A description is made once per distinct call; the key is computed for every call.
"""

import math
from collections.abc import Iterable
from types import EllipsisType, NoneType
from typing import Any

import torch
from torch.nn import Parameter

from pyprof.capture import argument_names as argnames
from pyprof.capture.interruption import is_from_outside
from pyprof.capture.targets import Target
from pyprof.marker import LONG_LIST, MAX_TEXT, Marker, format_marker

TRACE_ROOM = 20_000  # characters kept free for the call stack, out of the MAX_TEXT characters of a marker
_DEEPEST = 4  # the deepest nesting of lists that is described
_AS_THEY_ARE = (bool, int, str, NoneType)
_AS_STRINGS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
PLAIN = frozenset({*_AS_THEY_ARE, *_AS_STRINGS, float, complex, EllipsisType})  # hashable; the key holds type and value


class StepAside(Exception):
    """Raised for a call on fake tensors, which computes nothing and gets no marker."""


def text(target: Target, args: tuple[Any, ...], kwargs: dict[str, Any], autocast: str | None) -> str:
    """The marker's text for one call, without the call stack. Raises StepAside for fake tensors.

    The user's classes may raise any other exception; the caller catches it.
    """
    described = [describe(arg, name) for name, arg in zip(argnames.names(target, args), args, strict=True)]
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
    return form


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
