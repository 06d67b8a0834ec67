"""Mark the nodes of each op that inductor decomposes while autograd traces the program, with the op's arguments.

``maybe_handle_decomp`` of torch.fx.experimental.proxy_tensor runs a decomposition (2.11 and 2.13). The nodes that it
adds to the graph are one call of the program. Of decompositions within each other, the outermost is what the program
called. Where inductor's pattern matcher puts other nodes in the place of nodes of one call, they belong to it, too.
"""

import functools
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from pyprof.provenance.node_facts import is_view

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
                call = DecomposedCall(next(_NUMBERS), described(in_order(op, args, kwargs)))
                for node in itertools.takewhile(lambda node: node is not last, reversed(graph.nodes)):
                    node.meta[TAG] = call
        return result

    return maybe_handle_decomp


def replacing(
    original: Callable[..., None], is_on: Callable[[], bool], careful: Callable[[], AbstractContextManager[None]]
) -> Callable[..., None]:
    """``apply`` of a class of patterns, which marks the nodes that it creates if it replaces parts of one call."""

    @functools.wraps(original)
    def apply(entry: Any, match: Any, graph: Any, node: Any) -> None:
        call = None
        if is_on():
            with careful():
                call = _only_call(match.nodes)
        if call is None:
            original(entry, match, graph, node)
            return
        with _created(graph) as nodes:
            original(entry, match, graph, node)
        for new in nodes:
            new.meta[TAG] = call

    return apply


@contextmanager
def _created(graph: Any) -> Iterator[list[Node]]:
    """The nodes that the graph gets meanwhile. The pattern matcher itself watches the graph in this way (2.13)."""
    nodes: list[Node] = []
    create, own = graph.create_node, vars(graph)
    before = own.get("create_node")

    def create_node(*args: Any, **kwargs: Any) -> Node:
        nodes.append(create(*args, **kwargs))
        return nodes[-1]

    own["create_node"] = create_node
    try:
        yield nodes
    finally:
        own.pop("create_node")
        if before is not None:
            own["create_node"] = before


def _only_call(nodes: list[Node]) -> DecomposedCall | None:
    """The call that all nodes which compute something belong to; None if there is no such call."""
    calls = [node.meta.get(TAG) for node in nodes if node.op == "call_function" and not is_view(node)]
    return calls[0] if calls and all(call is calls[0] for call in calls) else None


def in_order(op: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """The arguments in the schema's order as far as texts among them need it: gelu's ``approximate`` is a keyword."""
    schema = getattr(op, "_schema", None)
    if schema is None or not any(isinstance(value, str) for value in (kwargs or {}).values()):
        return tuple(args)
    rest = [kwargs.get(each.name, each.default_value) for each in schema.arguments[len(args) :]]
    return (*args, *rest)


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
