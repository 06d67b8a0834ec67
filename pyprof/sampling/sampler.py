"""Records one iteration in N while a program trains: ``pyprof.profile(every=N, to=...)``.

Between samples, nothing of PyTorch is marked; iterations are only counted. A sample turns on the markers (unless the
program has called pyprof.init() itself) and PyTorch's profiler for one iteration, exports the trace, and hands it to
another process. If that one is still busy with the sample before, the next is passed over, so that at most one trace is
on the disk. The program goes on whatever fails here.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyprof.capture import session
from pyprof.capture.collector import Collector, TraceFile, Window
from pyprof.capture.control import only
from pyprof.capture.step_finder import StepFinder
from pyprof.files import tell
from pyprof.interruption import is_from_outside
from pyprof.sampling.destinations import Destinations
from pyprof.sampling.reader import Job, TraceReader

TIMED = 20  # iterations before a sample that are timed, so that its step time is one without the profiler
MOST_FAILURES = 10  # one after the other; then sampling ends


@contextmanager
def sampled(every: int, to: Any, *, trace: bool | str = False, dispatch: bool = False) -> Iterator[None]:
    """The block of ``pyprof.profile(every=, to=)``."""
    with ExitStack() as done:
        destinations = done.enter_context(Destinations(to))
        folder = tempfile.mkdtemp(prefix="pyprof-samples-")
        done.callback(_remove_own, folder, os.getpid())
        sampler = Sampler(every, Path(folder), destinations, trace, dispatch)
        done.callback(sampler.finish)
        atexit.register(done.close)  # for a block that is not left before the interpreter ends
        done.callback(atexit.unregister, done.close)
        with only(sampler):
            yield


class Sampler(Collector):
    """Counts iterations, and records each N-th."""

    name = "pyprof.profile(every=)"

    def __init__(self, every: int, folder: Path, destinations: Destinations, trace: bool | str, dispatch: bool) -> None:
        super().__init__(Window())
        self._every = every
        self._trace, self._dispatch = trace, dispatch
        self._raw = folder / "raw.json"
        self._problems = Problems()
        self._reader = TraceReader(destinations.send, self._problems.report, self._problems.succeeded)
        self._pid = os.getpid()
        self._sample: TraceFile | None = None
        self._undo = ExitStack()
        self._begun_s = self._spent_s = 0.0

    def open(self) -> None:
        self._finder = StepFinder(self._found_step)

    def close(self) -> None:
        """An iteration that is cut off by the block's end is no sample."""
        self._sample = None
        self._undo.close()
        super().close()

    def finish(self) -> None:
        """Wait for the last sample's numbers, and say what was lost."""
        if os.getpid() == self._pid:
            self._guarded(self.close)
            self._reader.close()
            self._problems.tell_at_the_end()

    def begin(self) -> None:
        """start() and stop() do nothing here: samples are whole iterations."""

    end = begin

    def _count_again(self) -> None:
        self._iterations = 0
        self._timer.restart()

    def _count(self) -> None:
        if os.getpid() == self._pid:
            self._guarded(self._next)

    def _next(self) -> None:
        """An iteration has ended, and the next begins."""
        if self._sample is not None:
            self._end_sample(self._sample)
        self._timer.end()
        self._iterations += 1
        to_come = -self._iterations % self._every
        if self._problems.too_many:
            return
        if to_come == 0:
            self._begin_sample()
        elif to_come <= TIMED:
            self._timer.begin(self._iterations)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # a sample that fails must not end the program's training; it is reported
            if is_from_outside(error):
                raise
            self._problems.report(f"{type(error).__name__}: {error}")
            undo, self._undo, self._sample = self._undo, ExitStack(), None
            self._guarded(undo.close)

    def _begin_sample(self) -> None:
        if self._reader.busy:
            self._problems.passed_over += 1
            self._timer.restart()
            return
        begun = time.perf_counter()
        if session.current() is None:
            session.init(trace=self._trace, dispatch=self._dispatch, graphs=False)
            self._undo.callback(session.deinit)
        sample = TraceFile(self._raw, True, Window(), graphs=False)
        self._undo.callback(sample.close)
        sample.open()
        self._sample, self._begun_s = sample, time.perf_counter()
        self._spent_s = self._begun_s - begun

    def _end_sample(self, sample: TraceFile) -> None:
        ended = time.perf_counter()
        self._sample = None
        exported = sample.export(self._raw)
        self._undo.close()
        timed = self._timer.record()
        self._timer.restart()
        if exported is None:  # the program's own profiler was on
            self._problems.passed_over += 1
            return
        texts, own = exported
        known = {
            "iteration": self._iterations,
            "time_s": time.time(),
            "rank": _rank(),
            "recorded_ms": 1e3 * (ended - self._begun_s),
            "sampling_ms": 1e3 * (self._spent_s + time.perf_counter() - ended),
        }
        self._reader.give(Job(self._raw, texts, own if timed is None else {**own, "steps": timed}, known))


def _remove_own(folder: str, pid: int) -> None:
    """Remove the folder, but not in a forked child that leaves the block: it is the parent's."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


class Problems:
    """What failed: the first failure is told at once, the others are counted."""

    def __init__(self) -> None:
        self.passed_over = 0  # samples: the one before was still being read, or the program's own profiler was on
        self._failures = self._in_a_row = 0

    @property
    def too_many(self) -> bool:
        return self._in_a_row >= MOST_FAILURES

    def report(self, why: str) -> None:
        self._failures += 1
        self._in_a_row += 1
        if self._failures == 1:
            tell(f"pyprof: warning: a sample is lost: {why}; the program goes on, later failures are counted")
        if self._in_a_row == MOST_FAILURES:
            tell(f"pyprof: warning: {MOST_FAILURES} samples were lost one after the other, the last: {why}; no more")

    def succeeded(self) -> None:
        self._in_a_row = 0

    def tell_at_the_end(self) -> None:
        if self._failures > 1:
            tell(f"pyprof: warning: {self._failures} samples were lost")
        if self.passed_over:
            tell(
                f"pyprof: warning: samples passed over: {self.passed_over}; the one before was still being read, "
                "which a greater every= avoids, or the program used PyTorch's profiler itself"
            )


def _rank() -> int | None:
    import torch

    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else None
