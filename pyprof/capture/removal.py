"""Take a closed session's modes off every thread's stack of modes, from whichever thread closes it.

PyTorch keeps one stack per thread, which only that thread can change. So the thread that calls deinit() changes its
own at once; the main thread does so before its next Python instruction; and any other thread before the call that
follows its next call of PyTorch. Until then its mode marks nothing.
"""

import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

_scheduled: list[Any] = []  # the C callbacks, which must live until the main thread has run them


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
