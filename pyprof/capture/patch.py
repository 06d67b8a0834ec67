"""What a session puts into PyTorch, and how it is taken out again: replaced attributes, and modes on threads.

PyTorch keeps one stack of modes per thread, which only that thread can change. So a thread that runs already gets our
mode at its next Python call (``on_each_thread``). The thread that calls deinit() changes its own stack at once; the
main thread does so before its next Python instruction; and any other thread before the call that follows its next call
of PyTorch. Until then its mode marks nothing. A thread that ends takes our mode off by itself (``AtThreadEnd``).

Reaching a running thread takes half of this module, with ctypes and a private function of CPython. What is documented
does less:

* ``threading.setprofile_all_threads`` exists from Python 3.12 on, and replaces the profilers of Python that the program
  has on its threads, which nothing can put back;
* the callbacks of ``sys.monitoring`` (3.12, too) run on all threads at each call, as long as one thread waits. They are
  the way for Python 3.14, beside this one for 3.10 and 3.11;
* ``sys.setprofile`` and ``threading.setprofile`` reach this thread, and threads that start later;
* PyTorch has no callback in Python for the calls of all threads: modes belong to a thread, its profiler's global
  callbacks are C++, and ``nn.Module.__call__``, which is replaced anyway (layers.py), is not on the way of ``x @ y``.
"""

import ctypes
import functools
import sys
import threading
from collections import deque
from collections.abc import Callable
from itertools import accumulate, chain, compress, repeat, takewhile, tee
from operator import attrgetter
from typing import Any

from pyprof.gc_pause import uncollected

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


class AtThreadEnd:
    """Calls a function when it is dropped: on its thread after all Python code of it, if a ``threading.local`` has it.

    The thread's other locals may be gone by then; the function has to do without them.

    PyTorch takes a thread's modes off after Python believes that the thread has ended. To release a mode it needs the
    interpreter lock; if the interpreter is being finalized, that aborts the process ("terminate called").
    """

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def __del__(self, finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not finalizing():
            self._call()


_waiting: list[Callable[[], object]] = []  # what threads run that get the hook


def on_each_thread(call: Callable[[], object]) -> Callable[[], None]:
    """Run `call` on each thread of Python, at its next call or return of a Python function; it may run more than once.

    The returned function withdraws it from the threads that have not come to that, as they wait for something. From
    Python 3.12 on, the waiting of one thread makes the Python calls of all threads slower by 0.1 us.

    Python has one hook per thread for profilers of Python, and another thread can set it. Ours removes itself at once.
    A thread on which a profiler of Python runs is left alone. Where Python does not export what this needs (it does
    from 3.9 to 3.13), nothing happens.
    """
    _waiting.append(call)
    _change_hooks(0, _HOOK_ADDRESS)
    return functools.partial(_withdraw, call)


def reaches_threads() -> bool:
    """Whether ``on_each_thread``, called on this thread, reaches those on which no profiler of Python runs."""
    return sys.getprofile() is None and _thread_states() is not None


def _withdraw(call: Callable[[], object]) -> None:
    if call in _waiting:
        _waiting.remove(call)
    if not _waiting:
        _change_hooks(_HOOK_ADDRESS, 0)


def _run_waiting(_argument: int, _frame: int, _event: int, _value: int) -> int:
    """The hook: Python calls it on the thread that it was set for."""
    sys.setprofile(None)
    for call in tuple(_waiting):  # another thread may change it
        call()
    return 0


_HOOK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(_run_waiting)
_HOOK_ADDRESS = ctypes.cast(_HOOK, ctypes.c_void_p).value or 0


class _ThreadStates:
    """The records in which Python keeps its threads, by their addresses, and where the address of the hook is in each.

    That place differs between versions of Python, so it is found by setting a hook on this thread.
    """

    def __init__(self) -> None:
        python = ctypes.PyDLL("python", handle=ctypes.pythonapi._handle)  # not pythonapi, whose types all code shares
        address = ctypes.c_void_p
        self.interpreter = python.PyInterpreterState_Get
        self.first, self.next = python.PyInterpreterState_ThreadHead, python.PyThreadState_Next
        self.set_hook, this_thread = python._PyEval_SetProfile, python.PyThreadState_Get
        self.first.argtypes = self.next.argtypes = [address]
        self.set_hook.argtypes = [address, address, address]
        for function in (self.interpreter, self.first, self.next, this_thread):
            function.restype = address
        words, set_hook = (ctypes.c_size_t * 32).from_address(this_thread()), self.set_hook
        set_hook(this_thread(), _HOOK_ADDRESS, None)
        found = words[:]  # before any call, which would run the hook
        sys.setprofile(None)
        self.place = found.index(_HOOK_ADDRESS) * ctypes.sizeof(ctypes.c_size_t)


@functools.cache
def _thread_states() -> _ThreadStates | None:
    """None where this Python does not export what is needed, or has no lock that holds its other threads."""
    if sys.version_info >= (3, 13) and not sys._is_gil_enabled():
        return None
    try:
        return _ThreadStates()
    except (AttributeError, ValueError):  # a function, or the place of the hook, is not there
        return None


def _change_hooks(before: int, after: int) -> None:
    """Set the hook of each thread to the address `after` where it is `before`; 0: no hook.

    All of it is one call of C, in which no thread can end, nor set a hook of its own: both need the interpreter lock,
    which a thread may lose between two instructions of Python. So there is no loop, and no garbage is collected.
    """
    states = _thread_states() if reaches_threads() else None
    if states is None:
        return
    steps = chain(map(states.first, (states.interpreter(),)), repeat(0))
    threads, places = tee(takewhile(bool, accumulate(steps, states.next)))
    hooks = map(attrgetter("value"), map(ctypes.c_size_t.from_address, map(states.place.__add__, places)))
    wanted = compress(threads, map(before.__eq__, hooks))
    with uncollected():
        deque(map(states.set_hook, wanted, repeat(after), repeat(None)), maxlen=0)


def _zero_after(leave: Callable[[], object]) -> int:
    leave()
    return 0
