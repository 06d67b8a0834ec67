"""How long the host takes for each PyTorch call while no profiler runs, in one iteration before the capture.

A profiler slows some of the host's work more than the rest: ops with many ranges most, Python between ops hardly, the
backward pass in a way of its own. The captured times alone do not show by how much. So in one iteration, the marker
mode times the calls that it would mark: how long after the end of the one before each began, and how long it took. The
captured iterations make the same calls (``calls`` in the table of host calls counts them), and prof compares the two.

Timing adds about 2 us to a call. That is measured once, after the first such iteration, with small calls, and
subtracted. If the GPU has much to do, the host is held up at a full queue: so the GPU is waited for now and then, and
these waits do not count. A program of several ranks is not made to wait, for others may wait for what it would launch
next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from pyprof.capture import mode
from pyprof.capture.special import ValueRead
from pyprof.capture.targets import Target
from pyprof.step_timer import TimedCalls, wait_for_gpu

if TYPE_CHECKING:
    from pyprof.capture.session import Session

MOST = 50_000  # calls of an iteration; of one with more, none are kept
BETWEEN_WAITS = 200  # calls; a GPU's queue has room for 1,024 launches
COLD = 1.1  # in a program, whose code is not in the caches, timing costs this much more than in a loop of small calls
SERIES, TRIALS = 5, 50  # of small calls, by which the cost of timing is measured
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
        """None where calls cannot be timed: without a session, or if it pushes markers or sees each dispatched op."""
        if session is None or session.mode.sink is not None or session.mode.exact is not None:
            return None
        return cls(session)

    def begin(self) -> None:
        self._entered = self._session.is_late
        if self._entered:
            mode.enter(self._mode)
        self._calls, self._until_wait = [], BETWEEN_WAITS
        self._mode.divert = self._run_call
        self._begun = _clock()

    def end(self) -> TimedCalls:
        """Stop timing."""
        ended = _clock()
        if self._mode.divert is not self._run_call:  # the session was closed meanwhile
            return TimedCalls(None, 0)
        calls, self._calls = self._calls, []
        costs = self._session.call_costs = self._session.call_costs or self._costs_ns()
        self._mode.divert = None
        if self._entered and self._session.is_late:
            mode.leave(self._mode)
        rows = list(zip(*(iter(calls),) * 3, strict=True))
        names: dict[str, int] = {}
        numbers = [number for row in self._marked(rows, costs, names) for number in row]
        kept = numbers and len(numbers) <= 3 * MOST
        record = {"names": list(names), "calls": numbers, "end_ns": ended - self._last} if kept else None
        return TimedCalls(record, sum(_besides_ns(row, costs) for row in rows))

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

    def _costs_ns(self) -> tuple[int, int]:
        """What timing adds to a call that would be marked, and to another one such as that of ``x.shape``: the time of
        small calls with the mode on, less that with it off."""
        self._until_wait = 1 << 62
        timed = [_shortest(calls) for calls in SMALL]
        off = mode.leave(self._mode)
        plain = [_shortest(calls) for calls in SMALL]
        if off:
            mode.enter(self._mode)
        marked, other = (max(round(COLD * (a - b)), 0) for a, b in zip(timed, plain, strict=True))
        return marked, other

    def _marked(
        self, rows: list[tuple[Any, int, int]], costs: tuple[int, int], names: dict[str, int]
    ) -> Iterator[tuple[int, ...]]:
        """Of each call that would be marked: the number of its name, the ns since the one before, and its own ns."""
        self._last, more = self._begun, 0
        for target, begun, ended in rows:
            more += _besides_ns((target, begun, ended), costs)
            if type(target) is Target:
                gap = max(begun - self._last - more, 0)
                yield names.setdefault(target.op, len(names)), gap, ended - begun
                self._last, more = ended, 0
        self._last += more


def _besides_ns(row: tuple[Any, int, int], costs: tuple[int, int]) -> int:
    """How much longer timing made the iteration by a call, or by a wait."""
    target, begun, ended = row
    if target is _WAIT:
        return ended - begun
    return costs[0] if type(target) is Target else costs[1]


def _shortest(calls: Callable[[torch.Tensor], int]) -> float:
    """The ns of one of some calls: the least of several series, in this thread's processor time, to which other
    programs add nothing."""
    tensor, took, count = torch.zeros(4), [], 1
    for _ in range(SERIES):
        begun = time.thread_time_ns()
        for _ in range(TRIALS):
            count = calls(tensor)
        took.append(time.thread_time_ns() - begun)
    return min(took) / (TRIALS * count)


def _small_ops(x: torch.Tensor) -> int:
    x.mul_(0.5).add_(x, alpha=0.5)
    torch.neg(x)
    functional.layer_norm(functional.relu(x), (4,))
    x.norm()
    return 6


def _attributes(x: torch.Tensor) -> int:
    x.dim(), x.shape, x.grad, x.data
    return 4


SMALL = (_small_ops, _attributes)
