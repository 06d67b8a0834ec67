"""The first steps of a run, which compile, tune and allocate: no part of the steady state that a user asks about.

A capture of a whole program (`nsys profile python train.py`) begins with the making of the model, and its first step
takes seconds where the later ones take milliseconds. Sums over both tell of neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.timing.steps import steps
from pyprof.table.columns import NULL, Bools, Table, distinct

LONG = 2.0  # times the median of the steps after it: a leading step as long is warm-up
FEWEST = 2  # steps that must remain


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What stands before the first step of the steady state."""

    steps: Annotated[int, doc("number of leading steps that are left out")]
    longest_ns: Annotated[int, doc("duration of the longest of them; 0 without any")]
    median_ns: Annotated[int, doc("median duration of the steps that remain")]
    rows: Annotated[int, doc("rows before the first of the steps that remain, those outside of all steps too")]
    ns: Annotated[int, doc("from the first of these rows to the first step that remains")]


def warm_up(table: Table) -> tuple[WarmUp | None, Bools]:
    """The warm-up, and the mask of its rows; None where nothing takes long before the first step of usual length.

    A step is as long as the longest of its GPUs'. Steps without marks are none.
    """
    nothing = None, np.zeros(len(table), bool)
    _, owner = distinct(table.ints("rank"), table.ints("pid"), table.ints("device"))
    spans: dict[int, int] = {}
    begins: dict[int, int] = {}
    for step in steps(table, owner):
        if step.number is not None and step.owner >= 0:
            spans[step.number] = max(spans.get(step.number, 0), step.span_ns)
            begins[step.number] = min(begins.get(step.number, step.start_ns), step.start_ns)
    numbers = sorted(spans, key=lambda number: begins[number])
    if len(numbers) < FEWEST:
        return nothing
    first = 0
    while first < len(numbers) - FEWEST and spans[numbers[first]] > LONG * _median(spans, numbers[first + 1 :]):
        first += 1
    start, usual = table.ints("start"), _median(spans, numbers[first:])
    before = (start != NULL) & (start < begins[numbers[first]])
    if not before.any():
        return nothing
    lasted = begins[numbers[first]] - int(start[before].min())
    if not first and lasted <= LONG * usual:
        return nothing
    longest = max((spans[number] for number in numbers[:first]), default=0)
    return WarmUp(first, longest, round(usual), int(before.sum()), lasted), before


def _median(spans: dict[int, int], numbers: list[int]) -> float:
    return float(np.median([spans[number] for number in numbers]))
