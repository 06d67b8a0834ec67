"""Convolutions that cuDNN's heuristics put on a slow kernel."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.advice.card import Finding, rule
from pyprof.prof.advice.rows import numel
from pyprof.prof.advice.run import START_NS, Run
from pyprof.prof.usage import covered
from pyprof.table import Ints

__all__: list[str] = []

HALF = ("float16", "bfloat16")
WORTH = 1.5


@rule("conv_algorithm")
def conv_algorithm(run: Run) -> Iterator[Finding]:
    """A convolution in half precision without tensor cores, where its other passes in the same run use them.

    So its sizes and types allow it, and cuDNN, which chooses by heuristics unless it may measure, chose otherwise.
    Expected: the rate of the slowest of the other passes. Kernels beside each other (groups on several streams) count
    once. Abstains where no other pass is seen, and of PyTorch's own depthwise kernels.
    """
    main = (run.family == "conv") & (run.role == "main") & np.isin(run.dtype, HALF) & (run.flop > 0)
    main &= ~run.mentions("kShortName", "conv_depthwise")
    slow = _by_problem(run, np.flatnonzero(main & (run.tc == "0")))
    fast = _by_problem(run, np.flatnonzero(main & (run.tc == "1"))) if slow else {}
    for problem, rows in slow.items():
        if problem not in fast:
            continue
        now = sum(covered(run.start[rows][mine], run.end[rows][mine]) for mine in _lanes(run, rows))
        calls = len(np.unique(run.table.ints("opId")[rows]))
        expected = START_NS * calls + float(run.flop[rows].sum()) / _rate(run, fast[problem])
        if now > WORTH * expected:
            yield _finding(run, rows, float(now), expected)


def _by_problem(run: Run, rows: Ints) -> dict[tuple[int, int], Ints]:
    """Rows by the elements of input and weight: 1-d convolutions are 2-d ones of height 1 within."""
    found: dict[tuple[int, int], list[int]] = {}
    for row in rows.tolist():
        shapes = run.shapes(row)[1:3] if run.aten[row] == "convolution_backward" else run.shapes(row)[:2]
        if len(shapes) == 2 and all(map(numel, shapes)):
            found.setdefault((numel(shapes[0]), numel(shapes[1])), []).append(row)
    return {problem: np.array(members, np.int64) for problem, members in found.items()}


def _lanes(run: Run, rows: Ints) -> Iterator[Ints]:
    """Of these rows, those of each GPU."""
    for lane in np.unique(run.lane[rows]).tolist():
        yield np.flatnonzero(run.lane[rows] == lane)


def _rate(run: Run, rows: Ints) -> float:
    """FLOP/ns of the slowest of these rows' kernels."""
    names = run.texts("kShortName")[rows].astype(str)
    return min(float(run.flop[rows[names == n]].sum() / run.dur[rows[names == n]].sum()) for n in np.unique(names))


def _finding(run: Run, rows: Ints, now: float, expected: float) -> Finding:
    saved = run.dur[rows] * (now - expected) / max(float(run.dur[rows].sum()), 1.0)
    aside = " (beside each other on several streams)" if now < 0.9 * float(run.dur[rows].sum()) else ""
    why = (
        f"Convolutions in {run.dtype[rows[0]]} by {run.texts('kShortName')[rows[0]]}, {run.count(len(rows)):.4g} "
        f"kernels{aside}, use no tensor cores: {run.ms(now):.4g} ms at "
        f"{float(run.flop[rows].sum()) / now / 1e3:.3g} TFLOP/s, expected {run.ms(expected):.4g} ms at the rate of the "
        "same layer's other passes, which use them"
    )
    change = (
        "torch.backends.cudnn.benchmark = True: cuDNN measures its kernels for each size, in place of heuristics; "
        "keep sizes fixed, or measuring takes the time."
    )
    return Finding(rows, saved, why, change, "low")
