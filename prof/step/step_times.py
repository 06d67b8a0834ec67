"""How long each step of a capture takes, from where the program's iteration begins to where the next one does.

An iteration begins at its mark; without marks, where the program asks a DataLoader for the batch, or at the step's
first operation, if nothing shows an earlier beginning. A step that begins at an operation ends at the next one's first
operation, so the last one's length is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pyprof.prof.timing.steps import Step, steps_of_devices
from pyprof.prof.timing.waiting import loader_calls_of_rows
from pyprof.prof.timing.warmup import warm_up
from pyprof.table.columns import NULL, Bools, Table, kept_with_table

Begin = Literal["mark", "loader", "operation"]


@dataclass(frozen=True, slots=True)
class Window:
    """One step on one device: its number, when it begins and ends, and whether that is a whole iteration."""

    owner: int
    number: int | None
    begin: int
    end: int
    whole: bool


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The steps that count, of all devices, and how their beginning is known."""

    windows: tuple[Window, ...]
    begins: Begin

    @property
    def counted(self) -> list[Window]:
        """The whole steps; those that are not if there is no other."""
        return [window for window in self.windows if window.whole] or list(self.windows)

    def lengths(self) -> dict[int | None, int]:
        """By number of each step that counts, the time that it takes on the slowest device, ns."""
        longest: dict[int | None, int] = {}
        for window in self.counted:
            longest[window.number] = max(longest.get(window.number, 0), window.end - window.begin)
        return longest


@kept_with_table
def step_times(table: Table) -> StepTimes:
    """The steps of a capture without its warm-up; a capture without steps is one step."""
    before = warm_up(table)[1]
    steps = [step for step in steps_of_devices(table) if step.span_ns > 0]
    counted = _counted(table, steps, before)
    marked = any(step.mark_ns is not None for step in counted)
    loads = {} if marked else _first_loads(table)
    begins: Begin = "mark" if marked else "loader" if any(step.number in loads for step in counted) else "operation"
    windows: list[Window] = []
    for owner in sorted({step.owner for step in counted}):
        mine = sorted((step for step in counted if step.owner == owner), key=lambda step: step.start_ns)
        windows += _of_device(mine, begins, loads)
    return StepTimes(tuple(windows), begins)


def _counted(table: Table, steps: list[Step], before: Bools) -> list[Step]:
    """The steps after the warm-up: those with rows that remain, and those behind them that launch nothing."""
    number = table.ints("step")
    kept = set(np.unique(number[~before & (table.ints("start") != NULL)]).tolist())
    if not any(step.number is not None for step in steps):
        return steps
    working = set(np.unique(number).tolist())
    first = min((step.start_ns for step in steps if step.number in kept), default=0)
    return [
        step
        for step in steps
        if step.number is not None and (step.number in kept or (step.number not in working and step.start_ns > first))
    ]


def _first_loads(table: Table) -> dict[int, int]:
    """By step, when the program first asked a DataLoader for a batch of it."""
    found = dict[int, int]()
    for row, calls in loader_calls_of_rows(table):
        step, begin = int(table.ints("step")[row]), min(call[1] for call in calls)
        found[step] = min(begin, found.get(step, begin))
    return found


def _of_device(steps: list[Step], begins: Begin, loads: dict[int, int]) -> list[Window]:
    """The windows of one device's steps, in order."""
    starts = [step.start_ns for step in steps]
    if begins == "loader":
        for i, step in enumerate(steps):
            done = steps[i - 1].start_ns + steps[i - 1].extent_ns if i else NULL
            if step.number in loads:  # an operation behind the optimizer, such as loss.item(), may be before it
                starts[i] = max(loads[step.number], done)
    windows = []
    for i, step in enumerate(steps):
        follows = i + 1 < len(steps) and steps[i + 1].number == (step.number or 0) + 1
        if begins == "mark":
            end, whole = step.start_ns + step.span_ns, True
        elif follows:
            end, whole = starts[i + 1], True
        else:
            end, whole = step.start_ns + step.extent_ns, begins == "loader"
        windows.append(Window(step.owner, step.number, starts[i], max(end, starts[i]), whole))
    return windows
