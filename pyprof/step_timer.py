"""How long steps take before the profiler starts: for ``pyprof run --warmup``, ``pyprof.profile(warmup=)`` and nsys.

A profiler slows the host, and with it every step that waits for the host. So the iterations that a collector passes
over are timed: on the host from the end of one iteration to the end of the next, and on the GPU between two events that
are recorded there. The host may run ahead of the GPU; over several steps, the longer of the two is the step's time. It
costs two CUDA events per iteration, and nothing waits for them before the program has ended or the profiler starts.

Where the GPU is the limit, the host is held up by it, and how much time it needs itself does not show. So the last of
several iterations before the profiler begin on an idle GPU: it is waited for. In these, PyTorch's calls may be timed
one by one (capture/step_calls.py).
"""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple, Protocol

from pyprof.range_pieces import pieces_of

VERSION = 1  # parse/formats/measured_steps.py reads it
NAME = "pyprof.steps "  # begins the NVTX ranges that carry the record to nsys
MOST = 100  # iterations that are kept: the last ones


class TimedCalls(NamedTuple):
    """The calls of an iteration."""

    record: dict[str, Any] | None  # for the trace's key ``pyprof``; None: there were none, or too many
    besides_ns: int  # how much longer timing them has made the iteration on the host


class TimesCalls(Protocol):
    def begin(self) -> None: ...

    def end(self) -> TimedCalls: ...


class StepTimer:
    """Times iterations; ``marked``: whether pyprof's markers are pushed meanwhile, as for a tool that may record."""

    def __init__(self, marked: bool = False) -> None:
        self._marked = marked
        self._opened: tuple[int, int, Any] | None = None  # number, time and event of the iteration in progress
        self._timed: list[tuple[int, int, Any, Any]] = []  # number, ns on the host, events
        self._alone: dict[int, dict[str, Any] | None] = {}  # the calls of iterations that began on an idle GPU
        self._timing: TimesCalls | None = None  # of the iteration in progress

    def restart(self) -> None:
        """Forget what was timed."""
        self.drop()
        self._timed, self._alone = [], {}

    def begin(self, number: int, alone: bool = False, calls: TimesCalls | None = None) -> None:
        """An iteration begins that no profiler records.

        ``alone``: wait for the GPU first. ``calls``: times the iteration's calls, too, if it begins on an idle GPU.
        """
        if alone and wait_for_gpu():
            self._alone[number], self._timing = None, calls
        event = _event()  # first: it is the event's cost, and not the iteration's
        self._opened = number, time.perf_counter_ns(), event
        if self._timing is not None:
            self._timing.begin()

    def end(self) -> None:
        """The iteration in progress ends. Does nothing if none is timed."""
        if self._opened is None:
            return
        number, begun, event = self._opened
        took = time.perf_counter_ns() - begun
        ended = _event()
        self._opened = None
        if self._timing is not None:
            self._alone[number], besides = self._timing.end()
            took, self._timing = max(took - besides, 0), None
        self._timed = [*self._timed[1 - MOST :], (number, took, event, ended)]

    def drop(self) -> None:
        """The iteration in progress is not timed: a profiler has begun in it."""
        self._opened = None
        if self._timing is not None:
            self._timing.end()
            self._timing = None

    def record(self) -> dict[str, Any] | None:
        """What was timed, for the trace's key pyprof; None if nothing was. Waits for the GPU's events."""
        steps = [
            {"number": number, "host_ns": host_ns, "gpu_ns": _between(begun, ended)}
            | ({"alone": True} if number in self._alone else {})
            | ({"calls": calls} if (calls := self._alone.get(number)) else {})
            for number, host_ns, begun, ended in self._timed
        ]
        return {"version": VERSION, "marked": self._marked, "steps": steps} if steps else None

    def texts(self) -> list[str]:
        """The record as the texts of NVTX ranges: as it is, or in pieces if it is long."""
        record = self.record()
        pieces = [] if record is None else pieces_of(json.dumps(record, separators=(",", ":")))
        return [NAME + pieces[0].part] if len(pieces) == 1 else [piece.text(NAME) for piece in pieces]


def wait_for_gpu() -> bool:
    """Whether the GPU is idle now; it stays as it is before the program has used one, and while a graph is captured."""
    import torch

    if not torch.cuda.is_initialized():
        return False
    try:
        if torch.cuda.is_current_stream_capturing():
            return False
        torch.cuda.synchronize()
    except RuntimeError:  # the program's own next call reports it
        return False
    return True


def _event() -> Any:
    """A CUDA event that is recorded now; None before the program has used a GPU, while a CUDA graph is captured, and
    if CUDA refuses: after an error of the program's, which its own next call reports."""
    import torch

    if not torch.cuda.is_initialized():
        return None
    try:
        if torch.cuda.is_current_stream_capturing():
            return None
        event = torch.cuda.Event(enable_timing=True)
        event.record()
    except RuntimeError:
        return None
    return event


def _between(begun: Any, ended: Any) -> int | None:
    """The ns from one event to the other on the GPU; None without both, if they are of different devices, and if CUDA
    refuses, as ``_event`` says."""
    if begun is None or ended is None or begun.device != ended.device:
        return None
    try:
        ended.synchronize()
        elapsed_ms: float = begun.elapsed_time(ended)
    except RuntimeError:
        return None
    return round(elapsed_ms * 1e6)
