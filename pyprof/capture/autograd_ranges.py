"""PyTorch's own NVTX ranges. Each op has its sequence number and sizes; each autograd node has its forward op's number.

These ranges link a backward kernel to its forward op, which markers cannot do. They are pushed only for an attached
tool. This is the profiler that `torch.autograd.profiler.emit_nvtx(record_shapes=True)` turns on for a block. Here it is
on from init() to deinit(), on each marked thread, and does not wait for the GPU. It costs more than the markers:
14.5 ms of Python per training step of GPT-2 small, where markers cost 2.6 ms (docs/explanation/marking.md).

PyTorch has one profiler per thread: while the program's own is on (emit_nvtx, torch.profiler), this one is off.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from pyprof.capture.patch import Patches


class ThreadState:
    """Of one thread. It outlives the thread's locals, so that the ranges can be ended last of all."""

    def __init__(self) -> None:
        self.on = False
        self.suspended = False  # True while another profiler is on; the ranges continue when it ends


class _Local(threading.local):
    def __init__(self) -> None:
        self.state = ThreadState()


_LOCAL = _Local()


def this_thread() -> ThreadState:
    return _LOCAL.state


def ranges_are_on() -> bool:
    """Whether these ranges are pushed now, on this thread."""
    return this_thread().on


def program_profiler_is_on() -> bool:
    """Whether one of PyTorch's profilers is on, on this thread, other than that of these ranges."""
    import torch

    return bool(torch._C._autograd._profiler_enabled()) and not this_thread().on


class AutogradRanges:
    """Turns the ranges on and off, per thread. `state`: a torch.autograd.ProfilerState that pushes ranges."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._closed = False
        self._threads = 0  # on which they are pushed

    @property
    def on_some_thread(self) -> bool:
        return self._threads > 0

    @staticmethod
    def of_nvtx() -> AutogradRanges | None:
        """The ranges in NVTX; None if this PyTorch was built without GPU support, and so without NVTX."""
        import torch

        if not (torch.version.cuda or torch.version.hip):
            return None
        return AutogradRanges(torch.autograd.ProfilerState.NVTX)

    def install(self, patches: Patches) -> None:
        """Suspend these ranges while a profiler of the program is on."""
        from torch.autograd import profiler

        patches.set(profiler, "_enable_profiler", self._enabler(profiler._enable_profiler))
        patches.set(profiler, "_disable_profiler", self._disabler(profiler._disable_profiler))
        patches.set(profiler, "_run_on_profiler_stop", self._stopper(profiler._run_on_profiler_stop))

    def begin(self) -> None:
        """Push ranges on this thread from now on. If another profiler is on, begin when it ends."""
        import torch
        from torch.autograd import profiler

        if self._closed or this_thread().on:
            return
        if program_profiler_is_on():
            this_thread().suspended = True
            return
        # Shapes are on; memory, stacks, FLOPs and modules are off. The profiler records nothing, it only pushes ranges.
        config = torch.autograd.ProfilerConfig(
            self._state, True, False, False, False, False, torch._C._profiler._ExperimentalConfig()
        )
        try:
            torch._C._autograd._enable_profiler(config, set())
        except RuntimeError as error:
            self._closed = True
            sys.stderr.write(f"pyprof: continuing without PyTorch's own ranges, which cannot be pushed: {error}\n")
            return
        this_thread().on = True
        self._threads += 1
        profiler._run_on_profiler_start()

    def end(self, thread: ThreadState | None = None) -> None:
        """Push no more ranges on this thread. ``thread``: its state, where its locals are gone."""
        from torch.autograd import profiler

        state = thread or this_thread()
        state.suspended = False
        if self._off(state):
            profiler._run_on_profiler_stop()

    def _off(self, thread: ThreadState) -> bool:
        """Push no more ranges on this thread; whether they were pushed until now."""
        import torch

        was_on, thread.on = thread.on, False
        if was_on:
            self._threads -= 1
            torch._C._autograd._disable_profiler()
        return was_on

    def close(self) -> None:
        """Push no more ranges on this thread, and do not begin on any other thread."""
        self.end()
        self._closed = True

    def _enabler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _enable_profiler(*args: Any, **kwargs: Any) -> Any:
            # The other profiler has told PyTorch that one is on, by which inductor's kernels know whether to push their
            # ranges: so that is not taken back here.
            suspended = self._off(this_thread()) or this_thread().suspended
            try:
                result = original(*args, **kwargs)
            except BaseException:
                if suspended:
                    self.begin()
                raise
            this_thread().suspended = suspended
            return result

        return _enable_profiler

    def _disabler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _disable_profiler(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                if this_thread().suspended:
                    this_thread().suspended = False
                    self.begin()

        return _disable_profiler

    @staticmethod
    def _stopper(original: Callable[[], Any]) -> Callable[[], Any]:
        def _run_on_profiler_stop() -> None:
            """Tell PyTorch that no profiler is on: not while ours is, which is back before another one says so."""
            if not this_thread().on:
                original()

        return _run_on_profiler_stop
