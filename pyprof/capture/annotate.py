"""Ranges around the user's own code: annotate() names a part of the program, wrap() marks the calls of a function.

Both do nothing before init() and while nothing records the program.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any

from pyprof.capture import session
from pyprof.capture.sinks import Entry, pop, push

if TYPE_CHECKING:
    from pyprof.capture.patch import Patches

_DIRECTIONS = ("forward", "backward", "vjp")  # methods of an autograd Function; vjp is another name of backward


class annotate(ContextDecorator):
    """Name a part of the program as the layer `x`: `with pyprof.annotate("x"):` or `@pyprof.annotate("x")`.

    Blocks may be nested, and one object may be used again and by several threads. Without init() it does nothing.
    """

    def __init__(self, name: str) -> None:
        self._entry = Entry(f"layer:{name}")
        self._open: list[tuple[Any] | None] = []

    def _recreate_cm(self) -> annotate:
        return annotate(self._entry.text.removeprefix("layer:"))  # a new object per call of a decorated function

    def __enter__(self) -> annotate:
        active = session.current()
        sink = None if active is None else active.sink
        self._open.append(None if sink is None else (push(sink, self._entry),))
        return self

    def __exit__(self, *exc_info: object) -> None:
        opened = self._open.pop()
        if opened is not None:
            pop(opened[0])


def wrap(owner: Any, name: str) -> None:
    """Mark the calls of `owner.name`: a module's function, a method, an autograd Function's forward, a launcher.

    This replaces the attribute with a function that opens a range, calls the original and closes the range. The op is
    called `name`; its `mod` is the owner's name. The `forward` and `backward` of an autograd Function are two
    directions of one op, which has the Function's own name. PyTorch calls inside it are marked as usual. Wrapping twice
    is the same as wrapping once, and `pyprof.deinit()` restores the original.
    For a function compiled by torch.jit, `name` is "forward" or "__call__".
    Raises RuntimeError before init(), AttributeError if there is no such attribute, TypeError if it cannot be called.
    """
    active = session.current()
    if active is None:
        raise RuntimeError(f"pyprof.wrap({name!r}): call pyprof.init() first")
    if _is_scripted(owner) and name in ("forward", "__call__"):
        _wrap_scripted(active.patches, owner, name)
        return
    static: Any = vars(owner).get(name) if isinstance(owner, type) else None
    unbound = isinstance(static, (staticmethod, classmethod))
    func = static.__func__ if unbound else static or getattr(owner, name)
    if not callable(func):
        raise TypeError(f"pyprof.wrap: {name!r} of {owner!r} cannot be called")
    if getattr(func, "__pyprof__", False):
        return
    wrapper = marked(func, *_name_of(owner, name))
    active.patches.set(owner, name, type(static)(wrapper) if unbound else wrapper)


def _is_scripted(owner: Any) -> bool:
    import torch

    return isinstance(owner, torch.jit.ScriptFunction)


def _wrap_scripted(patches: Patches, function: Any, name: str) -> None:
    """Mark the calls of a scripted function. Python looks `__call__` up in its class, so it is replaced there."""
    if getattr(function, "__pyprof__", False):
        return
    kind, call = type(function), type(function).__call__
    mine = marked(functools.partial(call, function), *_name_of(function, name))

    @functools.wraps(call)
    def either(self: Any, *args: Any, **kwargs: Any) -> Any:
        return mine(*args, **kwargs) if self is function else call(self, *args, **kwargs)

    patches.set(kind, "__call__", either)
    patches.set(function, "__pyprof__", True)


def _name_of(owner: Any, name: str) -> tuple[str, str]:
    """The `mod` and the op of a wrapped attribute."""
    from torch.autograd import Function

    if not isinstance(owner, type):
        return str(getattr(owner, "__name__", None) or type(owner).__name__), name
    if issubclass(owner, Function) and name in _DIRECTIONS:
        return owner.__module__, owner.__qualname__
    return f"{owner.__module__}.{owner.__qualname__}", name


def marked(func: Callable[..., Any], mod: str, op: str) -> Callable[..., Any]:
    """`func` with a marker around its calls while there is a session."""
    from torch.compiler import is_dynamo_compiling

    from pyprof.capture.targets import Target

    target = Target(func, mod, op)

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return func(*args, **kwargs)
        active = session.current()
        sink = None if active is None else active.sink
        if active is None or sink is None:
            return func(*args, **kwargs)
        token = push(sink, active.mode.entry_of(target, args, kwargs))
        try:
            return func(*args, **kwargs)
        finally:
            pop(token)

    call.__pyprof__ = True  # type: ignore[attr-defined]
    return call
