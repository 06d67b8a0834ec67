"""The record of one graph that inductor compiles, from what its code generator tells of each call that it writes."""

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from pyprof.compiled_record import Call, CompiledRecord, dtypes_of
from pyprof.provenance.compiled_backward import traced_graph
from pyprof.provenance.operations import Operations
from pyprof.provenance.symbols import symbols_of

_ATTRIBUTE = "_pyprof_calls"  # of inductor's GraphLowering, until its code is complete


def note_call(graph: Any, schedule: Any, kernel: str) -> None:
    """Remember that the graph's code calls a kernel that computes these nodes of inductor's schedule.

    ``schedule``: a list of scheduler nodes, or the node of a library's kernel (inductor's ExternKernel).
    """
    loops: tuple[int | str, ...] = ()
    if isinstance(schedule, list):
        loops = max(filter(None, map(_loops, schedule)), key=lambda sizes: sizes[-1] != 1, default=())
    note_nodes(graph, _origins(schedule), kernel, loops)


def note_nodes(graph: Any, nodes: list[Any], kernel: str, loops: tuple[int | str, ...] = ()) -> None:
    """Remember that the graph's code calls a kernel, or an op of PyTorch, that computes these FX nodes."""
    vars(graph).setdefault(_ATTRIBUTE, []).append((kernel, nodes, loops))


def _origins(schedule: Any) -> list[Any]:
    """The FX nodes that a kernel computes."""
    if isinstance(schedule, list):
        scheduled = [getattr(item, "node", None) for item in schedule]
        return list(dict.fromkeys(node for item in scheduled if item is not None for node in item.origins))
    exact = getattr(schedule, "origin_node", None)  # the origins also have the nodes that make its inputs
    return [exact] if exact is not None else list(schedule.origins)


def _loops(item: Any) -> tuple[int | str, ...]:
    """The sizes of the loops of a scheduler node: rows, and elements per row (1 where it does not reduce)."""
    group = getattr(item, "group", None)
    sizes = group[1] if isinstance(group, tuple) and len(group) == 2 else ()
    if not all(hasattr(size, "is_Integer") for size in sizes):  # C++ kernels have lists of sizes
        return ()
    return tuple(int(size) if size.is_Integer else str(size) for size in sizes)


def record_of(graph: Any, source: str, shown: Callable[[str], str | None]) -> str:
    """The record of a graph whose code is complete, as JSON; empty if no call was noted."""
    calls = vars(graph).pop(_ATTRIBUTE, None)
    if not calls:
        return ""
    found = {id(node.graph): node.graph for _, nodes, _ in calls for node in nodes if isinstance(node, torch.fx.Node)}
    if len(found) != 1:  # a graph with subgraphs, such as a conditional: its calls have no order
        return ""
    is_backward = bool(getattr(graph, "is_backward", False)) or traced_graph() is not None
    operations = Operations(next(iter(found.values())), is_backward, shown)
    numbers = [operations.of(nodes) for _, nodes, _ in calls]
    done = _done(operations, [nodes for _, nodes, _ in calls], numbers)
    listed = [
        Call(kernel, tuple(its), tuple(finished), loops)
        for (kernel, _, loops), its, finished in zip(calls, numbers, done, strict=True)
    ]
    symbols = symbols_of(next(iter(found.values())))
    record = CompiledRecord(tuple(listed), tuple(operations.listed), dtypes_of(source), symbols)
    return msgspec.json.encode(record).decode("ascii", "backslashreplace")


def _done(operations: Operations, nodes: list[list[Any]], numbers: list[list[int]]) -> list[list[int]]:
    """Per call, the operations that it completes: those whose last node it is the first to compute."""
    completes = {number: at for at, its in enumerate(numbers) for number in its}  # the last call that has a part of it
    for number, otherwise in list(completes.items()):
        last = operations.last_node(number)
        completes[number] = next((at for at, its in enumerate(nodes) if last in its), otherwise)
    return [[number for number in its if completes[number] == at] for at, its in enumerate(numbers)]
