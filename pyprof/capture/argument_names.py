"""The parameter names of positional arguments, so that a marker says `stride` and not "the fourth argument".

They are looked up once per distinct call, never while a known call repeats.
"""

import inspect
from typing import Any

import torch

from pyprof.capture.interruption import is_from_outside
from pyprof.capture.targets import Parameters, Target

_SCALARS = (int, float, bool, complex, type(None))  # accepted where a Tensor is expected


def names(target: Target, args: tuple[Any, ...]) -> list[str]:
    """One name per argument, "" where it is not certain.

    A Python function has a signature. A builtin has operator schemas, one per overload: a name is certain if all
    overloads that accept these arguments agree on it.
    """
    if target.parameters is None:
        parameters = _python_parameters(target.func)
        target.parameters = [parameters] if parameters else _schema_parameters(target)
    fitting = [p for p in target.parameters if inspect.isfunction(target.func) or _fits(p, args)]
    columns = zip(*(p[: len(args)] for p in fitting), strict=bool(fitting[1:]))
    choices = [{name for name, _ in column} for column in columns]  # the overloads' names of each parameter
    certain = [choice.pop() if len(choice) == 1 else "" for choice in choices]
    return certain + [""] * (len(args) - len(certain))


def _python_parameters(func: Any) -> Parameters:
    if not inspect.isfunction(func):
        return []
    named = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(func).parameters.values()
    except (TypeError, ValueError) as error:
        if is_from_outside(error):
            raise
        return []
    return [(parameter.name, True) for parameter in parameters if parameter.kind in named]


def _schema_parameters(target: Target) -> list[Parameters]:
    """The positional parameters of each overload."""
    only_schema = getattr(target.func, "_schema", None)  # an OpOverload has exactly one schema
    op = target.op.split(".")[0]
    schemas = [only_schema] if only_schema is not None else torch._C._jit_get_schemas_for_operator(f"aten::{op}")
    first = "self" if target.mod == "Tensor" else "input"  # the schemas' `self` is called `input` in PyTorch functions
    overloads = [[a for a in schema.arguments if not a.kwarg_only] for schema in schemas]
    return [[(first if a.name == "self" else a.name, _takes_tensor(str(a.type))) for a in o] for o in overloads]


def _takes_tensor(kind: str) -> bool:
    return "Tensor" in kind and "List" not in kind and "[]" not in kind


def _fits(parameters: Parameters, args: tuple[Any, ...]) -> bool:
    return len(parameters) >= len(args) and all(
        takes_tensor == isinstance(arg, torch.Tensor) or (takes_tensor and isinstance(arg, _SCALARS))
        for (_, takes_tensor), arg in zip(parameters, args, strict=False)
    )
