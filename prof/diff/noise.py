"""A quantity of both captures, one value per step, and how much two means of steps may differ by chance alone.

Steps of one capture differ by clocks, caches and the host. ``band_ns`` is Welch's interval for the difference of two
means (Welch 1947; NIST/SEMATECH e-Handbook 1.3.5.3) at 99%: without a real change, one difference in a hundred lies
outside. Differences between two runs as a whole (temperature, another machine) are not part of it.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from pyprof.table.columns import Floats

# Two-sided 99% quantiles of Student's t for 1 to 30 degrees of freedom (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
STUDENT_99 = """
    63.657 9.925 5.841 4.604 4.032 3.707 3.499 3.355 3.250 3.169 3.106 3.055 3.012 2.977 2.947
    2.921 2.898 2.878 2.861 2.845 2.831 2.819 2.807 2.797 2.787 2.779 2.771 2.763 2.756 2.750
"""
STUDENT = tuple(map(float, STUDENT_99.split()))
NORMAL = 2.576  # for more degrees of freedom


@dataclass(frozen=True, slots=True)
class Delta:
    """A quantity of both captures, one value per step."""

    a: Floats = field(repr=False)
    b: Floats = field(repr=False)

    @property
    def before(self) -> float:
        return float(self.a.mean()) if len(self.a) else 0.0

    @property
    def after(self) -> float:
        return float(self.b.mean()) if len(self.b) else 0.0

    @property
    def change(self) -> float:
        return self.after - self.before

    @property
    def ratio(self) -> float:
        """The change relative to the value before; infinite if that is 0, NaN if both are 0."""
        if self.before:
            return self.change / self.before
        return math.copysign(math.inf, self.change) if self.change else math.nan

    @property
    def band(self) -> float:
        """The largest change that chance explains; NaN if each side has only one step."""
        return band_ns(self.a, self.b)

    @property
    def counts(self) -> bool:
        """Whether the change is more than chance explains, or that is unknown."""
        band = self.band
        return self.change != 0 and (math.isnan(band) or abs(self.change) > band)


def band_ns(a: Floats, b: Floats) -> float:
    """Half the width of the interval for mean(b) - mean(a); NaN if each has a single step.

    A side with a single step is assumed to vary as much as the other.

    >>> round(band_ns(np.array([9.0, 10.0, 11.0]), np.array([12.0, 13.0, 14.0])), 3)  # sd 1 each: 4.604 * sqrt(2 / 3)
    3.759
    """
    spreads = [float(np.var(side, ddof=1)) if len(side) > 1 else math.nan for side in (a, b)]
    known = [spread for spread in spreads if not math.isnan(spread)]
    if not known or not len(a) or not len(b):
        return math.nan
    first, second = (known[0] if math.isnan(spread) else spread for spread in spreads)
    parts = (first / len(a), second / len(b))
    whole = sum(parts)
    if not whole:
        return 0.0
    freedom = _freedom(parts, (len(a), len(b)))
    return (STUDENT[freedom - 1] if freedom <= len(STUDENT) else NORMAL) * math.sqrt(whole)


def _freedom(parts: tuple[float, float], sizes: tuple[int, int]) -> int:
    """Degrees of freedom after Welch and Satterthwaite; a side with a single step adds none."""
    if min(sizes) == 1:
        return max(sizes) - 1
    below = sum(part * part / (size - 1) for part, size in zip(parts, sizes, strict=True))
    return max(int(sum(parts) ** 2 / below), 1) if below else sum(sizes) - 2
