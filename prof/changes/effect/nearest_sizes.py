"""How the time of a call changes with precision and memory format: by the measured calls whose sizes are nearest.

``data/h200.csv.gz`` has some 3,400 random sizes, measured on an H200 by tests/device/product_times.py. What is taken
from it is the ratio of two times of one size, not a time, so that the GPU's own speed and what the sizes do not show
(strides, sparse values, a cold cache) are in the captured time that it is multiplied with.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pyprof.table.columns import Floats

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "transposed2d", "depthwise")
PRODUCTS = ("gemm", "bmm")
LINE = 8  # elements of 16 bits that tensor cores load at once
PER_HALF = 3.0  # how far calls are apart whose rows of 16 bits fill 16 bytes, and 8 of them


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


class Variant(NamedTuple):
    """How a call runs. ``precision``: fp32, tf32 or bf16. ``form``: of pictures nchw or nhwc; empty for products."""

    precision: str
    form: str = ""


class Call(NamedTuple):
    """``direction``: fprop, bprop, or dgrad and wgrad of a product; of a convolution, bprop is both and wgrad the one.

    ``features``: what calls are compared by, mostly the logarithm of base 2 of a size. ``flop`` and ``elements``: what
    the call computes and what it reads and writes at least.
    """

    kind: str
    direction: str
    features: tuple[float, ...]
    flop: float
    elements: float


class Ratio(NamedTuple):
    """``factor``: the time afterwards over the time before. ``deviation``: of its logarithm, of calls so near."""

    factor: float
    deviation: float


class Sizes(NamedTuple):
    """The calls of one kind and direction: their features, and their times in µs by variant (NaN: not measured)."""

    features: Floats
    roof: dict[str, Floats]  # µs at the GPU's limits, by precision
    us: dict[Variant, Floats]


def convolution(
    kind: str, direction: str, batch: int, channels: int, side: int, filters: int, out: int, kernel: int, groups: int
) -> Call:
    """``side`` and ``out``: pixels of one picture before and after it; ``kernel``: the elements of the kernel."""
    inner = channels // groups * kernel
    back = kind == "transposed2d"
    flop = 2.0 * batch * (side if back else out) * channels * (filters // groups) * kernel
    elements = batch * side * channels + batch * out * filters + channels * (filters // groups) * kernel
    features = (
        math.log2(batch * out),
        math.log2(max(filters // groups, 1)),
        math.log2(max(inner, 1)),
        math.log2(kernel),
        2.0 * (side != out),
        3.0 * (channels % LINE > 0) + 3.0 * (filters % LINE > 0),
        math.log2(channels) if kind == "depthwise" else 2.0 * math.log2(groups),
    )
    times = 2.0 if direction == "bprop" else 1.0
    return Call(kind, direction, features, times * flop, times * elements)


def product(direction: str, batch: int, m: int, n: int, k: int) -> Call:
    """``batch`` products of m × k and k × n.

    ``direction``: fprop if the second matrix is transposed in memory, wgrad if the first one is, dgrad if neither is.
    The two sizes count that are contiguous in memory: those of which tensor cores load a line at once, if it is full.
    """
    lines = (m, n) if direction == "wgrad" else (k, n)
    odd = tuple(PER_HALF * math.log2(LINE // math.gcd(size, LINE)) for size in lines)
    features = (math.log2(m), math.log2(n), math.log2(k), math.log2(batch) / 2, *odd)
    elements = batch * (m * n + m * k + n * k)
    return Call("bmm" if batch > 1 else "gemm", direction, features, 2.0 * batch * m * n * k, elements)


def pixels(kind: str, direction: str, batch: int, channels: int, side: int) -> Call:
    """A norm, a pooling or an upsampling of ``batch`` pictures of ``channels`` and ``side`` pixels."""
    total = batch * channels * side
    features = (math.log2(batch), math.log2(channels), math.log2(side) / 2, math.log2(total) / 2)
    return Call(kind, direction, features, 0.0, (2.0 if direction == "fprop" else 3.0) * total)


def measured_call(kind: str, direction: str, sizes: Sequence[int]) -> Call:
    """The call of a row of data/*.csv.gz, whose sizes are those of tests/device/product_times.py."""
    if kind in CONVOLUTIONS:
        rank = {"conv1d": 1, "conv3d": 3}.get(kind, 2)
        batch, channels, *sides = sizes[: 2 + rank]
        filters, kernel, stride, padding, dilation, groups = sizes[2 + rank :]
        if kind == "transposed2d":
            outs = [(side - 1) * stride - 2 * padding + kernel for side in sides]
        else:
            outs = [(side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for side in sides]
        return convolution(
            kind, direction, batch, channels, math.prod(sides), filters, math.prod(outs), kernel**rank, groups
        )
    if kind in PRODUCTS:
        *many, rows, results, inner = sizes
        each = {"fprop": (rows, results, inner), "dgrad": (rows, inner, results), "wgrad": (results, inner, rows)}
        return product(direction, many[0] if many else 1, *each[direction])
    batch, channels, height, width = sizes[:4]
    return pixels(kind, direction, batch, channels, height * width)


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
    times: dict[str, dict[str, dict[Variant, float]]] = {}
    for shape, precision, form, direction, us in csv.reader(_lines().get(kind, ())):
        variant = Variant(precision, form if form in ("nchw", "nhwc") else "")
        times.setdefault(direction, {}).setdefault(shape, {})[variant] = float(us)
    if kind in CONVOLUTIONS:  # one op of PyTorch makes both gradients
        wgrad = times.get("wgrad", {})
        times["bprop"] = {
            shape: {variant: us + wgrad[shape][variant] for variant, us in of.items() if variant in wgrad[shape]}
            for shape, of in times.pop("dgrad", {}).items()
            if shape in wgrad
        }
    return {direction: _sizes(kind, direction, of_shape) for direction, of_shape in times.items()}


@lru_cache(maxsize=1)
def _lines() -> dict[str, list[str]]:
    """The lines of ``DATA`` by kind, without it: shape, precision, form, direction, µs."""
    found: dict[str, list[str]] = {}
    with gzip.open(DATA, "rt", encoding="utf-8", newline="") as file:
        for line in file:
            kind, _, rest = line.partition(",")
            found.setdefault(kind, []).append(rest)
    return found


def _sizes(kind: str, direction: str, times: dict[str, dict[Variant, float]]) -> Sizes:
    some = {shape: us for shape, us in times.items() if us}
    calls = [measured_call(kind, direction, tuple(map(int, shape.split()))) for shape in some]
    variants = sorted({variant for us in some.values() for variant in us})
    return Sizes(
        np.array([call.features for call in calls]),
        {p: np.array([limit_us(call, p, peak, BANDWIDTH) for call in calls]) for p, peak in PEAKS.items()},
        {variant: np.array([us.get(variant, math.nan) for us in some.values()]) for variant in variants},
    )
