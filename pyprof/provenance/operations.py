"""The operations of an FX graph: its nodes, put together again to the calls of aten ops that they were.

While autograd traces a program, inductor's decompositions replace many calls by several simple ones: a layer norm
becomes nine nodes. Each keeps the op that was called (``original_aten``); decomposed_calls.py says which nodes belong
together.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch.fx import Graph, Node

from pyprof.compiled_record import Operation
from pyprof.provenance.compiled_backward import origin_of, places
from pyprof.provenance.decomposed_calls import TAG, described, in_order
from pyprof.provenance.node_facts import function_of, is_view, layers_of, lines_of, target_name

STACK = "aten::stack"
_GRADIENT_SUM = "Gradient addition node due to multiple use of tensor"  # in a stack (torch/fx/traceback.py of 2.13)


class Operations:
    """The operations of one graph, each numbered when it is first asked for."""

    def __init__(self, graph: Graph, is_backward: bool, shown: Callable[[str], str | None]) -> None:
        self._in_backward = is_backward
        self._behind = dict(places())
        self._shown = shown
        self._nodes = list(graph.nodes)
        self._number: dict[Any, int] = {}
        self.listed: list[Operation] = []

    @cached_property
    def _groups(self) -> dict[Any, list[Node]]:
        groups: dict[Any, list[Node]] = {}
        for node in self._nodes:
            if node.op == "call_function":
                groups.setdefault(self._key(node), []).append(node)
        return groups

    @cached_property
    def place(self) -> dict[Node, int]:
        """The position of each node in the graph."""
        return {node: at for at, node in enumerate(self._nodes)}

    def of(self, nodes: list[Node]) -> list[int]:
        """The numbers of the operations that these nodes belong to, in the graph's order; views only if all are."""
        known = sorted(
            (node for node in nodes if node in self.place and node.op == "call_function"), key=self.place.__getitem__
        )
        computing = [node for node in known if not is_view(node)]
        return list(dict.fromkeys(self._numbered(self._key(node)) for node in computing or known))

    def last_node(self, number: int) -> Node:
        """The last node of an operation that computes something."""
        key = next(key for key, value in self._number.items() if value == number)
        nodes = [node for node in self._groups[key] if not is_view(node)]
        return (nodes or self._groups[key])[-1]

    def _key(self, node: Node) -> Any:
        """What the nodes of one call have in common; for a node that is the whole call, the node."""
        if target_name(node) == "getitem" and node.args and isinstance(node.args[0], Node):
            return self._key(node.args[0])
        call = node.meta.get(TAG)
        return node if call is None else (call.number, self._is_backward(node.meta))

    def _is_backward(self, meta: dict[str, Any]) -> bool:
        """Whether the node is of the backward pass; one that inductor itself has made belongs to the graph's pass."""
        tag = meta.get("partitioner_tag")
        return tag == "is_backward" if tag else self._in_backward

    def _numbered(self, key: Any) -> int:
        if key not in self._number:
            self._number[key] = len(self.listed)
            self.listed.append(self._operation(self._groups[key]))
        return self._number[key]

    def _operation(self, nodes: list[Node]) -> Operation:
        first = next((node for node in nodes if "seq_nr" in node.meta), nodes[0])  # inductor's own nodes have no number
        meta = first.meta
        layer, root = layers_of(meta)
        trace, functions = lines_of(meta, self._shown)
        backward = self._is_backward(meta)
        node, call = (origin_of(meta) if self._behind else None) or ("", 0)
        return Operation(
            aten=STACK if joins_unpacked(first) else _aten(first),
            layer=layer,
            root=root,
            trace=trace,
            functions=functions,
            backward=backward,
            again=self._in_backward != backward,
            args=_arguments(first),
            node=node,
            behind=self._behind.get(call, -1),
            **dict(zip(("mod", "op"), function_of(meta), strict=True)),
        )


def _arguments(node: Node) -> tuple[Any, ...] | None:
    """The arguments of the call that the node is, or is a part of; None if they are unknown."""
    call = node.meta.get(TAG)
    if call is not None:
        arguments: tuple[Any, ...] = call.args
        return arguments
    if joins_unpacked(node):
        return list(described(node.args)), 0
    given = in_order(node.target, node.args, node.kwargs)
    return described(given) if _packet(node.target) == _aten(node) else None


def joins_unpacked(node: Node) -> bool:
    """Whether the node adds up the gradients of the parts of an unpacked tensor: ``q, k, v = x``.

    Eager PyTorch unpacks by ``unbind``, whose backward stacks the parts' gradients. Dynamo traces ``select``s, and
    autograd adds their gradients, each of which is zero outside of its own part. Eager PyTorch does the same only
    where the program itself selects (``x[0] * x[1]``). The innermost frame of such a call is that of the torch function
    mode, or has a mark under the expression; Python marks none where it means the whole line (3.11 and later).
    """
    frame = str(node.meta.get("stack_trace")).rpartition('File "')[2]
    selected = "^" in frame or "__torch_function__" in frame.partition("\n")[0]
    return _GRADIENT_SUM in frame and not selected and _packet(node.target) == "aten::add" and _is_part(node)


def _is_part(node: object) -> bool:
    """Whether the node puts one part into zeros, or adds up such nodes."""
    if not isinstance(node, Node):
        return False
    name = _packet(node.target)
    if name == "aten::add":
        return len(node.args) == 2 and all(map(_is_part, node.args))
    return name in ("aten::select_scatter", "aten::select_backward")


def _packet(target: object) -> str:
    """``aten::gelu`` for torch.ops.aten.gelu.default; the name of a higher-order op; empty for anything else."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target.name()).partition(".")[0]
    if isinstance(target, torch._ops.HigherOrderOperator):
        return str(target.name())
    return ""


def _aten(node: Node) -> str:
    return _packet(node.meta.get("original_aten")) or _packet(node.target) or target_name(node)
