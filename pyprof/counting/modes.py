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
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from pyprof.capture.patch import Patches
from pyprof.counting.arguments import tensors
from pyprof.counting.python_functions import calls_can_be_seen

if TYPE_CHECKING:
    from pyprof.counting.counter import Counter

# Functions without work of their own: the calls inside them are counted.
TRANSPARENT = frozenset({torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad})
ATTRIBUTES = frozenset({"__get__", "__set__"})

next_sequence: Callable[[], int] = torch._C._autograd._get_sequence_nr  # the number of the next autograd node


class FunctionCalls(TorchFunctionMode):
    def __init__(self, counter: Counter) -> None:
        self.counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        counter = self.counter
        # A subclass of Tensor may call a dispatcher op directly. The dispatch mode handles such a call.
        is_dispatcher_op = isinstance(func, torch._ops.OpOverload)
        if counter.call is not None or is_dispatcher_op or getattr(func, "__name__", "") in ATTRIBUTES:
            return func(*args, **kwargs)
        overridden = _overridden(types)
        if func in TRANSPARENT:
            see_calls = not overridden and calls_can_be_seen(func, counter.running)
            return counter.run_python(func, args, kwargs) if see_calls else func(*args, **kwargs)
        return counter.run_api(func, args, kwargs, overridden)


def _overridden(kinds: Any) -> bool:
    """Whether one of the types is a subclass of Tensor with its own __torch_function__, which must get the call."""
    plain = torch._C._disabled_torch_function_impl
    return any(kind is not torch.Tensor and getattr(kind, "__torch_function__", plain) is not plain for kind in kinds)


class DispatchedOps(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self.counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(_is_wrapper(kind) for kind in types):
            self.counter.wrapped = next_sequence() - 1
            return NotImplemented  # the subclass runs the call, and its inner ops arrive here
        return self.counter.run_dispatched(func, args, kwargs or {})


@functools.cache
def _is_wrapper(kind: type) -> bool:
    """Whether this subclass of Tensor runs ops on wrapped tensors (nested, distributed). Fake tensors do not."""
    plain = getattr(torch._C, "_disabled_torch_dispatch_impl", None)
    fake = ("torch._subclasses.fake_tensor", "torch._subclasses.functional_tensor")
    return kind.__module__ not in fake and getattr(kind, "__torch_dispatch__", plain) is not plain


def are_wrapped(arguments: Any) -> bool:
    """Whether a tensor of such a subclass is among the arguments, or any of them may be one of a vmap's."""
    kinds: set[type] = {type(tensor) for tensor in tensors(arguments)}
    return in_vmap() or any(map(_is_wrapper, kinds))


def in_vmap() -> bool:
    """Whether a vmap is in progress. The arguments of API calls then lack the dimension that is mapped over."""
    stack = torch._C._functorch.get_interpreter_stack()
    return stack is not None and any(level.key() == torch._C._functorch.TransformType.Vmap for level in stack)


def is_batched() -> bool:
    """Whether several gradients are computed at once, as in ``autograd.grad(is_grads_batched=True)``, a vmap."""
    depth = int(torch._C._vmapmode_increment_nesting())  # torch has no function that only reads the depth
    torch._C._vmapmode_decrement_nesting()
    return depth > 1 or in_vmap()


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
