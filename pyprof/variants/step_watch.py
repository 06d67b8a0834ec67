"""Counts and times the steps of a run, and keeps the losses of the first ones.

A step ends with pyprof.step() if the script calls it; otherwise with the first optimizer's step() (step_finder.py), and
in a script without one with the call of its first outermost module. A script that calls its module eight times before
the optimizer's first step is found out then: what was counted before is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyprof.step_timer import StepTimer
from pyprof.variants.run_record import LOSSES, MARK, MODULE, OPTIMIZER

_ORDER = ("", MODULE, OPTIMIZER, MARK)


class StepWatch:
    """Calls ``done()`` once when ``warmup + steps`` steps have ended."""

    def __init__(self, warmup: int, steps: int, done: Callable[[], None]) -> None:
        self.kind = ""
        self.count = 0
        self.trains = False  # whether backward() was called or an optimizer made: then module calls are no steps
        self.settle: Callable[[bool], None] = lambda _: None  # told whether the warm-up is over: modules are known
        self._warmup, self._steps, self._done = warmup, steps, done
        self._timer = StepTimer()
        self._losses: list[list[Any]] = [[]]  # per step, scalars on the device; the last step is in progress
        self._finished = False

    def ended(self, kind: str) -> None:
        """A step of this kind has ended."""
        if self._finished or _ORDER.index(kind) < _ORDER.index(self.kind):
            return
        self._timer.end()
        if kind != self.kind:
            self.kind, self.count = kind, 0
            self.settle(False)
            self._timer.restart()
            self._losses = [[scalar for step in self._losses for scalar in step]]
        self.count += 1
        self._losses.append([])
        if self.count == max(self._warmup, 1) and (kind != MODULE or not self.trains):
            self.settle(True)
        if self.count >= self._warmup + self._steps and (kind != MODULE or not self.trains):
            self._finished = True
            self._done()
        else:
            self._timer.begin(self.count)

    def add_loss(self, scalar: Any) -> None:
        """backward() is called on this scalar, in the step in progress."""
        self.trains = True
        if len(self._losses) <= LOSSES and not self._finished:
            self._losses[-1].append(scalar.detach().clone())  # cloned: a CUDA graph may write its result there again

    @property
    def finished(self) -> bool:
        return self._finished

    def losses(self) -> list[float]:
        """The losses of the first steps; waits for the GPU."""
        return [sum(float(scalar) for scalar in step) for step in self._losses[:LOSSES] if step]

    def step_ns(self) -> tuple[list[int], int]:
        """The steps after the warm-up in ns, and how many steps were passed over. Waits for the GPU.

        Of a script with fewer steps than the warm-up has, the second half.
        """
        record = self._timer.record()
        steps = [] if record is None else record["steps"]
        kept = [step for step in steps if step["number"] >= self._warmup] or steps[len(steps) // 2 :]
        kept = kept[-self._steps :]
        # From event to event on the GPU is a step's time whoever is the limit; the host may run ahead of it.
        times = [step["gpu_ns"] if step["gpu_ns"] is not None else step["host_ns"] for step in kept]
        return times, kept[0]["number"] if kept else 0
