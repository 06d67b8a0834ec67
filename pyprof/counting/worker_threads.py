"""The other threads that work during a count: those that it starts, thread pools, and those that run already.

PyTorch's modes belong to one thread, which alone can change them. So a new thread enters ours before its first call,
a pool's thread around each function that was submitted during the count, and any other thread that runs already at its
next Python call (patch.py). The count ends on each thread with its work, or at its next call of PyTorch after the
count's end. A thread that worked and could not enter is named in the result.
"""

from __future__ import annotations

import _thread
import functools
import multiprocessing.pool
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch

from pyprof.capture.patch import on_each_thread, reaches_threads
from pyprof.counting.modes import FunctionCalls

if TYPE_CHECKING:
    from pyprof.capture.patch import Patches
    from pyprof.counting.counter import Counter

# The methods of multiprocessing's ThreadPool that take a function as first argument, on which its others are built.
_POOL_METHODS = ("apply_async", "_map_async", "imap", "imap_unordered")
NOT_ENTERED = (
    "it started before the count, and a running thread is counted only with CPython up to 3.13, if no profiler of "
    "Python runs and the thread was not compiling or tracing"
)


def install(patches: Patches, counter: Counter) -> None:
    """Replace the functions that start threads and submit work, until ``patches`` is undone."""
    begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
    patches.set(threading.Thread, "_bootstrap_inner", _within(begin, counter))
    patches.set(_thread, "start_new_thread", _starting(_thread.start_new_thread, counter))
    patches.set(ThreadPoolExecutor, "submit", _submitting(ThreadPoolExecutor.submit, counter))
    pool = multiprocessing.pool.ThreadPool
    for name in _POOL_METHODS:
        patches.set(pool, name, _submitting(getattr(pool, name), counter))


def _starting(start: Callable[..., int], counter: Counter) -> Callable[..., int]:
    @functools.wraps(start)
    def call(function: Any, /, *args: Any) -> int:
        return start(_within(function, counter), *args)

    return call


def _submitting(submit: Callable[..., Any], counter: Counter) -> Callable[..., Any]:
    @functools.wraps(submit)
    def call(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        return submit(pool, _within(function, counter), *args, **kwargs)

    return call


def _within(function: Callable[..., Any], counter: Counter) -> Callable[..., Any]:
    """The function, counted on the thread that runs it, unless that thread is counted already."""

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        if not counter.active or counter.thread.modes:
            return function(*args, **kwargs)
        counter.begin_thread()
        try:
            return function(*args, **kwargs)
        finally:
            counter.end_thread()

    return call


class RunningThreads:
    """The threads that run when a count begins."""

    def __init__(self, counter: Counter) -> None:
        me = threading.current_thread()
        others = [thread for thread in threading.enumerate() if thread is not me]
        # Threads of C++ that Python knows (_DummyThread), such as autograd's, have the modes of who gave them work.
        self._ran_ns = {one: _ran_ns(one) for one in others if type(one) is not threading._DummyThread}
        self._counter = counter
        self._withdraw = on_each_thread(self._enter)

    def _enter(self) -> None:
        if self._counter.active and not self._counter.thread.modes and _may_enter():
            self._counter.begin_thread(stays=True)

    def end(self) -> None:
        """The count ends. Name the threads that worked meanwhile and did not enter."""
        self._withdraw()
        for thread, before_ns in self._ran_ns.items():
            worked = _ran_ns(thread) != before_ns if before_ns is not None else not reaches_threads()
            if worked and thread.ident not in self._counter.entered:
                self._counter.sums.miss(f"thread {thread.name}", NOT_ENTERED)


def _may_enter() -> bool:
    """Whether this thread is neither in a call that our modes see, nor compiling or tracing.

    A thread of autograd's has the modes of the thread that called backward, but PyTorch takes a mode off while that
    handles a call.
    """
    at = torch._C._get_function_stack_at
    if any(isinstance(at(index), FunctionCalls) for index in range(torch._C._len_torch_function_stack())):
        return False
    context = getattr(sys.modules.get("torch._guards"), "CompileContext", None)
    if torch._C._is_tracing() or (context is not None and context.try_get() is not None):
        return False
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") != FunctionCalls.__module__:
        frame = frame.f_back
    return frame.f_back is None


def _ran_ns(thread: threading.Thread) -> int | None:
    """The processor time of a thread, which a waiting thread does not use; None where the system does not say.

    Linux has a clock for each thread, whose number is made of the thread's (CPUCLOCK_PERTHREAD and CPUCLOCK_SCHED of
    linux/posix-timers.h); it can be read when the thread has ended, too, and then is an error.
    """
    if thread.native_id is None or not hasattr(time, "clock_gettime_ns"):
        return None
    try:
        return time.clock_gettime_ns(~thread.native_id << 3 | 6)
    except (OSError, OverflowError):
        return None
