"""From which nodes of the program's forward pass a backward pass comes that compiled autograd traces.

Compiled autograd writes into the stack of what it traces which node it comes from: ``AddmmBackward0 (NodeCall 5)``. It
numbers the nodes of autograd's graph in an order of its own, that of ``compiled_autograd()`` in PyTorch's engine
(python_compiled_autograd.cpp, 2.13), which ``_in_order`` follows. The same graph is compiled once and then run in each
step, whose nodes have other sequence numbers. So a node is told by how far its number is behind the greatest one.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from pyprof.provenance.awaited_import import AwaitedImport

_ORIGIN = re.compile(r"^ +(\S+) \(NodeCall (\d+)\)$", re.MULTILINE)
_ACCUMULATING = (1 << 64) - 1  # the sequence number of a node that adds to a leaf's gradient
_KEPT = 64  # graphs; inductor compiles a graph right after it was traced
_behind: dict[int | None, dict[int, int]] = {}  # of a traced graph: the number of a node call -> how far behind


def origin_of(meta: dict[str, Any]) -> tuple[str, int] | None:
    """The node that an FX node comes from: its name, and its number among the node calls of its graph."""
    found = _ORIGIN.findall(str(meta.get("stack_trace")))
    return (found[-1][0], int(found[-1][1])) if found else None


def traced_graph() -> int | None:
    """Compiled autograd's number of the graph that is being compiled; None if it is another graph."""
    import torch

    compiling = torch._guards.CompileContext.current_compile_id()
    return getattr(compiling, "compiled_autograd_id", None)


def places() -> tuple[tuple[int, int], ...]:
    """Of the graph that is being compiled: its node calls, and how many numbers each is behind the last one's."""
    return tuple(sorted(_behind.get(traced_graph(), {}).items()))


def noted(
    set_: Callable[[Any, str, Any], None], is_on: Callable[[], bool], failed: Callable[[Exception], None]
) -> AwaitedImport:
    """What keeps the places of the nodes of each graph that compiled autograd traces, once it is imported.

    ``set_`` replaces an attribute. ``failed`` gets the error where something
    cannot be read, as in another release.
    """

    def replace(module: ModuleType) -> None:
        compiler = getattr(module, "AutogradCompilerInstance", None)  # one for each graph
        if compiler is None or not hasattr(compiler, "end_capture"):
            return
        end_capture = compiler.end_capture

        @functools.wraps(end_capture)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_on():
                try:
                    _note(self)
                except (AttributeError, LookupError, TypeError, ValueError) as error:
                    failed(error)
            return end_capture(self, *args, **kwargs)

        set_(compiler, "end_capture", call)

    return AwaitedImport("torch._dynamo.compiled_autograd", replace)


def _note(compiler: Any) -> None:
    traced = {call: name for node in compiler.fx_tracer.graph.nodes for name, call in [origin_of(node.meta) or ("", 0)]}
    nodes = [None, *_in_order(_roots())]  # the graph's root is node call 0
    if any(call >= len(nodes) or nodes[call].name() != name for call, name in traced.items() if call):
        return  # another order than that of 2.13, or a pass to chosen inputs
    numbers = {call: nodes[call]._sequence_nr() for call in traced if call}
    known = {call: number for call, number in numbers.items() if number < _ACCUMULATING}
    while len(_behind) >= _KEPT:
        del _behind[next(iter(_behind))]
    _behind[compiler.id] = {call: max(known.values()) - number for call, number in known.items()}


def _roots() -> list[Any]:
    """The nodes at which the backward pass in progress begins."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_engine_run_backward":  # in torch/autograd/graph.py
        frame = frame.f_back
    outputs = () if frame is None else frame.f_locals.get("t_outputs", ())
    return [getattr(output, "grad_fn", None) or output.node for output in outputs]


def _in_order(roots: list[Any]) -> list[Any]:
    following = {root: [node for node, _ in root.next_functions if node is not None] for root in roots}
    todo, users = list(following), dict.fromkeys(following, 1)
    while todo:
        for node in following[todo.pop()]:
            users[node] = users.get(node, 0) + 1
            if node not in following:
                following[node] = [after for after, _ in node.next_functions if after is not None]
                todo.append(node)
    ordered, ready = [], []
    for node in roots:
        users[node] -= 1
        if not users[node]:
            ready.append(node)
    while ready:
        node = ready.pop()
        ordered.append(node)
        for after in following[node]:
            users[after] -= 1
            if not users[after]:
                ready.append(after)
    return ordered
