"""The capture of CUDA graphs that lies outside of the range to collect, as in a server that captures when it starts.

A graph's kernels run no op when the graph is replayed: the ops ran when it was captured. So while the embedded
collector is open, PyTorch's profiler also records each capture of a graph that it would otherwise miss, from
`CUDAGraph.capture_begin` to `capture_end`. All of PyTorch's ways to make a graph go through these two:
`torch.cuda.graph`, `make_graphed_callables`, and the trees of graphs of `torch.compile(mode="reduce-overhead")`.
trace_file.py writes the records into the trace, beside its events.

Captures and replays of a graph are marked by ranges of one name, `CUDAGraph#3`, so that it is known which graph a
launch replays. Outside of what is recorded, a replay takes a fraction of a microsecond longer on the CPU. The kernels
of a replay are joined to the captured launches in order, so the numbers of graphs that have one order are kept, too.
"""

from __future__ import annotations

import inspect
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyprof.capture import session
from pyprof.capture.patch import Patches
from pyprof.capture.sinks import Entry, pop, push
from pyprof.cuda_graph_nodes import nodes_in_one_order
from pyprof.files import tell
from pyprof.marker import GRAPH_RANGE

RECORD_VERSION = 1
_NUMBERS = itertools.count(1)  # one sequence per process: a trace may hold graphs of several collectors' time


class GraphCaptures:
    """Replaces methods of CUDAGraph from open() to close().

    ``start()`` starts PyTorch's profiler and returns it, or None if it is recording already; ``stop(profiler)`` stops
    it again and returns its records.
    """

    def __init__(self, start: Callable[[], Any], stop: Callable[[Any], Any]) -> None:
        self.recordings: list[Any] = []  # one per capture that was recorded by itself
        self.ordered: list[int] = []  # the numbers of graphs whose nodes can run in one order only
        self.begun = 0  # the captures that have begun since open()
        self._start_profiler, self._stop_profiler = start, stop
        self._patches = Patches()
        self._entries: weakref.WeakKeyDictionary[Any, Entry] = weakref.WeakKeyDictionary()  # the range of each graph
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._recording: Any = None  # the profiler that records the capture in progress
        self._thread = 0  # the thread on which it was started
        # captures in progress: stopping a profiler waits for the GPU, which would break another one
        self._capturing = 0

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
        recording, self._recording = self._recording, None
        if recording is None:
            return
        if self._thread != threading.get_ident():
            session.abandon(recording)
            _say(RuntimeError("another thread's profiler began"))
            return
        try:
            self.recordings.append(self._stop_profiler(recording))
        except RuntimeError as error:
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
            self._note_order(graph)
            try:
                return original(graph, *args, **kwargs)
            finally:
                self._stop()

        return capture_end

    def _note_order(self, graph: Any) -> None:
        import torch

        number = self._numbers.get(graph)
        if number is not None and torch.cuda.is_initialized():
            if nodes_in_one_order(torch.cuda.current_stream().cuda_stream):
                self.ordered.append(number)

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
        if self._recording is not None:
            return
        _keep_cupti()
        try:
            self._recording = self._start_profiler()
        except RuntimeError as error:
            _say(error)
        self._thread = threading.get_ident()

    def _stop(self) -> None:
        self._capturing -= 1
        if self._capturing <= 0 and self._thread == threading.get_ident():
            self.finish()


def plain_profiler() -> Any:
    """PyTorch's profiler of ops with shapes, and of CUDA's calls where there is a GPU, not started yet."""
    import torch
    from torch.autograd.profiler import profile

    known = inspect.signature(profile).parameters
    device = "cuda" if torch.cuda.is_available() else None
    options = {"use_device": device} if "use_device" in known else {"use_cuda": device is not None}  # since 2.3
    if "acc_events" in known:  # since 2.5
        options["acc_events"] = False
    return profile(record_shapes=True, use_kineto=True, **options)


def _say(error: RuntimeError) -> None:
    """PyTorch's profiler refused: the program goes on as it would without pyprof."""
    tell(f"pyprof: the capture of a CUDA graph is not recorded, and its kernels will have no op: {error}")


def _keep_cupti() -> None:
    """Keep CUPTI loaded between profilers, as torch/profiler/profiler.py (2.13) does where it knows of CUDA graphs.

    With CUDA before 12.6, replaying a graph fails after CUPTI was unloaded. The user's own settings come first.
    """
    import torch

    version = (torch.version.cuda or "").split(".")[:2]
    if len(version) == 2 and tuple(map(int, version)) < (12, 6):
        os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
        os.environ.setdefault("TEARDOWN_CUPTI", "0")
