"""The two torch modes behind ``pyprof.count``, and what surrounds a call: tensor subclasses, vmap, torch.compile.

The function mode sees the calls of torch's API, the dispatch mode the ops that these dispatch. Both hand what they see
to the ``Counter``, which runs it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from pyprof.capture.mode import MarkerMode
from pyprof.capture.patch import Patches, after_this_call
from pyprof.counting.arguments import tensors
from pyprof.counting.autograd_nodes import next_sequence
from pyprof.counting.backward_passes import in_vmap
from pyprof.counting.python_functions import calls_can_be_seen

if TYPE_CHECKING:
    from pyprof.counting.counter import Counter

# Functions without work of their own: the calls inside them are counted.
TRANSPARENT = frozenset({torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad})
ATTRIBUTES = frozenset({"__get__", "__set__"})

_mode_count: Callable[[], int] = torch._C._len_torch_function_stack
_pop_mode: Callable[[], Any] = torch._C._pop_torch_function_stack
_push_mode: Callable[[Any], None] = torch._C._push_on_torch_function_stack
_dispatch_count: Callable[[], int] = torch._C._len_torch_dispatch_stack
_dispatch_at: Callable[[int], Any] = torch._C._get_dispatch_stack_at
_pop_dispatch: Callable[[Any], Any] = torch._C._pop_torch_dispatch_stack
_push_dispatch: Callable[[Any], None] = torch._C._push_on_torch_dispatch_stack


class FunctionCalls(TorchFunctionMode):
    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counter = self.counter
        thread = counter.thread
        if thread.call is not None or not counter.active or getattr(func, "__name__", "") in ATTRIBUTES:
            if not counter.active:  # the count has ended while this thread was at work
                after_this_call(counter.leave_thread)
            return func(*args, **kwargs) if kwargs else func(*args)
        kwargs = kwargs or {}
        if isinstance(func, OpOverload):
            return counter.run_operator(func, args, kwargs)
        overridden = bool(types) and _overridden(types)
        if func in TRANSPARENT:
            see_calls = not overridden and calls_can_be_seen(func, thread.running)
            return counter.run_python(func, args, kwargs) if see_calls else func(*args, **kwargs)
        return counter.run_api(func, args, kwargs, overridden)


def _overridden(kinds: Any) -> bool:
    """Whether one of the types is a subclass of Tensor with its own __torch_function__, which must get the call."""
    plain = torch._C._disabled_torch_function_impl
    return any(kind is not torch.Tensor and getattr(kind, "__torch_function__", plain) is not plain for kind in kinds)


def unnoticed(has_torch_function: Callable[..., bool]) -> Callable[..., bool]:
    """The same question without our modes. The answer decides whether modules such as nn.TransformerEncoder take their
    fast path, which they must take while we count, too."""

    @functools.wraps(has_torch_function)
    def call(*args: Any, **kwargs: Any) -> bool:
        modes = [_pop_mode() for _ in range(_mode_count())]
        for mode in reversed(modes):
            if not isinstance(mode, (FunctionCalls, MarkerMode)):
                _push_mode(mode)
        try:
            return has_torch_function(*args, **kwargs)
        finally:
            for _ in range(_mode_count()):
                _pop_mode()
            for mode in reversed(modes):
                _push_mode(mode)

    return call


class DispatchedOps(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        counter = self.counter
        if types and any(map(_is_wrapper, types)):
            counter.thread.wrapped = next_sequence() - 1
            return NotImplemented  # the subclass runs the call, and its inner ops arrive here
        call = counter.thread.call
        if (call is not None and not call.collects) or not counter.active:
            return func(*args, **kwargs) if kwargs else func(*args)
        return counter.run_dispatched(func, args, kwargs or {})


def remove(calls: FunctionCalls, ops: DispatchedOps) -> bool:
    """Remove these modes from this thread's stacks, at whatever depth they are. Return whether they were there."""
    modes = [_pop_mode() for _ in range(_mode_count())]
    for mode in reversed(modes):
        if mode is not calls:
            _push_mode(mode)
    above = []
    while (depth := _dispatch_count()) and _dispatch_at(depth - 1) is not ops:
        above.append(_pop_dispatch(None))
    if _dispatch_count():
        ops.__exit__(None, None, None)
    for mode in reversed(above):
        _push_dispatch(mode)
    return calls in modes


def without_dispatch_mode(counter: Counter, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a call whose dispatched ops need not be seen, without our dispatch mode if that is the innermost one."""
    depth = _dispatch_count()
    mode = _dispatch_at(depth - 1) if depth else None
    if type(mode) is not DispatchedOps or mode.counter is not counter:
        return func(*args, **kwargs)
    _pop_dispatch(None)
    try:
        return func(*args, **kwargs)
    finally:
        _push_dispatch(mode)


@functools.cache
def _is_wrapper(kind: type) -> bool:
    """Whether this subclass of Tensor runs ops on wrapped tensors (nested, distributed). Fake tensors do not."""
    plain = getattr(torch._C, "_disabled_torch_dispatch_impl", None)
    fake = ("torch._subclasses.fake_tensor", "torch._subclasses.functional_tensor")
    return kind.__module__ not in fake and getattr(kind, "__torch_dispatch__", plain) is not plain


def are_wrapped(arguments: Any) -> bool:
    """Whether a tensor of such a subclass is among the arguments."""
    kinds: set[type] = {type(tensor) for tensor in tensors(arguments)}
    return any(map(_is_wrapper, kinds))


def in_transform() -> bool:
    """Whether calls do more than their arguments say: inside vmap, or with tangents (``jvp``, dual numbers)."""
    return in_forward_mode() or in_vmap()


def in_forward_mode() -> bool:
    """Whether tensors may have tangents."""
    return bool(torch.autograd.forward_ad._current_level >= 0)


class ForcedEager:
    """While we count, code under ``torch.compile`` runs uncompiled, so that its ops can be seen.

    Under a dispatch mode PyTorch does so anyway, but raises an error for code compiled with ``fullgraph=True``. So this
    sets its stance "force_eager" (since 2.6) once the compiler is loaded. Setting it loads the compiler, which takes
    seconds; so where it is not loaded yet, the program's first ``torch.compile`` sets the stance.
    """

    def __init__(self) -> None:
        self._stance: Any = None

    def install(self, patches: Patches) -> None:
        patches.set(torch, "compile", self._forcing(torch.compile))
        if "torch._dynamo" in sys.modules:
            self._force()

    def end(self) -> None:
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None

    def _force(self) -> None:
        if self._stance is None and hasattr(torch.compiler, "set_stance"):
            self._stance = torch.compiler.set_stance("force_eager")

    def _forcing(self, compile_: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(compile_)
        def call(*args: Any, **kwargs: Any) -> Any:
            compiled = compile_(*args, **kwargs)
            self._force()
            return compiled

        return call
