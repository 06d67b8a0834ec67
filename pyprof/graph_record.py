"""The record of a CUDA graph's capture, as events of a trace: the ops, and the calls that added nodes to the graph.

The calls are written as CUPTI would have recorded them, because the parser joins the kernels of a replay to the calls
of a capture: one for each node, inside the op that added it, between cudaStreamBeginCapture and cudaStreamEndCapture.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pyprof.cuda_graph_nodes import CapturedGraph, Node
from pyprof.marker import GRAPH_RANGE

NODES_RANGE = "pyprof:nodes"  # the profiler's range around each op that the dispatch mode saw
_BEHIND_US = 0.001  # less than any time between two ranges
_OF_THE_MODE = "PythonDispatchMode"  # the profiler's own range around each call of a dispatch mode (2.13)
_CALLS = {"kernel": "cudaLaunchKernel", "memcpy": "cudaMemcpyAsync", "memset": "cudaMemsetAsync"}


class NodeCounter:
    """Which nodes the captured graph had before and after each op. ``number``: pyprof's number of the graph.

    An op is a pair of calls, enter() and leave(), on any of the threads that take part in the capture. The last nodes
    of the op's stream are enough to know how many there were, and take less time than counting them.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.on = True
        self.ops: list[list[tuple[int, ...]]] = []  # per op in order of begin: the last nodes before, and after it
        self.nodes: list[Node] = []
        self.names: dict[int, str] = {}  # index of a kernel node that no op added -> its mangled name
        self._stream = _current_stream()
        self._graph = CapturedGraph.of_stream(self._stream())

    def enter(self) -> list[tuple[int, ...]]:
        op = [self._last()]
        self.ops.append(op)
        return op

    def leave(self, op: list[tuple[int, ...]]) -> None:
        op.append(self._last())

    def _last(self) -> tuple[int, ...]:
        return () if self._graph is None else self._graph.last_nodes(self._stream())

    def finish(self) -> None:
        """Before the capture ends: ask for all nodes, and the names of those that no op added."""
        if self._graph is not None:
            self.nodes = self._graph.nodes()
            added = {node for some in self.added() for node in some}
            self.names = {
                index: self._graph.kernel_name(node.handle)
                for index, node in enumerate(self.nodes)
                if index not in added and node.kind == "kernel"
            }

    def added(self) -> list[range]:
        """Per op, the indices of the nodes that it added itself, not an op inside it.

        Ops do not overlap, except that one may lie within another: then the inner one, which begins later, has them.
        """
        place = {node.handle: index for index, node in enumerate(self.nodes)}

        def count(last: Iterable[int]) -> int:
            return max((place.get(node, -1) for node in last), default=-1) + 1

        found, seen = [], 0
        for op in self.ops:
            before, after = (max(count(last), seen) for last in (op[0], op[-1]))
            found.append(range(before, after))
            seen = after
        return found


def _current_stream() -> Callable[[], int]:
    """A function that returns the calling thread's current stream on this thread's device."""
    import torch

    if not torch.cuda.is_initialized():
        return lambda: 0
    return functools.partial(torch._C._cuda_getCurrentRawStream, torch.cuda.current_device())


class GraphRecord(NamedTuple):
    """What was recorded of one capture, or of several at once: then it is not known which nodes are whose."""

    profiler: Any  # stopped
    counters: list[NodeCounter]

    def events(self, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The profiler's ``events`` and the calls that added the nodes. ``events``: as they stand in a trace."""
        timed = [event for event in events if "dur" in event]
        ranges = [event for event in timed if event["name"] == NODES_RANGE]
        others = [event for event in timed if event["name"] not in (NODES_RANGE, _OF_THE_MODE)]
        ranges.sort(key=lambda event: float(event["ts"]))
        calls: list[dict[str, Any]] = []
        for counter in self.counters:
            begin = next((event for event in others if event["name"] == f"{GRAPH_RANGE}{counter.number}"), None)
            if begin is not None and len(ranges) == len(counter.ops):
                calls += _calls(counter, begin, ranges, others)
        return [*others, *calls]


def _calls(counter: NodeCounter, begin: dict[str, Any], ranges: list[Any], others: list[Any]) -> list[dict[str, Any]]:
    number = itertools.count(1)

    def call(name: str, around: dict[str, Any], ts: float) -> dict[str, Any]:
        known = {key: around[key] for key in ("pid", "tid")}
        args = {"correlation": next(number)}
        return {"ph": "X", "cat": "cuda_runtime", "name": name, **known, "ts": ts, "dur": 0, "args": args}

    middle, last = float(begin["ts"]) + float(begin["dur"]) / 2, max(float(e["ts"]) + float(e["dur"]) for e in others)
    calls = [call("cudaStreamBeginCapture", begin, middle)]
    for node, (around, ts) in sorted(_places(counter, begin, ranges, others).items()):
        name = _CALLS.get(counter.nodes[node].kind)
        if name:
            calls.append(call(name, around, ts))
    return [*calls, call("cudaStreamEndCapture", begin, last + 1)]


def _places(
    counter: NodeCounter, begin: dict[str, Any], ranges: list[Any], others: list[Any]
) -> dict[int, tuple[dict[str, Any], float]]:
    """Per node: the event in which it was added, or after which, and a time there.

    A node that no op added is in the next range of its kernel's name; without one, behind what was before it.
    """
    found: dict[int, tuple[dict[str, Any], float]] = {}
    for around, nodes in zip(ranges, counter.added(), strict=True):
        found |= {node: (around, float(around["ts"])) for node in nodes}  # before any op inside the op begins
    named: dict[str, list[dict[str, Any]]] = {}
    for event in sorted(others, key=lambda event: -float(event["ts"])):
        named.setdefault(event["name"], []).append(event)
    before, last = begin, float(begin["ts"])
    for node in range(len(counter.nodes)):
        if node not in found:
            same = named.get(counter.names.get(node, ""), [])
            while same and float(same[-1]["ts"]) < last:
                same.pop()
            if same:
                found[node] = same[-1], float(same[-1]["ts"]) + float(same.pop()["dur"]) / 2
            else:
                end = float(before["ts"]) + float(before["dur"])
                found[node] = before, max(end, last) + _BEHIND_US
        before, last = found[node]
    return found
