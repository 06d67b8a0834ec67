"""Calls that the marker mode handles specially: Tensor.backward, record_function's ranges, reads of a value."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pyprof.capture.sinks import Entry

if TYPE_CHECKING:
    from pyprof.capture.mode import MarkerMode
    from pyprof.capture.targets import Target

_push_mode = torch._C._push_on_torch_function_stack
_pop_mode = torch._C._pop_torch_function_stack


class Special(NamedTuple):
    """`run(mode, args, kwargs)` runs instead of the call and returns the call's result."""

    run: Callable[[MarkerMode, tuple[Any, ...], dict[str, Any]], Any]


# What gives Python a tensor's value. Optimizers whose `step` is a tensor on the CPU call item() twice per parameter.
VALUE_READS = (
    torch.Tensor.item,
    torch.Tensor.tolist,
    torch.Tensor.__bool__,
    torch.Tensor.__float__,
    torch.Tensor.__int__,
    torch.Tensor.__index__,
)


class ValueRead(NamedTuple):
    """A call that is not marked for a tensor on the CPU: nothing runs on a GPU or waits for one, and in a capture of
    the CPU alone the call is no row, for it does no work (parse/kineto/data/cpu_ops.txt). Others are ``marked``."""

    marked: Target

    @staticmethod
    def is_on_cpu(args: tuple[Any, ...]) -> bool:
        """Whether the call is of a plain tensor on the CPU, and not of a view that has to be computed first."""
        tensor: Any = args[0] if args else None
        plain = type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter
        return bool(
            plain and tensor.is_cpu and tensor.layout is torch.strided and not (tensor.is_conj() or tensor.is_neg())
        )


def specials() -> dict[Any, Special]:
    """Function -> how the mode runs it. record_function's two ops are private; they were seen from 1.9 to 2.13."""
    functions = {torch.Tensor.backward: Special(_backward)}
    ops = torch.ops.profiler
    if hasattr(ops, "_record_function_enter_new") and hasattr(ops, "_record_function_exit"):
        enter, leave = ops._record_function_enter_new, ops._record_function_exit._RecordFunction
        functions[enter] = Special(lambda mode, args, kwargs: _open_range(mode, enter, args, kwargs))
        functions[leave] = Special(lambda mode, args, kwargs: _close_range(mode, leave, args, kwargs))
    return functions


def _backward(mode: MarkerMode, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Tensor.backward with the mode on, so that forward calls that it repeats (checkpointing) are marked."""
    _push_mode(mode)
    try:
        autograd_backward(*args, **kwargs)
    finally:
        _pop_mode()


def autograd_backward(
    self: torch.Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Tensor.backward without its first two lines, which check for modes."""
    torch.autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


class _Open(threading.local):
    """For each record_function range open on this thread: whether the range was also pushed to NVTX."""

    def __init__(self) -> None:
        self.pushed: list[bool] = []


_open = _Open()


def _open_range(mode: MarkerMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Push PyTorch's record_function ranges to NVTX: optimizer steps, data loading, the user's own ranges.

    PyTorch itself pushes them only under emit_nvtx.
    """
    result = func(*args, **kwargs)
    nvtx = mode.nvtx
    push = nvtx is not None and bool(args) and isinstance(args[0], str) and not torch._C._autograd._profiler_enabled()
    if push and nvtx is not None:
        entry = mode.ranges.get(args[0])
        if entry is None:
            entry = mode.ranges[args[0]] = Entry(args[0])
        if entry.sink is not nvtx:
            nvtx.bind(entry)
        entry.push()
    _open.pushed.append(push)
    return result


def _close_range(mode: MarkerMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if _open.pushed and _open.pushed.pop():
        mode.nvtx_pop()
    return func(*args, **kwargs)
