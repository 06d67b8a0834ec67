"""``pyprof.flops``: the FLOPs of a Triton kernel or of a ``torch.library`` op, by a formula of one line.

    pyprof.flops("scaled_add_kernel", lambda a, b, out, scale: 2 * a.numel)
    pyprof.flops("mylib::scaled_add", lambda a, b, scale: 2 * a.numel)

It is short for ``pyprof.model``, which also counts bytes and parts.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar

from pyprof.prof.ops.evaluation import KERNELS
from pyprof.prof.ops.model import Tensor, Work, distinct, model

F = TypeVar("F", bound=Callable[..., Any])


def flops(
    name: str, formula: F | None = None, *, nbytes: Callable[..., float] | None = None, family: str = "custom"
) -> Any:
    """Count an op, or the launches of a Triton kernel, by a formula; without one, a decorator for it.

    name: the op's name as the profiler records it (``mylib::op``), or the name of the function under ``triton.jit``.
    formula: a function of the call's leading arguments, in their order, that returns the FLOPs (a multiply-add is
        two). A tensor has ``shape``, ``dtype`` (torch's name), ``numel`` and ``nbytes``.
    nbytes: such a function for the bytes read and written. Without it, each tensor among a kernel's arguments counts
        once; of an op, the arguments, and the outputs where the capture knows them (otherwise bytes are unknown).
    family: "gemm", "conv" or "attention" for matrix products, otherwise any word.

    Raises ModelError if the name has a model already.
    """

    def register(function: F) -> F:
        model(name, family=family)(_counting(name, function, nbytes))
        if ":" not in name:
            KERNELS.add(name)
        return function

    return register if formula is None else register(formula)


def _counting(name: str, formula: Callable[..., Any], nbytes: Callable[..., float] | None) -> Callable[..., Work]:
    """The model of the formula."""
    is_kernel = ":" not in name

    def counted(*arguments: Any, out: tuple[Tensor | None, ...] | None = None) -> Work:
        flop = int(formula(*_leading(formula, arguments)))
        if nbytes is not None:
            return Work(flop, nbytes(*_leading(nbytes, arguments)))
        if is_kernel:
            return Work(flop, distinct(*arguments))
        return Work(flop, distinct(*arguments), math.nan if out is None else distinct(*out))

    counted.__qualname__ = getattr(formula, "__qualname__", name)
    counted.__doc__ = formula.__doc__ or f"By the formula that was given for {name}"
    return counted


def _leading(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """As many arguments as the function takes."""
    kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return arguments
    count = sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    return arguments[:count]
