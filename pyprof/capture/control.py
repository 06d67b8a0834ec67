"""The functions with which a program chooses the range to collect: pyprof.profile, start, stop and step.

All of them act on the process's one collector, or, if there is none, on an attached tool (nsys, nvprof, ncu).
"""

import atexit
import functools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyprof.capture import session
from pyprof.capture.collector import Attached, Collector, TraceFile, Window, cuda_profiler, push_graphs, push_steps
from pyprof.capture.sinks import Entry, Nvtx, pop, push
from pyprof.capture.trace_file import check_output
from pyprof.clock_sampler import ClockSampler
from pyprof.errors import PyprofError
from pyprof.files import tell
from pyprof.step_timer import StepTimer

_collector: Collector | None = None
_inherited: Collector | None = None  # in a forked child: the parent's collector, whose profiler is on here, too
_heeds_steps: Callable[[], None] | None = None  # is called by step(), for `pyprof try`
_lock = threading.Lock()


@contextmanager
def profile(
    file: str | os.PathLike[str] | None = None,
    *,
    every: int | None = None,
    to: Any = None,
    force: bool = False,
    trace: bool | str = False,
    dispatch: bool = False,
    warmup: int = 0,
    steps: int | None = None,
    wait: bool = False,
    nvml: bool = False,
    memory: bool = False,
    graphs: bool = True,
) -> Iterator[None]:
    """Collect what runs in this block into `file`, a Chrome trace (gzipped if the name ends in .gz).

    While the block runs, PyTorch's profiler is on, and every PyTorch call is marked: if the program has not called
    pyprof.init(), this calls it with `trace` and `dispatch`, and calls deinit() at the end.
    docs/explanation/marking.md has the costs.

    warmup, steps: the number of iterations to skip, and the number to collect after them (None: all). An iteration ends
        with the step() of the first optimizer, or with pyprof.step() if the program calls it.
    wait: collect nothing before start(). If the block calls start() and stop(), the file has only the range between.
    nvml: read the clocks, power and energy of the GPUs meanwhile, into the same file (needs nvidia-ml-py). Where that
        cannot be, a warning says why.
    memory: record every allocation and free, too, and at the end which tensors are parameters, buffers, gradients and
        optimizer state; `pyprof memory` reads them. Each event takes about 0.2 us.
    graphs: record captures of CUDA graphs that lie before the collected iterations, too, so that the kernels of their
        replays have ops. A capture takes longer then, a replay does not: docs/how-to/graphs.md has the costs.
    force: overwrite an existing file.

    every, to: in place of a file, for a whole training: record one iteration in ``every``, and send its numbers (step
        time, idle share, tensor cores, MFU, the longest ops) to ``to``, as docs/how-to/sample.md says:
        "tensorboard:FOLDER", "wandb", "prometheus:FILE", a SummaryWriter, a run of W&B, a function of a
        ``pyprof.Sample``, or a list of these. Another process reads the trace. What fails in it is told once; the
        program goes on. Of the other options, ``trace`` and ``dispatch`` go with it.

    The file is written at the end of the block, also if the block raises, and appears only when it is complete.
    Raises PyprofError before anything runs if the file exists, cannot be written, or another `profile` is running; and
    at the end if nothing was collected.
    """
    window = Window(warmup, steps, wait)
    more: dict[str, Any] = {"dispatch": dispatch, "nvml": nvml, "memory": memory, "graphs": graphs}
    if every is not None or to is not None:
        number = _checked_every(file, every, to, window != Window() or force or nvml or memory)
        from pyprof.sampling.sampler import sampled

        with sampled(number, to, trace=trace, dispatch=dispatch):
            yield
        return
    if file is None:
        raise PyprofError("profile(): expected a file, or every= and to= for one iteration in so many; found neither")
    with collect(Path(file), window, force=force, trace=trace, **more) as collector:
        yield
    for warning in collector.warnings():
        tell(f"pyprof: warning: {warning}")


def _checked_every(file: object, every: object, to: object, others: bool) -> int:
    """The number of iterations of ``every``. Raises PyprofError for what does not go together."""
    if file is not None or others:
        found = "a file" if file is not None else "warmup, steps, wait, force, nvml or memory"
        raise PyprofError(f"profile(): every= and to= go with trace= and dispatch=, and not with {found}")
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise PyprofError(f"profile(): every={every!r} is not a number of iterations from 1 on")
    if to is None:
        raise PyprofError('profile(): every= needs to=, where the numbers go: "tensorboard:FOLDER", a function, ...')
    return every


@contextmanager
def collect(
    file: Path,
    window: Window,
    *,
    force: bool = False,
    trace: bool | str = False,
    dispatch: bool = False,
    nvml: bool = False,
    memory: bool = False,
    graphs: bool = True,
    at_first_call: bool = False,
    kind: Callable[..., TraceFile] = TraceFile,
) -> Iterator[Collector]:
    """The same as `profile`, but with the window as one argument, and without printing the collector's warnings.

    ``at_first_call``: begin no earlier than the program's first call of PyTorch.
    """
    check_output(file, force)
    with _clock_sampler(nvml) as (sampler, why_none):
        collector = kind(file, force, window, sampler, why_none, memory, graphs, at_first_call)
        with _writing_on_sigterm(collector), _collecting(collector, trace, dispatch) as done:
            done.callback(collector.write)
            atexit.register(done.close)  # for a block that is not left before the interpreter ends, as in a generator
            done.callback(atexit.unregister, done.close)
            yield collector


@contextmanager
def _clock_sampler(wanted: bool) -> Iterator[tuple[ClockSampler | None, str]]:
    """The sampler of --nvml, if it is wanted, or else why there is none: the run goes on without it."""
    if not wanted:
        yield None, ""
        return
    try:
        sampler = ClockSampler()
    except PyprofError as error:
        yield None, f"--nvml: {error}; the run was collected without clocks and power"
        return
    try:
        yield sampler, ""
    finally:
        sampler.close()


@contextmanager
def attach(
    window: Window, *, trace: bool | str = False, dispatch: bool = False, graphs: bool = True
) -> Iterator[Collector]:
    """Mark what runs in this block for the attached tool, and call cudaProfilerStart and Stop around `window`."""
    collector = Attached(window)
    with _collecting(collector, trace, dispatch, graphs) as done:
        done.callback(collector.close)
        yield collector


@contextmanager
def _collecting(collector: Collector, trace: bool | str, dispatch: bool, graphs: bool = False) -> Iterator[ExitStack]:
    """Call init() for the block if the program has not. The stack's callbacks run at the end, before deinit()."""
    with ExitStack() as done:
        if session.current() is None:
            session.begin(session.Options(trace=trace, dispatch=dispatch, graphs=graphs), late=True)
            done.callback(session.deinit)
        with only(collector):
            yield done


@contextmanager
def only(collector: Collector) -> Iterator[None]:
    """Make this collector the process's one for the block: step(), start() and stop() act on it.

    Raises PyprofError if there is one already.
    """
    global _collector
    with _lock:
        if _collector is not None:
            started = f"{_collector.name} is still being collected; one file at a time"
            raise PyprofError(f"{collector.name}: {started}")
        _collector = collector
    try:
        _step.number = 0
        collector.open()
        yield
    finally:
        _close_step()
        _collector = None


@contextmanager
def _writing_on_sigterm(collector: TraceFile) -> Iterator[None]:
    """On SIGTERM (Slurm, `timeout`) write what has been collected, then end by that signal, as without pyprof.

    A handler of the program's own has precedence. Children that fork inherit this one, which in them only ends them.
    """
    before = signal.getsignal(signal.SIGTERM)
    is_default = before == signal.SIG_DFL or getattr(before, "__module__", "") == __name__
    if threading.current_thread() is not threading.main_thread() or not is_default:
        yield
        return

    def write_and_end(number: int, _frame: object) -> None:
        if collector.is_writing and os.getpid() == pid:  # it interrupts that very function, which then ends first
            late.append(number)
            return
        signal.signal(number, signal.SIG_DFL)
        try:
            if os.getpid() == pid:
                collector.write()
                if collector.tells:
                    tell(f"pyprof: SIGTERM: wrote {collector.file}")
        except PyprofError as error:
            tell(f"pyprof: SIGTERM: {error}")
        finally:
            os.kill(os.getpid(), number)

    pid, late = os.getpid(), list[int]()
    signal.signal(signal.SIGTERM, write_and_end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is write_and_end:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if late:
            os.kill(os.getpid(), late[0])


def _forget() -> None:
    """In a forked child nothing is collected: the file is the parent's."""
    global _collector, _inherited, _lock
    _collector, _inherited, _lock = None, _collector, threading.Lock()


def end_inherited() -> TraceFile | None:
    """In a forked child, end the profiler that is on because it was on in the parent, and drop its records.

    Returns the parent's collector; None if nothing was being collected.
    """
    global _inherited
    inherited, _inherited = _inherited, None
    if not isinstance(inherited, TraceFile):
        return None
    inherited.drop()
    return inherited


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def start() -> None:
    """Begin the range to collect, in the embedded collector if it runs, otherwise in nsys or ncu (cudaProfilerStart).

    Waits for the GPU first, so that no earlier kernel is in the range. Does nothing without a collector and a GPU.
    """
    _mark_range("start")


def stop() -> None:
    """End the range that start() began, after the GPU has finished all work launched in it.

    If neither a collector nor a tool listened, it says so on standard error.
    """
    _mark_range("stop")


def _mark_range(action: str) -> None:
    import torch

    if action == "stop":
        _close_step()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    collector = _collector
    if collector is not None:
        collector.start() if action == "start" else collector.stop()
    else:
        _step.timer.drop()
        if action == "stop":
            push_steps(_step.timer)
        cuda_profiler(action)
        if action == "start":
            _step.told = True
            push_steps(_step.timer)
            push_graphs()
        if action == "stop" and not Nvtx.listening():
            _say_that_nothing_listened()


@functools.cache
def _say_that_nothing_listened() -> None:
    """Once per process."""
    tell(
        "pyprof: nothing listened between start() and stop(): no tool (nsys, nvprof, ncu) asked for ranges when this "
        "process started, and no pyprof.profile block runs; start the script with `pyprof run` or under a tool"
    )


class _Step(threading.local):
    """The iteration in progress on this thread."""

    number = 0
    range: Any = None
    told = False  # whether start() has been called: a tool may record from then on

    def __init__(self) -> None:
        self.timer = StepTimer(marked=True)


_step = _Step()


def step() -> None:
    """End an iteration and begin the next.

    The iterations become ranges `ProfilerStep#1`, `ProfilerStep#2`, ..., named as PyTorch's profiler names them.
    Everything before the first call is step 0. Call it at the end of each iteration, always inside the same annotate()
    blocks, and not within optimizer.step(), as its hooks are: NVTX ranges nest, so under nsys the one of the optimizer
    would end with the next iteration. It does not wait for the GPU. Before init() it makes no ranges.
    """
    _close_step()
    _step.number += 1
    if _heeds_steps is not None:
        _heeds_steps()
    if _collector is not None:
        _collector.step()
    elif Nvtx.listening() and not _step.told:
        _step.timer.end()
        _step.timer.begin(_step.number)
    active = session.current()
    sink = None if active is None else active.sink
    if sink is not None:
        _step.range = (push(sink, Entry(f"ProfilerStep#{_step.number}")),)


def heed_steps(ended: Callable[[], None] | None) -> None:
    """From now on step() calls ``ended``; None: nothing."""
    global _heeds_steps
    _heeds_steps = ended


def _close_step() -> None:
    opened, _step.range = _step.range, None
    if opened is not None:
        pop(opened[0])
