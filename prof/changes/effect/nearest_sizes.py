"""How the time of a call changes with precision and memory format: by the measured calls whose sizes are nearest.

``data/h200.csv.gz`` has some 3,400 random sizes, measured on an H200 by tests/device/product_times.py. What is taken
from it is the ratio of two times of one size, not a time, so that the GPU's own speed and what the sizes do not show
(strides, sparse values, a cold cache) are in the captured time that it is multiplied with.
"""

from __future__ import annotations

import csv
import gzip
import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyprof.prof.changes.effect.measured_call import CONVOLUTIONS, Call, Variant, measured_call
from pyprof.table.columns import Floats

DATA = Path(__file__).parent / "data" / "h200.csv.gz"
PEAKS = {"fp32": 66.9e12, "tf32": 494.7e12, "bf16": 989.4e12}  # FLOP/s of the GPU that measured
BANDWIDTH = 4.8e12  # bytes/s
ITEM = {"fp32": 4, "tf32": 4, "bf16": 2}
START_US = 1.5
NEAREST = 5
FEWEST = 8  # measured calls of a kind, below which there is no answer
# There is no answer if even the nearest measured call is farther away than this. A call of which one size is 2**8 times
# as large is as far away.
FARTHEST = 8.0
OF_SPEED = 1.5  # the weight of how near to the limit the call runs now
NEAR = 0.3  # distances below this, squared, count alike


class Ratio(NamedTuple):
    """``factor``: the time afterwards over the time before. ``deviation``: of its logarithm, of calls so near."""

    factor: float
    deviation: float


class Sizes(NamedTuple):
    """The calls of one kind and direction: their features, and their times in µs by variant (NaN: not measured)."""

    features: Floats
    roof: dict[str, Floats]  # µs at the GPU's limits, by precision
    us: dict[Variant, Floats]


def ratio(call: Call, slower: float, before: Variant, after: Variant, leave_out: int = -1) -> Ratio | None:
    """What a call takes afterwards over what it takes now; None if too little like it was measured.

    ``slower``: its time now over its time at the GPU's limits (``limit_us``), which counts to 7%. ``leave_out``: a
    measured call.
    """
    return _ratio(call, round(10 * math.log2(max(slower, 1e-3))), before, after, leave_out)


@lru_cache(maxsize=1 << 16)
def _ratio(call: Call, tenths: int, before: Variant, after: Variant, leave_out: int) -> Ratio | None:
    """``tenths``: of the logarithm of base 2 of how much slower the call is. A run has few different calls."""
    of_kind = measured(call.kind).get(call.direction)
    if of_kind is None or before not in of_kind.us or after not in of_kind.us:
        return None
    now, then = of_kind.us[before], of_kind.us[after]
    distance = ((of_kind.features - np.array(call.features)) ** 2).sum(1)
    speeds = np.log2(now / of_kind.roof[before.precision])
    distance += (OF_SPEED * (speeds - tenths / 10)) ** 2
    known = ~np.isnan(now) & ~np.isnan(then)
    if 0 <= leave_out < len(known):
        known[leave_out] = False
    if int(known.sum()) < FEWEST:
        return None
    order = np.flatnonzero(known)[np.argsort(distance[known], kind="stable")[:NEAREST]]
    if distance[order[0]] > FARTHEST**2:
        return None
    weight = 1 / (NEAR + distance[order])
    weight /= weight.sum()
    logs = np.log(then[order] / now[order])
    mean = float((weight * logs).sum())
    return Ratio(math.exp(mean), math.sqrt(float((weight * (logs - mean) ** 2).sum())))


def limit_us(call: Call, precision: str, flop_per_s: float, byte_per_s: float) -> float:
    """The time of a call at a GPU's limits."""
    return 1e6 * max(call.flop / flop_per_s, ITEM[precision] * call.elements / byte_per_s) + START_US


@lru_cache
def measured(kind: str) -> dict[str, Sizes]:
    """The measured calls of a kind by direction."""
    times: dict[tuple[int, ...], dict[str, dict[Variant, float]]] = {}
    for shape, precision, form, direction, us in csv.reader(_lines().get(kind, ())):
        of_sizes = times.setdefault(tuple(map(int, shape.split())), {})
        variant = Variant(precision, form if form in ("nchw", "nhwc") else "")
        of_sizes.setdefault(direction, {})[variant] = float(us)
    if kind in CONVOLUTIONS:  # one op of PyTorch makes both gradients
        for of_sizes in times.values():
            of_sizes["bprop"] = _both(of_sizes.pop("dgrad", {}), of_sizes.get("wgrad", {}))
    found = {}
    for direction in sorted({name for of_sizes in times.values() for name in of_sizes}):
        some = [(sizes, of[direction]) for sizes, of in times.items() if of.get(direction)]
        found[direction] = _sizes(kind, direction, some)
    return found


@lru_cache(maxsize=1)
def _lines() -> dict[str, list[str]]:
    """The lines of ``DATA`` by kind, without it: shape, precision, form, direction, µs."""
    found: dict[str, list[str]] = {}
    with gzip.open(DATA, "rt", encoding="utf-8", newline="") as file:
        for line in file:
            kind, _, rest = line.partition(",")
            found.setdefault(kind, []).append(rest)
    return found


def _both(first: dict[Variant, float], second: dict[Variant, float]) -> dict[Variant, float]:
    return {variant: us + second[variant] for variant, us in first.items() if variant in second}


def _sizes(kind: str, direction: str, some: list[tuple[tuple[int, ...], dict[Variant, float]]]) -> Sizes:
    calls = [measured_call(kind, direction, sizes) for sizes, _ in some]
    variants = sorted({variant for _, us in some for variant in us})
    return Sizes(
        np.array([call.features for call in calls]),
        {p: np.array([limit_us(call, p, peak, BANDWIDTH) for call in calls]) for p, peak in PEAKS.items()},
        {variant: np.array([us.get(variant, math.nan) for _, us in some]) for variant in variants},
    )
