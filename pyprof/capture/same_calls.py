"""Whether a call is the one that came next last time: one comparison in C++ in place of a key in Python.

A loop makes the calls of one function in the same order in every iteration. So each remembered call knows the one that
followed it. Its tensors are compared as torch.compile's guards compare them: class, dtype, device, sizes, strides,
dispatch keys (which cover layouts and autocast) and requires_grad; all else has to be the same unchangeable objects.
That is more than a marker says, so a match means the same marker. If nothing matches, the caller makes the key.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_, itemgetter
from typing import Any

import torch
from torch.nn import Parameter

from pyprof.capture.describe import PLAIN
from pyprof.capture.interruption import is_from_outside
from pyprof.capture.sinks import Entry
from pyprof.capture.targets import Target

# Private; the same from 2.4 to 2.13. Without it every call gets a key.
_Guards: Any = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "TensorGuards", None)
_TRIES = 64  # calls of one key that were not recognized: it has a number that is made anew for each call, for example


class SameCall:
    """The call of an entry, and the one that followed it. ``check(*args, *kwargs.values())``: whether a call is it."""

    __slots__ = ("autocast", "check", "count", "entry", "following", "names")

    def __init__(self, entry: Entry, check: Callable[..., bool], count: int, names: tuple[str, ...]) -> None:
        self.entry = entry
        self.check = check
        self.count = count  # of positional arguments
        self.names = names  # of keyword arguments
        self.autocast: torch.dtype | None = None
        self.following = self


def note(
    target: Target, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], autocast: torch.dtype | None
) -> None:
    """Remember a call that had to be looked up by its key, and that it followed the last remembered one."""
    entry.looked_up += 1
    often = entry.looked_up
    if often > 1 and often & (often - 1) == 0:  # the 2nd, 4th, 8th... time: it takes about 10 us
        entry.same_call = None if often > _TRIES else _made(entry, args, kwargs)
        if entry.same_call is not None:
            entry.same_call.autocast = autocast
    found = entry.same_call
    if found is None:
        target.last = target.expected = None
        return
    if target.last is not None:
        target.last.following = found
    target.last, target.expected = found, found.following


def _made(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SameCall | None:
    """A call to recognize; None if its arguments cannot be compared in this way."""
    values = (*args, *kwargs.values())
    places = [place for place, value in enumerate(values) if type(value) in (torch.Tensor, Parameter)]
    others = [place for place in range(len(values)) if place not in places]
    tensors = [values[place] for place in places]
    comparable = all(map(_is_strided, tensors)) and all(_is_constant(values[place]) for place in others)
    if _Guards is None or not comparable or not 0 < len(tensors) == len(set(map(id, tensors))):
        return None  # PyTorch's comparison is false if a tensor occurs twice
    try:
        shapes, strides = [list(each.shape) for each in tensors], [list(each.stride()) for each in tensors]
        check = _Guards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
    except Exception as error:  # a release of PyTorch in which these guards are made in another way
        if is_from_outside(error):
            raise
        return None
    if others:
        check = _mixed(check, _getter(places), _getter(others), tuple(values[place] for place in others))
    return SameCall(entry, check, len(args), tuple(kwargs))


def _mixed(check: Any, tensors: Any, others: Any, known: tuple[Any, ...]) -> Callable[..., bool]:
    def check_all(*values: Any) -> bool:
        return all(map(is_, others(values), known)) and bool(check(*tensors(values)))

    return check_all


def _getter(places: list[int]) -> Any:
    """What gets a tuple of the items at these places, also of a single one."""
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))


def _is_strided(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_nested


def _is_constant(value: Any) -> bool:
    """Whether a value cannot change, so that the same object is the same value."""
    return type(value) in PLAIN or (type(value) in (tuple, torch.Size) and all(type(item) in PLAIN for item in value))
