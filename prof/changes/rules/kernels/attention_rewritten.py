"""Attention spelled out, by whatever products, as one fused kernel with the copies around it gone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.costs import COSTS
from pyprof.prof.changes.effect.edit import Abstained, Edit, Proposal
from pyprof.prof.changes.effect.finding import Finding
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.rules.kernels.attention import (
    FILLED,
    MATH,
    SAFE,
    USE,
    WITHOUT_WEIGHTS,
    Pattern,
    by_module,
    fused_ns,
    head_of,
    is_causal,
    patterns,
)
from pyprof.prof.changes.rules.kernels.rules_of_runs import by_names, run_rule
from pyprof.prof.work.kinds import kinds
from pyprof.prof.work.unfused_attention import softmaxes_apart
from pyprof.quantities import rounded

# Above this head size, the memory-efficient kernel, the only one for float32, is slower than products and softmax on
# an H200: a diffusion transformer with heads of 72 took 167 ms in place of 124.
FP32_HEAD = 64
LEAST = 256  # scores; below LEAST of the card's, launches are what the fused kernel saves
LEAST_NS = 30_000  # least time of the kernels around a softmax, used if the number of scores is unknown
MASK_CALLS = 3  # a mask of truth values becomes a bias of the scores' type, filled, masked and padded
NEGATED = ("bitwise_not", "logical_not")
SLOWER = 0.5  # a fused kernel may take twice as long as what it replaces: where the host is the limit, launches count
BESIDE = 3  # copies before and after a pattern that make its operands contiguous


@run_rule("attention")
def attention(run: Run) -> Iterator[Proposal]:
    """A softmax between batched products, forward and backward, as scaled_dot_product_attention.

    In a capture without any shapes, the kernels' names are used. Abstains for head dimensions over 256, for types other
    than float32, float16 and bfloat16, and if PyTorch's own attention chose this backend (see attention_backend).

    Refuted by: no product on either side over the same scores, as a router's softmax has none; attention that is fused.
    """
    if not run.has_sizes:
        yield from by_names(run, "attention", _by_name(run))
        return
    theirs, of_module = run.mentions("nodes", MATH, SAFE), by_module(run)
    found = [pattern for pattern in patterns(run, LEAST) if not theirs[pattern.softmax]]
    if not found:
        yield Abstained("attention", "no softmax between batched products over the same scores, by recorded shapes")
    for change, module in ((f"Use fused attention: {USE}.", False), (WITHOUT_WEIGHTS, True)):
        members = [pattern for pattern in found if of_module[pattern.softmax] == module]
        if members:
            yield _fused(run, members, change)


def _by_name(run: Run) -> Iterator[Finding]:
    """Softmaxes between two products, by the kernels' names, in captures without shapes."""
    count, between = softmaxes_apart(run.table, kinds(run.table, run.annotation))
    rows = np.flatnonzero(between)
    if len(rows) and run.dur[rows].sum() / count > LEAST_NS:
        why = (
            f"{run.number(count, 'softmax stands', 'softmaxes stand')} between two matrix products. The kernels "
            f"between the products take {rounded(run.ms_of(rows))} ms, half of which is counted because the capture "
            "has no shapes"
        )
        # A fused kernel removes the time between the products, but is slower than the products alone.
        yield Finding(rows, run.dur[rows] / 2, why, f"Use fused attention: {USE}.")


def _fused(run: Run, found: list[Pattern], change: str) -> Proposal:
    full = [p for p in found if run.dtype[p.softmax] == "float32" and not _narrow(run, p)]
    wide = [p for p in full if head_of(run, p) > FP32_HEAD]
    if wide:
        return Abstained("attention", f"in float32 with heads of {head_of(run, wide[0])}, fused attention is slower")
    trained = _trained(run, found)
    groups = [(_with_copies(run, p), fused_ns(run, p, _type(run, p), _is_trained(run, p, trained))) for p in found]
    rows, _, calls = run.replaced(groups, SLOWER)
    if len(rows) < sum(len(members) for members, _ in groups) / 2:
        return Abstained("attention", "the fused kernel is not expected to be faster here")
    chosen = np.array(rows)
    # One kernel per pattern remains: the softmax stands for it.
    ns, left = np.zeros(len(rows)), np.zeros(len(rows))
    added = np.zeros(len(rows))
    masked = {p.softmax for p in found if not p.backward and _is_masked(run, p)}
    kept = {p.softmax: expected for p, (_, expected) in zip(found, groups, strict=True)}
    for place, row in enumerate(rows):
        if row in kept:
            ns[place], left[place], added[place] = kept[row], 1.0, MASK_CALLS if row in masked else 0
    gone = [pattern for pattern in found if pattern.softmax in rows]
    largest = max(gone, key=lambda pattern: run.dur[pattern.softmax])
    others = len({str(run.shapes(p.softmax)[0]) for p in gone}) > 1
    such_as = "scores such as" if others else "the scores"
    why = (
        f"Products and a softmax write and read {such_as} {run.shapes(largest.softmax)[0]}, "
        f"{run.number(calls, 'time', 'times')} per {run.unit}, {rounded(run.ms_of(rows))} ms with the copies around "
        "them"
    )
    return Edit(
        rule="attention",
        change=change,
        why=why,
        cost=COSTS["attention"],
        rows=chosen,
        ns=ns,
        left=left,
        keeps_views=True,
        added=added,
        deviation=0.35,
    )


def _trained(run: Run, found: list[Pattern]) -> set[str]:
    """The shapes of scores to which something with a gradient is added: their gradient is summed up for it."""
    return {str(run.shapes(p.softmax)[0]) for p in found if p.backward and "sum" in run.aten[list(p.rows)]}


def _is_trained(run: Run, pattern: Pattern, trained: set[str]) -> bool:
    return str(run.shapes(pattern.softmax)[0]) in trained


def _is_masked(run: Run, pattern: Pattern) -> bool:
    return any(run.aten[row] in FILLED for row in pattern.rows) and not is_causal(run, pattern)


def _type(run: Run, pattern: Pattern) -> str:
    """The dtype of the products, since a softmax may run in float32 between narrow ones."""
    products = [row for row in pattern.rows if run.family[row] == "gemm"]
    return str(run.dtype[products[0]]) if products else ""


def _narrow(run: Run, pattern: Pattern) -> bool:
    return _type(run, pattern) != "float32"


def _with_copies(run: Run, pattern: Pattern) -> list[int]:
    """The pattern's rows, the copies within and beside it that bring its operands into the products' layout, and what
    turns a mask round between the products."""
    # The sums of the scores' gradient for a mask remain.
    rows, lane = {row for row in pattern.rows if run.aten[row] != "sum"}, run.lane[pattern.softmax]
    first, last = min(rows), max(rows)
    rows |= {i for i in range(first, last) if run.aten[i] in NEGATED and run.lane[i] == lane}
    operand = pattern.product.batch * head_of(run, pattern)
    for row in range(max(first - BESIDE, 0), min(last + BESIDE + 1, run.rows)):
        moves = run.family[row] == "copy" and run.elements[row] and run.elements[row] % operand == 0
        if moves and run.lane[row] == lane and run.phase[row] == run.phase[pattern.softmax]:
            inside = first <= row <= last
            near = all(
                run.family[i] == "copy" for i in (range(row, first) if row < first else range(last + 1, row + 1))
            )
            if (inside or near) and run.elements[row] != run.elements[pattern.softmax]:
                rows.add(row)
    return sorted(rows)
