"""Collectors, which record the program or a part of it: the embedded one, or an attached tool (nsys, nvprof, ncu).

The embedded collector is PyTorch's profiler (Kineto) with our markers in it. While it records, the program's ops take
longer on the CPU, and the records stay in memory until they are written as a Chrome trace at the end. An attached tool
records by itself; pyprof only calls cudaProfilerStart and cudaProfilerStop.
"""

import inspect
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyprof import thread_record
from pyprof.capture import session
from pyprof.capture.autograd_ranges import program_profiler_is_on
from pyprof.capture.graph_captures import GraphCaptures
from pyprof.capture.kineto_turns import Turns, without_inductor
from pyprof.capture.sinks import Entry, Profiler, pop, push
from pyprof.capture.step_finder import StepFinder
from pyprof.capture.trace_file import Recording, event_text, events_of, write_trace
from pyprof.clock_sampler import ClockSampler
from pyprof.compiled_record import VERSION as COMPILED_VERSION
from pyprof.cpu_record import cpu_record
from pyprof.cupti_teardown import letting_go
from pyprof.errors import NothingCollected
from pyprof.memory_record import memory_record
from pyprof.step_timer import StepTimer, TimesCalls

# Of so many iterations before the window, how many begin on an idle GPU (step_timer), the last ones.
ALONE = ((8, 3), (4, 1))


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of the run to collect. step_finder.py says what ends an iteration."""

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
        self._iterations = 0  # that have ended
        self._begin_after = window.warmup  # iterations
        self._until: int | None = None  # the number of ended iterations at which to stop
        self._told_steps = False  # whether the program calls pyprof.step(), which then alone ends iterations
        self._finder: StepFinder | None = None
        self._timer = StepTimer()

    @abstractmethod
    def begin(self) -> None:
        """Start collecting."""

    @abstractmethod
    def end(self) -> None:
        """Stop collecting. Does nothing if the collector is not collecting."""

    def open(self) -> None:
        """Called before the program's first line."""
        if self._window.steps is not None or self._window.warmup:
            self._finder = StepFinder(self._found_step)
        if not (self._window.wait or self._window.warmup):
            self._soon(self._begin_window)

    def _soon(self, begin: Callable[[], None]) -> None:
        """Begin before the program's first call of PyTorch."""
        begin()

    def close(self) -> None:
        """Called after the program's last line."""
        self.end()
        if self._finder is not None:
            self._finder.close()

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
        if not self._told_steps:
            self._told_steps = True
            if self._iterations:
                self._count_again()
        self._count()

    def _found_step(self) -> None:
        if not self._told_steps:
            self._count()

    def _count_again(self) -> None:
        """Forget the iterations that the optimizer ended, which were other ones than those of pyprof.step()."""
        self._iterations = 0
        self._timer.restart()
        if self._started or self._window.wait:
            return
        if self._window.warmup:
            self.end()
        elif not self._running:  # the first iteration is over: collect the ones after it
            self._begin_after = 1

    def _count(self) -> None:
        self._timer.end()
        self._iterations += 1
        self._collect_next()
        if self._is_passing_over():
            number = next((last for fewest, last in ALONE if self._begin_after >= fewest), 0)
            alone = self._iterations >= self._begin_after - number
            self._timer.begin(self._iterations, alone, self._call_timer() if alone else None)

    def _call_timer(self) -> TimesCalls | None:
        """What times the calls of an iteration that nothing records."""
        from pyprof.capture.step_calls import CallTimer

        return CallTimer.of(session.current())

    def _is_passing_over(self) -> bool:
        """Whether the next iteration is before the window, and nothing records it."""
        before = not self._started and not self._window.wait and self._iterations < self._begin_after
        return before and not self._running and not program_profiler_is_on()

    def _collect_next(self) -> None:
        """Begin or end collecting where the next iteration makes it necessary."""
        if self._started:
            return
        if self._iterations == self._begin_after:
            self._begin_window()
        if self._until is not None and self._iterations >= self._until:
            self._until = None
            self.end()

    def _begin_window(self) -> None:
        self.begin()
        self._until = None if self._window.steps is None else self._iterations + self._window.steps

    def warnings(self) -> list[str]:
        """What the user should know of the collected range, after close()."""
        window, ended = self._window, self._iterations
        if self._started or window.wait or ended >= self._begin_after + (window.steps or 0):
            return []
        asked = f"--warmup {window.warmup}" if window.warmup else ""
        asked += f"{' ' if asked else ''}--steps {window.steps}" if window.steps is not None else ""
        if ended == 0:
            found = "no iteration was found: the program called neither optimizer.step() nor pyprof.step()"
        else:
            found = f"the program ended after {ended} iteration{'s' if ended > 1 else ''}"
        return [f"{asked} was not reached: {found}; {self._holds()}"]

    def _holds(self) -> str:
        """The end of a warning that too few iterations ran: what has been collected."""
        return "the tool has what ran until then" if self._iterations >= self._begin_after else "nothing was collected"


class Attached(Collector):
    """A tool that was attached when this process started, and may be waiting for cudaProfilerStart."""

    name = "the tool that is attached"

    def open(self) -> None:
        """Start only if the window limits the steps, since cudaProfilerStart creates a context on the GPU."""
        if self._window.steps is not None or self._window.warmup:
            super().open()
        if self._window.warmup:
            _pass_over(True)

    def close(self) -> None:
        super().close()
        _pass_over(False)

    def begin(self) -> None:
        self._timer.drop()
        self._running = True
        _pass_over(False)
        cuda_profiler("start")
        push_steps(self._timer)
        push_graphs()

    def end(self) -> None:
        if self._running:
            self._running = False
            push_steps(self._timer)
            cuda_profiler("stop")


PIN_MEMORY = "(_pin_memory_loop)"  # in the name of a DataLoader's thread, whose ops only copy batches
NO_OPERATION = "no operation of PyTorch ran while it was collected"
GRAPHS_VERSION = 1  # of what is recorded of captures of graphs


def all_threads() -> dict[str, Any]:
    """The option by which PyTorch's profiler records all threads; none where this PyTorch has none (before 2.7)."""
    from torch._C._profiler import _ExperimentalConfig

    try:
        return {"experimental_config": _ExperimentalConfig(profile_all_threads=True)}
    except TypeError:
        return {}


class Range(NamedTuple):
    """Records of PyTorch's profiler, from one moment to another. The greatest one is written."""

    in_window: bool  # False for what ran before the window
    iterations: int
    seconds: float
    profiler: Recording
    clocks: dict[str, Any] | None  # what --nvml read meanwhile
    tensors: dict[str, Any] | None = None  # with memory=True: the tensors of modules and optimizers
    missing_threads: int = 0  # other threads that called PyTorch, whose ops its profiler did not record

    def is_greater_than(self, other: "Range") -> bool:
        """Ranges of as many iterations are compared by their records: a long one may hold nothing of PyTorch's."""
        mine, others = ((r.in_window, r.iterations, _records(r.profiler.profiler), r.seconds) for r in (self, other))
        return mine > others


def _records(profiler: Any) -> int:
    """How many events PyTorch's profiler has recorded; 0 if this version does not say."""
    results = getattr(getattr(profiler, "profiler", None), "kineto_results", None)
    return 0 if results is None else len(results.events())


# What Kineto records of itself and of CUDA's runtime, of which a profiler that waits for the GPU calls a few functions.
_NO_OP = ("cuda", "cu", "hip", "Activity Buffer", "Buffer Flush", "Instrumentation", "Resource", "Runtime Triggered")


def _has_ops(profiler: Any) -> bool:
    """Whether an op, a range or an operation of a GPU is recorded; true if this version of PyTorch does not say."""
    import torch

    results = getattr(getattr(profiler, "profiler", None), "kineto_results", None)
    if results is None:
        return True
    cpu = torch.profiler.DeviceType.CPU if hasattr(torch.profiler, "DeviceType") else torch._C._autograd.DeviceType.CPU
    return any(event.device_type() != cpu or not event.name().startswith(_NO_OP) for event in results.events())


class TraceFile(Collector):
    """The embedded collector: runs PyTorch's profiler, and writes one range to one file.

    If the program uses PyTorch's profiler itself, there are several ranges, and the largest one is written. With a
    warmup of one iteration, it is collected too, and written if the warmup is not reached. With a longer one, steps
    are timed, and nothing may be collected before them: once Kineto has run, CUPTI stays in the process, and launches
    take the host longer (up to twice as long on an H200).
    """

    tells = True  # whether a line reports a file that is written because of a signal

    def __init__(
        self,
        file: Path,
        force: bool,
        window: Window,
        sampler: ClockSampler | None = None,
        note: str = "",
        memory: bool = False,
        graphs: bool = True,
        at_first_call: bool = False,
    ) -> None:
        super().__init__(window)
        self.name = str(file)
        self._sampler = sampler
        self._note = note  # a warning
        self._memory = memory  # whether to record allocations
        self.file = file
        self.switching = False
        self.is_writing = self.is_written = False
        self.on_gpu = False  # whether the profiler that is on records a GPU
        self._path = file.absolute()  # the program may change the working directory
        self._force = force
        # PyTorch's profiler records allocations of the thread that begins it, or the ops of all threads (seen in 2.13).
        self._all_threads = {} if memory else all_threads()
        # A profiler of one thread begins at once: another thread may be the first to call PyTorch.
        self._at_first_call = at_first_call and bool(self._all_threads)
        self._waiting: Callable[[], None] | None = None  # what the program's first call begins
        self._sink = Profiler(notes_threads=not self._all_threads)
        self._profiler: Any = None
        self._all_graphs = graphs  # whether to record captures of CUDA graphs outside of the window, too
        self._graphs = GraphCaptures(self._begin_graph, self._end_graph)
        self._lets_go = False  # whether no graph can have been launched while CUPTI was there and nothing recorded
        self._wanted = False  # whether to collect whenever the program's own profiler is off
        self._made_way = False
        self._theirs = False
        self._thread = threading.get_ident()
        self._best: Range | None = None
        self._since = (0, 0.0, 0)  # iterations, time and captures of graphs at the range's beginning
        self._with_graphs: list[Recording] = []  # the ranges in which graphs were captured
        self._compiled: dict[str, str] = {}  # the records of compiled graphs that ran, by number
        self._turns: Turns | None = None
        self._pid = os.getpid()

    def open(self) -> None:
        import torch

        self._lets_go = not torch.cuda.is_initialized()
        self._turns = Turns(self)
        active = session.current()
        if active is not None and active.graphs is not None:
            active.graphs.close()
        self._graphs.open()
        super().open()
        if self._window.warmup == 1 and not self._window.wait:
            self._soon(self.begin)

    def _soon(self, begin: Callable[[], None]) -> None:
        """Begin now, or with ``at_first_call`` when the program makes its first call of PyTorch.

        Kineto initializes CUDA's driver when it begins, even if it records no GPU (isGpuAvailable() in its
        DeviceUtil.cpp), and children that the process forks afterwards cannot use CUDA. A process that only starts
        others makes no call.
        """
        active = session.current()
        if not self._at_first_call or active is None:
            begin()
            return
        self._waiting = begin
        active.before_first_call(self._begin_waiting)

    def _begin_waiting(self) -> None:
        if self._waiting is not None and os.getpid() == self._pid:
            self._waiting()

    def close(self) -> None:
        self._waiting = None
        super().close()
        self._graphs.close()
        if self._turns is not None:
            self._turns.close()

    def begin(self) -> None:
        self._waiting = None
        self._timer.drop()
        self._close_range()
        self._wanted = True
        if not self._theirs:
            self._open_range()

    def end(self) -> None:
        """Stop collecting, and keep the records until `write`."""
        self._wanted = False
        self._close_range()

    def pause(self, kineto: bool = False) -> None:
        """Make way: the program's own profiler is about to begin. ``kineto``: it needs the process's one Kineto."""
        self._lets_go = False
        if kineto or threading.get_ident() == self._thread:
            self._graphs.finish()
        self._timer.drop()
        if self._may_switch():
            self._theirs = self._made_way = True
            self._close_range()
        elif kineto and self._running:
            self._abandon_range()

    def resume(self) -> None:
        """The program's own profiler has ended."""
        if self._may_switch():
            self._theirs = False
            if self._wanted:
                self._open_range()
                if self._until is not None:
                    self._until = self._iterations + (self._window.steps or 0)

    def _may_switch(self) -> bool:
        """Whether this thread may end our profiler: any thread may if it is not one thread's own."""
        return bool(self._all_threads) or threading.get_ident() == self._thread

    def _begin_profiler(self, memory: bool, threads: dict[str, Any]) -> Any:
        """Start PyTorch's profiler, with our markers in it.

        ``memory``: whether it records allocations. ``threads``: its option to record all threads, or none.
        """
        import torch
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
            self.on_gpu = True
        since_2_5 = {"acc_events": False} if "acc_events" in inspect.signature(profile).parameters else {}
        with self._switch():
            profiler = profile(activities=activities, record_shapes=True, profile_memory=memory, **since_2_5, **threads)
            with without_inductor():
                profiler.__enter__()
        self._send_markers(self._sink)
        return profiler

    def _send_markers(self, sink: Profiler | None) -> None:
        self._sink.live = sink is not None
        active = session.current()
        if active is not None:
            active.set_profiler(sink)
            if sink is not None:
                active.compiled.records.clear()
            else:
                self._compiled.update(active.compiled.records)

    def _end_profiler(self, profiler: Any, lets_go: bool = False) -> None:
        """``lets_go``: CUPTI leaves the process, too, if it can (cupti_teardown.py)."""
        self._send_markers(None)
        with self._switch(), letting_go(lets_go):
            profiler.__exit__(None, None, None)

    def _begin_graph(self) -> Any:
        """Start PyTorch's profiler for the capture of a CUDA graph; None if that is not wanted, or not possible: one is
        on, no later replay will be collected, or this is a forked child."""
        over = self._best is not None and self._best.in_window and not self._wanted
        if not self._all_graphs or self._running or self._theirs or over:
            return None
        if program_profiler_is_on() or os.getpid() != self._pid:
            return None
        self._timer.drop()
        return self._begin_profiler(memory=False, threads={})

    def _end_graph(self, profiler: Any) -> Recording:
        self._end_profiler(profiler, self._lets_go and not self._graphs.others_replay())
        return self._recording(profiler)

    def _recording(self, profiler: Any) -> Recording:
        return Recording(profiler, self._path.parent, self.on_gpu)

    def keep_records(self) -> None:
        """Called before any profiler of PyTorch begins."""
        if os.getpid() == self._pid:
            for recording in self._recordings():
                recording.keep()

    def _recordings(self) -> list[Recording]:
        best = [] if self._best is None else [self._best.profiler]
        return [*best, *self._with_graphs, *self._graphs.records]

    def _open_range(self) -> None:
        self._graphs.finish()
        self._lets_go = False  # CUPTI stays when the range has ended: others may launch graphs while it ends
        self._sink.threads.clear()
        self._profiler = self._begin_profiler(self._memory, self._all_threads)
        if self._sampler is not None:
            self._sampler.begin()
        self._running = True
        self._since = self._iterations, time.monotonic(), self._graphs.begun

    def _close_range(self) -> None:
        if not self._running:
            return
        self._running = False
        self._end_profiler(self._profiler)
        recording = self._recording(self._profiler)
        clocks = None if self._sampler is None else self._sampler.end()
        tensors = memory_record() if self._memory else None
        iterations, since, graphs = self._since
        if self._graphs.begun > graphs:
            self._with_graphs.append(recording)
        in_window = self._started or iterations >= self._begin_after
        lasted = time.monotonic() - since
        others = (name for thread, name in self._sink.threads.items() if thread != self._thread)
        missing = sum(PIN_MEMORY not in name for name in others)
        found = Range(in_window, self._iterations - iterations, lasted, recording, clocks, tensors, missing)
        self._profiler = None
        if self._best is None or found.is_greater_than(self._best):
            self._best = found

    def _abandon_range(self) -> None:
        """Give up the records: another thread's profiler takes Kineto, and only our own thread could end ours.

        To end it later, or to destroy it, is a segmentation fault (2.13).
        """
        self._running = self._wanted = False
        self._made_way = True
        session.ABANDONED.append(self._profiler)
        self._profiler = None
        self._send_markers(None)

    @contextmanager
    def _switch(self) -> Iterator[None]:
        self.switching = True
        try:
            yield
        finally:
            self.switching = False

    def start(self) -> None:
        """Start again, dropping everything collected before the first start(). A second range is not collected."""
        if self._started:
            sys.stderr.write(f"pyprof: {self.file} holds the first range of start() to stop(), this one is left out\n")
            return
        self.end()
        self._best = None
        super().start()

    def _collect_next(self) -> None:
        before_window = self._running and self._iterations <= self._begin_after
        super()._collect_next()
        if before_window and self._iterations < self._begin_after:
            self.end()

    def _count_again(self) -> None:
        super()._count_again()
        if self._window.warmup and self._best is not None:
            self._best = self._best._replace(in_window=False)

    def write(self) -> None:
        """Write the trace. Raises NothingCollected, or another PyprofError if the file cannot be written.

        Does nothing in a forked child, since the file is its parent's, and nothing when it is called again.
        """
        if os.getpid() != self._pid or self.is_written:
            return
        before, self.is_writing = self.is_writing, True
        try:
            self.close()
            self._write()
            self.is_written = True
        finally:
            self.is_writing = before

    def _write(self) -> None:
        if self._best is None:
            causes = {True: "the program never called start()", False: "the program's own profiler was on"}
            cause = causes[self._window.wait] if self._window.wait or self._made_way else NO_OPERATION
            early = [] if self._window.wait else super().warnings()
            raise NothingCollected(f"{self.file}: not written, for {early[0] if early else cause}")
        if not self._with_graphs and not self._graphs.records and not _has_ops(self._best.profiler.profiler):
            raise NothingCollected(f"{self.file}: not written, for {NO_OPERATION}")
        try:
            write_trace(self._best.profiler, self._sink.texts, self._path, self._force, self._own(self._best))
        finally:
            for recording in self._recordings():
                recording.forget()

    def drop(self) -> None:
        """In a forked child, end the profiler that was on in the parent. One that records a GPU cannot be ended."""
        self._sampler, self._memory = None, False
        if not self.on_gpu:
            self.close()

    def export(self, raw: Path) -> tuple[dict[str, str], dict[str, Any]] | None:
        """Write the trace as PyTorch's profiler exports it, for another process that mends it (``mend_trace``).

        Returns the markers' texts and pyprof's own records; None if nothing was collected.
        """
        self.close()
        if self._best is None:
            return None
        try:
            self._best.profiler.export_chrome_trace(str(raw))
            return self._sink.texts, self._own(self._best)
        finally:
            for recording in self._recordings():
                recording.forget()

    def _own(self, best: Range) -> dict[str, Any]:
        """What pyprof itself recorded, for the trace's key "pyprof"; of captures of graphs, those the trace lacks."""
        others = [recording for recording in self._with_graphs if recording is not best.profiler]
        texts, ordered = self._sink.texts, self._graphs.ordered
        found = [events_of(recording, texts) for recording in (*self._graphs.records, *others)]
        traces = [event_text(found)] if found else []
        graphs = {"version": GRAPHS_VERSION, "traces": traces, "ordered": ordered} if found or ordered else None
        records = {"version": COMPILED_VERSION, "graphs": self._compiled} if self._compiled else None
        parts = {"nvml": best.clocks, "memory": best.tensors, "graphs": graphs, "compiled": records}
        parts["threads"] = self._threads_record(best)
        parts["steps"], parts["cpu"] = self._timer.record(), cpu_record()
        return {name: part for name, part in parts.items() if part is not None}

    def _threads_record(self, best: Range) -> dict[str, Any] | None:
        """Of how many threads the ops are missing, and how to record them; None if of none."""
        if not best.missing_threads:
            return None
        return {"version": thread_record.VERSION, "missing": best.missing_threads, "memory": self._memory}

    def warnings(self) -> list[str]:
        told = [*super().warnings(), *([self._note] if self._note else [])]
        if self._best is not None and self._best.missing_threads:
            why, remedy = thread_record.missing_threads(self._best.missing_threads, self._memory)
            told.insert(0, f"{self.file} is incomplete: {why}. To record them: {remedy}")
        if self._sampler is not None:
            why_not = self._sampler.warnings()
            told += why_not
            if self._best is not None and self._best.clocks is None and not why_not:
                told.append("--nvml: the program used no GPU of NVIDIA's, so nothing was read")
        if self._made_way:
            told.append(
                f"the program uses PyTorch's profiler itself, and meanwhile pyprof collected nothing: {self.file} "
                "holds the largest range without it; `pyprof prof` reads the program's own traces, too"
            )
        return told

    def _holds(self) -> str:
        if self._best is None:
            return "a lower --warmup reaches the iterations, and without --warmup all of the run is collected"
        before = not self._best.in_window
        return f"{self.file} holds {'what ran before the end of the first one' if before else 'what ran'}"


def _pass_over(passing: bool) -> None:
    active = session.current()
    if active is not None:
        active.pass_over(passing)


def push_steps(timer: StepTimer) -> None:
    """Tell the attached tool, in NVTX ranges, how long the iterations before took."""
    active = session.current()
    if active is not None and active.sink is not None:
        for text in timer.texts():
            pop(push(active.sink, Entry(text)))


def push_graphs() -> None:
    """Tell the attached tool which captures of CUDA graphs were recorded before its range."""
    active = session.current()
    if active is not None and active.graphs is not None:
        active.graphs.tell()


def cuda_profiler(action: str) -> None:
    """Call cudaProfilerStart or Stop after the GPU has finished all launched work. Does nothing without a GPU."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
        (torch.cuda.profiler.start if action == "start" else torch.cuda.profiler.stop)()
