"""The names of PyTorch and Python that are replaced from init() to deinit(). PyTorch's ops are not among them.

* `handle_torch_function` and `has_torch_function` in some of PyTorch's modules (mode.py says why);
* `nn.Module.__call__`, to name the layers (layers.py);
* collectives that a mode does not see (collectives.py), and two methods of optimizers (optimizers.py);
* under NVTX, PyTorch's functions that turn a profiler on and off (autograd_ranges.py);
* the first function of a new thread, so that threads are marked too.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyprof.capture.autograd_ranges import AutogradRanges
    from pyprof.capture.mode import MarkerMode
    from pyprof.capture.patch import Patches


def replace_names(
    patches: Patches, mode: MarkerMode, layers: bool, autograd: AutogradRanges | None, is_on: Callable[[], bool]
) -> None:
    """Replace everything in the list above, and record it in `patches`. `is_on`: whether the session still runs."""
    import torch

    from pyprof.capture import collectives, optimizers
    from pyprof.capture.layers import Layers
    from pyprof.capture.mode import fast_handler, quiet

    modules: tuple[Any, ...] = (torch.nn.functional, torch.functional, torch._tensor, torch.overrides, torch.autograd)
    for module in modules:  # their Python functions look this name up in the module's globals
        if hasattr(module, "handle_torch_function"):
            patches.set(module, "handle_torch_function", fast_handler(mode, module.handle_torch_function))
    for module in (torch.overrides, torch.autograd):
        # nn.MultiheadAttention and others ask this to decide on their fast path, which they must take under pyprof too.
        patches.set(module, "has_torch_function", quiet(module.has_torch_function, mode))
    if layers:
        patches.set(torch.nn.Module, "__call__", Layers().wrap(torch.nn.Module.__call__, mode))
    collectives.install(patches, mode)
    optimizers.install(patches, mode)
    if autograd is not None:
        autograd.install(patches)
    patches.set(threading.Thread, "_bootstrap_inner", _thread_start(mode, autograd, is_on))


def restore_names(patches: Patches) -> None:
    """Undo the patches, in dynamo too: imported meanwhile, it took our Module.__call__ for the original (2.13)."""
    import torch

    ours = torch.nn.Module.__call__
    patches.undo()
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, "unpatched_nn_module_call", None) is ours:
            module.unpatched_nn_module_call = torch.nn.Module.__call__  # type: ignore[attr-defined]


def _thread_start(mode: MarkerMode, autograd: AutogradRanges | None, is_on: Callable[[], bool]) -> Any:
    """threading's private first function of a thread (3.10 to 3.14), which enters our mode: modes are per thread."""
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def _bootstrap_inner(thread: threading.Thread) -> None:
        if is_on():
            from pyprof.capture.mode import enter

            enter(mode)
            if autograd is not None:
                autograd.begin()
        try:
            original(thread)
        finally:
            if autograd is not None:
                autograd.end()

    return _bootstrap_inner
