"""Mark the nodes of each op that inductor decomposes while autograd traces the program, with the op's arguments.

``maybe_handle_decomp`` of torch.fx.experimental.proxy_tensor runs a decomposition (2.11 and 2.13). The nodes that it
adds to the graph are one call of the program. Of decompositions within each other, the outermost is what the program
called.
"""

import functools
import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch.fx import Node

TAG = "pyprof_call"  # the key in a node's meta
_NUMBERS = itertools.count()


class DecomposedCall(NamedTuple):
    """A call of an op that became several nodes."""

    number: int  # unique within the process
    args: tuple[Any, ...]  # see ``Operation.args``


def marking(
    original: Callable[..., Any], is_on: Callable[[], bool], careful: Callable[[], AbstractContextManager[None]]
) -> Callable[..., Any]:
    """``maybe_handle_decomp``, which marks the nodes that it adds."""

    @functools.wraps(original)
    def maybe_handle_decomp(proxy_mode: Any, op: Any, args: Any, kwargs: Any) -> Any:
        if not is_on():
            return original(proxy_mode, op, args, kwargs)
        graph = proxy_mode.tracer.graph
        last = next(iter(reversed(graph.nodes)), None)
        result = original(proxy_mode, op, args, kwargs)
        if result is not NotImplemented:
            with careful():
                call = DecomposedCall(next(_NUMBERS), described(args))
                for node in itertools.takewhile(lambda node: node is not last, reversed(graph.nodes)):
                    node.meta[TAG] = call
        return result

    return maybe_handle_decomp


def described(args: Any) -> tuple[Any, ...]:
    """The arguments of a call in the form of ``Operation.args``."""
    return tuple(_described(argument) for argument in args)


def _described(value: object) -> Any:
    if isinstance(value, Node):
        value = value.meta.get("val")
    if isinstance(value, torch.Tensor):
        sizes = [size if type(size) is int else str(size) for size in value.shape]
        return {"dtype": str(value.dtype).removeprefix("torch."), "shape": sizes}
    if isinstance(value, torch.SymInt):
        return {"size": str(value)}
    if isinstance(value, list | tuple):
        return [_described(item) for item in value]
    if value is None or type(value) in (bool, int, str) or (type(value) is float and abs(value) < float("inf")):
        return value
    return str(value) if isinstance(value, torch.dtype | torch.device | torch.layout) else {}
