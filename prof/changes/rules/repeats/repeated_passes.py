"""Passes: what a step launches again and again, one time after the other, as the iterations of a loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from pyprof.prof.changes.effect.run import Run
from pyprof.table.columns import Ints, numbered

NEXT = 8  # calls of one line in a pass, at most: a product for each gate of a cell, and each of its two operands
PERIODS = 64  # lengths of passes that are tried
NOT_FORWARD = ("backward", "optimizer", "data")
WHOLE_RUN = 0.9  # of the rows of a run without marked steps: what repeats is then the step


def repeated_passes(run: Run, fewest: int) -> Iterator[Ints]:
    """Rows of forward ops that are equal in op, sizes, line and layer pass by pass: (passes, rows of each).

    Passes have a product, and nothing of another phase lies between them. Shorter passes come first, and rows may be
    in several results. Where in its round a pass begins is chance. Helper kernels are left out.
    """
    apart = np.cumsum(np.isin(run.phase, NOT_FORWARD))
    rows = np.flatnonzero(~np.isin(run.phase, NOT_FORWARD) & (run.role != "aux"))
    columns = [run.table.coded(key).codes[rows] for key in ("aten", "sizes", "trace", "layer")]
    _, word = numbered(run.table.ints("step")[rows], run.lane[rows], apart[rows], *columns)
    products = np.flatnonzero(run.family[rows] == "gemm")
    shorter = np.zeros(len(rows), np.int64)
    for period in _periods(word[products], products, fewest):
        equal = np.concatenate([[0], (word[:-period] == word[period:]).astype(np.int64), [0]])
        changes = np.diff(equal)
        for begin, end in zip(
            np.flatnonzero(changes == 1).tolist(), np.flatnonzero(changes == -1).tolist(), strict=True
        ):
            times = (end - begin) // period + 1
            if times < fewest or (not run.marked and times * period >= WHOLE_RUN * len(rows)):
                continue
            if shorter[begin] and period % shorter[begin] == 0:
                continue
            found = rows[begin : begin + times * period].reshape(times, period)
            if (run.family[found[0]] == "gemm").any():
                shorter[begin : begin + times * period] = period
                yield found


def _periods(word: Ints, place: Ints, fewest: int) -> list[int]:
    """The distances at which equal products follow each other often, in rising order."""
    order = np.argsort(word, kind="stable")
    far: Counter[int] = Counter()
    for later in range(1, NEXT + 1):
        same = word[order[later:]] == word[order[:-later]]
        far.update((place[order[later:]] - place[order[:-later]])[same].tolist())
    often = [(count, period) for period, count in far.items() if count >= fewest - 1]
    return sorted(period for _, period in sorted(often, reverse=True)[:PERIODS])
