"""How long the host takes for each PyTorch call while no profiler runs, in one iteration before the capture.

A profiler slows some of the host's work more than the rest: ops with many ranges most, Python between ops hardly, the
backward pass in a way of its own. The captured times alone do not show by how much. So in one iteration, the marker
mode times the calls that it would mark: how long after the end of the one before each began, and how long it took. The
captured iterations make the same calls (``calls`` in the table of host calls counts them), and prof compares the two.

Timing adds about 2 us to a call. That is measured afterwards, with calls that do nothing, and subtracted. If the GPU
has much to do, the host is held up at a full queue: so the GPU is waited for now and then, and these waits do not
count. A program of several ranks is not made to wait, for others may wait for what it would launch next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from pyprof.capture import mode
from pyprof.capture.special import ValueRead
from pyprof.capture.targets import Target
from pyprof.step_timer import TimedCalls, wait_for_gpu

if TYPE_CHECKING:
    from pyprof.capture.session import Session

MOST = 50_000  # calls of an iteration; of one with more, none are kept
BETWEEN_WAITS = 200  # calls; a GPU's queue has room for 1,024 launches
_TRIALS = 200
_WAIT = object()
_clock = time.perf_counter_ns


class CallTimer:
    """Times the calls of this thread from ``begin`` to ``end``."""

    def __init__(self, session: Session) -> None:
        self._session, self._mode = session, session.mode
        self._run_call = self._run  # one object, by which `end` sees whether the mode still has it
        self._entered = False
        self._thread = threading.get_ident()
        self._calls: list[Any] = []  # of each call, or wait: its target, its begin and its end
        self._until_wait = BETWEEN_WAITS
        self._begun = self._last = 0  # ns: when the iteration began, and the last marked call ended

    @classmethod
    def of(cls, session: Session | None) -> CallTimer | None:
        """None where calls cannot be timed: without a session, or if it pushes markers or runs each call itself."""
        if session is None or session.mode.sink is not None or session.mode.divert is not None:
            return None
        return cls(session)

    def begin(self) -> None:
        self._entered = self._session.is_late
        if self._entered:
            mode.enter(self._mode)
        self._mode.divert = self._run_call
        self._begun = _clock()

    def end(self) -> TimedCalls:
        """Stop timing."""
        ended = _clock()
        if self._mode.divert is not self._run_call:  # the session was closed meanwhile
            return TimedCalls(None, 0)
        calls, self._calls = self._calls, []
        cost = self._cost_ns()
        self._mode.divert = None
        if self._entered and self._session.is_late:
            mode.leave(self._mode)
        rows = list(zip(*(iter(calls),) * 3, strict=True))
        waited = sum(end - begin for target, begin, end in rows if target is _WAIT)
        names: dict[str, int] = {}
        numbers = [number for row in self._marked(rows, cost, names) for number in row]
        kept = numbers and len(numbers) <= 3 * MOST
        record = {"names": list(names), "calls": numbers, "end_ns": ended - self._last} if kept else None
        return TimedCalls(record, waited + cost * sum(target is not _WAIT for target, _, _ in rows))

    def _run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if threading.get_ident() != self._thread:
            return func(*args, **kwargs) if kwargs else func(*args)
        target = self._mode.known.get(func)
        if type(target) is ValueRead:
            target = None if target.is_on_cpu(args) else target.marked
        self._until_wait -= 1
        if self._until_wait <= 0:
            self._wait()
        begun = _clock()
        try:
            return func(*args, **kwargs) if kwargs else func(*args)
        finally:
            self._calls += (target, begun, _clock())

    def _wait(self) -> None:
        """Let the GPU finish what was launched."""
        begun = _clock()
        self._until_wait = BETWEEN_WAITS
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            wait_for_gpu()
        self._calls += (_WAIT, begun, _clock())

    def _cost_ns(self) -> int:
        """What timing adds to a call: the time of calls that do nothing with the mode on, less that with it off."""
        tensor = torch.empty(0)
        self._until_wait = 1 << 62
        timed = _shortest(tensor)
        off = mode.leave(self._mode)
        plain = _shortest(tensor)
        if off:
            mode.enter(self._mode)
        return max(timed - plain, 0)

    def _marked(self, rows: list[tuple[Any, int, int]], cost: int, names: dict[str, int]) -> Iterator[tuple[int, ...]]:
        """Of each call that would be marked: the number of its name, the ns since the one before, and its own ns."""
        self._last, more = self._begun, 0
        for target, begun, ended in rows:
            more += ended - begun if target is _WAIT else cost
            if type(target) is Target:
                gap = max(begun - self._last - more, 0)
                yield names.setdefault(target.op, len(names)), gap, ended - begun
                self._last, more = ended, 0
        self._last += more


def _shortest(tensor: torch.Tensor) -> int:
    """The time of a call that does nothing, ns: of several series the shortest."""
    took = []
    for _ in range(5):
        begun = _clock()
        for _ in range(_TRIALS):
            tensor.dim()
        took.append(_clock() - begun)
    return min(took) // _TRIALS
