"""init() and deinit(): the process's one session, which records everything that it replaces in PyTorch.

From init() to deinit() a torch function mode is on (mode.py), and these are replaced: `handle_torch_function` and
`has_torch_function` in some of PyTorch's modules (mode.py), `nn.Module.__call__` (layers.py), some collectives
(collectives.py), two methods of optimizers (optimizers.py), and the first function of a new thread, so that threads are
marked too. PyTorch's ops are not replaced. While neither a tool nor the embedded collector records, this costs less
than a microsecond per call.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyprof.capture.autograd_ranges import AutogradRanges
from pyprof.capture.patch import Patches
from pyprof.capture.sinks import Both, Nvtx, Sink

if TYPE_CHECKING:
    from pyprof.capture.dispatch_markers import DispatchMode
    from pyprof.capture.mode import MarkerMode


@dataclass(frozen=True, slots=True)
class Options:
    trace: bool | str
    layers: bool
    dispatch: bool
    function_stack: bool
    sink: str
    autograd: bool


class Session:
    """The state between init() and deinit(). `sink()`: where markers go now; None while nothing records."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.patches = Patches()
        self.mode: MarkerMode | None = None
        self._dispatch_mode: DispatchMode | None = None
        self._nvtx: Nvtx | None = None
        self.autograd: AutogradRanges | None = None
        self._profiler: Sink | None = None
        self._sink: Sink | None = None

    def sink(self) -> Sink | None:
        return self._sink

    def set_profiler(self, profiler: Sink | None) -> None:
        """Send ranges to the embedded collector, too; None: not any more."""
        self._profiler = profiler
        both = Both(self._nvtx, profiler) if self._nvtx and profiler else None
        self._sink = both or self._nvtx or profiler
        if self.mode is not None:
            self.mode.sink = self._sink

    def open(self) -> None:
        from pyprof.capture import mode
        from pyprof.capture.call_stack import Tracer

        options = self.options
        if options.sink == "nvtx" or (options.sink == "auto" and Nvtx.listening()):
            self._nvtx = Nvtx()
            self.autograd = AutogradRanges.of_nvtx() if options.autograd else None
        stack = options.function_stack
        tracer = Tracer(options.trace == "all", stack) if options.trace or stack else None
        self.mode = mode.MarkerMode(tracer, self._nvtx)
        self.set_profiler(None)
        try:
            self._install()
        except BaseException:
            self.patches.undo()
            raise
        mode.enter(self.mode)
        if options.dispatch:
            from pyprof.capture.dispatch_markers import DispatchMode

            self._dispatch_mode = DispatchMode(self.mode)
            self._dispatch_mode.__enter__()
        if self.autograd is not None:
            self.autograd.begin()

    def close(self) -> None:
        from pyprof.capture import mode

        if self.autograd is not None:
            self.autograd.close()
        _give_back(self.patches)
        if self._dispatch_mode is not None:
            self._dispatch_mode.__exit__(None, None, None)
        if self.mode is not None:
            self.mode.sink = None  # threads that still hold the mode
            mode.leave(self.mode)

    def _install(self) -> None:
        """Replace everything that the module's docstring lists."""
        import torch

        from pyprof.capture import collectives, optimizers
        from pyprof.capture.layers import Layers
        from pyprof.capture.mode import fast_handler, honest_asker

        assert self.mode is not None
        for module in _handler_users():
            handler = fast_handler(self.mode, module.handle_torch_function)
            self.patches.set(module, "handle_torch_function", handler)
        for module in (torch.overrides, torch.autograd):
            asker = honest_asker(self.mode, module.has_torch_function)
            self.patches.set(module, "has_torch_function", asker)
        if self.options.layers:
            call = Layers().wrap(torch.nn.Module.__call__, self.mode)
            self.patches.set(torch.nn.Module, "__call__", call)
        collectives.install(self.patches, self.mode)
        optimizers.install(self.patches, self.mode)
        if self.autograd is not None:
            self.autograd.install(self.patches)
        self.patches.set(threading.Thread, "_bootstrap_inner", _thread_start(self))


def _give_back(patches: Patches) -> None:
    """Undo the patches, in dynamo too: imported meanwhile, it took our Module.__call__ for the original (2.13)."""
    import torch

    ours = torch.nn.Module.__call__
    patches.undo()
    for name in ("torch._dynamo.utils", "torch._dynamo.variables.nn_module"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, "unpatched_nn_module_call", None) is ours:
            module.unpatched_nn_module_call = torch.nn.Module.__call__  # type: ignore[attr-defined]


def _handler_users() -> list[Any]:
    """The modules whose Python functions call handle_torch_function by a global name of their own."""
    import torch

    modules = (torch.nn.functional, torch.functional, torch._tensor, torch.overrides, torch.autograd)
    return [module for module in modules if hasattr(module, "handle_torch_function")]


def _thread_start(session: Session) -> Any:
    """threading's private first function of a thread (3.10 to 3.14), which enters our mode: modes are per thread."""
    original = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def _bootstrap_inner(thread: threading.Thread) -> None:
        if _session is session and session.mode is not None:
            from pyprof.capture import mode

            mode.enter(session.mode)
            if session.autograd is not None:
                session.autograd.begin()
        try:
            original(thread)
        finally:
            if session.autograd is not None:
                session.autograd.end()

    return _bootstrap_inner


_session: Session | None = None
_lock = threading.Lock()
_watched = False
_EXIT_WAIT_S = 0.5


def current() -> Session | None:
    """The session between init() and deinit()."""
    return _session


def init(
    trace: bool | str = False,
    *,
    layers: bool = True,
    dispatch: bool = False,
    enable_function_stack: bool = False,
    sink: str = "auto",
    autograd: bool = True,
) -> None:
    """Mark every PyTorch call of this process from now on.

    The program computes what it did before, bit for bit. While something records, a marked call takes about 2 us longer
    on the CPU, 3 us with `trace`; the GPU has nothing more to do.

    trace: add the call stack to each marker; True: the user's frames; "all": also torch's and the standard library's.
    layers: name the nn.Modules that run.
    dispatch: the exact mode: also mark each aten op, forward and backward, with the dtypes that its kernels get. It
        costs about 13 us per op, and code under torch.compile runs uncompiled.
    enable_function_stack: PyProf's option: add the names of the calling functions.
    sink: "auto" pushes NVTX ranges if a tool (nsys, nvprof, ncu) is attached, "nvtx" always, "none" never.
        `pyprof.profile` collects in any case.
    autograd: together with NVTX ranges, push PyTorch's own, with sequence numbers and sizes: they say which forward op
        a backward kernel belongs to. The program may still use emit_nvtx or torch.profiler itself.

    A second call with the same options changes nothing; with other options, these apply from then on. Threads that
    were started before are not marked; a forked child starts without pyprof.
    Raises ValueError for an unknown sink or trace.
    """
    global _session
    if sink not in ("auto", "nvtx", "none"):
        raise ValueError(f"pyprof.init: sink={sink!r} is not one of 'auto', 'nvtx', 'none'")
    if trace not in (True, False, "all"):
        raise ValueError(f"pyprof.init: trace={trace!r} is not one of True, False, 'all'")
    options = Options(trace, layers, dispatch, enable_function_stack, sink, autograd)
    with _lock:
        if _session is not None and _session.options == options:
            return
        profiler = None if _session is None else _session._profiler
        _close()
        session = Session(options)
        session.open()
        session.set_profiler(profiler)
        _session = session
        _watch_process()


def deinit() -> None:
    """Put back everything that init() and wrap() replaced. Without init() it does nothing."""
    with _lock:
        _close()


def _close() -> None:
    global _session
    session, _session = _session, None
    if session is not None:
        session.close()


def _at_exit() -> None:
    """deinit(), and a short wait for C++ threads (gloo's, seen in 2.13) that hold our mode along with a task.

    They need the interpreter to release it; if the interpreter is gone by then, the process ends in std::terminate.
    """
    mode = None if _session is None or _session.mode is None else weakref.ref(_session.mode)
    deinit()
    deadline = time.monotonic() + _EXIT_WAIT_S
    while mode is not None and mode() is not None and time.monotonic() < deadline:
        time.sleep(0.002)


def _watch_process() -> None:
    """Arrange, once per process, for deinit() at the process's end and in forked children."""
    global _watched
    if not _watched:
        atexit.register(_at_exit)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_after_fork)
        _watched = True


def _after_fork() -> None:
    """Turn pyprof off in a forked child, mostly a DataLoader's worker: no tool is attached, NVTX could only harm."""
    global _lock
    _lock = threading.Lock()  # another thread of the parent may have held it
    if "torch" in sys.modules:
        _close()
