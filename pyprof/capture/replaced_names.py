"""The names of PyTorch and Python that are replaced from init() to deinit(). PyTorch's ops are not among them.

* `handle_torch_function` and `has_torch_function` in some of PyTorch's modules (mode.py says why);
* `nn.Module.__call__`, to name the layers (layers.py), and its other name, by which pickle finds it;
* the functions of C++ that trace for TorchScript. They write into the graph which Python function called each op, and
  name values after its variables, so our mode, whose frame would be that function's, is off during a trace;
* collectives that a mode does not see (collectives.py), and two methods of optimizers;
* `__torch_dispatch__` of the mode of fake tensors, so that a profiler has a range around what runs on them: on a CPU,
  these ops look like work. torch.compile, DTensor and others run them to learn shapes;
* under NVTX, PyTorch's functions that turn a profiler on and off (autograd_ranges.py);
* the first function of a new thread, so that threads are marked too.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyprof.marker import FAKE_TENSORS

if TYPE_CHECKING:
    from pyprof.capture.autograd_ranges import AutogradRanges
    from pyprof.capture.mode import MarkerMode
    from pyprof.capture.patch import Patches


def replace_names(
    patches: Patches, mode: MarkerMode, layers: bool, autograd: AutogradRanges | None, enter: Callable[[], None]
) -> None:
    """Replace everything in the list above, and record it in `patches`. `enter()` puts the session on a thread."""
    import torch

    from pyprof.capture import collectives
    from pyprof.capture.layers import named
    from pyprof.capture.mode import fast_handler, outside, quiet

    modules: tuple[Any, ...] = (torch.nn.functional, torch.functional, torch._tensor, torch.overrides, torch.autograd)
    for module in modules:  # their Python functions look this name up in the module's globals
        if hasattr(module, "handle_torch_function"):
            patches.set(module, "handle_torch_function", fast_handler(mode, module.handle_torch_function))
    for module in (torch.overrides, torch.autograd):
        # nn.MultiheadAttention and others ask this to decide on their fast path, which they must take under pyprof too.
        patches.set(module, "has_torch_function", quiet(module.has_torch_function, mode))
    if layers:
        _replace_module_call(patches, named(torch.nn.Module.__call__, mode, enter))
    for owner, name in tracers():
        patches.set(owner, name, outside(getattr(owner, name), mode))
    collectives.install(patches, mode)
    _replace_bookkeeping(patches, mode)
    fake_mode = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensorMode", None)
    if fake_mode is not None:
        patches.set(fake_mode, "__torch_dispatch__", _in_range(FAKE_TENSORS, fake_mode.__torch_dispatch__))
    if autograd is not None:
        autograd.install(patches)
    patches.set(threading.Thread, "_bootstrap_inner", _thread_start(enter))


def _in_range(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """A call within a range of torch.profiler, which does nothing while no profiler runs."""
    from torch._C._profiler import _RecordFunctionFast

    @functools.wraps(call)
    def __torch_dispatch__(*args: Any, **kwargs: Any) -> Any:
        with _RecordFunctionFast(name):
            return call(*args, **kwargs)

    return __torch_dispatch__


def _replace_module_call(patches: Patches, call: Callable[..., Any]) -> None:
    import torch

    module = torch.nn.Module
    original = vars(module).get("_wrapped_call_impl")
    same = original is module.__call__  # since 2.1
    patches.set(module, "__call__", call)
    if same:
        patches.set(module, "_wrapped_call_impl", call)


def tracers() -> list[tuple[Any, str]]:
    """The functions of C++ that trace, each with its owner."""
    import torch

    functions = ("_create_graph_by_tracing", "_create_function_from_trace", "_create_function_from_trace_with_dict")
    methods = ("_create_method_from_trace", "_create_method_from_trace_with_dict")
    owned = [(torch._C, name) for name in functions] + [(torch._C.ScriptModule, name) for name in methods]
    return [(owner, name) for owner, name in owned if hasattr(owner, name)]


def _replace_bookkeeping(patches: Patches, mode: MarkerMode) -> None:
    """Turn the marker mode off while optimizers do their bookkeeping, which saves time and loses no marker.

    `zero_grad()` and `_init_group()` read every parameter's `grad`: 7 calls per parameter, none of which starts a
    kernel, at 0.9 us each through the mode. That was a tenth of a step's Python time with AdamW on 148 parameters
    (2.13). Both are replaced in torch.optim's own classes; other optimizers are left alone.
    """
    import torch

    from pyprof.capture.mode import quiet

    base = torch.optim.Optimizer
    zero_grad = vars(base)["zero_grad"]
    default = bool(inspect.signature(zero_grad).parameters["set_to_none"].default)

    def drops_gradients(_optimizer: Any, set_to_none: bool = default) -> bool:
        return bool(set_to_none)  # otherwise the call fills them with 0, which runs kernels

    def has_state(optimizer: Any, *_args: Any, **_kwargs: Any) -> bool:
        return bool(optimizer.state)  # False in the first step, which creates the state's tensors

    patches.set(base, "zero_grad", quiet(zero_grad, mode, drops_gradients))
    for owner in {value for value in vars(torch.optim).values() if isinstance(value, type) and issubclass(value, base)}:
        if "_init_group" in vars(owner):  # exists since PyTorch 2.0
            patches.set(owner, "_init_group", quiet(vars(owner)["_init_group"], mode, has_state))


def restore_names(patches: Patches) -> None:
    """Undo the patches, also in dynamo: if imported in between, it took our Module.__call__ for the original (2.13)."""
    import torch

    ours = torch.nn.Module.__call__
    patches.undo()
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, "unpatched_nn_module_call", None) is ours:
            module.unpatched_nn_module_call = torch.nn.Module.__call__  # type: ignore[attr-defined]


def _thread_start(enter: Callable[[], None]) -> Any:
    """A replacement of threading's private function that runs a thread (3.10 to 3.14), which puts our mode on it."""
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def _bootstrap_inner(thread: threading.Thread) -> None:
        enter()
        original(thread)

    return _bootstrap_inner
