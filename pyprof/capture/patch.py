"""What a session puts into PyTorch, and how it is taken out again: replaced attributes, and modes on threads.

PyTorch keeps one stack of modes per thread, which only that thread can change. So the thread that calls deinit()
changes its own at once; the main thread does so before its next Python instruction; and any other thread before the
call that follows its next call of PyTorch. Until then its mode marks nothing.
"""

import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

_INHERITED = object()  # marks an attribute that the owner only inherited
_scheduled: list[Any] = []  # the C callbacks, which must live until the main thread has run them


class Patches:
    """A record of the replaced attributes, in order. `undo` restores them."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Set `owner.name` to `value`. If setattr raises, the exception passes through and nothing has changed."""
        previous = vars(owner).get(name, _INHERITED)
        setattr(owner, name, value)
        self._before.append((owner, name, previous, value))

    def undo(self) -> None:
        """Restore the previous values, in reverse order of replacement.

        A value that another tool has replaced since is left alone: it is the other tool's, and may call ours.
        """
        while self._before:
            owner, name, previous, ours = self._before.pop()
            if vars(owner).get(name, _INHERITED) is not ours:
                continue
            if previous is _INHERITED:
                delattr(owner, name)
            else:
                setattr(owner, name, previous)


def on_every_thread(leave: Callable[[], object]) -> None:
    """Run `leave` on this thread now, and on the main thread as soon as it runs Python code."""
    leave()
    if threading.current_thread() is not threading.main_thread():
        callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: _zero_after(leave))
        _scheduled.append(callback)
        ctypes.pythonapi.Py_AddPendingCall(callback, None)


def after_this_call(leave: Callable[[], bool]) -> None:
    """Run `leave` on this thread at each following call and return, until it returns True.

    It is for code that runs while PyTorch has taken the mode off the stack and is about to put it back. Nothing happens
    while a Python profiler runs on this thread, since there can be only one.
    """
    if sys.getprofile() is None:
        sys.setprofile(lambda *_: sys.setprofile(None) if leave() else None)


def _zero_after(leave: Callable[[], object]) -> int:
    leave()
    return 0
