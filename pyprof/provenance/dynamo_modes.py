"""Dynamo traces a program as if pyprof's torch function mode were not there.

Dynamo calls a mode's ``__torch_function__`` for each op that it traces, with the function of torch.Tensor that the op
is. It cannot trace all of these (``Tensor.unflatten``), and then breaks the graph, or fails with ``fullgraph=True``.
Its guards still have the mode, so code compiled with and without pyprof is kept apart (2.5 to 2.13).

Dynamo knows has_torch_function by what ``torch.overrides`` holds when it traces for the first time. pyprof replaces
that function, so the table is made while the original is in its place: ``1 / x`` and ``x**2`` call the original.
"""

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pyprof.provenance.awaited_import import AwaitedImport

_OURS = "pyprof_modes"  # of a state: how many modes at the bottom of the stack are ours


def unseen(set_: Callable[[Any, str, Any], None], is_ours: Callable[[Any], bool]) -> AwaitedImport:
    """What keeps modes for which ``is_ours(mode)`` from dynamo, once it is imported. ``set_`` replaces an attribute."""

    def replace(module: ModuleType) -> None:
        state = getattr(module, "SymbolicTorchFunctionState", None)  # since 2.5
        if state is not None and hasattr(state, "in_torch_function_mode"):
            set_(state, "__init__", _counting(state.__init__, is_ours))
            set_(state, "in_torch_function_mode", _apart_from_ours(state.in_torch_function_mode))

    return AwaitedImport("torch._dynamo.variables.torch_function", replace)


def is_in_use() -> bool:
    """Whether the program has made anything that dynamo compiles: guards hold the modes that are on at its first call,
    so that it would be compiled again after a mode has been entered."""
    module = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(module, "cached_backends", {"unknown": module})  # None: of functions that are never compiled
    return any(backend is not None for backend in backends.values())


def at_use(set_: Callable[[Any, str, Any], None], call: Callable[[], None]) -> AwaitedImport:
    """What calls this before the program makes anything that dynamo compiles. ``set_`` replaces an attribute."""

    def replace(module: ModuleType) -> None:
        original = module.optimize  # what torch.compile calls

        @functools.wraps(original)
        def optimize(*args: Any, **kwargs: Any) -> Any:
            call()
            return original(*args, **kwargs)

        set_(module, "optimize", optimize)

    return AwaitedImport("torch._dynamo", replace)


def _counting(original: Callable[..., None], is_ours: Callable[[Any], bool]) -> Callable[..., None]:
    @functools.wraps(original)
    def __init__(state: Any, py_stack: Any, *args: Any, **kwargs: Any) -> None:
        modes = list(py_stack)
        original(state, modes, *args, **kwargs)
        setattr(state, _OURS, next((at for at, mode in enumerate(modes) if not is_ours(mode)), len(modes)))
        _make_handlers()

    return __init__


def _apart_from_ours(original: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @functools.wraps(original)
    def in_torch_function_mode(state: Any) -> bool:
        return original(state) and len(state.mode_stack) > vars(state).get(_OURS, 0)

    return in_torch_function_mode


def _make_handlers() -> None:
    """Make dynamo's table of functions, which it keeps, with the original of has_torch_function."""
    import torch

    variable = getattr(sys.modules.get("torch._dynamo.variables.torch"), "TorchInGraphFunctionVariable", None)
    make = getattr(variable, "_get_handlers", None)
    if make is None:  # another release, whose graphs break then
        return
    ours = torch.overrides.has_torch_function
    torch.overrides.has_torch_function = getattr(ours, "__wrapped__", ours)
    try:
        make()
    finally:
        torch.overrides.has_torch_function = ours
