"""A call that was measured, or is to be compared with measured ones: a product, a norm or a pooling, with its sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "transposed2d", "depthwise")
PRODUCTS = ("gemm", "bmm")
LINE = 8  # elements of 16 bits that tensor cores load at once
PER_HALF = 3.0  # how far calls are apart whose rows of 16 bits fill 16 bytes, and 8 of them


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
        m, n, k = {
            "fprop": (rows, results, inner),
            "dgrad": (rows, inner, results),
            "wgrad": (results, inner, rows),
        }[direction]
        return product(direction, many[0] if many else 1, m, n, k)
    batch, channels, height, width = sizes[:4]
    return pixels(kind, direction, batch, channels, height * width)
