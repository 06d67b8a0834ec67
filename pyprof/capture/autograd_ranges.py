"""PyTorch's own ranges in NVTX: every op with its sequence number and sizes, every autograd node with its forward op's.

Markers alone leave backward kernels without an op. What `torch.autograd.profiler.emit_nvtx(record_shapes=True)` turns
on for a block is on here from init() to deinit(), on each thread that is marked, and without waiting for the GPU.

PyTorch has room for one profiler a thread: while a program's own is on (emit_nvtx, torch.profiler), this one is off.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from pyprof.capture.patch import Patches


class _Here(threading.local):
    """Of this thread."""

    on = False
    aside = False  # off for as long as another profiler is on


class AutogradRanges:
    """To be begun and ended on each thread. `state` is a torch.autograd.ProfilerState that makes ranges."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._here = _Here()
        self._closed = False

    @staticmethod
    def of_nvtx() -> AutogradRanges | None:
        """None where this PyTorch has no GPU part, and so no NVTX."""
        import torch

        if not (torch.version.cuda or torch.version.hip):
            return None
        return AutogradRanges(torch.autograd.ProfilerState.NVTX)

    def install(self, patches: Patches) -> None:
        """Make way for the program's own profilers."""
        from torch.autograd import profiler

        patches.set(profiler, "_enable_profiler", self._enabler(profiler._enable_profiler))
        patches.set(profiler, "_disable_profiler", self._disabler(profiler._disable_profiler))

    def begin(self) -> None:
        """On this thread. Where a profiler is on already, once it ends."""
        import torch
        from torch.autograd import profiler

        here = self._here
        if self._closed or here.on:
            return
        if torch._C._autograd._profiler_enabled():
            here.aside = True
            return
        # shapes, but no memory, stacks, FLOPs nor modules; nothing is collected by it: ranges are all that it makes
        config = torch.autograd.ProfilerConfig(
            self._state, True, False, False, False, False, torch._C._profiler._ExperimentalConfig()
        )
        try:
            torch._C._autograd._enable_profiler(config, set())
        except RuntimeError as error:
            self._closed = True
            sys.stderr.write(f"pyprof: without PyTorch's own ranges, for it cannot push them: {error}\n")
            return
        here.on = True
        profiler._run_on_profiler_start()

    def end(self) -> None:
        """On this thread."""
        import torch
        from torch.autograd import profiler

        here = self._here
        here.aside = False
        if here.on:
            here.on = False
            torch._C._autograd._disable_profiler()
            profiler._run_on_profiler_stop()

    def close(self) -> None:
        """End on this thread; others begin no more."""
        self.end()
        self._closed = True

    def _enabler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _enable_profiler(*args: Any, **kwargs: Any) -> Any:
            aside = self._here.on or self._here.aside
            self.end()
            try:
                result = original(*args, **kwargs)
            except BaseException:
                if aside:
                    self.begin()
                raise
            self._here.aside = aside
            return result

        return _enable_profiler

    def _disabler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _disable_profiler(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                if self._here.aside:
                    self._here.aside = False
                    self.begin()

        return _disable_profiler
