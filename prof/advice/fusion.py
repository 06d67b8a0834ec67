"""Chains of element-wise kernels that one kernel could do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.run import Run, numel
from pyprof.prof.model import ITEM_BYTES

__all__ = ["chains"]

CHAIN = 3  # kernels; two are often a pair whose first result is needed elsewhere
LEAST = 1 << 18  # elements: smaller tensors are launches, not memory
FUSED_NS = 3000.0  # a kernel, besides its bytes
CONTIGUOUS = ("vectorized_elementwise_kernel", "unrolled_elementwise_kernel")  # a copy by these changes the type only
DROPOUT = ("native_dropout", "native_dropout_backward")


@rule("fusion")
def fusion(run: Run) -> Iterator[Finding]:
    """Neighbours in forward or backward that go over tensors of the same size, a card a size.

    The fused kernel reads the chain's input and every second operand (taken as new, though the chain
    made some), and writes one result. Abstains without shapes, and for copies that change the layout, gradients'
    accumulation and the optimizer's step.
    """
    found: dict[int, list[list[int]]] = {}
    for size, chain in chains(run):
        found.setdefault(size, []).append(chain)
    for size, members in found.items():
        yield from _finding(run, size, members)


def chains(run: Run) -> Iterator[tuple[int, list[int]]]:
    """(elements, rows) of each chain."""
    size = _sizes(run)
    rows = np.flatnonzero(size >= LEAST)
    chain: list[int] = []
    for row, after in pairwise([*rows.tolist(), run.rows]):
        chain.append(row)
        joined = after == row + 1 < run.rows and size[after] == size[row] and _same(run, row, after)
        if not joined:
            if len(chain) >= CHAIN:
                yield int(size[row]), chain
            chain = []


def _same(run: Run, a: int, b: int) -> bool:
    return bool(run.lane[a] == run.lane[b] and run.phase[a] == run.phase[b] and run.stream[a] == run.stream[b])


def _sizes(run: Run) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Elements of each row's tensors, 0 for what cannot be part of a chain."""
    name = run.mentions("kShortName", *CONTIGUOUS) | run.mentions("kLongName", *CONTIGUOUS)
    copies = np.isin(run.family, ("copy",)) & name & np.isin(run.aten, ("copy_", "_to_copy"))
    usual = (run.family == "pointwise") | copies | np.isin(run.aten, DROPOUT)
    usual &= np.isin(run.phase, ("forward", "backward")) & ~run.mentions("nodes", "AccumulateGrad")
    return np.where(usual, run.largest, 0)


def _fused_ns(run: Run, size: int, chain: list[int]) -> float:
    """Expected time of one kernel in place of the chain, ns; NaN where the device is unknown."""
    tensors = 2
    for row in chain[1:]:
        full = sum(numel(shape) == size for shape in run.shapes(row))
        tensors += 1 if (full > 1 and run.family[row] != "copy") or run.aten[row] in DROPOUT else 0
    item = max(ITEM_BYTES.get(str(run.dtype[row]), 4.0) for row in chain)
    return FUSED_NS + 1e9 * tensors * item * size / run.bandwidth


def _finding(run: Run, size: int, members: list[list[int]]) -> Iterator[Finding]:
    rows: list[int] = []
    saved: list[float] = []
    kept = 0
    for chain in members:
        now = float(run.dur[chain].sum())
        gain = now - _fused_ns(run, size, chain)
        if gain > 0:
            kept += 1
            rows += chain
            saved += [gain * float(run.dur[row]) / now for row in chain]
    if not rows:
        return
    now = run.ms(float(run.dur[rows].sum()))
    longest = max(members, key=len)
    ops = ", ".join(dict.fromkeys(str(run.aten[row]).rstrip("_") for row in longest))
    why = (
        f"{run.count(kept):.4g} chains of element-wise kernels ({ops}) go over {size} elements, reading and "
        "writing memory "
        f"between each two: {run.count(len(rows)):.4g} kernels, {now:.4g} ms, expected "
        f"{now - run.ms(sum(saved)):.4g} ms "
        "as one kernel a chain"
    )
    gelu = any({"tanh", "pow"} <= {str(run.aten[row]) for row in chain} for chain in members)
    change = "torch.compile the module that holds them" + (
        ', or call F.gelu(x, approximate="tanh"), which this is.' if gelu else "."
    )
    yield Finding(np.array(rows), np.array(saved), why, change, "medium")
