"""The other threads that work during a count: those that it starts, and thread pools that it gives work to.

PyTorch's modes belong to one thread, which alone can change them. So a new thread enters ours before its first call,
and a pool's thread around each function that was submitted during the count. The count ends on each thread with its
work, or at its next call of PyTorch after the count's end. Threads that run already and take their work from a queue of
the program's own are not counted.
"""

from __future__ import annotations

import functools
import multiprocessing.pool
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyprof.capture.patch import Patches
    from pyprof.counting.counter import Counter

# The methods of multiprocessing's ThreadPool that take a function as first argument, on which its others are built.
_POOL_METHODS = ("apply_async", "_map_async", "imap", "imap_unordered")


def install(patches: Patches, counter: Counter) -> None:
    """Replace the functions that start threads and submit work, until ``patches`` is undone."""
    begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
    patches.set(threading.Thread, "_bootstrap_inner", _within(begin, counter))
    patches.set(ThreadPoolExecutor, "submit", _submitting(ThreadPoolExecutor.submit, counter))
    pool = multiprocessing.pool.ThreadPool
    for name in _POOL_METHODS:
        patches.set(pool, name, _submitting(getattr(pool, name), counter))


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
