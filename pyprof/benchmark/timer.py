"""How long a call takes on a device.

On a GPU, a time is the median of several trials of many calls each, measured with CUDA events. On a CPU it is the best
trial, measured with the system's clock. Matrix products are the exception: they draw so much power that a GPU lowers
its clock within tens of milliseconds. Since a training step has other work between its products, their time is the
best of short bursts, and the time under a lasting load is a second figure. The GPU's clock settings are not changed.
"""

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyprof.benchmark.other_programs import OtherPrograms

CPU_TRIAL_S = 1e-4  # much longer than reading the clock takes
SHORTEST_CALL_S = 1e-9  # prevents a division by zero
PATIENCE = 5  # times as many trials, at most, where other programs disturb


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure, and up to which sizes."""

    trial_s: float = 0.03
    trials: int = 7
    slowest_s: float = 0.7  # a product that would take longer is not measured
    burst_s: float = 0.004  # length of a burst of products; there is a pause before each burst
    pause_s: float = 0.03
    bursts: int = 15
    lasting_s: float = 0.6
    gemm: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192, 16384)
    most_bytes: int = 4 << 30  # the largest array of the memory sweep


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
        """Seconds per call: the median of the trials, or on a CPU, which other programs use too, the best trial."""
        once = self._warmed_up(call)
        if not self.on_gpu:
            return self._best(call, once)
        times = _times_in(self.effort.trial_s, once, 10_000)
        self._run(call, times)  # lets the GPU reach the clock at which it runs under load
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
        """Seconds per call under a lasting load: the mean over the load's second half."""
        times = _times_in(self.effort.lasting_s / 2, self._run(call, 1))
        self._run(call, times)
        return self._run(call, times) / times

    def _warmed_up(self, call: Callable[[], object]) -> float:
        """Seconds of one call, after a first call that compiles, allocates and chooses an algorithm."""
        self._run(call, 1)
        return min(self._run(call, 1) for _ in range(3))

    def _best(self, call: Callable[[], object], best: float) -> float:
        """The best of many short trials: most trials are milliseconds too long, as threads wait for a busy core.

        While other programs disturb, there are more of them.
        """
        for _ in range(PATIENCE):
            others, spent, trials = OtherPrograms(), 0.0, 0
            while spent < self.effort.trials * self.effort.trial_s or trials < self.effort.trials:
                times = _times_in(CPU_TRIAL_S, best)
                took = self._run(call, times)
                best = min(best, took / times)
                spent, trials = spent + took, trials + 1
            if not others.disturb:
                break
        return best

    def _run(self, call: Callable[[], object], times: int) -> float:
        """The seconds that `times` calls take."""
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
    """The number of calls that fill a duration; at least one."""
    return max(1, int(min(most, math.ceil(duration_s / max(call_s, SHORTEST_CALL_S)))))
