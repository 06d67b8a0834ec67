"""Products in fp32 that could run on tensor cores: as TF32, which is a flag, or by automatic mixed precision."""

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.product import LINE, product_of, weight_shape
from pyprof.prof.changes.effect.run import START_NS, Run
from pyprof.prof.changes.rules.kernels.attention import in_math
from pyprof.quantities import rounded
from pyprof.table.columns import Bools, Floats, Ints

# Of what a matrix product reaches; convolutions on tensor cores reach less (ResNet-50 in bf16 on an H200: 20 to 60%
# of the peak; half of a GEMM's is taken).
EFFICIENCY = {"gemm": 1.0, "conv": 0.5, "attention": 0.3}
WORTH = 1.15
CAST_BYTES = 6  # per element of a cast: autocast reads 4 bytes and writes 2, or the reverse
SGEMM = re.compile(r"_sgemm_|xmma_gemm_f32f32_f32f32_f32|cutlass_80_simt_sgemm")
LONG_NS = 50000.0  # of a product whose shape is not known: shorter ones may be bound by anything
FP32_REACHED = 0.76  # of the peak: 51 of 67 TFLOP/s on an H200
TF32 = (
    'Allow TF32: torch.set_float32_matmul_precision("high") for products and torch.backends.cudnn.allow_tf32 = True '
    "for convolutions. Operands keep fp32's range but only 10 bits of mantissa, so check the loss."
)
NARROW = frozenset({"bf16", "fp16", "fp8", "fp4", "int8"})


def full_precision(run: Run, families: Sequence[str]) -> Bools:
    """The main kernels of products whose operands are known to be float32 and whose FLOPs are known."""
    mask: Bools = np.isin(run.family, families) & (run.role == "main") & (run.dtype == "float32") & ~np.isnan(run.flop)
    return mask


@rule("tf32")
def tf32(run: Run) -> Iterator[Finding]:
    """fp32 products that run without tensor cores on a GPU that has TF32 (compute capability 8.0 and later).

    Abstains if dtype, FLOPs or device are unknown, and for the products (or convolutions) of a run in which one used
    TF32: there the flag is set, and the others run without it for another reason.

    Refuted by: a product of the same kind in TF32.
    """
    if run.device is None or math.isnan(run.device.peak("tc_tf32")):
        return
    yield from _by_name(run)
    off = [f for f in ("gemm", "conv") if not bool(((run.family == f) & (run.precision == "tf32")).any())]
    rows = _fitting(run, np.flatnonzero(full_precision(run, off) & (run.tc == "0")), 4)
    yield from _finding(run, rows, _expected(run, rows, "tc_tf32"), "TF32", TF32)


def _fitting(run: Run, rows: Ints, itemsize: int) -> Ints:
    """The rows whose operands would fill whole lines of 16 bytes."""
    # Others run several times slower on tensor cores, and convolutions of few channels (depthwise, too) gain little.
    return np.array([row for row in rows.tolist() if fits(run, row, LINE // itemsize)], np.int64)


def fits(run: Run, row: int, unit: int) -> bool:
    if run.family[row] == "conv":
        weight = weight_shape(run, row)
        return len(weight) >= 3 and weight[0] % unit == 0 and weight[1] % unit == 0
    product = product_of(run, row)
    return product is None or product.fills(unit)


def _by_name(run: Run) -> Iterator[Finding]:
    """Kernels whose names show fp32 products, in a capture without shapes."""
    assert run.device is not None
    long, short = (run.table.coded(key) for key in ("kLongName", "kShortName"))
    named = np.where(long.among(""), short.where(SGEMM.search), long.where(SGEMM.search))
    rows = np.flatnonzero(named & (run.tc == "0") & np.isnan(run.flop) & (run.dur > LONG_NS))
    # Only half of the gain in compute is counted, since other limits of these kernels are unknown.
    ratio = run.rate("tc_tf32") / (FP32_REACHED * run.device.peak("fp32")) / 2
    if not len(rows) or not ratio > 1 or bool((run.precision == "tf32").any()):
        return
    name = run.texts("kShortName")[rows[0]]
    products = run.number(
        rows, "kernel is a float32 product by its name", "kernels are float32 products by their names"
    )
    why = (
        f"{products} ({name}) and used no tensor cores: {rounded(run.ms_of(rows))} ms. TF32 is {rounded(2 * ratio, 2)} "
        "times as fast where compute is the limit; half of that is counted because the capture has no shapes"
    )
    yield Finding(rows, run.dur[rows] * (1 - 1 / ratio), why, TF32)


@rule("amp")
def amp(run: Run) -> Iterator[Finding]:
    """fp32 (or TF32) products of a run without any narrower product, on a GPU with bf16 or fp16 tensor cores.

    Abstains whenever the rule tf32 abstains, in a run that has a narrow product (its other products are in fp32 on
    purpose), and within attention's math backend, which computes in fp32 for all input types.

    Refuted by: a product in half precision or below.
    """
    peaks = run.device.flop_per_s if run.device else ()
    # bf16 if the GPU has it, because it needs no loss scaling
    unit = next((unit for unit in ("tc_bf16", "tc_fp16") if unit in peaks), "")
    products = np.isin(run.family, ("gemm", "conv", "attention"))
    if not unit or bool(np.isin(run.precision[products], tuple(NARROW)).any()):
        return
    rows = np.flatnonzero(full_precision(run, ("gemm", "conv", "attention")) & np.isin(run.tc, ("0", "1")))
    rows = _fitting(run, rows[~in_math(run)[rows]], 2)
    dtype = "bfloat16" if unit == "tc_bf16" else "float16"
    scaler = "" if dtype == "bfloat16" else " with torch.amp.GradScaler"
    # About two thirds of a product's bytes are its operands.
    casts = 1e9 * run.nbytes[rows] / 4 * (2 / 3) * CAST_BYTES / run.bandwidth
    change = (
        f'Use mixed precision: run forward and loss under torch.autocast("cuda", dtype=torch.{dtype}){scaler}. Only '
        "the products and the casts of their operands are counted. The numerics change, so check the loss."
    )
    yield from _finding(run, rows, _expected(run, rows, unit, itemsize=2) + casts, dtype, change)


def _expected(run: Run, rows: Ints, unit: str, itemsize: int = 4) -> Floats:
    """Expected time of each row on a unit, ns."""
    each = [
        run.product_ns(run.flop[i], run.nbytes[i] * itemsize / 4, unit, EFFICIENCY[run.family[i]])
        for i in rows.tolist()
    ]
    return np.array(each, np.float64)


def _finding(run: Run, rows: Ints, expected: Floats, into: str, change: str) -> Iterator[Finding]:
    good = run.dur[rows] > np.maximum(WORTH * expected, START_NS)  # False for NaN, an unknown time
    rows, expected = rows[good], expected[good]
    if not len(rows):
        return
    before, after = run.ms_of(rows), run.ms(float(expected.sum()))
    on_vector = int((run.tc[rows] == "0").sum())
    how = "on tensor cores as TF32 or not at all" if on_vector else "on tensor cores as TF32"
    if on_vector == len(rows):
        how = "without tensor cores"
    rate = float(run.flop[rows].sum() / run.dur[rows].sum() / 1e3)
    why = (
        f"{run.number(rows, 'product', 'products')} of float32 operands ran {how} at {rounded(rate, 3)} TFLOP/s: "
        f"{rounded(before)} ms; in {into} {rounded(after)} ms are expected"
    )
    yield Finding(rows, run.dur[rows] - expected, why, change)
