"""What part of a program is collected, and by whom: the embedded collector, or a tool that is attached (nsys, ncu).

The collector is PyTorch's profiler (Kineto) with our markers in it, written as a gzipped Chrome trace. `start()` and
`stop()` set the range to collect, for it and for a tool that waits for cudaProfilerStart.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyprof.capture import session
from pyprof.capture.sinks import Entry, Profiler, pop, push
from pyprof.errors import PyprofError


@dataclass(frozen=True, slots=True)
class Window:
    """What part of the run to collect. Iterations are counted by pyprof.step()."""

    warmup: int = 0  # iterations to let pass first
    steps: int | None = None  # iterations to collect then, None for all
    wait: bool = False  # collect nothing before start()


class Collector(ABC):
    """What decides when to collect: the window, or the program's own start() and stop()."""

    name: str  # what messages call it

    def __init__(self, window: Window) -> None:
        self._window = window
        self._by_hand = False  # start() was called: what it and stop() enclose is collected
        self._iterations = 0

    @abstractmethod
    def begin(self) -> None:
        """Collect from now on."""

    @abstractmethod
    def end(self) -> None:
        """Collect no more, where it did."""

    @abstractmethod
    def open(self) -> None:
        """The program begins."""

    @abstractmethod
    def start(self) -> None:
        """The program's start()."""

    def stop(self) -> None:
        """The program's stop()."""
        if self._by_hand:
            self.end()

    def step(self) -> None:
        """The program's step()."""
        self._iterations += 1
        window = self._window
        if self._by_hand:
            return
        if window.warmup and self._iterations == window.warmup:
            self.begin()
        if window.steps is not None and self._iterations == window.warmup + window.steps:
            self.end()


class Attached(Collector):
    """A tool that was attached to this process as it began, and may wait for cudaProfilerStart."""

    name = "the tool that is attached"

    def __init__(self, window: Window) -> None:
        super().__init__(window)
        self._running = False

    def open(self) -> None:
        """Begins only where a number of steps is asked for: cudaProfilerStart takes hold of a GPU."""
        if self._window.steps is not None and not (self._window.wait or self._window.warmup):
            self.begin()

    def begin(self) -> None:
        self._running = True
        _cuda_profiler("start")

    def end(self) -> None:
        if self._running:
            self._running = False
            _cuda_profiler("stop")

    def start(self) -> None:
        self._by_hand = True
        self.begin()


class TraceFile(Collector):
    """One run of PyTorch's profiler at a time, written to one file."""

    def __init__(self, file: Path, force: bool, window: Window) -> None:
        super().__init__(window)
        self.name = str(file)
        self.file = file
        self._force = force
        self._sink = Profiler()
        self._profiler: Any = None
        self._running = False

    def open(self) -> None:
        if not (self._window.wait or self._window.warmup):
            self.begin()

    def begin(self) -> None:
        import torch
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        since_2_5 = {"acc_events": False} if "acc_events" in inspect.signature(profile).parameters else {}
        self._profiler = profile(activities=activities, record_shapes=True, **since_2_5)
        self._profiler.__enter__()
        self._running = True
        active = session.current()
        if active is not None:
            active.set_profiler(self._sink)

    def end(self) -> None:
        """Stop collecting. What was collected is kept until `write`."""
        active = session.current()
        if active is not None:
            active.set_profiler(None)
        if self._running:
            self._running = False
            self._profiler.__exit__(None, None, None)

    def start(self) -> None:
        """Drops what was collected before it."""
        if self._by_hand:
            sys.stderr.write(f"pyprof: {self.file} holds the first range of start() to stop(), this one is left out\n")
            return
        self._by_hand = True
        self.end()
        self.begin()

    def write(self) -> None:
        """Raises PyprofError where nothing was collected."""
        from pyprof.capture.trace_file import write_trace

        self.end()
        if self._profiler is None:
            cause = "called start()" if self._window.wait else f"came to its {self._window.warmup}th pyprof.step()"
            raise PyprofError(f"{self.file}: not written, for the program never {cause}")
        write_trace(self._profiler, self._sink.texts, self.file, self._force)


_collector: Collector | None = None
_lock = threading.Lock()


@contextmanager
def profile(
    file: str | os.PathLike[str],
    *,
    force: bool = False,
    trace: bool | str = False,
    dispatch: bool = False,
    warmup: int = 0,
    steps: int | None = None,
    wait: bool = False,
) -> Iterator[None]:
    """Collect what runs inside into `file`, a Chrome trace (gzipped where the name ends in .gz).

    Calls pyprof.init(trace=trace, dispatch=dispatch) for the block where the program has not. Where the block calls
    start() and stop(), the file holds just the range between; with `wait`, nothing is collected before. `warmup` and
    `steps` are numbers of iterations, which pyprof.step() counts, to pass over and then to collect. The file is written
    when the block raises, too, and all at once.

    Raises PyprofError, before anything runs, where the file is there already (unless `force`), cannot be written, or
    another `profile` is running; and afterwards, where there was nothing to write.
    """
    path = Path(file)
    check_output(path, force)
    collector = TraceFile(path, force, Window(warmup, steps, wait))
    with _collecting(collector, trace, dispatch) as done:
        done.callback(collector.write)
        yield


@contextmanager
def attach(window: Window, *, trace: bool | str = False, dispatch: bool = False) -> Iterator[None]:
    """Mark what runs inside for the tool that is attached, with cudaProfilerStart and Stop around `window`."""
    collector = Attached(window)
    with _collecting(collector, trace, dispatch) as done:
        done.callback(collector.end)
        yield


@contextmanager
def _collecting(collector: Collector, trace: bool | str, dispatch: bool) -> Iterator[ExitStack]:
    """With init() where the program has not called it. What the stack holds runs last, while all is still marked."""
    ours = session.current() is None
    if ours:
        session.init(trace=trace, dispatch=dispatch)
    try:
        with ExitStack() as done:
            _claim(collector)
            try:
                _step.number = 0
                collector.open()
                yield done
            finally:
                _close_step()
                _release()
    finally:
        if ours:
            session.deinit()


def check_output(path: Path, force: bool) -> None:
    """Raise PyprofError where `path` could not be written."""
    if path.exists() and not force:
        raise PyprofError(f"{path}: is there already (use --force, or force=True, to write over it)")
    if path.is_dir():
        raise PyprofError(f"{path}: is a folder, not a file")
    if not path.absolute().parent.is_dir():
        raise PyprofError(f"{path}: there is no folder {path.parent}")
    if not os.access(path.absolute().parent, os.W_OK):
        raise PyprofError(f"{path}: the folder {path.parent} cannot be written to")


def _claim(collector: Collector) -> None:
    global _collector
    with _lock:
        if _collector is not None:
            raise PyprofError(f"{collector.name}: {_collector.name} is still being collected; one file at a time")
        _collector = collector


def _release() -> None:
    global _collector
    with _lock:
        _collector = None


def start() -> None:
    """Begin the range to collect: of the embedded collector where it runs, else cudaProfilerStart for nsys and ncu.

    Waits for the GPU first, so that no earlier kernel runs into the range. Without either it does nothing.
    """
    _mark_range("start")


def stop() -> None:
    """End the range that start() began, once the GPU has finished what was launched in it."""
    _mark_range("stop")


def _mark_range(what: str) -> None:
    import torch

    if what == "stop":
        _close_step()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    collector = _collector
    if collector is not None:
        collector.start() if what == "start" else collector.stop()
    else:
        _cuda_profiler(what)


def _cuda_profiler(what: str) -> None:
    """cudaProfilerStart or Stop, where there is a GPU, once it has finished what was launched."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        (torch.cuda.profiler.start if what == "start" else torch.cuda.profiler.stop)()


class _Step(threading.local):
    def __init__(self) -> None:
        self.number = 0
        self.range: Any = None


_step = _Step()


def step() -> None:
    """End an iteration and begin the next: ranges `ProfilerStep#0`, `ProfilerStep#1`, ... as PyTorch's profiler has.

    Call it at the end of each iteration, at the same depth. Without init() it does nothing.
    """
    _close_step()
    _step.number += 1
    if _collector is not None:
        _collector.step()
    active = session.current()
    sink = None if active is None else active.sink()
    if sink is not None:
        _step.range = (push(sink, Entry(f"ProfilerStep#{_step.number}")),)


def _close_step() -> None:
    opened, _step.range = _step.range, None
    if opened is not None:
        pop(opened[0])
