"""How long a call takes on a device.

Times are medians of several trials of many calls each, by CUDA events (on a CPU the best trial, by the clock). Matrix
products are the exception: they draw so much power that a GPU lowers its clock within tens of milliseconds. Since a
training step has other work between its products, their time is the best of short bursts, and the time under a lasting
load is a second figure. Clocks are left as they are.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CPU_TRIAL_S = 1e-4  # long against reading the clock
SHORTEST_CALL_S = 1e-9  # keeps a division defined


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure, and up to which sizes."""

    trial_s: float = 0.03
    trials: int = 7
    slowest_s: float = 0.7  # a product that would take longer is not measured
    burst_s: float = 0.004  # of products, with a pause before each
    pause_s: float = 0.03
    bursts: int = 15
    lasting_s: float = 0.6
    gemm: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192, 16384)
    most_bytes: int = 4 << 30  # of one array of the memory sweep


FULL = Effort()
_QUICK_GEMM = (512, 1024, 2048, 4096, 8192)
QUICK = Effort(trial_s=0.01, trials=3, slowest_s=0.3, bursts=6, lasting_s=0.3, gemm=_QUICK_GEMM, most_bytes=1 << 29)


class Timer:
    """Times calls on one device."""

    def __init__(self, device: str, effort: Effort) -> None:
        import torch

        self.device = torch.device(device)
        self.effort = effort
        self.on_gpu = self.device.type == "cuda"

    def seconds(self, call: Callable[[], object]) -> float:
        """Seconds per call: the median of the trials; on a CPU, which others use too, the best."""
        once = self._warmed_up(call)
        if not self.on_gpu:
            return self._best(call, once)
        times = _times_in(self.effort.trial_s, once, 10_000)
        self._run(call, times)  # lets the GPU reach the clock that it has at work
        return statistics.median(self._run(call, times) / times for _ in range(self.effort.trials))

    def burst_seconds(self, call: Callable[[], object]) -> float:
        """Seconds per call while the GPU's power allows its full clock: the best of short bursts."""
        once = self._warmed_up(call)
        if not self.on_gpu:
            return self._best(call, once)
        times = _times_in(self.effort.burst_s, once, 1_000)
        trials = []
        for _ in range(self.effort.bursts):
            time.sleep(self.effort.pause_s)
            self._run(call, 1)  # lets the GPU leave its idle clock
            trials.append(self._run(call, times) / times)
        return min(trials)

    def lasting_seconds(self, call: Callable[[], object]) -> float:
        """Seconds per call under a lasting load: the mean of its second half."""
        times = _times_in(self.effort.lasting_s / 2, self._run(call, 1))
        self._run(call, times)
        return self._run(call, times) / times

    def _warmed_up(self, call: Callable[[], object]) -> float:
        """Seconds of one call, after a first one that compiles, allocates and chooses an algorithm."""
        self._run(call, 1)
        return min(self._run(call, 1) for _ in range(3))

    def _best(self, call: Callable[[], object], best: float) -> float:
        """The best of many short trials: threads that wait for a busy core make most trials milliseconds too long."""
        spent, trials = 0.0, 0
        while spent < self.effort.trials * self.effort.trial_s or trials < self.effort.trials:
            times = _times_in(CPU_TRIAL_S, best)
            took = self._run(call, times)
            best = min(best, took / times)
            spent, trials = spent + took, trials + 1
        return best

    def _run(self, call: Callable[[], object], times: int) -> float:
        """Seconds of so many calls."""
        if not self.on_gpu:
            began = time.perf_counter()
            for _ in range(times):
                call()
            return time.perf_counter() - began
        from torch import cuda

        new_event: Any = cuda.Event
        with cuda.device(self.device):
            begin, end = new_event(enable_timing=True), new_event(enable_timing=True)
            begin.record()
            for _ in range(times):
                call()
            end.record()
            end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3


def _times_in(duration_s: float, call_s: float, most: float = math.inf) -> int:
    """How many calls fill a duration; at least one."""
    return max(1, int(min(most, math.ceil(duration_s / max(call_s, SHORTEST_CALL_S)))))
