"""A call's arguments as a key: calls with equal keys have equal descriptions, so each distinct call is counted once.

A key holds each tensor's shape, dtype and strides, whether it requires a gradient, and which tensors share memory, and
each other argument with its type. The factors of element-wise ops count alike unless they are 0, 1 and other multiples
of a half, so a learning rate that changes with every step makes no new key.

Arguments whose count depends on more than that have no key: subclasses of Tensor, sparse and nested tensors, tensors
inside a function transform, and objects of unknown types.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Parameter

from pyprof.counting.arguments import memory_of

_PLAIN = frozenset({bool, int, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_strided = torch.strided
FACTORS = frozenset({"pointwise", "optimizer"})  # families of ops whose floating-point arguments do not make shapes


class NoKey(Exception):
    """The arguments have no key."""


def key_of(args: Any, kwargs: dict[str, Any], factors: bool = False) -> tuple[Any, list[torch.Tensor]]:
    """The key of a call's arguments, and the tensors among them, in order. Raises NoKey.

    ``factors``: whether floating-point arguments are factors of an element-wise op.
    """
    found: list[torch.Tensor] = []
    with torch._C.DisableTorchFunction():
        key = _key(args, found, factors)
        if kwargs:
            key = (*key, *kwargs, *_key(kwargs.values(), found, factors))
        if len(found) > 1:
            try:
                storages = {tensor.untyped_storage()._cdata for tensor in found}
            except RuntimeError:  # a tensor inside a function transform has no storage
                raise NoKey from None
            if len(storages) < len(found):
                key = (*key, _sharing(found))
    return key, found


def _key(values: Iterable[Any], found: list[torch.Tensor], factors: bool) -> tuple[Any, ...]:
    key: list[Any] = []
    for value in values:
        kind = type(value)
        if kind is torch.Tensor or kind is Parameter:
            if value.layout is not _strided or value.is_nested:
                raise NoKey
            found.append(value)
            key.append((value.shape, value.dtype, value.stride(), value.requires_grad))
        elif kind in _PLAIN:
            key.append(kind)
            key.append(value)
        elif kind is float:
            key.append(kind)
            key.append(None if factors and not (value * 2).is_integer() else value)
        elif kind is tuple or kind is list or kind is torch.Size:
            key.append((kind, _key(value, found, factors)))
        else:
            raise NoKey
    return tuple(key)


def _sharing(found: list[torch.Tensor]) -> tuple[int, ...]:
    """For each tensor the place of the first one that shows the same memory."""
    first: dict[Any, int] = {}
    return tuple(first.setdefault(memory_of(tensor), place) for place, tensor in enumerate(found))
