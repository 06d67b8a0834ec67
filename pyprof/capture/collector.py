"""Collectors, which record the program or a part of it: the embedded one, or an attached tool (nsys, nvprof, ncu).

The embedded collector is PyTorch's profiler (Kineto) with our markers in it. While it records, the program's ops take
longer on the CPU, and the records stay in memory until they are written as a Chrome trace at the end. An attached tool
records by itself; pyprof only calls cudaProfilerStart and cudaProfilerStop.
"""

import inspect
import sys
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyprof.capture import session
from pyprof.capture.sinks import Profiler
from pyprof.capture.trace_file import write_trace
from pyprof.errors import PyprofError


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of the run to collect. pyprof.step() counts the iterations."""

    warmup: int = 0  # iterations to skip first
    steps: int | None = None  # iterations to collect after the warmup; None: all
    wait: bool = False  # collect nothing before start()


class Collector(ABC):
    """Decides when to collect: in the window, or between start() and stop() if the program calls them."""

    name: str  # the collector's name in messages

    def __init__(self, window: Window) -> None:
        self._window = window
        self._started = False  # whether the program has called start(); from then on the window is ignored
        self._running = False
        self._iterations = 0

    @abstractmethod
    def begin(self) -> None:
        """Start collecting."""

    @abstractmethod
    def end(self) -> None:
        """Stop collecting. Does nothing if the collector is not collecting."""

    def open(self) -> None:
        """Called before the program's first line."""
        if not (self._window.wait or self._window.warmup):
            self.begin()

    def start(self) -> None:
        """Called by pyprof.start()."""
        self._started = True
        self.begin()

    def stop(self) -> None:
        """Called by pyprof.stop()."""
        if self._started:
            self.end()

    def step(self) -> None:
        """Called by pyprof.step(), at the end of each iteration."""
        self._iterations += 1
        window = self._window
        if self._started:
            return
        if self._iterations == window.warmup:
            self.begin()
        if window.steps is not None and self._iterations == window.warmup + window.steps:
            self.end()


class Attached(Collector):
    """A tool that was attached when this process started, and may be waiting for cudaProfilerStart."""

    name = "the tool that is attached"

    def open(self) -> None:
        """Start only if the window limits the steps, since cudaProfilerStart creates a context on the GPU."""
        if self._window.steps is not None:
            super().open()

    def begin(self) -> None:
        self._running = True
        cuda_profiler("start")

    def end(self) -> None:
        if self._running:
            self._running = False
            cuda_profiler("stop")


class TraceFile(Collector):
    """The embedded collector: runs PyTorch's profiler, and writes one range to one file."""

    def __init__(self, file: Path, force: bool, window: Window) -> None:
        super().__init__(window)
        self.name = str(file)
        self.file = file
        self._force = force
        self._sink = Profiler()
        self._profiler: Any = None

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
        """Stop collecting, and keep the records until `write`."""
        active = session.current()
        if active is not None:
            active.set_profiler(None)
        if self._running:
            self._running = False
            self._profiler.__exit__(None, None, None)

    def start(self) -> None:
        """Start again, dropping everything collected before the first start(). A second range is not collected."""
        if self._started:
            sys.stderr.write(f"pyprof: {self.file} holds the first range of start() to stop(), this one is left out\n")
            return
        self.end()
        super().start()

    def write(self) -> None:
        """Write the trace. Raises PyprofError if nothing was collected or the file cannot be written."""
        self.end()
        if self._profiler is None:
            cause = "called start()" if self._window.wait else f"came to its {self._window.warmup}th pyprof.step()"
            raise PyprofError(f"{self.file}: not written, for the program never {cause}")
        write_trace(self._profiler, self._sink.texts, self.file, self._force)


def cuda_profiler(action: str) -> None:
    """Call cudaProfilerStart or Stop after the GPU has finished all launched work. Does nothing without a GPU."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        (torch.cuda.profiler.start if action == "start" else torch.cuda.profiler.stop)()
