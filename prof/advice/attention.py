"""Attention that writes its score matrix to memory, and fused attention by a slower kernel than fits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pyprof.prof.advice.alignment import Gemm, gemm
from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.run import Run, numel

__all__ = ["Pattern", "patterns"]

NEAR = 12  # rows on each side of a softmax that may belong to its attention (scale, mask, dropout, casts, products)
LEAST = 1 << 16  # scores; smaller ones are launches, not memory
HEAD = 256  # the largest head dimension of FlashAttention 2
HALF = {"float16": "tc_fp16", "bfloat16": "tc_bf16"}
# Fused attention's rate, of what a matrix product reaches, all pairs counted. cuDNN's on an H200, GPT-2 (head 64, 1024
# tokens, causal, dropout): forward 211, backward 361 of 811 TFLOP/s. fp32 runs as three TF32 products.
FORWARD, BACKWARD, FP32 = 0.25, 0.4, 0.25
BATCHED = ("bmm", "baddbmm")
MATH = "_scaled_dot_product_attention_math"
USE = "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=..., dropout_p=...)"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The rows of one attention in one direction, its softmax, and one of its products."""

    rows: tuple[int, ...]
    softmax: int
    product: Gemm
    backward: bool


def patterns(run: Run) -> Iterator[Pattern]:
    """A softmax between batched products over the same scores, told by order and shapes.

    The batched products' result (or first operand) and the softmax have the same number of elements and the same last
    dimension; the element-wise kernels between have the same number. Without shapes there are none.
    """
    for row in np.flatnonzero(np.isin(run.aten, ("_softmax", "_softmax_backward_data"))).tolist():
        sizes = run.shapes(row)
        scores = numel(sizes[0]) if sizes else 0
        if scores >= LEAST:
            found = _pattern(run, row, scores, int(sizes[0][-1]))
            if found is not None:
                yield found


def _pattern(run: Run, softmax: int, scores: int, last: int) -> Pattern | None:
    low, high = max(softmax - NEAR, 0), min(softmax + NEAR + 1, run.rows)
    same = [i for i in range(low, high) if run.lane[i] == run.lane[softmax] and run.phase[i] == run.phase[softmax]]
    products: dict[int, Gemm] = {}
    for i in same:
        product = gemm(str(run.aten[i]), run.shapes(i), None) if run.aten[i] in BATCHED else None
        if product is not None and _of_scores(product, scores, last):
            products[i] = product
    before, after = [i for i in products if i < softmax], [i for i in products if i > softmax]
    if not before or not after:
        return None
    around = range(before[-1] if run.aten[softmax] == "_softmax" else before[0], after[-1] + 1)
    others = {i for i in around if i in same and i not in products and run.elements[i] == scores}
    backward = run.aten[softmax] != "_softmax"
    kept = {i for i in products if i in around} if backward else {before[-1], after[0]}
    rows = sorted({i for i in others if backward or i < after[0]} | kept)
    return Pattern(tuple(rows), softmax, products[after[0]], backward)


def _of_scores(product: Gemm, scores: int, last: int) -> bool:
    """Is its result, or one of its operands (transposed or not), the scores?"""
    made = product.batch * product.m * product.n == scores and last in (product.m, product.n)
    first = product.batch * product.m * product.k == scores and last in (product.m, product.k)
    second = product.batch * product.k * product.n == scores and last in (product.k, product.n)
    return made or first or second


@rule("unfused_attention")
def unfused_attention(run: Run) -> Iterator[Finding]:
    """Softmax between two batched products: one kernel that keeps the scores on the chip.

    Abstains without shapes, for head dimensions over 256, other types than float32, float16 and bfloat16, and where
    PyTorch's own attention chose this (attention_backend speaks of that).
    """
    math_rows = run.mentions("nodes", MATH)
    found = [p for p in patterns(run) if not math_rows[p.softmax]]
    yield from _finding(run, found, f"Call {USE}.", "batched products and a softmax write and read")


@rule("attention_backend")
def attention_backend(run: Run) -> Iterator[Finding]:
    """scaled_dot_product_attention on the math backend in half precision, or on the efficient one where flash fits.

    Abstains in fp32 (flash has none), with an attention bias (flash takes none), and before compute capability 8.0.
    """
    math_rows = run.mentions("nodes", MATH)
    found = [p for p in patterns(run) if math_rows[p.softmax] and run.dtype[p.softmax] in HALF]
    yield from _finding(run, found, (
        "Let flash or cuDNN run it: no attn_mask where is_causal=True says the same, head dimension a multiple "
        "of 8 and at "
        "most 256, and see why with torch.nn.attention.sdpa_kernel(SDPBackend.FLASH_ATTENTION), which names the reason."
    ), "the math backend writes and reads")  # fmt: skip
    yield from _efficient(run)


def _finding(run: Run, found: list[Pattern], change: str, who: str) -> Iterator[Finding]:
    rows: list[int] = []
    saved: list[float] = []
    for pattern in found:
        now = float(run.dur[list(pattern.rows)].sum())
        gain = now - _fused_ns(run, pattern)
        if gain > 0 and not set(pattern.rows) & set(rows):
            rows += pattern.rows
            saved += [gain * float(run.dur[i]) / now for i in pattern.rows]
    if rows:
        scores = run.shapes(found[0].softmax)[0]
        now, gain = run.ms(float(run.dur[rows].sum())), run.ms(sum(saved))
        why = (
            f"{who.capitalize()} the scores {scores} in {run.dtype[found[0].softmax]} "
            f"{run.count(len(found)):.4g} times: {now:.4g} ms, expected {now - gain:.4g} ms fused"
        )
        yield Finding(np.array(rows), np.array(saved), why, change, "medium")


def _fused_ns(run: Run, pattern: Pattern) -> float:
    """Expected time of the fused kernel, ns; NaN where it is not known or does not fit."""
    dtype = str(run.dtype[pattern.softmax]) or str(run.dtype[pattern.rows[0]])
    unit = HALF.get(dtype, "tc_tf32" if dtype == "float32" else "")
    sizes = run.shapes(pattern.softmax)[0]
    scores, last = numel(sizes), int(sizes[-1])
    head = _head(pattern.product, last)
    if not unit or not 0 < head <= HEAD:
        return math.nan
    flop = 4.0 * scores * head * (2.5 if pattern.backward else 1.0)
    share = (BACKWARD if pattern.backward else FORWARD) * (FP32 if dtype == "float32" else 1.0)
    item = 4 if dtype == "float32" else 2
    tensors = 8 if pattern.backward else 4  # q, k, v, out; and their gradients
    return run.product_ns(flop, tensors * item * scores / last * head, unit, share)


def _head(product: Gemm, last: int) -> int:
    """The head dimension: the one of a product's three sizes that the scores do not have."""
    sizes = [product.m, product.n, product.k]
    if last in sizes:
        sizes.remove(last)
    return min(sizes)


def _efficient(run: Run) -> Iterator[Finding]:
    forward = run.aten == "_efficient_attention_forward"
    either = (forward | (run.aten == "_efficient_attention_backward")) & (run.role == "main")
    rows, saved = [], []
    if run.device is None or not _has_flash(run.device.arch):
        return
    for row in np.flatnonzero(either & np.isin(run.dtype, tuple(HALF))).tolist():
        sizes = run.shapes(row)
        first = 0 if forward[row] else 1
        if not sizes or len(sizes) < first + 4 or sizes[first + 3] or len(sizes[first]) != 4:
            continue
        (batch, queries, heads, head), keys = sizes[first], sizes[first + 1][1]
        flop = 4.0 * batch * heads * queries * keys * head * (1.0 if forward[row] else 2.5)
        share = FORWARD if forward[row] else BACKWARD
        nbytes = 2.0 * batch * heads * head * (2 * queries + 2 * keys) * (1 if forward[row] else 2)
        gain = run.dur[row] - run.product_ns(flop, nbytes, HALF[str(run.dtype[row])], share)
        if head <= HEAD and gain > 0:
            rows.append(row)
            saved.append(float(gain))
    if rows:
        now = run.ms(float(run.dur[rows].sum()))
        why = (
            f"{run.count(len(rows)):.4g} attentions in {run.dtype[rows[0]]} without a bias ran on the memory-efficient "
            f"backend: {now:.4g} ms, expected {now - run.ms(sum(saved)):.4g} ms by FlashAttention"
        )
        change = (
            "Allow flash: torch.nn.attention.sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION])."
        )
        yield Finding(np.array(rows), np.array(saved), why, change, "low")


def _has_flash(arch: str) -> bool:
    """FlashAttention 2 in PyTorch: compute capability 8.0 and later (sdp_utils.cpp)."""
    return arch.startswith("sm_") and arch[3:].isdigit() and int(arch[3:]) >= 80
