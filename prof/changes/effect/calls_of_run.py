"""The calls of a run that measured ones can be compared with, and how they run now."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from pyprof.dtypes import HALF
from pyprof.prof.changes.effect.nearest_sizes import (
    PEAKS,
    PRODUCTS,
    Call,
    Ratio,
    Variant,
    convolution,
    limit_us,
    pixels,
    product,
    ratio,
)
from pyprof.prof.changes.effect.product import Gemm, product_of
from pyprof.prof.changes.effect.run import Run
from pyprof.table.columns import Floats, Ints

# The op of norms, poolings and upsamplings, without its ending for the backward pass -> the kind
PIXELS = {
    "native_batch_norm": "batch_norm",
    "cudnn_batch_norm": "batch_norm",
    "_batch_norm_with_update": "batch_norm",
    "batch_norm": "batch_norm",
    "native_group_norm": "group_norm",
    "max_pool2d_with_indices": "max_pool",
    "_adaptive_avg_pool2d": "mean_pool",
    "upsample_bilinear2d": "bilinear",
    "upsample_nearest2d": "nearest",
}
CHANGES_LAYOUT = ("nchwToNhwc", "nhwcToNchw")  # cuDNN's kernels
UNITS = {"fp32": "fp32", "tf32": "tc_tf32", "bf16": "tc_bf16"}
ALIKE = 1.5  # how far the ratio of two peaks may be from that of the GPU that measured
MOST = 1 << 40
COMMON = 0.08  # deviation of a sum of many calls, whose own errors cancel


class CallOfRun(NamedTuple):
    """One call. ``rows``: its kernels. ``slower``: their time over that at the GPU's limits.

    ``spatial``: the dimensions of its pictures; 0 for products.
    """

    rows: tuple[int, ...]
    call: Call
    now: Variant
    slower: float
    spatial: int

    def to(self, after: Variant) -> Ratio | None:
        """Its time in another variant over its time now; None if too little like it was measured."""
        return ratio(self.call, self.slower, self.now, after)


def like_the_measured(run: Run, before: str, after: str) -> bool:
    """Whether the GPU gains by another precision about what the one gained on which calls were measured."""
    if run.device is None:
        return False
    gains = run.device.peak(UNITS[after]) / run.device.peak(UNITS[before]), PEAKS[after] / PEAKS[before]
    return 1 / ALIKE < gains[0] / gains[1] < ALIKE  # False for NaN


def calls_of(run: Run) -> list[CallOfRun]:
    """The products, convolutions, norms, poolings and upsamplings of a run whose sizes and precision are known."""
    return run.kept(_calls_of)


def _calls_of(run: Run) -> list[CallOfRun]:
    device = run.device
    if device is None or not device.arch.startswith("sm_"):
        return []
    found, form = list[CallOfRun](), form_of(run)
    allowed = {family for family in ("gemm", "conv") if bool((run.precision[run.family == family] == "tf32").any())}
    for rows in _of_one_op(run):
        main = _main(run, rows)
        several = sum(run.role[row] == "main" for row in rows) > 1
        call = run.once(SEVERAL if several else SINGLE, main)
        precision = _precision(run, main, allowed)
        took = float(run.dur[list(rows)].sum()) / 1e3
        if call is None or not precision or took <= 0:
            continue
        peak = device.peak(UNITS[precision])
        if math.isnan(peak) or math.isnan(device.bandwidth):
            continue
        spatial = 0 if call.kind in PRODUCTS else 1 if call.kind == "conv1d" else len(run.first_shape(main)) - 2
        now = Variant(precision, "" if not spatial else "nchw" if spatial == 1 else _form(run, main) or form)
        found.append(CallOfRun(rows, call, now, took / limit_us(call, precision, peak, device.bandwidth), spatial))
    return found


def _of_one_op(run: Run) -> Iterator[tuple[int, ...]]:
    """The rows of each op that is a product, a convolution or one of ``PIXELS``."""
    named = np.array([_kind_of(str(op)) != "" for op in run.aten])
    wanted = np.flatnonzero(np.isin(run.family, ("gemm", "conv")) | named)
    numbers = run.table.ints("opId")[wanted]
    groups: dict[tuple[int, str, int], list[int]] = {}
    for row, number in zip(wanted.tolist(), numbers.tolist(), strict=True):
        key = (number, str(run.aten[row]), int(run.lane[row])) if number >= 0 else (-row - 2, "", 0)
        groups.setdefault(key, []).append(row)
    return (tuple(rows) for rows in groups.values() if any(run.role[row] == "main" for row in rows))


def _main(run: Run, rows: Sequence[int]) -> int:
    """The row that the op is known by: of its main kernels, the longest."""
    return max((row for row in rows if run.role[row] == "main"), key=lambda row: float(run.dur[row]))


def _call(run: Run, row: int, several: bool) -> Call | None:
    """The call of an op. ``several``: it has a main kernel for each of several gradients, as a convolution does."""
    if run.family[row] == "gemm":
        found = product_of(run, row)
        return _product(found, str(run.texts("dir")[row])) if found else None
    if run.family[row] == "conv":
        return _convolution(run, row, several)
    kind, shapes = _kind_of(str(run.aten[row])), run.shapes(row)
    if not shapes or len(shapes[0]) not in (4, 5) or not _usual(*shapes[0]):
        return None
    batch, channels, *sides = shapes[0]
    return pixels(kind, "bprop" if "backward" in str(run.aten[row]) else "fprop", batch, channels, math.prod(sides))


SINGLE, SEVERAL = partial(_call, several=False), partial(_call, several=True)


def _kind_of(op: str) -> str:
    return PIXELS.get(op.removesuffix("_backward"), "")


def _product(found: Gemm, direction: str) -> Call | None:
    if not _usual(found.batch, found.m, found.n, found.k):
        return None
    if found.layout:
        direction = "wgrad" if found.layout[0] == "m" else "dgrad" if found.layout[1] == "n" else "fprop"
    else:
        direction = "dgrad" if direction == "bprop" else "fprop"
    return product(direction, found.batch, found.m, found.n, found.k)


def _usual(*sizes: int) -> bool:
    """Whether these are sizes: a damaged file may have any number."""
    return all(1 <= size < MOST for size in sizes)


def _convolution(run: Run, row: int, several: bool) -> Call | None:
    backward = "backward" in str(run.aten[row])
    direction = "fprop" if not backward else "bprop" if several else "wgrad"
    shapes = run.shapes(row)[: 3 if backward else 2]  # of the gradient, the input and the weight
    if len(shapes) != (3 if backward else 2) or not all(len(shape) > 2 and _usual(*shape) for shape in shapes):
        return None
    given, weight = shapes[-2:]
    batch, channels, *sides = given
    transposed, kernel, side = "transpose" in run.op(row), math.prod(weight[2:]), math.prod(sides)
    groups = 1 if transposed else channels // weight[1]
    filters = weight[1] if transposed else weight[0]
    kind = _kind_of_rank(given, weight, transposed)
    if not kind or groups < 1 or len(given) != len(weight):
        return None
    if backward:
        out = math.prod(shapes[0][2:])
    elif transposed:
        out = side << len(sides)  # the usual stride is 2
    else:
        out = round(float(np.nan_to_num(run.flop[row])) / (2.0 * batch * filters * weight[1] * kernel))
    if kind == "conv2d" and groups == channels == filters > 1:
        kind = "depthwise"
    return convolution(kind, direction, batch, channels, side, filters, out, kernel, groups) if _usual(out) else None


def _kind_of_rank(given: Sequence[int], weight: Sequence[int], transposed: bool) -> str:
    """Empty where nothing like it was measured. PyTorch runs 1-d convolutions as 2-d ones of height 1."""
    flat = len(given) == 3 or (len(given) == 4 and given[2] == weight[2] == 1)
    if transposed:
        return "" if flat or len(given) != 4 else "transposed2d"
    return "conv1d" if flat else {4: "conv2d", 5: "conv3d"}.get(len(given), "")


def _precision(run: Run, row: int, allowed: set[str]) -> str:
    """``allowed``: families of which some run in TF32, so that all may, also those that need no tensor cores."""
    if run.tc[row] == "1" and run.precision[row] not in ("tf32", "bf16", "fp16"):
        return ""
    dtype = str(run.dtype[row])
    full = "tf32" if run.precision[row] == "tf32" or run.family[row] in allowed else "fp32"
    return "bf16" if dtype in HALF else full if dtype == "float32" else ""


def _form(run: Run, row: int) -> str:
    """The memory format of the op's pictures, by their strides; empty if unknown."""
    strides, shapes = run.strides(row), run.shapes(row)
    place = 1 if str(run.aten[row]).startswith("convolution_backward") else 0
    if not strides or len(strides) <= place or len(shapes) <= place:
        return ""
    shape, stride = shapes[place], strides[place]
    if not isinstance(stride, list) or len(stride) != len(shape) or len(shape) < 4 or shape[1] == 1:
        return ""
    return "nhwc" if stride[1] == 1 else "nchw"


def form_of(run: Run) -> str:
    """The memory format of most of the convolutions, by time: by strides, or by kernels' names; nchw if unknown."""
    convolutions = np.flatnonzero((run.family == "conv") & (run.role == "main"))
    time = {"nchw": 0.0, "nhwc": 0.0}
    for row in convolutions.tolist():
        form = _form(run, row)
        if form:
            time[form] += float(run.dur[row])
    if not any(time.values()):
        changed = run.mentions("kLongName", *CHANGES_LAYOUT) | run.mentions("kShortName", *CHANGES_LAYOUT)
        apart = run.mentions("kLongName", "nhwc") | run.mentions("kShortName", "nhwc")
        return "nhwc" if bool(apart[convolutions].any()) and not bool(changed.any()) else "nchw"
    return max(time, key=lambda form: time[form])


def changed_ns(run: Run, calls: Sequence[tuple[CallOfRun, Ratio]]) -> tuple[Ints, Floats, float]:
    """(the rows of these calls, their times afterwards in ns, the deviation of the logarithm of the sum)."""
    rows = [row for each, _ in calls for row in each.rows]
    factors = [found.factor for each, found in calls for _ in each.rows]
    ns = run.dur[rows] * np.array(factors)
    after = [float(run.dur[list(each.rows)].sum()) * found.factor for each, found in calls]
    apart = math.sqrt(sum((ns * found.deviation) ** 2 for ns, (_, found) in zip(after, calls, strict=True)))
    return np.array(rows, np.int64), ns, math.hypot(COMMON, apart / max(sum(after), 1.0))
