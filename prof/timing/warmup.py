"""Warm-up: the first steps of a run, which compile, tune and allocate, and so do not show the steady state.

A capture of a whole program (`nsys profile python train.py`) begins with the construction of the model, and its first
step takes seconds, later ones milliseconds. Sums over all steps would describe neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.timing.steps import Step, slowest_steps
from pyprof.table.columns import NULL, Bools, Table

LONG = 2.0  # a leading step of at least this times the median of the later steps is warm-up
FEWEST = 2  # steps that must remain after the warm-up


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Figures for everything before the first step of the steady state."""

    steps: Annotated[int, doc("number of leading steps that are left out")]
    longest_ns: Annotated[int, doc("duration of the longest of them; 0 without any")]
    median_ns: Annotated[int, doc("median duration of the steps that remain")]
    rows: Annotated[int, doc("rows before the first of the steps that remain, those outside of all steps too")]
    ns: Annotated[int, doc("from the first of these rows to the first step that remains")]


def warm_up(table: Table, steps: Mapping[int, Step] | None = None) -> tuple[WarmUp | None, Bools]:
    """The warm-up, and the mask of its rows; None if nothing long precedes the first step of usual length.

    A capture that marks no steps has no warm-up. An inference server's batches differ in their work, so a long one is
    no warm-up: only what was before the first one may be. ``steps``: its ``slowest_steps``, if they have been computed
    already.
    """
    nothing = None, np.zeros(len(table), bool)
    in_order = sorted((slowest_steps(table) if steps is None else steps).items(), key=lambda item: item[1].start_ns)
    if len(in_order) < FEWEST:
        return nothing
    spans = [step.span_ns for _, step in in_order]
    first = 0
    repeats = not bool((table.coded("serving").codes >= 0).any())
    while repeats and first < len(spans) - FEWEST and spans[first] > LONG * median(spans[first + 1 :]):
        first += 1
    start, begin, usual = table.ints("start"), in_order[first][1].start_ns, median(spans[first:])
    kept = np.array([number for number, _ in in_order[first:]])
    before = (start != NULL) & (start < begin) & ~np.isin(table.ints("step"), kept)
    if not before.any():
        return nothing
    lasted = begin - int(start[before].min())
    if not first and lasted <= LONG * usual:
        return nothing
    return WarmUp(first, max(spans[:first], default=0), round(usual), int(before.sum()), lasted), before
