"""PyTorch's profiler is one per process: the program's own has precedence over pyprof's collector.

While a collector is open, the three functions with which any of PyTorch's profilers begins and ends are replaced.
Before the program's profiler begins, ours ends and keeps its records; when the program's has ended, ours may begin
again. Two at once end in a segmentation fault (2.13).

Kineto also writes to standard error each time that it begins and ends: lines that begin with `USDT:`, and, if PyTorch
was built for a GPU and the machine has none, an error that it found no device. Neither is for the user; here they are
left out.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from pyprof.capture.autograd_ranges import program_profiler_is_on
from pyprof.capture.patch import Patches

_NOISE = re.compile(rb"USDT:|ERROR:.* DeviceProperties\.cpp:\d+\] gpuGetDeviceCount failed")


class Ours(Protocol):
    """The collector that makes way."""

    switching: bool  # whether the collector itself is turning its own profiler on or off

    def pause(self, kineto: bool = False) -> None: ...

    def resume(self) -> None: ...

    def keep_records(self) -> None:
        """Called before any profiler of PyTorch begins: the times of those that ended before are lost then."""


class Turns:
    """Replaces PyTorch's functions from its making to close()."""

    def __init__(self, ours: Ours) -> None:
        from torch.autograd import profiler

        self._ours = ours
        self._theirs = 0  # the program's profilers that are on; NVTX ranges and a Kineto session may be nested
        self._patches = Patches()
        if program_profiler_is_on():
            self._theirs = 1
            ours.pause()
        for name, replacement in (
            ("_prepare_profiler", self._prepare),
            ("_enable_profiler", self._enable),
            ("_disable_profiler", self._disable),
        ):
            if hasattr(profiler, name):
                self._patches.set(profiler, name, replacement(getattr(profiler, name)))

    def close(self) -> None:
        self._patches.undo()

    def _prepare(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _prepare_profiler(*args: Any, **kwargs: Any) -> Any:
            if not self._ours.switching:
                self._ours.pause(kineto=True)
            self._ours.keep_records()
            with without_noise():
                return original(*args, **kwargs)

        return _prepare_profiler

    def _enable(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _enable_profiler(*args: Any, **kwargs: Any) -> Any:
            theirs = not self._ours.switching
            if theirs:
                self._ours.pause()
            with without_noise():
                result = original(*args, **kwargs)
            self._theirs += theirs
            return result

        return _enable_profiler

    def _disable(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def _disable_profiler(*args: Any, **kwargs: Any) -> Any:
            with without_noise():
                result = original(*args, **kwargs)
            if not self._ours.switching:
                self._theirs = max(self._theirs - 1, 0)
                if self._theirs == 0:
                    self._ours.resume()
            return result

        return _disable_profiler


@contextmanager
def without_inductor() -> Iterator[None]:
    """Meanwhile PyTorch's profiler does not import inductor to ask its settings whether it uses CUDA graphs.

    The import takes a second. In a program that has not imported inductor these settings are off, unless
    TORCHINDUCTOR_CUDAGRAPHS is set. Sources, seen in 2.13: prepare_trace in torch/profiler/profiler.py, and
    torch/_inductor/config.py.
    """
    from torch.profiler import profiler

    patches = Patches()
    if "torch._inductor" not in sys.modules and "TORCHINDUCTOR_CUDAGRAPHS" not in os.environ:
        patches.set(profiler, "hasattr", lambda owner, name: name != "_inductor" and hasattr(owner, name))
    try:
        yield
    finally:
        patches.undo()


@contextmanager
def without_noise() -> Iterator[None]:
    """Hold back what is written to standard error, then write it without the lines of Kineto that match `_NOISE`.

    Kineto's own option, KINETO_LOG_LEVEL, would leave out its errors as well.
    """
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
        standard_error = os.dup(2)
    except (OSError, ValueError):  # it is closed
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
            held.seek(0)
            lines = [line for line in held if not _NOISE.match(line)]
            if lines:
                os.write(2, b"".join(lines))
