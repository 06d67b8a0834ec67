"""A recorded chain of element-wise ops as one module of torch.fx, which torch.compile takes as it takes a user's.

The capture does not say which op's result another op reads. An operand is taken to be the last result of its shape and
type that no op has read yet, else the last tensor of this form that the chain was given, else a new one. In-place ops
become those that return their result.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from pyprof.prof.changes.measured.timed_call import TimedCall
from pyprof.prof.ops.model import Tensor
from pyprof.rerun.aten_ops import aten_arguments, aten_overload
from pyprof.rerun.new_inputs import NewInputs, NotRecreated

META = torch.device("meta")


class Chain:
    """The module of a chain (``module``), its inputs (``given``), and the bytes of its largest result."""

    def __init__(self, parts: Sequence[TimedCall], inputs: NewInputs) -> None:
        self.inputs = inputs
        self.graph = torch.fx.Graph()
        self.given: list[torch.Tensor] = []
        self.nodes_given: list[torch.fx.Node] = []
        self.made: list[tuple[torch.Tensor, torch.fx.Node]] = []  # results that no op has read, on the meta device
        self.largest = 0
        for part in parts:
            self._add(part)
        self.graph.output(self.made[-1][1])
        self.module = torch.fx.GraphModule(torch.nn.Module(), self.graph)

    def _add(self, part: TimedCall) -> None:
        name = part.op.removeprefix("aten::")
        function: Any
        if name in ("copy_", "_to_copy"):
            function, values, described = _cast(part)
        else:
            in_place = name.endswith("_") and not name.endswith("__")
            function = aten_overload(f"aten::{name.rstrip('_')}" if in_place else part.op, part.arguments)
            schema = function._schema.arguments
            values = aten_arguments(name, schema, part.arguments, part.markers, NewInputs(META, self.inputs.most_bytes))
            described = {
                place: value
                for place, value in enumerate(part.arguments)
                if isinstance(value, Tensor) and values[place].device == META
            }
        with torch.no_grad():
            result = _called(function, values)
        taken: list[torch.fx.Node] = []
        nodes: list[Any] = [value.item() if _is_number(value) else value for value in values]
        for place, tensor in described.items():
            nodes[place] = self._operand(tensor, taken)
            taken.append(nodes[place])
        node = _called(function, nodes, self.graph)
        if isinstance(result, (tuple, list)):  # such as dropout's, with its mask
            result, node = result[0], self.graph.call_function(operator.getitem, (node, 0))
        self.made.append((result, node))
        self.largest = max(self.largest, result.numel() * result.element_size())

    def _operand(self, tensor: Tensor, taken: list[torch.fx.Node]) -> torch.fx.Node:
        def alike(other: torch.Tensor) -> bool:
            return tuple(other.shape) == tensor.shape and str(other.dtype) == f"torch.{tensor.dtype}"

        unread = [index for index, (result, _) in enumerate(self.made) if alike(result)]
        if unread:
            return self.made.pop(unread[-1])[1]
        pairs = zip(self.given, self.nodes_given, strict=True)
        known = [node for each, node in pairs if alike(each) and node not in taken]
        if known:
            return known[-1]
        self.given.append(self.inputs.tensor(tensor))
        self.nodes_given.append(self.graph.placeholder(f"x{len(self.given)}"))
        return self.nodes_given[-1]


def _cast(part: TimedCall) -> tuple[Any, list[Any], dict[int, Tensor]]:
    """A copy between types, as the op that returns the copy."""
    to, source = (*part.arguments, None, None)[:2]
    if not isinstance(to, Tensor) or not isinstance(source, Tensor) or not hasattr(torch, to.dtype):
        raise NotRecreated("a copy whose source is not recorded")
    values = [NewInputs(META, 1 << 62).tensor(source), getattr(torch, to.dtype)]
    return torch.ops.aten.to.dtype, values, {0: source}


def _is_number(value: Any) -> bool:
    """Whether a value is a number that the dispatcher shows as a tensor."""
    return isinstance(value, torch.Tensor) and value.device != META and value.dim() == 0


def _called(function: Any, values: Sequence[Any], graph: torch.fx.Graph | None = None) -> Any:
    pairs = list(zip(function._schema.arguments, values, strict=False))
    positional = tuple(value for argument, value in pairs if not argument.kwarg_only)
    named = {argument.name: value for argument, value in pairs if argument.kwarg_only}
    if graph is None:
        return function(*positional, **named)
    return graph.call_function(function, positional, named)
