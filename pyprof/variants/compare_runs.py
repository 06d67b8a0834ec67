"""The runs of a variant beside those of the script as it is: step times, their spread, losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles

from pyprof.variants.run_record import RunRecord
from pyprof.variants.run_variants import Ran

LEAST = 0.01  # of the step: a smaller difference is not called one
STANDARD_ERROR = 1.253 / 1.349  # of a median, in interquartile ranges / sqrt(n), for a normal distribution


@dataclass(slots=True)
class Variant:
    """A combination of changes, and its runs."""

    changes: tuple[str, ...]  # none: the script as it is
    runs: list[RunRecord] = field(default_factory=list)
    failed: str = ""  # why there is no measurement

    @property
    def name(self) -> str:
        return "+".join(self.changes)

    def add(self, ran: Ran, code: int) -> None:
        """Add a run. ``code``: the exit code of the script as it is, which a variant that ends by itself has, too."""
        record = ran.record
        if record is not None and record.step_ns and (record.finished or ran.code == code):
            self.runs.append(record)
        else:
            self.failed = ran.error or "it ended before a step was timed"

    @property
    def step_ns(self) -> float:
        """The median of the runs' medians; NaN without a run."""
        return median(median(run.step_ns) for run in self.runs) if self.runs else math.nan

    def quartiles_ns(self) -> tuple[float, float]:
        """The lower and the upper quartile of all steps of all runs."""
        return _quartiles([ns for run in self.runs for ns in run.step_ns])

    def noise_ns(self) -> float:
        """How far the median may be off: from run to run, and twice its standard error within them."""
        medians = [median(run.step_ns) for run in self.runs]
        steps = [ns for run in self.runs for ns in run.step_ns]
        low, high = _quartiles(steps)
        return max(max(medians) - min(medians), 2 * STANDARD_ERROR * (high - low) / math.sqrt(len(steps)))

    @property
    def peak_bytes(self) -> int:
        return max(run.peak_bytes for run in self.runs)

    @property
    def losses(self) -> list[float]:
        """Of the first steps, in the first run; NaN: not a finite number."""
        return [math.nan if loss is None else loss for loss in self.runs[0].losses] if self.runs else []


def _quartiles(steps: Sequence[int]) -> tuple[float, float]:
    if len(steps) < 2:
        return (steps[0], steps[0]) if steps else (math.nan, math.nan)
    low, _, high = quantiles(steps, n=4, method="inclusive")
    return low, high


def change_beside(variant: Variant, other: Variant) -> tuple[float, bool]:
    """The variant's step / the other's - 1, and whether that is beyond the noise of both and 1%."""
    if not variant.runs or not other.runs:
        return math.nan, False
    difference = variant.step_ns - other.step_ns
    noise = math.hypot(variant.noise_ns(), other.noise_ns())
    return difference / other.step_ns, abs(difference) > max(noise, LEAST * other.step_ns)


def loss_difference(losses: Sequence[float], others: Sequence[float]) -> float | None:
    """The largest relative difference between losses of the same steps, infinite where one of them is NaN; None if
    no step has losses of both runs.

    >>> loss_difference([2.0, 1.1], [2.0, 1.0, 5.0]), loss_difference([1.1, math.nan], [1.0, 1.0])
    (0.10000000000000009, inf)
    """
    pairs = list(zip(losses, others, strict=False))
    if not pairs:
        return None
    return max(_apart(*pair) for pair in pairs)


def _apart(loss: float, other: float) -> float:
    if loss == other or (math.isnan(loss) and math.isnan(other)):
        return 0.0
    difference = abs(loss - other) / abs(other) if other else math.inf
    return math.inf if math.isnan(difference) else difference
