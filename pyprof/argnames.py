"""The parameter names of positional arguments, so that a marker says `stride` and not "the fourth"."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from pyprof.targets import Target


def names(target: Target, args: tuple[Any, ...]) -> list[str]:
    """One name an argument, "" where none is sure.

    A Python function tells its own. A builtin has operator schemas, one an overload: a name is sure where all
    overloads that can take these arguments agree on it.
    """
    if target.parameters is None:
        target.parameters = _python_parameters(target.func)
    known = list(target.parameters[: len(args)]) or _schema_names(target, args)
    return known + [""] * (len(args) - len(known))


def _python_parameters(func: Any) -> tuple[str, ...]:
    if not inspect.isfunction(func):
        return ()
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(parameter.name for parameter in parameters if parameter.kind in named)


def _schema_names(target: Target, args: tuple[Any, ...]) -> list[str]:
    fitting = [schema for schema in _schemas(target) if len(schema) >= len(args) and all(map(_fits, schema, args))]
    if not fitting:
        return []
    first = "self" if target.mod == "Tensor" else "input"  # what PyTorch's Python calls the schemas' `self`
    sure = []
    for choices in zip(*(schema[: len(args)] for schema in fitting), strict=True):
        candidates = {first if name == "self" else name for name, _ in choices}
        sure.append(candidates.pop() if len(candidates) == 1 else "")
    return sure


def _schemas(target: Target) -> list[list[tuple[str, str]]]:
    """(name, type) of the positional parameters of each overload."""
    op = target.op.split(".")[0]
    own = getattr(target.func, "_schema", None)  # an OpOverload has exactly one
    schemas = [own] if own is not None else torch._C._jit_get_schemas_for_operator(f"aten::{op}")
    return [[(a.name, str(a.type)) for a in schema.arguments if not a.kwarg_only] for schema in schemas]


def _fits(parameter: tuple[str, str], arg: Any) -> bool:
    takes_tensor = "Tensor" in parameter[1] and "List" not in parameter[1] and "[]" not in parameter[1]
    if isinstance(arg, torch.Tensor):
        return takes_tensor
    return arg is None or not takes_tensor or isinstance(arg, (int, float, bool, complex))
