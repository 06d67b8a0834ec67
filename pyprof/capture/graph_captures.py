"""The capture of CUDA graphs that lies outside of the range to collect, as in a server that captures when it starts.

A graph's kernels run no op when the graph is replayed: the ops ran when it was captured. So while the embedded
collector is open, each capture of a graph that it would otherwise miss is recorded, from `CUDAGraph.capture_begin` to
`capture_end`. All of PyTorch's ways to make a graph go through these two: `torch.cuda.graph`, `make_graphed_callables`,
and the trees of graphs of `torch.compile(mode="reduce-overhead")`.

PyTorch's profiler records a capture as it records everything else: the ops with shapes, our markers, and CUDA's calls,
each of which adds a node to the graph. It begins before the capture and ends after it, because to begin and to end it
waits for the GPU, which is not allowed meanwhile. docs/how-to/graphs.md has what this costs, and what was tried
instead.

Captures and replays of a graph are marked by ranges of one name, `CUDAGraph#3`, so that it is known which graph a
launch replays. Outside of what is recorded, a replay takes a fraction of a microsecond longer on the CPU.
"""

from __future__ import annotations

import inspect
import itertools
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyprof.capture import session
from pyprof.capture.autograd_ranges import AutogradRanges, program_profiler_is_on, ranges_are_on
from pyprof.capture.kineto_turns import without_noise
from pyprof.capture.patch import Patches
from pyprof.capture.sinks import Entry, Profiler, pop, push
from pyprof.capture.trace_file import recorded_ranges
from pyprof.captured_record import CAPTURED_RANGE, CLOCK_RANGE, CLOCKS, packed, record_of
from pyprof.cuda_graph_nodes import CapturedGraph
from pyprof.files import tell
from pyprof.marker import GRAPH_RANGE
from pyprof.range_pieces import Piece, pieces_of

UNTOLD = (
    "pyprof: {} of CUDA graphs, recorded for a range that pyprof.start() begins, are in no report, since it was not "
    "called; if nsys collects from the first line on, use init(graphs=False): then PyTorch's own ranges are in it"
)
_NUMBERS = itertools.count(1)  # one sequence per process: a trace may hold graphs of several collectors' time


class GraphCaptures:
    """Replaces methods of CUDAGraph from open() to close().

    ``start()`` starts PyTorch's profiler and returns it, or None if the capture is not to be recorded by itself;
    ``stop(profiler)`` stops it again, and returns what it recorded.
    """

    def __init__(self, start: Callable[[], Any], stop: Callable[[Any], Any]) -> None:
        self.records: list[Any] = []  # what stop() returned for each capture that was recorded by itself
        self.ordered: list[int] = []  # the numbers of graphs whose nodes can run in one order only
        self.begun = 0  # the captures that have begun since open()
        self._start_profiler, self._stop_profiler = start, stop
        self._patches = Patches()
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._entries: weakref.WeakKeyDictionary[Any, Entry] = weakref.WeakKeyDictionary()  # the range of each graph
        self._profiler: Any = None  # the profiler that records the capture in progress
        self._around: list[Any] = []  # the ranges of compiled graphs that were opened again around it
        self._thread = 0  # the thread on which it was started
        self._capturing = 0  # captures in progress
        self._replaying: set[int] = set()  # the threads that have replayed a graph

    def open(self) -> None:
        import torch

        owner = torch.cuda.CUDAGraph
        for name, replacement in (("capture_begin", self._begin), ("capture_end", self._end), ("replay", self._replay)):
            self._patches.set(owner, name, replacement(getattr(owner, name)))

    def close(self) -> None:
        self.finish()
        self._patches.undo()

    def others_replay(self) -> bool:
        """Whether another thread than this one has replayed a graph since open()."""
        return not self._replaying <= {threading.get_ident()}

    def finish(self) -> None:
        """Stop recording the capture that is in progress, if any: another profiler is about to begin."""
        profiler, self._profiler = self._profiler, None
        around, self._around = self._around, []
        if profiler is None:
            return
        if self._thread != threading.get_ident():
            session.ABANDONED.append((profiler, around))
            _say(RuntimeError("another thread's profiler began"))
            return
        for token in reversed(around):
            pop(token)
        try:
            self.records.append(self._stop_profiler(profiler))
        except (RuntimeError, OSError) as error:
            _say(error)

    def _begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._numbers[graph] = number = next(_NUMBERS)
            self._entries[graph] = Entry(f"{GRAPH_RANGE}{number}")
            self.begun += 1
            self._start()
            try:
                with self._range(graph):
                    return original(graph, *args, **kwargs)
            except BaseException:
                self._stop()
                raise

        return capture_begin

    def _end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._note_order(self._numbers.get(graph))
            try:
                return original(graph, *args, **kwargs)
            finally:
                self._stop()

        return capture_end

    def _note_order(self, number: int | None) -> None:
        """Before a capture ends: ask whether the nodes of the graph have one order, if the capture is recorded."""
        import torch

        active = session.current()
        recorded = active is not None and active.sink is not None
        if recorded and number is not None and torch.cuda.is_initialized():
            graph = CapturedGraph.of_stream(torch.cuda.current_stream().cuda_stream)
            if graph is not None and graph.has_one_order():
                self.ordered.append(number)

    def _replay(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._replaying.add(threading.get_ident())
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
        except (RuntimeError, OSError) as error:  # OSError: records of an earlier capture cannot be kept
            _say(error)
        self._thread = threading.get_ident()
        active = session.current()
        if self._profiler is not None and active is not None:
            self._around = active.compiled.again()

    def _stop(self) -> None:
        self._capturing = max(self._capturing - 1, 0)  # a capture may have begun before open()
        if self._capturing == 0 and self._thread == threading.get_ident():
            self.finish()


class NvtxGraphs:
    """Records captures of CUDA graphs before the range that nsys collects, and tells nsys of them at its begin.

    nsys records when and on which thread each node of a graph is made, also before its range, but no NVTX range of that
    time. So PyTorch's profiler records the ops and markers, without CUDA, whose events are nsys's; when the range
    begins, they become texts of NVTX ranges (pyprof/captured_record.py).
    """

    def __init__(self, owner: session.Session) -> None:
        self._session = owner
        self._sink: Profiler | None = None
        self._captures = GraphCaptures(self._start, self._stop)
        self._over = False  # whether nsys collects, or has collected
        self._pieces: list[Piece] = []  # of the record
        self._backward_next = False  # whether a capture was recorded, and no backward pass began since
        self._patches = Patches()

    def open(self) -> None:
        from torch import autograd

        self._captures.open()
        if self._session.autograd is not None and hasattr(autograd, "_engine_run_backward"):
            run = autograd._engine_run_backward
            self._patches.set(autograd, "_engine_run_backward", self._backward(run, self._session.autograd))

    def close(self) -> None:
        """Record no more, and drop what was recorded."""
        self._captures.close()
        self._captures.records.clear()
        self._patches.undo()

    def end(self) -> None:
        """The session ends: say so if nsys was told of nothing."""
        count, over = len(self._captures.records), self._over
        self.close()
        if count and not over:
            tell(UNTOLD.format(f"{count:,} capture{'' if count == 1 else 's'}"))

    def _backward(self, original: Callable[..., Any], own: AutogradRanges) -> Callable[..., Any]:
        def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
            """Run the backward pass after a recorded capture without PyTorch's own ranges.

            In it torch.compile captures the graph's backward, on a thread of autograd's, which has the profilers that
            are on when it begins. Where these ranges are, no other profiler can begin.
            """
            if not self._backward_next or self._over or not ranges_are_on():
                return original(*args, **kwargs)
            own.end()
            try:
                return original(*args, **kwargs)
            finally:
                self._backward_next = False
                own.begin()

        return _engine_run_backward

    def tell(self) -> None:
        """A range of nsys has begun: push what was recorded. No capture is recorded from then on."""
        self._captures.finish()
        self._over = True
        profilers, self._captures.records = self._captures.records, []
        nvtx = self._session.sinks[0]
        try:
            if profilers and self._sink is not None:
                record = record_of([recorded_ranges(profiler, self._sink.texts) for profiler in profilers])
                self._pieces = pieces_of(packed(record))
        except (RuntimeError, OSError, ValueError) as error:  # its trace cannot be written, or is no JSON
            _say(error)
        if nvtx is None or not self._pieces:
            return
        for piece in self._pieces:
            pop(push(nvtx, Entry(piece.text(CAPTURED_RANGE))))
        for _ in range(CLOCKS):
            pop(push(nvtx, Entry(f"{CLOCK_RANGE}{time.time_ns()}")))

    def _start(self) -> Any:
        """Start PyTorch's profiler; None where it is not wanted, or where the program's own is on."""
        if self._over:
            return None
        if program_profiler_is_on():
            if self._session.autograd is not None and self._session.autograd.on_some_thread:
                _say(RuntimeError("another thread began it while PyTorch's ranges were on"))
            return None
        from torch.autograd.profiler import profile

        since_2_5 = {"acc_events": False} if "acc_events" in inspect.signature(profile).parameters else {}
        profiler = profile(record_shapes=True, use_kineto=True, **since_2_5)
        with without_noise():
            profiler.__enter__()
        self._sink = self._sink or Profiler()
        self._session.set_profiler(self._sink)
        return profiler

    def _stop(self, profiler: Any) -> Any:
        self._session.set_profiler(None)
        with without_noise():
            profiler.__exit__(None, None, None)
        self._backward_next = True
        return profiler


def _say(error: Exception) -> None:
    """PyTorch's profiler refused: the program goes on as it would without pyprof."""
    tell(f"pyprof: the capture of a CUDA graph is not recorded, and its kernels will have no op: {error}")
