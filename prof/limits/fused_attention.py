"""How long a fused attention kernel takes, by its sizes.

Measured on an H200 (PyTorch 2.11) for 110 sizes: cuDNN's kernels in bf16, and the memory-efficient kernel, the only one
for fp32, whether TF32 is allowed or not (``docs/explanation/advice.md``). The backward pass is counted as
2.5 times the forward pass, for one product is done again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from pyprof.dtypes import HALF
from pyprof.prof.kernels.precision import ROUNDED_PRECISION, tensor_unit
from pyprof.prof.limits.devices import Device

HEAD = 256  # the largest head dimension of FlashAttention 2
START_NS = 2000.0
# Of a head's width, a kernel computes 64 or 128 elements: 65 take as long as 128.
WIDTHS = (32, 48, 64, 65, 96, 128)


@dataclass(frozen=True, slots=True)
class Rates:
    """Of one type. Pairs are for the forward and the backward pass; shares are of the peak, or of the rate without."""

    shares: tuple[tuple[float, ...], tuple[float, ...]]  # of the dense peak, for WIDTHS and long sequences
    ramp: tuple[float, float]  # keys with which half of that is reached
    tile: tuple[tuple[int, int], tuple[int, int]]  # queries and keys that are computed at once
    causal: tuple[float, float]  # keys: a triangle takes half of the square's time, and this over the keys of it
    masked: tuple[float, float]  # with an added mask
    dropped: tuple[float, float]  # with dropout


NARROW = Rates(
    shares=((0.236, 0.343, 0.443, 0.324, 0.472, 0.617), (0.265, 0.353, 0.435, 0.308, 0.424, 0.522)),
    ramp=(85.0, 250.0),
    tile=((128, 128), (64, 128)),
    causal=(130.0, 190.0),
    masked=(0.57, 0.70),
    dropped=(0.43, 0.80),
)
# A mask with a gradient leaves the memory-efficient kernel only.
NARROW_TRAINED = Rates(
    shares=((0.0483, 0.070, 0.0913, 0.075, 0.100, 0.1244), (0.0462, 0.064, 0.0805, 0.060, 0.079, 0.0969)),
    ramp=(16.0, 16.0),
    tile=((64, 64), (64, 64)),
    causal=(70.0, 70.0),
    masked=(1.0, 1.0),
    dropped=(0.76, 0.86),
)
FULL_TRAINED = 0.86  # of the rate without a mask
FULL = Rates(
    shares=((0.0402, 0.0506, 0.0667, 0.0480, 0.0671, 0.0792), (0.0398, 0.0496, 0.0634, 0.0385, 0.0533, 0.0646)),
    ramp=(16.0, 16.0),
    tile=((64, 64), (64, 64)),
    causal=(70.0, 70.0),
    masked=(0.86, 0.95),
    dropped=(0.76, 0.86),
)


@dataclass(frozen=True, slots=True)
class FusedCall:
    """One call: ``batch`` times heads of ``queries`` × ``keys`` scores."""

    batch: int
    queries: int
    keys: int
    head: int
    dtype: str
    backward: bool = False
    causal: bool = False
    masked: bool = False
    trained: bool = False  # with a mask that has a gradient
    dropped: bool = False

    def ns(self, device: Device | None, bandwidth: float) -> float:
        """Expected time; NaN if it is unknown or no kernel fits. ``bandwidth`` in bytes per second."""
        unit = tensor_unit(ROUNDED_PRECISION[self.dtype]) if self.dtype in (*HALF, "float32") else ""
        if not unit or not 0 < self.head <= HEAD or device is None or min(self.queries, self.keys, self.batch) < 1:
            return math.nan
        narrow, side = self.dtype in HALF, int(self.backward)
        rates = FULL if not narrow else NARROW_TRAINED if self.trained else NARROW
        length = min(self.queries, self.keys) if self.backward else self.keys
        share = float(np.interp(self.head, WIDTHS, rates.shares[side])) * length / (length + rates.ramp[side])
        if self.trained or self.masked:
            share *= FULL_TRAINED if self.trained and not narrow else rates.masked[side]
        share *= rates.dropped[side] if self.dropped else 1.0
        flop = 4.0 * self.head * self.batch * self._computed(rates, side) * (2.5 if self.backward else 1.0)
        tensors = 2.0 * self.batch * (self.queries + self.keys) * self.head * (2 if self.backward else 1)
        nbytes = tensors * (2 if narrow else 4)
        return START_NS + 1e9 * max(flop / (share * device.peak(unit)), nbytes / bandwidth)

    def _computed(self, rates: Rates, side: int) -> float:
        """The scores of the tiles that are computed. With dropout, cuDNN computes those above the diagonal, too."""
        sizes = zip((self.queries, self.keys), rates.tile[side], strict=True)
        queries, keys = (math.ceil(size / tile) * tile for size, tile in sizes)
        if not self.causal or self.dropped:
            return float(queries * keys)
        return queries * keys * min(0.5 + rates.causal[side] / self.keys, 1.0)
