"""What happens in a child of `pyprof run`: it is collected into a file of its own, which it reports to its parent.

The parent hands on its orders in an environment variable, which grandchildren inherit, too. When collecting begins:

    an executed child (torchrun, accelerate, subprocess)   when it has imported torch (on_path/sitecustomize.py)
    a child of multiprocessing (spawn, forkserver)         before its own work begins, once torch is imported
    a forked child (multiprocessing, os.fork)              with its first call of PyTorch: it may run another program

Its profiler begins with its first call of PyTorch in any case, as the parent's does, so that each of them can fork
children that use a GPU (collector.py). Between a fork and the child's first call, nothing of a profiler runs.

Workers of a DataLoader and of torch.compile are left alone. A child in which nothing ran leaves no file.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from pyprof.capture import control, session
from pyprof.capture.collectives import job_rank
from pyprof.capture.collector import TraceFile, Window
from pyprof.capture.patch import Patches
from pyprof.capture.run_script import numbered
from pyprof.capture.sinks import Nvtx
from pyprof.errors import NothingCollected, PyprofError
from pyprof.files import tell

VARIABLE = "PYPROF_FOLLOW"
# The modules whose functions, as a process's target or the initializer of a pool, make it a worker to leave alone.
LEFT_ALONE = ("torch.utils.data", "torch._inductor")


class Orders(NamedTuple):
    """What a run asks of its children."""

    reports: str  # the folder where each says what became of its capture; it is gone when the run has ended
    file: str | None  # the parent's trace; None where an attached tool collects
    rank: str  # the parent's variable RANK, which children inherit without being that rank
    force: bool
    window: tuple[int, int | None, bool]
    options: dict[str, Any]  # of control.collect

    @classmethod
    def given(cls) -> Orders | None:
        """The orders in the environment; None if it holds no orders."""
        text = os.environ.get(VARIABLE)
        return cls(*json.loads(text)) if text else None

    def give(self) -> None:
        os.environ[VARIABLE] = json.dumps(self)


class Report(NamedTuple):
    """What a child says of its capture."""

    pid: int
    state: str  # "running", "writing", "written", "nothing" or "failed"
    file: str = ""
    rank: int | None = None
    warnings: tuple[str, ...] = ()  # if it failed, why

    def save(self, folder: str) -> bool:
        """Replace the process's earlier report. Return whether the parent still waits for it."""
        part, name = Path(folder, f".{self.pid}"), Path(folder, f"{self.pid}.json")
        try:
            part.write_text(json.dumps(self), encoding="utf-8")
            part.replace(name)
        except OSError:  # the parent has ended, and removed the folder
            return False
        return True


class ChildTrace(TraceFile):
    """The capture of a child. Its name is known when it is written, for by then the process may have got a rank."""

    tells = False

    def __init__(self, orders: Orders, *args: Any) -> None:
        super().__init__(*args)
        self.orders = orders
        self.reported = False

    def open(self) -> None:
        super().open()
        self._report("running", job_rank(self._environ()))

    def write(self) -> None:
        """Write the trace and report it. A second call does nothing."""
        if self.reported or os.getpid() != self._pid:
            return
        self.reported = self.is_writing = True  # from here to the last report, SIGTERM waits
        try:
            self._write_and_report()
        finally:
            self.is_writing = False

    def _write_and_report(self) -> None:
        with _interrupts_wait():
            self._report("writing")
            rank, self.file = self._named()
            self.name, self._path = str(self.file), self.file.absolute()
            try:
                super().write()
                self._report("written", rank, self.warnings())
            except (PyprofError, OSError) as error:
                # Many children import torch and run nothing. Of a rank, or of a process that has iterations, a user
                # expects a capture, so the parent says why it is missing.
                is_helper = isinstance(error, NothingCollected) and rank is None and not self._iterations
                self._report("nothing" if is_helper else "failed", rank, [str(error)])

    def _named(self) -> tuple[int | None, Path]:
        """The process's rank, if it has one, and the file: by the rank, or by the process's number."""
        rank = job_rank(self._environ())
        file = self.file if rank is None else numbered(Path(str(self.orders.file)), f"rank{rank}")
        if rank is not None and file.exists() and not self._force:  # of an earlier run: both are kept
            file = numbered(file, str(os.getpid()))
        return rank, file

    def _environ(self) -> Mapping[str, str]:
        """The environment, unless its rank is that of an ancestor, which this process has inherited."""
        return os.environ if os.environ.get("RANK", "") != self.orders.rank else {}

    def _report(self, state: str, rank: int | None = None, warnings: list[str] | None = None) -> None:
        report = Report(os.getpid(), state, str(self.file), rank, tuple(warnings or ()))
        if not report.save(self.orders.reports) and state in ("written", "failed"):
            for warning in report.warnings:
                tell(f"pyprof run: process {os.getpid()}: warning: {warning}")
            if state == "written":
                tell(f"pyprof run: process {os.getpid()}: wrote {self.file}")


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Pass over SIGINT: torchrun sends one to its workers when it gets one, and ^C has sent one to all of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:  # None: set by C code, which Python cannot set again
            signal.signal(signal.SIGINT, before)


# When collecting begins and ends

_capture: tuple[int, ExitStack] | None = None  # of which process, and what ends it


def torch_is_there() -> None:
    """Called in a child that has just imported torch."""
    orders = Orders.given()
    if orders is None or "pyprof.cli" in sys.modules:  # a command of pyprof's, such as a run of its own
        return
    watch(lambda status: status)
    if not _is_prepared_by_multiprocessing():
        begin(orders)


def _is_prepared_by_multiprocessing() -> bool:
    """Whether multiprocessing is unpacking what this process shall do, or makes a server of it that forks children."""
    processes = sys.modules.get("multiprocessing.process")
    inherits = processes is not None and getattr(processes.current_process(), "_inheriting", False)
    return bool(inherits) or any("multiprocessing.forkserver import main" in word for word in sys.orig_argv)


def watch(at_hard_exit: Callable[[int], int]) -> Patches:
    """See children that this process forks, and let ``at_hard_exit`` have and replace the code given to os._exit().

    That is called in this process and in those forked from it. The result undoes both.
    """
    from multiprocessing.process import BaseProcess

    patches = Patches()
    original: Any = BaseProcess._bootstrap  # type: ignore[attr-defined]

    @functools.wraps(original)
    def _bootstrap(self: Any, *args: Any, **kwargs: Any) -> Any:
        orders = Orders.given()
        if orders is not None and "torch" in sys.modules and _forked != os.getpid():
            begin(orders, self)
        return original(self, *args, **kwargs)

    patches.set(BaseProcess, "_bootstrap", _bootstrap)
    leave = os._exit

    @functools.wraps(leave)
    def _exit(status: int) -> Any:
        end()
        leave(at_hard_exit(status))

    patches.set(os, "_exit", _exit)
    _watch_forks()
    return patches


@functools.cache
def _watch_forks() -> None:
    session.watch_process()  # its handler of forks comes before ours
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


_forked = 0  # the number of this process, if it was forked and begins with its first call


def _after_fork() -> None:
    global _forked
    orders, caller = Orders.given(), sys._getframe(1)  # the function that called os.fork()
    if orders is None or "torch" not in sys.modules:
        return
    if caller.f_globals.get("__name__") == "multiprocessing.forkserver":  # which is sent the process's work later
        return
    if _is_left_alone(caller.f_locals.get("process_obj")):  # a local variable of multiprocessing.popen_fork
        return
    _forked = os.getpid()
    options = orders.options
    session.begin(session.Options(trace=options["trace"], dispatch=options["dispatch"], graphs=options["graphs"]))
    active = session.current()
    assert active is not None
    active.before_first_call(lambda: begin(orders))


def begin(orders: Orders, process: Any = None) -> None:
    """Collect this process from now on. ``process``: what multiprocessing is about to run, if it does not say yet."""
    global _capture
    multiprocessing = sys.modules.get("multiprocessing.process")
    process = process or (multiprocessing and multiprocessing.current_process())
    if (_capture is not None and _capture[0] == os.getpid()) or _is_left_alone(process):
        return
    if orders.file is None and not Nvtx.listening():
        return
    inherited = control.end_inherited()
    if inherited is not None and inherited.on_gpu:
        why = "it was forked after its parent had called PyTorch, and CUDA works in no such child: start it by spawn"
        Report(os.getpid(), "failed", warnings=(why,)).save(orders.reports)
        return
    stack = ExitStack()
    try:
        stack.enter_context(_collecting(orders))
    except PyprofError as error:
        Report(os.getpid(), "failed", warnings=(str(error),)).save(orders.reports)
        return
    _capture = os.getpid(), stack
    atexit.register(end)
    rank = os.environ.get("RANK", "")
    if orders.file is not None and rank not in ("", orders.rank):  # its own children are named after it
        orders = orders._replace(file=str(numbered(Path(orders.file), f"rank{int(rank)}")), rank=rank)
    orders.give()


def _collecting(orders: Orders) -> Any:
    window = Window(*orders.window)
    if orders.file is None:
        names = ("trace", "dispatch", "graphs")
        return control.attach(window, **{name: orders.options[name] for name in names})
    file = numbered(Path(orders.file), str(os.getpid()))
    kind = functools.partial(ChildTrace, orders)
    return control.collect(file, window, force=orders.force, at_first_call=True, kind=kind, **orders.options)


def _is_left_alone(process: Any) -> bool:
    """Whether a process of multiprocessing is a worker of a DataLoader, or of a pool that compiles."""
    target = getattr(process, "_target", None)
    called = (target, *getattr(process, "_args", ()))
    return any(str(getattr(one, "__module__", "")).startswith(LEFT_ALONE) for one in called if callable(one))


def end() -> None:
    """Write this process's capture, if it is a child that is collected and has not written it yet."""
    global _capture
    capture, _capture = _capture, None
    if capture is not None and capture[0] == os.getpid():
        with suppress(PyprofError):  # it is in the report
            capture[1].close()
