"""The parameter names of positional arguments, so that a marker says `stride` and not "the fourth"."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from pyprof.capture.targets import Parameters, Target

_SCALARS = (int, float, bool, complex, type(None))  # taken where a Tensor is


def names(target: Target, args: tuple[Any, ...]) -> list[str]:
    """One name an argument, "" where none is sure.

    A Python function tells its own. A builtin has operator schemas, one an overload: a name is sure where all
    overloads that can take these arguments agree on it.
    """
    if target.parameters is None:
        own = _python_parameters(target.func)
        target.parameters = [own] if own else _schemas(target)
    fitting = [p for p in target.parameters if inspect.isfunction(target.func) or _fits(p, args)]
    sure = [choices.pop() if len(choices) == 1 else "" for choices in _choices(fitting, len(args))]
    return sure + [""] * (len(args) - len(sure))


def _choices(fitting: list[Parameters], count: int) -> list[set[str]]:
    return [{name for name, _ in column} for column in zip(*(p[:count] for p in fitting), strict=bool(fitting[1:]))]


def _python_parameters(func: Any) -> Parameters:
    if not inspect.isfunction(func):
        return []
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return []
    return [(parameter.name, True) for parameter in parameters if parameter.kind in named]


def _schemas(target: Target) -> list[Parameters]:
    """The positional parameters of each overload."""
    own = getattr(target.func, "_schema", None)  # an OpOverload has exactly one
    op = target.op.split(".")[0]
    schemas = [own] if own is not None else torch._C._jit_get_schemas_for_operator(f"aten::{op}")
    first = "self" if target.mod == "Tensor" else "input"  # what PyTorch's Python calls the schemas' `self`
    overloads = [[a for a in schema.arguments if not a.kwarg_only] for schema in schemas]
    return [[(first if a.name == "self" else a.name, _takes_tensor(str(a.type))) for a in o] for o in overloads]


def _takes_tensor(kind: str) -> bool:
    return "Tensor" in kind and "List" not in kind and "[]" not in kind


def _fits(parameters: Parameters, args: tuple[Any, ...]) -> bool:
    return len(parameters) >= len(args) and all(
        takes_tensor == isinstance(arg, torch.Tensor) or (takes_tensor and isinstance(arg, _SCALARS))
        for (_, takes_tensor), arg in zip(parameters, args, strict=False)
    )
