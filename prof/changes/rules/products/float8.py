"""Large products of linear layers in FP8, with the casts and scales that they need."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal, edit_rule
from pyprof.prof.changes.effect.product import LINE, VOCABULARY, Gemm, product_of
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.quantities import rounded
from pyprof.table.columns import Ints

UNIT = "tc_fp8"
PRODUCTS = ("mm", "addmm", "_addmm_activation")
HALF = ("bfloat16", "float16")
# Of the rate that run.rate() expects of a unit: 1.53 of 1.98 PFLOP/s for 275 to 962 GFLOP on an H200, where 0.82 is
# expected (fp8_mlp, fp8_training; tests/device/advice_whole.py).
EFFICIENCY = 0.94
# What a scale and a cast of an operand take, in bytes per element moved at the rate of copies: 4.7 ps on an H200 in
# inference, of which the kernel that inductor 2.11 makes for the greatest absolute value takes 3.9 (0.5 TB/s, in
# fp8_mlp and fp8_llama alike); 2.5 in training, where operands are also transposed for backward (fp8_training).
CAST_BYTES, TRAINED_BYTES = 19.0, 10.0
CAST_NS = 3000.0  # besides
# Launches that a cast adds: its three kernels in a compiled model; a compiled function of its own takes the host 120 to
# 210 µs (fp8_mlp, fp8_llama, fp8_training), like 6 ops that are added (BaseRun.added_ns: 25 to 30 µs on that host).
COMPILED_LAUNCHES, LAUNCHES = 3, 6
LEAST_NS = 50_000.0  # of a forward product: shorter ones are latency as much as work
WORTH = 1.2  # a linear layer's products must take this many times what they would in FP8

TRAINED = "torchao.float8.convert_to_float8_training(model)"
QUANTIZED = "torchao.quantization.quantize_(model, Float8DynamicActivationFloat8WeightConfig())"


@edit_rule("fp8")
def fp8(scenario: Scenario) -> Iterator[Proposal]:
    """Linear layers whose products, forward and backward, gain more by FP8 than the casts of their operands take.

    Sizes must be multiples of 16. Output layers over a vocabulary stay as they are, for the loss's sake.

    Refuted by: products in FP8 or FP4 already.
    """
    run = scenario.run
    if run.device is None or UNIT not in run.device.flop_per_s or math.isnan(run.device.peak(UNIT)):
        yield Abstained("fp8", "the GPU is not known, or has no FP8")
        return
    layers = list(_layers(run))
    if not layers:
        narrow = bool(np.isin(run.precision, ("fp8", "fp4")).any())
        why = (
            "products run in FP8 already"
            if narrow
            else "no linear layer's products in half precision, of sizes for FP8"
        )
        yield Abstained("fp8", why, "" if narrow else "amp")
        return
    chosen: dict[int, tuple[float, int]] = {}  # row -> ns, casts
    for rows in layers:
        found = _expected(run, rows)
        if float(run.dur[rows].sum()) > WORTH * sum(ns for ns, _ in found.values()):
            chosen |= found
    if not chosen:
        yield Abstained("fp8", "the casts would take what the products gain")
        return
    yield _edit(scenario, chosen)


def _layers(run: Run) -> Iterator[list[int]]:
    """The products of each call of a linear layer: of the forward pass, and those of its backward pass."""
    weighted = run.mentions("nodes", "aten::linear", "aten::addmm") | np.isin(run.aten, ("addmm", "_addmm_activation"))
    fits = (run.family == "gemm") & (run.role == "main") & np.isin(run.aten, PRODUCTS) & np.isin(run.dtype, HALF)
    fits &= np.isin(run.precision, ("bf16", "fp16")) & ~np.isnan(run.flop)
    forward = np.flatnonzero(fits & weighted & (run.phase != "backward"))
    backward = _of_layers(run, forward, np.flatnonzero(fits & (run.phase == "backward")))
    for row in forward[run.dur[forward] >= LEAST_NS].tolist():
        rows = [row, *backward.get(row, [])]
        product = product_of(run, row)
        if product is not None and product.n < VOCABULARY and all(_sized(run, each) for each in rows):
            yield rows


def _of_layers(run: Run, forward: Ints, backward: Ints) -> dict[int, list[int]]:
    """Per product of the forward pass, those of the backward pass that belong to its call.

    Autograd numbers the ops of a call one after the other, so a product belongs to the last call that began before it.
    """
    numbers = run.table.ragged("seqId").lists()
    steps, begins = run.table.ints("step"), sorted((numbers[row][0], row) for row in forward.tolist() if numbers[row])
    found: dict[int, list[int]] = {}
    for row in backward.tolist():
        at = bisect_right(begins, (numbers[row][0], run.rows)) - 1 if numbers[row] else -1
        if at < 0:
            continue
        owner = begins[at][1]
        if steps[owner] == steps[row] and run.lane[owner] == run.lane[row] and len(found.get(owner, ())) < 2:
            found.setdefault(owner, []).append(row)
    return found


def _sized(run: Run, row: int) -> bool:
    product = product_of(run, row)
    return product is not None and all(size % LINE == 0 for size in (product.m, product.n, product.k))


def _expected(run: Run, rows: list[int]) -> dict[int, tuple[float, int]]:
    """Per row of a layer's products, forward first: (its duration with the casts before it in ns, their number)."""
    product = product_of(run, rows[0])
    assert product is not None
    trains = len(rows) > 1
    found = {}
    for place, row in enumerate(rows):
        cast = _cast(product, place, trains)
        each = TRAINED_BYTES if trains else CAST_BYTES
        ns = run.product_ns(run.flop[row], float(np.nan_to_num(run.nbytes[row])) / 2, UNIT, EFFICIENCY)
        found[row] = ns + sum(CAST_NS + 1e9 * each * size / run.bandwidth for size in cast), len(cast)
    return found


def _cast(product: Gemm, place: int, trains: bool) -> list[int]:
    """The elements of the operands cast for a product: the input, in training the weight and the gradient, too."""
    if place == 0:
        return [product.m * product.k, *([product.k * product.n] if trains else [])]
    return [product.m * product.n] if place == 1 else []


def _compiling(scenario: Scenario) -> str:
    if scenario.is_compiled:
        return "Do so before torch.compile(model)."
    return "Compile the model, or casts and scales cost the host more than the products gain."


def _edit(scenario: Scenario, chosen: dict[int, tuple[float, int]]) -> Edit:
    run = scenario.run
    rows = np.array(sorted(chosen), np.int64)
    ns = np.array([chosen[row][0] for row in rows.tolist()])
    casts = np.array([chosen[row][1] for row in rows.tolist()], np.float64)
    compiled = any(edit.rule == "compile" for edit in scenario.edits) or bool((run.family == "compiled").any())
    return Edit(
        rule="fp8",
        change=f"Run large linear layers in FP8: {TRAINED if run.trains else QUANTIZED}. {_compiling(scenario)}",
        why=(
            f"{run.number(rows, 'product', 'products')} of linear layers, in half precision {rounded(run.ms_of(rows))} "
            f"ms; in FP8, with {run.number(int(casts.sum()), 'cast', 'casts')} and scales, "
            f"{rounded(run.ms(float(ns.sum())))} ms are expected"
        ),
        cost=COSTS["fp8"],
        rows=rows,
        ns=ns,
        left=np.ones(len(rows)),
        added=casts * (COMPILED_LAUNCHES if compiled else LAUNCHES),
        deviation=0.25,
        retyped=rows,
        unit="fp8",
    )
