"""Whether a call is the one that came next last time: one comparison in C++ in place of a key in Python.

A loop makes the calls of one function in the same order in every iteration. So each remembered call knows the one that
followed it. Its tensors are compared as torch.compile's guards compare them: class, dtype, device, sizes, strides,
dispatch keys (which cover layouts and autocast) and requires_grad, those in lists one by one; all else has to be equal
and of the same types.
That is more than a marker says, so a match means the same marker. If nothing matches, the caller makes the key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_, itemgetter
from typing import Any

import torch
from torch.nn import Parameter

from pyprof.capture.describe import PLAIN
from pyprof.capture.sinks import Entry
from pyprof.capture.targets import Target
from pyprof.interruption import is_from_outside
from pyprof.marker import LONG_LIST

# Private; the same from 2.4 to 2.13. Without it every call gets a key.
_Guards: Any = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "TensorGuards", None)
_TENSORS = (torch.Tensor, Parameter)
_TRIES = 64  # calls of one key that were not recognized, because requires_grad or the autocast state changes each time
NEVER = -1  # Entry.looked_up after so many


class SameCall:
    """The call of an entry, and the one that followed it. ``check(*args, *kwargs.values())``: whether a call is it."""

    __slots__ = ("autocast", "check", "count", "entry", "following", "names")

    def __init__(
        self,
        entry: Entry,
        check: Callable[..., bool],
        count: int,
        names: tuple[str, ...],
        autocast: torch.dtype | None,
    ) -> None:
        self.entry = entry
        self.check = check
        self.count = count  # of positional arguments
        self.names = names  # of keyword arguments
        self.autocast = autocast
        self.following = self


def note(
    target: Target, entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], autocast: torch.dtype | None
) -> None:
    """Remember a call that had to be looked up by its key, and that it followed the last remembered one."""
    found = entry.same_call
    if found is None or not _is(found, args, kwargs, autocast):
        entry.looked_up += 1
        often = entry.looked_up
        if often & (often - 1) == 0:  # the 1st, 2nd, 4th, 8th... time: it takes about 10 us
            found = entry.same_call = _made(entry, args, kwargs, autocast) if 1 < often < _TRIES else None
        if often >= _TRIES:
            entry.looked_up = NEVER
    if found is None:
        target.last = target.expected = None
        return
    if target.last is not None:
        target.last.following = found
    target.last, target.expected = found, found.following


def _is(found: SameCall, args: tuple[Any, ...], kwargs: dict[str, Any], autocast: torch.dtype | None) -> bool:
    alike = found.names == tuple(kwargs) and found.count == len(args) and found.autocast is autocast
    return alike and found.check(*args, *kwargs.values())


def _made(entry: Entry, args: tuple[Any, ...], kwargs: dict[str, Any], autocast: torch.dtype | None) -> SameCall | None:
    """A call to recognize; None if its arguments cannot be compared in this way."""
    check = _check((*args, *kwargs.values()))
    return None if check is None else SameCall(entry, check, len(args), tuple(kwargs), autocast)


def _check(values: tuple[Any, ...]) -> Callable[..., bool] | None:
    lists = [(place, type(value), len(value)) for place, value in enumerate(values) if _has_tensors(value)]
    unpacked = _unpacked(values, lists)
    first: dict[int, int] = {}  # a tensor -> where it occurs first: PyTorch's comparison is false if one occurs twice
    for place, value in enumerate(unpacked):
        if type(value) in _TENSORS:
            first.setdefault(id(value), place)
    places = list(first.values())
    again = [place for place, value in enumerate(unpacked) if first.get(id(value), place) != place]
    others = [place for place, value in enumerate(unpacked) if type(value) not in _TENSORS]
    tensors = [unpacked[place] for place in places]
    comparable = all(map(_is_strided, tensors)) and all(_is_constant(unpacked[place]) for place in others)
    if _Guards is None or not tensors or not comparable:
        return None
    try:
        shapes, strides = [list(each.shape) for each in tensors], [list(each.stride()) for each in tensors]
        check = _Guards(*tensors, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides).check
    except Exception as error:  # a release of PyTorch in which these guards are made in another way
        if is_from_outside(error):
            raise
        return None
    if others or again:
        check = _mixed(check, _getter(places), _getter(others), tuple(unpacked[place] for place in others))
    if again:
        check = _repeating(check, _getter(again), _getter([first[id(unpacked[place])] for place in again]))
    return _of_lists(check, lists) if lists else check


def _has_tensors(value: Any) -> bool:
    """Whether it is a list of tensors, as optimizers pass them. Markers have its first items, so these are compared."""
    return type(value) in (list, tuple) and all(type(item) in _TENSORS for item in value[:LONG_LIST])


def _unpacked(values: Sequence[Any], lists: list[tuple[int, type[Sequence[Any]], int]]) -> list[Any]:
    """The values, with the first items of each of the lists in its place; none if a list has become another."""
    found: list[Any] = []
    begin = 0
    for place, kind, length in lists:
        items = values[place]
        if type(items) is not kind or len(items) != length:
            return []
        found += values[begin:place]
        found += items[:LONG_LIST]
        begin = place + 1
    found += values[begin:]
    return found


def _of_lists(check: Any, lists: list[tuple[int, type[Sequence[Any]], int]]) -> Callable[..., bool]:
    def check_all(*values: Any) -> bool:
        unpacked = _unpacked(values, lists)
        return bool(unpacked) and bool(check(*unpacked))

    return check_all


def _repeating(check: Any, again: Any, before: Any) -> Callable[..., bool]:
    def check_all(*values: Any) -> bool:
        return all(map(is_, again(values), before(values))) and bool(check(*values))

    return check_all


def _mixed(check: Any, tensors: Any, others: Any, known: tuple[Any, ...]) -> Callable[..., bool]:
    def check_all(*values: Any) -> bool:
        found = others(values)
        return (all(map(is_, found, known)) or all(map(_alike, found, known))) and bool(check(*tensors(values)))

    return check_all


def _alike(value: Any, other: Any) -> bool:
    """Whether both are of the same types and equal; 1, 1.0 and True are not alike. ``other`` is a constant."""
    if type(value) is not type(other):
        return False
    if isinstance(other, tuple):
        return len(value) == len(other) and all(map(_alike, value, other))
    return bool(value == other)


def _getter(places: list[int]) -> Any:
    """What gets a tuple of the items at these places, also of a single one or none."""
    begin = places[0] if places else 0
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(begin, begin + len(places)))


def _is_strided(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and not tensor.is_nested


def _is_constant(value: Any) -> bool:
    """Whether a value cannot change, and is compared without calling the user's code."""
    return type(value) in PLAIN or (type(value) in (tuple, torch.Size) and all(type(item) in PLAIN for item in value))
