"""Attention that writes its score matrix to memory, and fused attention that runs by a slower kernel than necessary."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pyprof.dtypes import HALF
from pyprof.prof.changes.effect.finding import Finding, rule
from pyprof.prof.changes.effect.product import Gemm, gemm
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel
from pyprof.prof.limits.fused_attention import FusedCall
from pyprof.quantities import rounded
from pyprof.table.columns import Bools

NEAR = 12  # rows before and after a softmax that may belong to its attention (scale, mask, dropout, casts, products)
LEAST = 1 << 16  # with fewer scores than this, launching takes longer than moving them
MAIN = 0.85  # of the backward pass's time, that of its main kernel (0.75 to 0.93 on an H200)
WORTH = 1.15
BATCHED = ("bmm", "baddbmm")
FILLED, TRIANGLES = ("masked_fill", "masked_fill_"), ("triu", "tril", "triu_", "tril_")
DROPOUT = ("native_dropout", "native_dropout_backward")
SAFE = "SafeSoftmaxBackward0"  # the math backend's own softmax (PyTorch 2.5 and later)
MATH = "_scaled_dot_product_attention_math"
USE = "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=..., dropout_p=...)"
WITHOUT_WEIGHTS = (
    "Call nn.MultiheadAttention with need_weights=False: attention is then one fused kernel, which returns no weights."
)
MODULE = ('"multi_head_attention_forward"', '"_native_multi_head_attention"')  # calls of torch that it makes
CUDNN = "torch.nn.attention.sdpa_kernel(SDPBackend.CUDNN_ATTENTION)"
KERNELS = "torch.nn.attention.sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION])"


@dataclass(frozen=True, slots=True)
class Pattern:
    """The rows of one attention in one direction, its softmax, and one of its products."""

    rows: tuple[int, ...]
    softmax: int
    product: Gemm
    backward: bool


def patterns(run: Run, least: int = LEAST) -> Iterator[Pattern]:
    """Find each softmax between batched products over the same scores, of which there are ``least`` or more, by order
    and shapes.

    The batched products' result (or first operand) and the softmax have the same number of elements and the same last
    dimension. The element-wise kernels between them have the same number of elements. Without shapes, none are found.
    """
    for row in np.flatnonzero(np.isin(run.aten, ("_softmax", "_softmax_backward_data"))).tolist():
        sizes = run.shapes(row)
        scores = numel(sizes[0]) if sizes else 0
        if scores >= least:
            found = _pattern(run, row, scores, sizes[0][-1])
            if found is not None:
                yield found


def _pattern(run: Run, softmax: int, scores: int, last: int) -> Pattern | None:
    near = range(max(softmax - NEAR, 0), min(softmax + NEAR + 1, run.rows))
    same = [i for i in near if run.lane[i] == run.lane[softmax] and run.phase[i] == run.phase[softmax]]
    products: dict[int, Gemm] = {}
    for i in same:
        # A product may begin with a fill, which has its sizes, too.
        does = run.aten[i] in BATCHED and run.role[i] != "aux"
        product = gemm(run.aten[i], run.shapes(i), None) if does else None
        if product is not None and _of_scores(product, scores, last):
            products[i] = product
    before, after = [i for i in products if i < softmax], [i for i in products if i > softmax]
    if not before or not after:
        return None
    backward = run.aten[softmax] != "_softmax"
    low, high = (before[0], after[-1]) if backward else (before[-1], after[0])
    kept = [i for i in same if low <= i <= high and (i in products or run.elements[i] == scores)]
    return Pattern(tuple(kept), softmax, products[after[0]], backward)


def _of_scores(product: Gemm, scores: int, last: int) -> bool:
    """Whether the scores are the result of a product or one of its operands, transposed or not."""
    made = product.batch * product.m * product.n == scores and last in (product.m, product.n)
    first = product.batch * product.m * product.k == scores and last in (product.m, product.k)
    second = product.batch * product.k * product.n == scores and last in (product.k, product.n)
    return made or first or second


def by_module(run: Run) -> Bools:
    """A mask of the rows within nn.MultiheadAttention, whose formula is PyTorch's own."""
    return run.mentions("nodes", "aten::_native_multi_head_attention") | run.mentions("op", *MODULE)


@rule("attention_backend")
def attention_backend(run: Run) -> Iterator[Finding]:
    """scaled_dot_product_attention in half precision that runs on a slower backend than necessary.

    The slower backends are math, memory-efficient, and on Hopper FlashAttention 2: cuDNN's kernel is faster there.
    Abstains in fp32 (which these backends lack), with a bias or mask (which flash does not take), and before compute
    capability 8.0.

    Refuted by: a kernel that takes no longer than the faster backend's would.
    """
    arch = run.device.arch if run.device else ""
    if not arch.startswith("sm_") or not arch[3:].isdigit() or int(arch[3:]) < 80:  # FlashAttention 2 (sdp_utils.cpp)
        return
    yield from _math(run)
    change = f"Allow FlashAttention and cuDNN for scaled_dot_product_attention: {KERNELS}, or no sdpa_kernel at all."
    yield from _slower(run, "_efficient_attention", "the memory-efficient backend", change)
    if arch == "sm_90":
        change = f"Let cuDNN run scaled_dot_product_attention: {CUDNN}, from PyTorch 2.5 on."
        yield from _slower(run, "_flash_attention", "FlashAttention 2", change)


def _math(run: Run) -> Iterator[Finding]:
    """Findings for the math backend: all its kernels, and the backward of its softmax and products.

    Under autocast or in half precision it computes in float32; the casts at its start show the dtype of its inputs.
    """
    inside, safe = run.mentions("nodes", MATH), run.mentions("nodes", SAFE)
    found = [p for p in patterns(run) if inside[p.softmax] or (p.backward and safe[p.softmax])]
    casts = np.flatnonzero(inside & (run.aten == "copy_")).tolist()
    given = next((source for source in (run.second_dtype(row) for row in casts) if source in HALF), "")
    kept = [p for p in found if given or run.dtype[p.softmax] in HALF]
    strided = any(_mask_strided(run, p) for p in kept)
    # The gradient of a broadcast mask is a sum over the scores' gradient.
    trained = any(p.backward and "sum" in run.aten[list(p.rows)] for p in kept)
    backend = "EFFICIENT" if trained else "FLASH"
    wanted = "the memory-efficient backend" if trained else "FlashAttention or cuDNN"
    only = " No other fused backend computes the gradient of a mask." if trained else ""
    mask = "attn_mask.contiguous(), since the last stride of the mask is not 1; " if strided else ""
    causal = "" if trained else "is_causal=True in place of an attn_mask that says the same; "
    change = (
        f"Make scaled_dot_product_attention use {wanted}: {mask}{causal}a head dimension that is a multiple of 8 and "
        f"at most 256. torch.nn.attention.sdpa_kernel(SDPBackend.{backend}_ATTENTION) names the reason for which it "
        f"refuses.{only}"
    )
    rows, saved, calls = run.replaced((_members(run, p, inside), fused_ns(run, p, given, trained)) for p in kept)
    if rows:
        softmax, now = kept[0].softmax, run.ms_of(rows)
        why = (
            f"The math backend writes and reads the scores {run.shapes(softmax)[0]} in {run.dtype[softmax]}, "
            f"{run.number(calls, 'time', 'times')} per {run.unit}: {rounded(now)} ms; fused, "
            f"{rounded(now - run.ms(float(saved.sum())))} ms are expected"
        )
        yield Finding(np.array(rows), saved, why, change, launches=len(rows) - calls)


def _mask_strided(run: Run, pattern: Pattern) -> bool:
    """Whether the added mask has a last stride other than 1, which the fused backends refuse."""
    # Source: sdp_utils_cpp.h, check_last_dim_stride_equals_1_dense
    for row in pattern.rows:
        shapes, strides = run.shapes(row), run.strides(row) or []
        mask = strides[1] if run.aten[row] in ("add", "add_") and len(strides) > 1 and len(shapes) > 1 else None
        if isinstance(mask, list) and mask and len(mask) == len(shapes[1]) and shapes[1][-1] > 1 and mask[-1] != 1:
            return True
    return False


def in_math(run: Run) -> Bools:
    """A mask of the rows that belong to the math backend, including its backward."""
    mask = run.mentions("nodes", MATH, SAFE)
    for pattern in patterns(run):
        if mask[pattern.softmax]:
            mask[list(pattern.rows)] = True
    return mask


def _members(run: Run, pattern: Pattern, inside: Bools) -> list[int]:
    """The pattern's rows, and the rows beside it of the same call of the math backend."""
    if pattern.backward:
        return list(pattern.rows)
    first, last = pattern.rows[0], pattern.rows[-1]
    while first > 0 and inside[first - 1] and run.lane[first - 1] == run.lane[pattern.softmax]:
        first -= 1
    while last + 1 < run.rows and inside[last + 1] and run.aten[last + 1] == "copy_":
        last += 1
    return list(range(first, last + 1))


def head_of(run: Run, pattern: Pattern) -> int:
    """The head's width: the one size of the product that is not a size of the scores."""
    last = run.shapes(pattern.softmax)[0][-1]
    sizes = [pattern.product.m, pattern.product.n, pattern.product.k]
    if last in sizes:
        sizes.remove(last)
    return min(sizes)


def fused_ns(run: Run, pattern: Pattern, dtype: str, trained: bool = False) -> float:
    """Expected time of the fused kernel in ns; NaN if it is unknown or no kernel fits. ``trained``: its mask has a
    gradient."""
    shape = run.shapes(pattern.softmax)[0]
    causal = not trained and is_causal(run, pattern)
    # The backward of dropout is a product with its mask, so any dropout of the run counts there.
    dropped = np.isin(run.aten if pattern.backward else run.aten[list(pattern.rows)], DROPOUT).any()
    call = FusedCall(
        batch=numel(shape) // max(shape[-1] * shape[-2], 1) if len(shape) > 1 else 0,
        queries=shape[-2] if len(shape) > 1 else 0,
        keys=shape[-1],
        head=head_of(run, pattern),
        dtype=dtype or run.dtype[pattern.softmax] or run.dtype[pattern.rows[0]],
        backward=pattern.backward,
        causal=causal,
        masked=not causal and any(_masks(run, row) for row in pattern.rows),
        trained=trained,
        dropped=bool(dropped),
    )
    return call.ns(run.device, run.bandwidth)


def _masks(run: Run, row: int) -> bool:
    """Whether a row adds a tensor to the scores."""
    return run.aten[row] in ("add", "add_") and len([shape for shape in run.shapes(row) if shape]) > 1


def is_causal(run: Run, pattern: Pattern) -> bool:
    """Whether the mask of an attention hides what comes later: if the run makes a triangle of the scores' last two
    sizes, or a mask of truth values is one square for all samples and heads, as no padding is.
    """
    scores = run.shapes(pattern.softmax)[0]
    if len(scores) < 3 or scores[-1] != scores[-2] or scores[-1] == 1:
        return False
    square = [scores[-1], scores[-1]]
    added = any(_masks(run, row) and _other(run, row) == square for row in pattern.rows)
    filled = any(run.aten[row] in FILLED and _other(run, row) == square for row in pattern.rows)
    triangle = (added or pattern.backward) and square in [
        run.first_shape(row) for row in np.flatnonzero(np.isin(run.aten, TRIANGLES)).tolist()
    ]
    return filled or triangle


def _other(run: Run, row: int) -> list[int]:
    """The second operand's shape without leading ones."""
    shape = list(run.shapes(row)[1]) if len(run.shapes(row)) > 1 else []
    while len(shape) > 2 and shape[0] == 1:
        del shape[0]
    return shape


def fastest_ns(run: Run, row: int, op: str, dtype: str) -> float:
    """Expected time in ns of cuDNN's main kernel for a row of a fused attention; NaN if unknown.

    ``op``: ``_efficient_attention`` or ``_flash_attention``, whose forward or backward the row is of.
    """
    sizes, forward = run.shapes(row), run.aten[row] == f"{op}_forward"
    first = 0 if forward else 1
    biased = op == "_efficient_attention" and bool(sizes[first + 3 : first + 4] and sizes[first + 3])
    if len(sizes) < first + 4 or biased or len(sizes[first]) != 4 or math.isnan(run.flop[row]):
        return math.nan
    (batch, queries, heads, head), keys = sizes[first], sizes[first + 1][1]
    pairs = 4.0 * batch * heads * queries * keys * head * (1.0 if forward else 2.5)
    causal = bool(run.flop[row] < 0.9 * pairs)
    expected = FusedCall(batch * heads, queries, keys, head, dtype, not forward, causal).ns(run.device, run.bandwidth)
    return expected * (1.0 if forward else MAIN)


def _slower(run: Run, op: str, who: str, change: str) -> Iterator[Finding]:
    """Findings for rows of a fused attention that take longer than cuDNN or FlashAttention would."""
    either = np.isin(run.aten, (f"{op}_forward", f"{op}_backward")) & (run.role == "main")
    rows, saved = [], []
    for row in np.flatnonzero(either & np.isin(run.dtype, tuple(HALF))).tolist():
        expected = fastest_ns(run, row, op, str(run.dtype[row]))
        if run.dur[row] > WORTH * expected:
            rows.append(row)
            saved.append(float(run.dur[row] - expected))
    if rows:
        now = run.ms_of(rows)
        why = (
            f"{run.number(rows, 'attention kernel', 'attention kernels')} of {who} in {run.dtype[rows[0]]}: "
            f"{rounded(now)} ms; {rounded(now - run.ms(sum(saved)))} ms are expected of the fastest backend that fits"
        )
        yield Finding(np.array(rows), np.array(saved), why, change)
