"""The torch function mode that marks calls: PyTorch runs it for every call of its public functions.

The mode opens a range around the call; the range's text is the marker. This takes about 2 us of CPU time per call, and
60 us when the arguments' shapes, dtypes and values are new. While nothing records, it opens no range (below 1 us). The
call, its result and its exceptions do not change. While `__torch_function__` runs, PyTorch turns the mode off, so the
calls that an op makes in its own Python code are not marked again. docs/explanation/marking.md compares this with
replacing the functions themselves.
"""

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils._python_dispatch import _pop_mode as _pop_dispatch_mode
from torch.utils._python_dispatch import _push_mode as _push_dispatch_mode

from pyprof.capture import describe
from pyprof.capture.call_stack import Tracer
from pyprof.capture.describe import PLAIN, key_of
from pyprof.capture.patch import AtThreadEnd
from pyprof.capture.same_calls import NEVER, note
from pyprof.capture.sinks import Entry, Nvtx, Sink, nvtx_pop, pop, push
from pyprof.capture.special import VALUE_READS, Special, ValueRead, autograd_backward, specials
from pyprof.capture.targets import Target, Targets
from pyprof.interruption import is_from_outside

_CALLS_MOST = 8_192  # remembered calls per op, and traces per call; a limit, so dynamic shapes cannot fill the memory
_FAILURES_MOST = 100  # messages kept, for debugging
_any_autocast = torch._C._is_any_autocast_enabled
_tracing = torch._C._is_tracing
_push_mode = torch._C._push_on_torch_function_stack
_pop_mode = torch._C._pop_torch_function_stack
_mode_count = torch._C._len_torch_function_stack
_mode_at = torch._C._get_function_stack_at
_getframe = sys._getframe


class _Thread(threading.local):
    end: AtThreadEnd | None = None  # takes the mode off, where a session has put it on this thread


class MarkerMode(TorchFunctionMode):
    """Pushes a marker around each call of a target. `sink` may change at any time; without one, no marker is made."""

    def __init__(self, tracer: Tracer | None, nvtx: Nvtx | None) -> None:
        super().__init__()
        self.sink: Sink | None = None
        self.failures: list[str] = []  # ops whose arguments could not be described; their markers have no arguments
        self._targets = Targets()
        self.known: dict[Any, Target | Special | ValueRead | None] = self._targets.known
        self.known.update(specials())
        self.known.update((read, ValueRead(target)) for read in VALUE_READS if (target := self._targets.add(read)))
        self._tracer = tracer
        self.nvtx = nvtx
        self.nvtx_pop = nvtx.pop if nvtx else nvtx_pop
        self.exact: DispatchMode | None = None  # the session's dispatch mode
        # Runs the calls that are not marked, if not None: while calls are timed (step_calls.py), and when the session
        # has ended.
        self.divert: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None = None
        self.waiting: Callable[[], None] | None = None  # runs once, when the first call, or a module's, begins
        self._held: Sink | None = None  # the sink, meanwhile
        self.ranges: dict[str, Entry] = {}  # the ranges of PyTorch's record_function, by name
        self.thread = _Thread()

    def may_enter(self) -> bool:
        """Whether this thread is without the mode. Autograd's threads have it from the thread that called backward.

        It does not enter within a trace for TorchScript, into which it would write its own frames.
        """
        if self.thread.end is not None or _tracing():
            return False
        return all(_mode_at(index) is not self for index in range(_mode_count()))

    def await_first_call(self, begin: Callable[[], None]) -> None:
        """Run ``begin`` once, when the next call begins on a thread with this mode."""

        def first_call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            self.end_waiting()
            return self.__torch_function__(func, (), args, kwargs)

        self.waiting, self.divert = begin, first_call
        self._held, self.sink = self.sink, None  # without a sink, all calls are diverted

    def end_waiting(self) -> None:
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            self.divert, self.sink = None, self.sink or self._held
            waiting()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if is_dynamo_compiling():  # dynamo treats this as a constant and traces only the call
            return func(*args, **kwargs) if kwargs else func(*args)
        sink = self.sink
        try:
            target: Any = self.known[func]
        except KeyError:
            target = self._targets.add(func)
        if target is None or sink is None or _tracing():
            divert = self.divert
            if divert is not None:
                return divert(func, args, kwargs or {})
            return func(*args, **kwargs) if kwargs else func(*args)
        if type(target) is not Target:
            if type(target) is Special:
                return target.run(self, args, kwargs or {})
            if target.is_on_cpu(args):
                return func(*args, **kwargs) if kwargs else func(*args)
            target = target.marked

        autocast = _autocast_dtype() if _any_autocast() else None
        same = target.expected
        if (
            same is not None
            and same.count == len(args)
            and same.autocast is autocast
            and (
                same.names == tuple(kwargs) and same.check(*args, *kwargs.values())
                if kwargs
                else not same.names and same.check(*args)
            )
        ):
            entry = same.entry
            target.last, target.expected = same, same.following
        else:
            found = self._looked_up(target, args, kwargs, autocast)
            if found is None:
                return func(*args, **kwargs) if kwargs else func(*args)
            entry = found
        if self._tracer is not None:
            trace = self._tracer.text(_getframe(1))
            entry = entry.with_trace.get(trace) or _with_trace(entry, trace)

        if entry.sink is not sink:
            sink.bind(entry)
        token = entry.push()
        try:
            return func(*args, **kwargs) if kwargs else func(*args)
        finally:
            if token is None:
                self.nvtx_pop()
            else:
                token.__exit__(None, None, None)

    def _looked_up(
        self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any] | None, autocast: torch.dtype | None
    ) -> Entry | None:
        """The entry of a call by the key of its arguments; None if the tensors are fake."""
        try:  # key_of, inlined for the most common argument types
            key: tuple[Any, ...] = ()
            for arg in args:
                kind = type(arg)
                if kind is Tensor or kind is Parameter:
                    if arg.is_cpu:  # reading and hashing the device would take three times as long
                        key += (arg.shape, arg.dtype, arg.stride())
                    elif arg.is_cuda:
                        key += (arg.shape, arg.dtype, arg.is_contiguous() or arg.stride(), "cuda")
                    else:
                        key += (arg.shape, arg.dtype, arg.stride(), arg.device)
                elif kind in PLAIN:
                    key += (kind, arg)
                else:
                    key += (key_of(arg),)
            if kwargs:
                key += tuple([(name, key_of(arg)) for name, arg in kwargs.items()])
            if autocast is not None:
                key += (autocast,)
            entry = target.cache.get(key)
            if entry is None:
                return self._new_entry(target, key, args, kwargs or {})
        except describe.StepAside:
            return None
        except Exception as error:  # sparse CSR has no strides, and the user's classes may raise anything
            if is_from_outside(error):
                raise
            return self._slow_entry(target, args, kwargs or {})
        if entry.looked_up != NEVER:
            note(target, entry, args, kwargs or {}, autocast)
        elif target.expected is not None:
            target.last = target.expected = None
        return entry

    def entry_of(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        """The entry of a call that the mode does not see, such as a call of a function wrapped by pyprof.wrap()."""
        entry = self._slow_entry(target, args, kwargs) or target.bare_entry()
        if self._tracer is not None:
            trace = self._tracer.text(_getframe(2))
            entry = entry.with_trace.get(trace) or _with_trace(entry, trace)
        return entry

    def _new_entry(self, target: Target, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry | None:
        """The entry of a new call, stored under the fast key if no call with other arguments can have the same key.

        Sparse COO and MKL-DNN tensors have strides of 0, as broadcast tensors do (seen in 2.13), so keys can collide.
        """
        plain = all(_strides_identify(arg) for arg in args if isinstance(arg, Tensor))
        return self._entry(target, key, args, kwargs) if plain else self._slow_entry(target, args, kwargs)

    def _entry(self, target: Target, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        """Make the call's entry and store it under its key. This runs once per distinct call."""
        dtype = _autocast_dtype()
        autocast = None if dtype is None else str(dtype).removeprefix("torch.")
        return _stored(target.cache, key, describe.text(target, args, kwargs, autocast))

    def _slow_entry(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry | None:
        """The entry of a call whose arguments the fast key does not cover; None if the tensors are fake."""
        try:
            key = (*map(key_of, args), *((name, key_of(arg)) for name, arg in kwargs.items()), _autocast_dtype())
            return target.cache.get(key) or self._entry(target, key, args, kwargs)
        except describe.StepAside:
            return None
        except Exception as error:  # as above: a description must not break the user's program
            if is_from_outside(error):
                raise
            self.failed(f"{target.mod}.{target.op}", error)
            return target.bare_entry()

    def failed(self, what: str, error: Exception) -> None:
        """Keep a message about what could not be described."""
        if len(self.failures) < _FAILURES_MOST:
            self.failures.append(f"{what}: {error!r}")


def _strides_identify(tensor: Tensor) -> bool:
    return type(tensor) not in (Tensor, Parameter) or (tensor.layout == torch.strided and 0 not in tensor.stride())


def _with_trace(entry: Entry, trace: str) -> Entry:
    return _stored(entry.with_trace, trace, entry.text[:-1] + trace + "}")


def _stored(entries: dict[Any, Entry], key: Any, text: str) -> Entry:
    if len(entries) >= _CALLS_MOST:
        entries.clear()
    entry = entries[key] = Entry(text)
    return entry


def _autocast_dtype() -> torch.dtype | None:
    """The autocast dtype of the first device type for which autocast is enabled."""
    if torch.is_autocast_enabled():  # on CUDA: a device's name takes 0.1 us to read
        return torch.get_autocast_dtype("cuda")
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


def enter(mode: MarkerMode) -> None:
    """Put the mode below all other modes of this thread, so that all modes end in the order in which they began."""
    others = [_pop_mode() for _ in range(_mode_count())]
    _push_mode(mode)
    for other in reversed(others):
        _push_mode(other)


def leave(mode: MarkerMode) -> bool:
    """Remove the mode from this thread's stack of modes, at whatever depth it is. Return whether it was there."""
    others = [_pop_mode() for _ in range(_mode_count())]
    for other in reversed(others):
        if other is not mode:
            _push_mode(other)
    return any(other is mode for other in others)


def fast_handler(mode: MarkerMode, original: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's handle_torch_function, without its context manager if ours is the only mode: 0.3 us instead of 3.

    During Tensor.backward the mode stays on; it is not popped and pushed again. With each collective, gloo's threads
    take references to this thread's modes. If the mode were pushed again, those threads would be the last to release
    it. To do so they need the interpreter lock, but the thread that destroys the process group holds the lock and waits
    for them. This deadlock was seen in 2.13, in every other run of two ranks.
    """

    def handle_torch_function(public_api: Any, relevant_args: Any, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling() or _mode_count() != 1 or _mode_at(0) is not mode:
            return original(public_api, relevant_args, *args, **kwargs)
        if public_api is Tensor.backward:
            return autograd_backward(*args, **kwargs)
        _pop_mode()
        try:
            return mode.__torch_function__(public_api, (), args, kwargs)
        finally:
            _push_mode(mode)

    return handle_torch_function


def quiet(
    call: Callable[..., Any], mode: MarkerMode, only: Callable[..., bool] = lambda *_args, **_kwargs: True
) -> Callable[..., Any]:
    """`call` with our mode off, if it is this thread's only mode and `only(arguments)` is true."""

    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling() or _mode_count() != 1 or _mode_at(0) is not mode or not only(*args, **kwargs):
            return call(*args, **kwargs)
        _pop_mode()
        try:
            return call(*args, **kwargs)
        finally:
            _push_mode(mode)

    return wrapper


def outside(call: Callable[..., Any], mode: MarkerMode) -> Callable[..., Any]:
    """`call`, which traces, without our modes on this thread, at whatever depth they are.

    Under a dispatch mode the tracer does not know the weight of a convolution, and refuses it (seen in 2.13).
    """

    @functools.wraps(call, updated=())
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        marks, exact = leave(mode), mode.exact
        dispatches = exact is not None and exact.leave()
        try:
            return call(*args, **kwargs)
        finally:
            if exact is not None and dispatches:
                exact.__enter__()
            if marks:
                enter(mode)

    return wrapper


class DispatchMode(TorchDispatchMode):
    """The exact mode, init(dispatch=True): `torch.ops.aten` markers inside those of the marker mode, backward too.

    Each aten op that PyTorch dispatches is marked, with the arguments that its kernels get: after autocast, inside C++
    composites, and in backward. It costs the program about 13 us per op on the CPU. Code under torch.compile runs
    uncompiled, as under any dispatch mode of PyTorch.
    """

    def __init__(self, markers: MarkerMode) -> None:
        super().__init__()
        self._markers = markers
        self._targets: dict[Any, Target] = {}

    def leave(self) -> bool:
        """Remove this mode from this thread's stack of dispatch modes, at any depth. Return whether it was there."""
        above = []
        while (innermost := _get_current_dispatch_mode()) not in (None, self):
            _pop_dispatch_mode()
            above.append(innermost)
        if innermost is self:
            self.__exit__(None, None, None)
        for mode in reversed(above):
            _push_dispatch_mode(mode)
        return innermost is self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        sink = self._markers.sink
        if sink is None or func.namespace == "profiler":
            return func(*args, **kwargs or {})
        target = self._targets.get(func)
        if target is None:
            target = self._targets[func] = Target(func, f"torch.ops.{func.namespace}", func.__name__)
        token = push(sink, self._markers.entry_of(target, args, kwargs or {}))
        try:
            return func(*args, **kwargs or {})
        finally:
            pop(token)
