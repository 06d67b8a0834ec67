"""torch's functions written in Python: most are counted by the calls inside them, a few have a model of their own."""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from pyprof.counting.arguments import Ordered, described

_EMBEDDING_BAG = "weight input offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset".split()
# Function -> its model's name, and a function that makes the model's arguments from the function's arguments.
PYTHON_API: dict[str, tuple[str, Callable[[dict[str, Any]], tuple[Any, ...]]]] = {
    "torch.nn.functional.multi_head_attention_forward": ("multi_head_attention_forward", lambda a: tuple(a.values())),
    # For "batchmean", torch's own function divides the sum in a separate op.
    "torch.nn.functional.kl_div": ("kl_div", lambda a: (a["input"], a["target"], a["reduction"], a["log_target"])),
    "torch.nn.functional.embedding_bag": ("embedding_bag", lambda a: tuple(a[name] for name in _EMBEDDING_BAG)),
    "torch.nn.utils.clip_grad.clip_grad_norm_": (
        "clip_grad_norm_",
        lambda a: (_gradients(a["parameters"]), a["max_norm"], a["norm_type"]),
    ),
}
# Functions that no torch mode sees. They are replaced while counting, in every module that has them as attributes.
UNSEEN = ((torch.nn.utils, "clip_grad_norm_"), (torch.nn.utils.clip_grad, "clip_grad_norm_"))


def _gradients(parameters: Any) -> tuple[torch.Tensor, ...]:
    """The gradients that gradient clipping reads and scales."""
    several = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    return tuple(p.grad for p in several if p.grad is not None)


def python_arguments(function: Any, args: Any, kwargs: Any) -> tuple[str, Ordered]:
    """(model, its arguments) for a function in ``PYTHON_API``; ("", no arguments) for any other function."""
    model, arguments = PYTHON_API.get(_full_name(function), ("", None))
    if arguments is None:
        return "", Ordered((), ())
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    values = arguments(bound.arguments)
    return model, Ordered(described(values), values)


def _full_name(function: Any) -> str:
    return f"{function.__module__}.{function.__name__}"


def calls_can_be_seen(func: Any, running: list[Any]) -> bool:
    """Whether ``func`` can run with the function mode on, so that the mode sees the calls inside it.

    This is true for torch's functions written in Python, unless ``running`` shows that one calls itself repeatedly.
    """
    if not isinstance(func, types.FunctionType) or _full_name(func) in PYTHON_API:
        return False
    return func.__module__.startswith("torch.") and running.count(func) < 2


@functools.cache
def without_override_check(func: types.FunctionType) -> types.FunctionType:
    """The same function without its check for overrides, which would find our mode and so recurse forever.

    torch's functions written in Python begin with ``if has_torch_function(...): return handle_torch_function(...)``.
    The copy looks these names up in a copy of the module's globals, made at the first call.
    """
    checks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    names = func.__globals__ | dict.fromkeys(checks, lambda *_: False)
    cells = tuple(types.CellType(_cell_without_check(func, cell.cell_contents)) for cell in func.__closure__ or ())
    copy = types.FunctionType(func.__code__, names, func.__name__, func.__defaults__, cells or None)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _cell_without_check(func: Any, value: Any) -> Any:
    """A closure value of ``func``: an inner function (as boolean_dispatch has) without its check; others unchanged."""
    if not isinstance(value, types.FunctionType) or value is func or not value.__module__.startswith("torch."):
        return value
    return without_override_check(value)
