"""The capture of CUDA graphs that lies outside of the range to collect, as in a server that captures when it starts.

A graph's kernels run no op when the graph is replayed: the ops ran when it was captured. So while the embedded
collector is open, each capture of a graph that it would otherwise miss is recorded, from `CUDAGraph.capture_begin` to
`capture_end`. All of PyTorch's ways to make a graph go through these two: `torch.cuda.graph`, `make_graphed_callables`,
and the trees of graphs of `torch.compile(mode="reduce-overhead")`. The record has two parts:

- PyTorch's profiler records the ops, with shapes and our markers. It records nothing of CUDA: with CUPTI, a capture of
  4 ms took 32, and from then on each replay took 515 us instead of 279 (2.11, a graph of 187 kernels on an H200).
- A dispatch mode asks the driver before and after each op which nodes the graph has, so it is known which op added
  which nodes. Nodes that were added by none have the names of their kernels: Triton's are ranges of these names, too.

pyprof/graph_record.py puts both into the trace, as PyTorch's profiler would have recorded them.

Captures and replays of a graph are marked by ranges of one name, `CUDAGraph#3`, so that it is known which graph a
launch replays. Outside of what is recorded, a replay takes a fraction of a microsecond longer on the CPU.
"""

from __future__ import annotations

import inspect
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyprof.capture import session
from pyprof.capture.patch import Patches
from pyprof.capture.sinks import Entry, pop, push
from pyprof.cuda_graph_nodes import CapturedGraph
from pyprof.files import tell
from pyprof.graph_record import NODES_RANGE, GraphRecord, NodeCounter
from pyprof.marker import GRAPH_RANGE

_NUMBERS = itertools.count(1)  # one sequence per process: a trace may hold graphs of several collectors' time


class GraphCaptures:
    """Replaces methods of CUDAGraph from open() to close().

    ``start()`` starts PyTorch's profiler and returns it, or None if it is recording already; ``stop(profiler)`` stops
    it again.
    """

    def __init__(self, start: Callable[[], Any], stop: Callable[[Any], None]) -> None:
        self.records: list[GraphRecord] = []  # one per capture that was recorded by itself
        self.ordered: list[int] = []  # the numbers of graphs whose nodes can run in one order only
        self.begun = 0  # the captures that have begun since open()
        self._start_profiler, self._stop_profiler = start, stop
        self._patches = Patches()
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._entries: weakref.WeakKeyDictionary[Any, Entry] = weakref.WeakKeyDictionary()  # the range of each graph
        self._profiler: Any = None  # the profiler that records the capture in progress
        self._thread = 0  # the thread on which it was started
        self._mode: Any = None  # the dispatch mode that counts the nodes of that capture
        self._counters: list[NodeCounter] = []
        self._capturing = 0  # captures in progress

    def open(self) -> None:
        import torch

        owner = torch.cuda.CUDAGraph
        for name, replacement in (("capture_begin", self._begin), ("capture_end", self._end), ("replay", self._replay)):
            self._patches.set(owner, name, replacement(getattr(owner, name)))

    def close(self) -> None:
        self.finish()
        self._patches.undo()

    def finish(self) -> None:
        """Stop recording the capture that is in progress, if any: another profiler is about to begin."""
        profiler, self._profiler = self._profiler, None
        counters, self._counters = self._counters, []
        if profiler is None:
            return
        for counter in counters:
            counter.on = False
        if self._thread != threading.get_ident():
            session.ABANDONED.append(profiler)
            _say(RuntimeError("another thread's profiler began"))
            return
        self._leave_mode()
        try:
            self._stop_profiler(profiler)
        except RuntimeError as error:
            _say(error)
        else:
            self.records.append(GraphRecord(profiler, counters))

    def _begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._numbers[graph] = number = next(_NUMBERS)
            self._entries[graph] = Entry(f"{GRAPH_RANGE}{number}")
            self.begun += 1
            self._start()
            try:
                with self._range(graph):
                    result = original(graph, *args, **kwargs)
            except BaseException:
                self._stop()
                raise
            self._count_nodes(number)
            return result

        return capture_begin

    def _end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._note_nodes(self._numbers.get(graph))
            if not self._counters:
                self._leave_mode()  # finish() could not, on another thread
            try:
                return original(graph, *args, **kwargs)
            finally:
                self._stop()

        return capture_end

    def _count_nodes(self, number: int) -> None:
        """Count the nodes that each op adds, if this capture is recorded, and is the only one in progress."""
        if self._profiler is None or self._counters or self._thread != threading.get_ident():
            return
        counter = NodeCounter(number)
        self._counters.append(counter)
        self._mode = _mode_of(counter)
        self._mode.__enter__()

    def _note_nodes(self, number: int | None) -> None:
        """Before a capture ends: ask for its nodes, and whether they have one order."""
        import torch

        for counter in self._counters:
            if counter.number == number:
                self._leave_mode()
                counter.finish()
        active = session.current()
        recorded = self._profiler is not None or (active is not None and active.sink is not None)
        if recorded and number is not None and torch.cuda.is_initialized():
            graph = CapturedGraph.of_stream(torch.cuda.current_stream().cuda_stream)
            nodes = [] if graph is None else graph.nodes()
            if graph is not None and nodes and graph.has_one_order(nodes):
                self.ordered.append(number)

    def _leave_mode(self) -> None:
        mode = self._mode
        if mode is not None and self._thread == threading.get_ident():
            self._mode = None
            mode.leave()

    def _replay(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            active = session.current()
            if active is None or active.sink is None:
                return original(graph, *args, **kwargs)
            with self._range(graph):
                return original(graph, *args, **kwargs)

        return replay

    @contextmanager
    def _range(self, graph: Any) -> Iterator[None]:
        """The graph's range, if it was captured since open() and something records."""
        active, entry = session.current(), self._entries.get(graph)
        if active is None or active.sink is None or entry is None:
            yield
            return
        token = push(active.sink, entry)
        try:
            yield
        finally:
            pop(token)

    def _start(self) -> None:
        self._capturing += 1
        if self._profiler is not None:
            return
        try:
            self._profiler = self._start_profiler()
        except RuntimeError as error:
            _say(error)
        self._thread = threading.get_ident()

    def _stop(self) -> None:
        self._capturing -= 1
        if self._capturing <= 0 and self._thread == threading.get_ident():
            self.finish()


def plain_profiler() -> Any:
    """PyTorch's profiler of ops with shapes, not started yet.

    Without torch.profiler, which imports PyTorch's compiler first: 3.6 s on the host of an H200.
    """
    from torch.autograd.profiler import profile

    since_2_5 = {"acc_events": False} if "acc_events" in inspect.signature(profile).parameters else {}
    return profile(record_shapes=True, use_kineto=True, **since_2_5)


def _mode_of(counter: NodeCounter) -> Any:
    """A dispatch mode with a range around each op, before and after which the counter looks at the graph."""
    from torch._C._profiler import _RecordFunctionFast

    from pyprof.capture.mode import NodeMode

    return NodeMode(counter, lambda: _RecordFunctionFast(NODES_RANGE))


def _say(error: RuntimeError) -> None:
    """PyTorch's profiler refused: the program goes on as it would without pyprof."""
    tell(f"pyprof: the capture of a CUDA graph is not recorded, and its kernels will have no op: {error}")
