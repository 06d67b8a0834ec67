"""init() and deinit(): the process's one session, which keeps a record of everything that it replaces in PyTorch.

From init() to deinit() a torch function mode (mode.py) marks PyTorch's calls, and some of PyTorch's Python functions
are replaced (replaced_names.py). While neither a tool nor the embedded collector records, this costs less than a
microsecond per call.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyprof.capture.autograd_ranges import AutogradRanges, ThreadState, this_thread
from pyprof.capture.patch import AtThreadEnd, Patches, after_this_call, on_each_thread, on_every_thread
from pyprof.capture.replaced_names import replace_names, restore_names
from pyprof.capture.sinks import Both, Entry, Nvtx, Sink, pop, push
from pyprof.compiled_record import COMPILED_RANGE, range_texts
from pyprof.interruption import is_from_outside
from pyprof.marker import TRITON
from pyprof.provenance import compiled_backward, dynamo_modes, inductor_hooks
from pyprof.provenance.triton_launches import TritonLaunches

if TYPE_CHECKING:
    from pyprof.capture.graph_captures import NvtxGraphs
    from pyprof.capture.mode import DispatchMode
    from pyprof.capture.targets import Target
    from pyprof.provenance.awaited_import import AwaitedImport

# Profilers of PyTorch that are running and that no thread may end or destroy (a segmentation fault), kept to the end.
ABANDONED: list[Any] = []


@dataclass(frozen=True, slots=True)
class Options:
    trace: bool | str = False
    layers: bool = True
    dispatch: bool = False
    function_stack: bool = False
    sink: str = "auto"
    autograd: bool = True
    graphs: bool = True


class _Running(threading.local):
    """The compiled graphs whose code runs on this thread, outermost first: the number and the record of each."""

    def __init__(self) -> None:
        self.graphs: list[tuple[str, str]] = []


class CompiledGraphs:
    """What a session does for the graphs that inductor compiles: it is the ``Owner`` of inductor_hooks.py."""

    def __init__(self, session: Session) -> None:
        from pyprof.capture.call_stack import Tracer

        self.records: dict[str, str] = {}  # of the graphs that ran while the embedded collector recorded, by number
        self.shown = Tracer().shown
        self.set = session.patches.set
        self._session = session
        self._entries: dict[str, tuple[list[Entry], Entry]] = {}  # a graph's ranges under NVTX, and in the profiler
        self._kernels: dict[str, Target] = {}  # the program's own Triton kernels, by name
        self._running = _Running()
        self._launches = TritonLaunches(self)
        self._first_use: AwaitedImport | None = None
        self._dynamo = dynamo_modes.unseen(self.set, lambda mode: mode is session.mode)
        self._backward = compiled_backward.noted(self.set, self.is_on, self.failed)

    def open(self) -> None:
        inductor_hooks.install(self)
        self._launches.open()
        self._dynamo.open()
        self._backward.open()

    def close(self) -> None:
        self._launches.close()
        self._dynamo.close()
        self._backward.close()
        if self._first_use is not None:
            self._first_use.close()

    def before_any(self, call: Callable[[], None]) -> None:
        """Call this before the program makes anything that is compiled."""
        self._first_use = dynamo_modes.at_use(self.set, call)
        self._first_use.open()

    def is_on(self) -> bool:
        return current() is self._session

    def is_recording(self) -> bool:
        return self.is_on() and self._session.sink is not None

    def failed(self, error: Exception) -> None:
        if is_from_outside(error):
            raise error
        self._session.mode.failed("the record of a compiled graph", error)

    @contextmanager
    def range(self, number: str, record: str) -> Iterator[None]:
        """The graph's range, where something records. It is noted in any case, for ``again``."""
        running = self._running.graphs
        running.append((number, record))
        nvtx, profiler = self._session.sinks
        tokens = [] if nvtx is None else [push(nvtx, piece) for piece in self._entries_of(number, record)[0]]
        tokens += [] if profiler is None else [self._push_short(profiler, number, record)]
        try:
            yield
        finally:
            running.pop()
            for token in reversed(tokens):
                pop(token)

    def again(self) -> list[Any]:
        """Open the ranges of the graphs that run on this thread in the collector, which has begun while they run.

        Returns the tokens for ``pop``, in the order of opening.
        """
        profiler = self._session.profiler
        running = () if profiler is None else self._running.graphs
        return [self._push_short(profiler, number, record) for number, record in running]

    def _push_short(self, profiler: Any, number: str, record: str) -> Any:
        self.records[number] = record
        return push(profiler, self._entries_of(number, record)[1])

    def _entries_of(self, number: str, record: str) -> tuple[list[Entry], Entry]:
        """A graph's ranges: NVTX has no other place for the record, so the texts of its ranges have it, in pieces."""
        if number not in self._entries:
            self._entries[number] = [*map(Entry, range_texts(number, record))], Entry(COMPILED_RANGE + number)
        return self._entries[number]

    @contextmanager
    def launch(self, name: str, arguments: dict[str, Any]) -> Iterator[None]:
        """The marker of a launch of one of the program's own Triton kernels."""
        from pyprof.capture.targets import Target

        if name not in self._kernels:
            self._kernels[name] = Target(None, TRITON, name)
        entry = self._session.mode.entry_of(self._kernels[name], (), arguments)
        sink = self._session.sink
        token = None if sink is None else push(sink, entry)
        try:
            yield
        finally:
            if sink is not None:
                pop(token)


class Session:
    """Marks calls from its making to close(). `sink`: where markers go now; None while nothing records.

    `late`: this thread gets the mode only when something records. Even without a sink it takes about 1.5 us per call
    and per attribute of a tensor (x.shape, x.grad), which steps that are timed before the profiler starts shall not.
    A session that pushes ranges for a tool has the mode at once, and gives it back while it passes iterations over.
    Threads that start later get the mode as they start, and those that run already once something records.
    """

    def __init__(self, options: Options, late: bool = False) -> None:
        from pyprof.capture import mode
        from pyprof.capture.call_stack import Tracer

        self.options = options
        self.patches = Patches()
        self._nvtx: Nvtx | None = None
        self._passing_over = False
        self.autograd: AutogradRanges | None = None
        self.graphs: NvtxGraphs | None = None
        self.call_costs: tuple[int, int] | None = None  # of timing calls (step_calls.py)
        self._dispatch_mode: DispatchMode | None = None
        if options.sink == "nvtx" or (options.sink == "auto" and Nvtx.listening()):
            self._nvtx = Nvtx()
            self.autograd = AutogradRanges.of_nvtx() if options.autograd else None
        stack = options.function_stack
        tracer = Tracer(options.trace == "all", stack) if options.trace or stack else None
        self.mode = mode.MarkerMode(tracer, self._nvtx)
        self.compiled = CompiledGraphs(self)
        # Whether this thread does not have the mode yet.
        self._may_be_late = late and not options.dispatch
        self.is_late = self._nvtx is None and self._can_be_late()
        self._closed = False
        self._withdraw: Callable[[], None] | None = None  # takes back the request that each thread enters
        self.profiler: Sink | None = None
        self.sink: Sink | None = None
        try:
            replace_names(self.patches, self.mode, options.layers, self.autograd, self._enter)
            self.compiled.open()
        except BaseException:
            self.compiled.close()
            self.patches.undo()
            raise
        if self._may_be_late:
            self.compiled.before_any(self.not_late)
        if not self.is_late:
            self._enter()
        if options.dispatch:
            self._dispatch_mode = mode.DispatchMode(self.mode)
            self._dispatch_mode.__enter__()
            self.mode.exact = self._dispatch_mode
        if self._nvtx is not None and options.graphs:
            from pyprof.capture.graph_captures import NvtxGraphs

            self.graphs = NvtxGraphs(self)
            self.graphs.open()
        self.set_profiler(None)

    def set_profiler(self, profiler: Sink | None) -> None:
        """Send ranges to the embedded collector as well, or with None stop doing so."""
        self.profiler = profiler
        nvtx = None if self._passing_over else self._nvtx
        both = Both(nvtx, profiler) if nvtx and profiler else None
        self.sink = both or nvtx or profiler
        self.mode.sink = self.sink
        if profiler is not None:
            self.not_late()
        if self.sink is not None and self._withdraw is None:
            self._withdraw = on_each_thread(self._enter)
        elif self.sink is None:
            self._ask_no_thread()

    def before_first_call(self, begin: Callable[[], None]) -> None:
        """Run ``begin`` once, when the first call of PyTorch begins on this thread or on one that starts later."""
        self.mode.await_first_call(begin)
        self.not_late()

    def not_late(self) -> None:
        """Look at this thread's calls from now on."""
        if self.is_late:
            self.is_late = False
            self._enter()

    def _enter(self) -> None:
        """Look at this thread's calls from now on, until it ends or leaves. Does nothing where that is so already."""
        from pyprof.capture import mode

        if self._closed or not self.mode.may_enter():
            return
        thread = None if self.autograd is None else this_thread()
        self.mode.thread.end = AtThreadEnd(functools.partial(self._end_thread, thread))
        mode.enter(self.mode)
        if self.autograd is not None:
            self.autograd.begin()

    def _end_thread(self, thread: ThreadState | None) -> None:
        """Remove the mode and the ranges from this thread, whose locals are gone."""
        from pyprof.capture import mode

        if self.autograd is not None:
            self.autograd.end(thread)
        mode.leave(self.mode)

    def _ask_no_thread(self) -> None:
        withdraw, self._withdraw = self._withdraw, None
        if withdraw is not None:
            withdraw()

    def pass_over(self, passing: bool) -> None:
        """Push no ranges for the attached tool on this thread, or with False push them again.

        They would lengthen the iterations that are timed before the tool collects.
        """
        self._passing_over = passing
        if passing and not self.is_late and self._can_be_late():
            self.is_late = self._leave()
        elif not passing:
            self.not_late()
        self.set_profiler(self.profiler)
        if self.autograd is not None:
            (self.autograd.end if passing else self.autograd.begin)()

    def _can_be_late(self) -> bool:
        return self._may_be_late and not dynamo_modes.is_in_use()

    @property
    def sinks(self) -> tuple[Sink | None, Sink | None]:
        """NVTX, if a tool listens, and the embedded collector while it records."""
        return self._nvtx, self.profiler

    def close(self) -> None:
        self._closed = True
        self._ask_no_thread()
        if self.graphs is not None:
            self.graphs.end()
        if self.autograd is not None:
            self.autograd.close()
        self.compiled.close()
        restore_names(self.patches)
        self.mode.sink = None
        self.mode.divert = self._run_after_close
        on_every_thread(self._leave)

    def _leave(self) -> bool:
        """Remove what this session has put on this thread. Return whether the marker mode was among it."""
        from pyprof.capture import mode

        if self._dispatch_mode is not None:
            self._dispatch_mode.leave()
        if self.autograd is not None:
            self.autograd.end()
        was_there = mode.leave(self.mode)
        if was_there:
            self.mode.thread.end = None
        return was_there

    def _run_after_close(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a call on a thread that still has the mode."""
        after_this_call(self._leave)
        return func(*args, **kwargs)


_session: Session | None = None
_lock = threading.Lock()
_EXIT_WAIT_S = 0.5


def current() -> Session | None:
    """The current session; None outside of init() and deinit()."""
    return _session


def init(
    trace: bool | str = False,
    *,
    layers: bool = True,
    dispatch: bool = False,
    enable_function_stack: bool = False,
    sink: str = "auto",
    autograd: bool = True,
    graphs: bool = True,
) -> None:
    """Mark every PyTorch call of this process from now on.

    The program's results do not change by a single bit. While something records, a marked call takes about 2 us longer
    on the CPU, or 3 us with `trace`; the GPU gets no additional work.

    trace: add the call stack to each marker; True: the user's frames; "all": also torch's and the standard library's.
    layers: name the nn.Modules that run.
    dispatch: the exact mode: also mark each aten op, forward and backward, with the dtypes that its kernels get. It
        costs about 13 us per op, and code under torch.compile runs uncompiled.
    enable_function_stack: an option of the original PyProf: add the names of the calling functions.
    sink: "auto" pushes NVTX ranges if a tool (nsys, nvprof, ncu) is attached, "nvtx" always, "none" never.
        `pyprof.profile` collects in any case.
    autograd: when NVTX ranges are pushed, also push PyTorch's own, with sequence numbers and sizes. They link a
        backward kernel to its forward op. The program may still use emit_nvtx or torch.profiler itself.
    graphs: when NVTX ranges are pushed, also record captures of CUDA graphs that lie before the first start(), so that
        the kernels of their replays have ops under nsys. A capture takes longer then: docs/how-to/graphs.md.

    A second call with the same options changes nothing; with other options, the new ones apply from then on. All
    threads are marked, also those that were started before; a forked child starts without pyprof.
    Raises ValueError for an unknown sink or trace.
    """
    if sink not in ("auto", "nvtx", "none"):
        raise ValueError(f"pyprof.init: sink={sink!r} is not one of 'auto', 'nvtx', 'none'")
    if trace not in (True, False, "all"):
        raise ValueError(f"pyprof.init: trace={trace!r} is not one of True, False, 'all'")
    begin(Options(trace, layers, dispatch, enable_function_stack, sink, autograd, graphs))


def begin(options: Options, late: bool = False) -> None:
    """The session of these options. ``late``: this thread's calls are looked at only once something records them."""
    global _session
    with _lock:
        if _session is not None and _session.options == options:
            return
        profiler, waiting = (None, None) if _session is None else (_session.profiler, _session.mode.waiting)
        _close()
        session = Session(options, late)
        session.set_profiler(profiler)
        if waiting is not None:
            session.before_first_call(waiting)
        _session = session
        watch_process()


def deinit() -> None:
    """Restore everything that init() and wrap() replaced. Does nothing if init() was not called."""
    if _session is not None:
        _session.mode.end_waiting()  # the first call will not be seen
    with _lock:
        _close()


def _close() -> None:
    global _session
    session, _session = _session, None
    if session is not None:
        session.close()


def _at_exit() -> None:
    """End the session, then wait briefly for C++ threads (gloo, seen in 2.13) whose tasks hold our mode.

    They need the interpreter to release it; if the interpreter has ended by then, the process ends in std::terminate.
    """
    mode = None if _session is None else weakref.ref(_session.mode)
    with _lock:
        _close()
    deadline = time.monotonic() + _EXIT_WAIT_S
    while mode is not None and mode() is not None and time.monotonic() < deadline:
        time.sleep(0.002)


@functools.cache
def watch_process() -> None:
    """Register deinit() for the process's end and for forked children; once per process."""
    atexit.register(_at_exit)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    """Turn pyprof off in a forked child, usually a DataLoader worker, where no tool listens and NVTX is not safe."""
    global _lock
    _lock = threading.Lock()  # a new lock: another thread of the parent may have held the old one
    if "torch" in sys.modules:
        _close()
