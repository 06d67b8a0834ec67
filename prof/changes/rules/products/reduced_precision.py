"""TF32 and automatic mixed precision, with all that follows from them in the run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from pyprof.prof.changes.effect.calls_of_run import CallOfRun, calls_of, changed_ns, like_the_measured
from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal
from pyprof.prof.changes.effect.finding import Finding
from pyprof.prof.changes.effect.nearest_sizes import Ratio, Variant
from pyprof.prof.changes.effect.product import LINE, product_of, weight_shape
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.rules.kernels.attention import fastest_ns, in_math
from pyprof.prof.changes.rules.kernels.rules_of_runs import by_names, run_rule
from pyprof.prof.changes.rules.products.narrow import Flow
from pyprof.quantities import rounded
from pyprof.table.columns import Floats, Ints

# Of what a matrix product reaches; convolutions on tensor cores reach less (ResNet-50 in bf16 on an H200: 20 to 60%
# of the peak; half of a GEMM's is taken).
EFFICIENCY = {"gemm": 1.0, "conv": 0.5, "attention": 0.3}
SGEMM = re.compile(r"_sgemm_|xmma_gemm_f32f32_f32f32_f32|cutlass_80_simt_sgemm")
LONG_NS = 50000.0  # of a product whose shape is not known: shorter ones may be bound by anything
FP32_REACHED = 0.76  # of the peak: 51 of 67 TFLOP/s on an H200
TF32 = (
    'Allow TF32: torch.set_float32_matmul_precision("high") for products and torch.backends.cudnn.allow_tf32 = True '
    "for convolutions. Operands keep fp32's range but only 10 bits of mantissa, so check the loss."
)
NARROW = frozenset({"bf16", "fp16", "fp8", "fp4", "int8"})
# Of the peak, products reach this with an odd leading dimension (kernels align1): bf16 and fp16 on an H200 0.10 to 0.15
# (three sizes of lm_head and held_vocabulary, docs/explanation/advice.md). In TF32, products of a vision transformer's
# 197 places gained next to nothing: what fused attention saved before TF32 it saved after it, too.
ODD, ODD_TF32 = 0.13, 0.24
# cuDNN's recurrent kernels in half precision, of their time before: products in TF32 and on the vector unit, and the
# element-wise rest. Peaks would allow 0.5 and 0.07; a step of a recurrent layer is short, and latency remains.
RNN_TF32, RNN_FP32, RNN_REST = 0.6, 0.4, 0.75
SHORT_NS = 3000.0
PRODUCTS = ("gemm", "conv", "attention", "rnn")
LEAST_GAIN = 1.03  # of products' times before over afterwards, below which there is no edit
BY_RATES = 0.3  # deviation of the logarithm of durations by rates


@run_rule("tf32")
def tf32(run: Run) -> Iterator[Proposal]:
    """Products in fp32 on the vector unit, as TF32. Those of odd sizes gain as much as kernels for such sizes reach.

    Refuted by: a product of the same kind in TF32.
    """
    if run.device is None or math.isnan(run.device.peak("tc_tf32")):
        yield Abstained("tf32", "the GPU is not known, or has no TF32")
        return
    if not run.has_sizes:
        yield from by_names(run, "tf32", _by_name(run))
        return
    used = [f for f in ("gemm", "conv") if bool(((run.family == f) & (run.precision == "tf32")).any())]
    rows, expected, deviation = _times(run, _full(run, [f for f in ("gemm", "conv") if f not in used], ("0",)), "tf32")
    if not len(rows) or float(run.dur[rows].sum()) < LEAST_GAIN * float(expected.sum()):
        already = "another product of the run uses TF32 already, so the flag is set"
        yield Abstained("tf32", already if used else "no product in fp32 on the vector unit would gain by it")
        return
    products = rows[run.role[rows] == "main"]
    why = f"{run.number(products, 'product', 'products')} of float32 operands ran without tensor cores"
    yield Edit(
        rule="tf32",
        change=TF32,
        why=why,
        cost=COSTS["tf32"],
        rows=rows,
        ns=expected,
        left=np.ones(len(rows)),
        deviation=deviation,
        retyped=products,
        unit="tf32",
    )


@run_rule("amp")
def amp(run: Run) -> Iterator[Proposal]:
    """Forward and loss under autocast: products, the ops that inherit their type, and the casts.

    Refuted by: a product in half precision or below.
    """
    peaks = run.device.flop_per_s if run.device else ()
    unit = next((unit for unit in ("tc_bf16", "tc_fp16") if unit in peaks), "")
    if not unit:
        yield Abstained("amp", "the GPU is not known, or has no tensor cores for bf16 or fp16")
        return
    products = np.isin(run.family, PRODUCTS) & (run.role == "main")
    if bool(np.isin(run.precision[products], tuple(NARROW)).any()):
        yield Abstained("amp", "the run has products in half precision already")
        return
    every = np.concatenate([_full(run, ("gemm", "conv", "attention"), ("0", "1")), _recurrent(run)])
    every = np.sort(every[~in_math(run)[every]])
    if not len(every):
        yield Abstained("amp", "the run has no products of float32 operands whose work is known")
        return
    yield _narrowed(run, every, unit)


def _narrowed(run: Run, every: Ints, unit: str) -> Edit:
    """``every``: products that autocast narrows, also those that gain nothing by it: their operands are cast, too."""
    chosen = np.zeros(run.rows, bool)
    chosen[every] = True
    flow = Flow(run, chosen)
    ns = flow.changed_ns()
    rows, expected, deviation = _times(run, every, "bf16")
    ns[rows] = expected
    pictures, expected, _ = changed_ns(run, list(_of_pictures(run, flow)))
    ns[pictures] = expected
    ns += flow.cast_ns
    changed = np.flatnonzero((ns != run.dur) | (flow.casts > 0))
    dtype = "bfloat16" if unit == "tc_bf16" else "float16"
    scaler = " with torch.amp.GradScaler" if run.trains and dtype == "float16" else ""
    what = "forward and loss" if run.trains else "the model"
    narrow = np.flatnonzero(chosen | (flow.factor <= 0.5))
    why = (
        f"{run.number(every, 'product', 'products')} of float32 operands take {rounded(run.ms_of(every))} ms; "
        f"{run.number(int((flow.factor < 1).sum()), 'other kernel inherits', 'other kernels inherit')} the type, and "
        f"{run.number(int(flow.casts.sum()), 'cast is', 'casts are')} added"
    )
    return Edit(
        rule="amp",
        change=f'Use mixed precision: run {what} under torch.autocast("cuda", dtype=torch.{dtype}){scaler}.',
        why=why,
        cost=COSTS["amp"],
        rows=changed,
        ns=ns[changed],
        left=np.ones(len(changed)),
        added=flow.casts[changed],
        deviation=deviation,
        dtype=dtype,
        retyped=narrow,
        unit="bf16" if dtype == "bfloat16" else "fp16",
    )


def _fits(run: Run, row: int, unit: int) -> bool:
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


def _full(run: Run, families: Sequence[str], tc: tuple[str, ...]) -> Ints:
    """The main kernels of products of float32 operands whose FLOPs are known, with or without tensor cores (``tc``)."""
    known = np.isin(run.family, families) & (run.role == "main") & (run.dtype == "float32") & ~np.isnan(run.flop)
    return np.flatnonzero(known & np.isin(run.tc, tc))


def _times(run: Run, rows: Ints, precision: str) -> tuple[Ints, Floats, float]:
    """(kernels, their durations in another precision in ns, the deviation of the sum's logarithm) of these products.

    By measured calls of similar sizes, all kernels of such a call together; else by the rates of the GPU.
    """
    wanted, known = set(rows.tolist()), []
    for each in calls_of(run):
        if not wanted.isdisjoint(each.rows) and like_the_measured(run, each.now.precision, precision):
            found = each.to(Variant(precision, each.now.form))
            if found is not None:
                known.append((each, found))
                wanted -= set(each.rows)
    measured, ns, deviation = changed_ns(run, known)
    others = _fast(run, np.array(sorted(wanted), np.int64))
    expected = np.minimum(run.dur[others], _expected(run, others, precision))
    of_all = max(float(ns.sum() + expected.sum()), 1.0)
    deviation = math.hypot(deviation * float(ns.sum()), BY_RATES * float(expected.sum())) / of_all
    return np.concatenate([measured, others]), np.concatenate([ns, expected]), deviation


def _of_pictures(run: Run, flow: Flow) -> Iterator[tuple[CallOfRun, Ratio]]:
    """Norms, poolings and upsamplings of tensors that are narrow under autocast."""
    for each in calls_of(run):
        if each.now.precision == "fp32" and each.call.flop == 0 and bool((flow.factor[list(each.rows)] < 1).any()):
            found = each.to(Variant("bf16", each.now.form))
            if found is not None:
                yield each, found


def _fast(run: Run, rows: Ints) -> Ints:
    """Those of the products that have kernels for tensor cores: all but convolutions of odd numbers of channels."""
    return np.array([row for row in rows.tolist() if run.family[row] != "conv" or _fits(run, row, LINE // 2)], np.int64)


def _recurrent(run: Run) -> Ints:
    return np.flatnonzero((run.family == "rnn") & (run.dtype == "float32") & (run.texts("kind") == "kernel"))


def _expected(run: Run, rows: Ints, precision: str) -> Floats:
    """The duration of each product in another precision by the GPU's rates, ns."""
    assert run.device is not None
    unit = next(unit for unit in (f"tc_{precision}", "tc_fp16") if unit in run.device.flop_per_s)
    itemsize, found = 4 if precision == "tf32" else 2, []
    for row in rows.tolist():
        if run.family[row] == "rnn":
            found.append(_recurrent_ns(run, row))
            continue
        fastest = _attention_ns(run, row, itemsize)
        if fastest == fastest:
            found.append(fastest)
            continue
        efficiency = EFFICIENCY[run.family[row]]
        nbytes = run.nbytes[row] * itemsize / 4
        if run.family[row] == "gemm" and _odd(run, row, itemsize):
            odd = ODD if itemsize == 2 else ODD_TF32
            efficiency = min(efficiency, odd * run.device.peak(unit) / run.rate(unit))
        found.append(run.product_ns(run.flop[row], nbytes, unit, efficiency))
    return np.array(found, np.float64)


def _attention_ns(run: Run, row: int, itemsize: int) -> float:
    """Of a fused attention in half precision, for which PyTorch has faster kernels; NaN for anything else."""
    if itemsize > 2 or run.family[row] != "attention":
        return math.nan
    op = str(run.aten[row]).removesuffix("_forward").removesuffix("_backward")
    return fastest_ns(run, row, op, "bfloat16")


def _odd(run: Run, row: int, itemsize: int) -> bool:
    """Whether a leading dimension of a product does not fill 16 bytes."""
    product = product_of(run, row)
    return product is not None and not product.fills(LINE // itemsize)


def _recurrent_ns(run: Run, row: int) -> float:
    took = float(run.dur[row])
    name = run.name[row]
    share = RNN_REST
    if "gemm" in name.lower() or "cutlass" in name:
        share = RNN_TF32 if "tf32" in name or "tensorop" in name else RNN_FP32
    return min(took, max(took * share, SHORT_NS))
