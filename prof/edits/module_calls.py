"""Modules that a step calls a few times in a row, each time with the same ops on the same sizes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pyprof.prof.advice import Run
from pyprof.table.columns import Ints, numbered

PRODUCTS = ("gemm", "conv")
FEWEST = 3  # products of a call, so that a shared activation or projection is no module to be joined
BETWEEN = 32  # kernels between two calls, at most: a result's loss or norm, and what makes the next input
DEEPEST = 4  # layers' paths are looked at
MOST = 4  # calls in a row; more are a loop, whose iterations mostly need each other's results


class Calls(NamedTuple):
    """A module's calls in a row within one step, and the kernels between each and the next."""

    module: tuple[str, ...]  # its layer path, outermost first
    rows: list[Ints]  # of each call, forward
    gaps: list[Ints]

    @property
    def last(self) -> int:
        return int(self.rows[-1][-1])


def calls_in_a_row(run: Run) -> Iterator[Calls]:
    """All series of two equal calls or more, those of outer modules before those of the modules in them."""
    words = numbered(*(run.table.coded(key).codes for key in ("layer", "aten", "op", "sizes", "dtypes")))[1]
    lanes, steps = run.lane, run.table.ints("step")
    apart = np.flatnonzero((np.diff(lanes) != 0) | (np.diff(steps) != 0)) + 1
    rows = np.flatnonzero(run.role != "aux")
    paths = [tuple(map(str, run.listed("layer", row))) for row in range(run.rows)]
    for stretch in np.split(rows, np.searchsorted(rows, apart)):
        forward = run.phase[stretch] == "forward"
        for depth in range(1, DEEPEST + 1):
            found = _called(run, stretch[forward], words, paths, depth)
            yield from _series(run, found, words, paths, depth)


def _called(run: Run, rows: Ints, words: Ints, paths: list[tuple[str, ...]], depth: int) -> Iterator[Ints]:
    """The calls of all modules at this depth of the layers' paths, in order.

    What repeats within one stretch of a module may be its own calls, or those of a module in it if all products are in
    that one, which is found at the next depth.
    """
    if not len(rows):
        return
    heads: list[tuple[str, ...]] = [paths[row][:depth] for row in rows.tolist()]
    bounds = [at for at, (a, b) in enumerate(pairwise(heads), 1) if a != b]
    for part in np.split(rows, bounds):
        if len(paths[part[0]]) >= depth:
            times = _times(words[part])
            of_child = times > 1 and len({paths[row][: depth + 1] for row in _products(run, part).tolist()}) == 1
            if not of_child and len(_products(run, part)) >= FEWEST * times:
                yield from np.split(part, times)


def _products(run: Run, rows: Ints) -> Ints:
    found: Ints = rows[np.isin(run.family[rows], PRODUCTS)]
    return found


def _times(word: Ints) -> int:
    """How often the shortest sequence that these numbers repeat stands in them."""
    size = len(word)
    for period in np.flatnonzero(word == word[0]).tolist():
        if period and size % period == 0 and np.array_equal(word[period:], word[:-period]):
            return size // period
    return 1


def _series(run: Run, calls: Iterator[Ints], words: Ints, paths: list[tuple[str, ...]], depth: int) -> Iterator[Calls]:
    series: list[Ints] = []
    gaps: list[Ints] = []
    for call in calls:
        gap = np.arange(series[-1][-1] + 1, call[0]) if series else np.zeros(0, np.int64)
        follows = bool(series) and np.array_equal(words[call], words[series[-1]]) and _is_short(run, gap)
        if series and not follows:
            if len(series) > 1:
                yield Calls(paths[series[0][0]][:depth], series, gaps)
            series, gaps = [], []
        gaps += [gap] if series else []
        series.append(call)
    if len(series) > 1:
        yield Calls(paths[series[0][0]][:depth], series, gaps)


def _is_short(run: Run, gap: Ints) -> bool:
    """Whether nothing but a few kernels of the forward pass lies in a gap: not the backward pass of the call before."""
    return len(gap) <= BETWEEN and not np.isin(run.phase[gap], ("backward", "optimizer", "data")).any()
