"""The time of each step by phase: forward, backward, optimizer, data; of servers prefill, decode, mixed; other; idle.

A marked step lasts from mark to mark, as its device reaches the marks: see ``pyprof.parse.attribute.step_times``, whose
columns stepStart and stepEnd tell. Where no mark says (the optimizer separates the steps, or the table is an older
one), a step lasts from its first operation to the next step's first, and the last one to the end of its last operation.

A step's time is split by what ran on its device during it. Overlapping time counts once: if operations of two phases
overlap, it counts for the phase that comes first in ``PHASES``. So the phases and the idle time sum to the step's time.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.timing.gpus import devices_of_rows, ends
from pyprof.serving_range import SERVING_PHASES
from pyprof.table.columns import NULL, Coded, Ints, Table, greatest, kept_with_table, known, least
from pyprof.table.intervals import covered

LAST_NS = 1 << 62  # later times mean a damaged file
PHASES = ("forward", "backward", "optimizer", "data", *SERVING_PHASES, "other")


@dataclass(frozen=True, slots=True)
class Step:
    """A step on one device; ``number`` is None for a capture without steps, which counts as one."""

    owner: Annotated[int, doc("number of the device")]
    number: Annotated[int | None, doc("number of the step")]
    start_ns: Annotated[
        int,
        doc("when it begins: at its mark, or when the work launched before it is done; unmarked: its first operation"),
    ]
    span_ns: Annotated[
        int, doc("from there to where the next step begins; of the last one to its mark's end, or its own")
    ]
    phase_ns: Annotated[dict[str, int], doc("time by phase, each instant counted once")]
    idle_ns: Annotated[int, doc("time in which no operation ran")]
    mark_ns: Annotated[int | None, doc("on the host's clock, from its mark to the next; null where no mark says")] = (
        None
    )
    extent_ns: Annotated[int, doc("GPU extent: from the start of its first operation to the end of its last one")] = 0


def slowest_steps(table: Table) -> dict[int, Step]:
    """Each marked step by number, in order; of several GPUs the slowest one's, from the first one's start."""
    found: dict[int, Step] = {}
    for step in steps_of_devices(table):
        if step.number is not None:
            before = found.get(step.number, step)
            slowest = max(before, step, key=lambda each: each.span_ns)
            found[step.number] = replace(slowest, start_ns=min(before.start_ns, step.start_ns))
    return dict(sorted(found.items()))


@kept_with_table
def steps_of_devices(table: Table) -> list[Step]:
    """The ``steps`` of each device."""
    return steps(table, devices_of_rows(table)[1])


def owners(table: Table) -> tuple[Ints, list[str]]:
    """The number of each row's device, and the devices' names."""
    keys, owner = devices_of_rows(table)
    gpu = table.coded("gpu")
    names = []
    for number, key in enumerate(keys):
        named = gpu.codes[(owner == number) & (gpu.codes >= 0)]
        name = (gpu.values[named[0]] if len(named) else "") or "device"
        names.append(", ".join([name, *_words(key)]) if len(keys) > 1 else name)
    return owner, names


def short_owners(table: Table) -> list[str]:
    """Short device names with a single number, such as "rank 0", if it differs for each; a single device has none."""
    keys, _ = devices_of_rows(table)
    for place, what in ((0, "rank"), (2, "device"), (1, "process")):
        numbers = [key[place] for key in keys]
        if len(keys) > 1 and NULL not in numbers and len(set(numbers)) == len(keys):
            return [f"{what} {number}" for number in numbers]
    return [", ".join(_words(key)) if len(keys) > 1 else "" for key in keys]


def _words(key: Sequence[int]) -> list[str]:
    return [f"{what} {value}" for what, value in zip(("rank", "process", "device"), key, strict=True) if value != NULL]


def steps(table: Table, owner: Ints) -> list[Step]:
    """One record per (owner, step), in that order. Rows outside of all steps count where they run during a step."""
    start, end, place = table.ints("start"), ends(table), phase_places(table)
    timed = start != NULL
    marked = bool((table.ints("step")[timed] != NULL).any())
    found: list[Step] = []
    for device in np.unique(owner[timed]).tolist():
        rows = np.flatnonzero(timed & (owner == device))
        rows = rows[np.argsort(start[rows], kind="stable")]
        columns = {key: table.ints(key)[rows] for key in COLUMNS}
        empty = _empty_steps(table.coded("emptySteps").take(rows)) if marked else []
        found += _of_device(device, columns, end[rows], place[rows], marked, empty)
    return found


COLUMNS = ("start", "step", "markStart", "markEnd", "stepStart", "stepEnd")


def _empty_steps(column: Coded) -> list[tuple[int, int, int]]:
    """Number, start and end of the marks of steps without work; a damaged file's are left out."""
    lists = [json.loads(text) for text in column.used().values if text]
    steps = [step for each in lists if isinstance(each, list) for step in each if isinstance(step, list)]
    whole = {tuple(step) for step in steps if [type(n) for n in step] == [int] * 3}
    possible = {step[0]: step for step in whole if -LAST_NS < step[1] <= step[2] < LAST_NS}
    return sorted(possible.values(), key=lambda step: step[1])


class _Times(NamedTuple):
    """One value per step of a device, in order."""

    number: Ints
    begin: Ints
    end: Ints
    mark: Ints
    mark_end: Ints
    extent: Ints

    def with_empty(self, empty: Sequence[tuple[int, int, int]]) -> "_Times":
        """With steps that launched nothing, each from the end of the step before it to the beginning of the next.

        ``empty``: number, start and end of their marks, in order of start.
        """
        working = set(self.number.tolist())
        between = [step for step in empty if self.mark[0] < step[1] < self.mark[-1] and step[0] not in working]
        if not between:
            return self
        merged: list[tuple[int, ...]] = []
        waiting = iter([*between, (NULL, LAST_NS, LAST_NS)])
        number, mark, until = next(waiting)
        for step in zip(*(column.tolist() for column in self), strict=True):
            _, next_begin, _, next_mark, *_ = step
            while mark < next_mark:
                begin = max(mark, merged[-1][2])
                end = max(begin, next_begin if until >= next_mark else min(until, next_begin))
                merged.append((number, begin, end, mark, until, 0))
                number, mark, until = next(waiting)
            merged.append(step)
        return _Times(*(np.array(column, np.int64) for column in zip(*merged, strict=True)))


def _of_device(
    owner: int, columns: dict[str, Ints], end: Ints, place: Ints, marked: bool, empty: Sequence[tuple[int, int, int]]
) -> Iterator[Step]:
    """The steps of one device, from its rows in order of their start, and its process's steps without work."""
    inside = np.flatnonzero(columns["step"] != NULL) if marked else np.arange(len(end))
    numbers, group = np.unique(columns["step"][inside], return_inverse=True)
    start, _, mark, mark_end, begin, until = (columns[key][inside] for key in COLUMNS)
    count = len(numbers)
    first, low, mark = (least(values, group, count) for values in (start, begin, mark))
    last, high, mark_end = (greatest(values, group, count) for values in (end[inside], until, mark_end))
    following = np.append(np.where(np.diff(numbers) == 1, first[1:], NULL), NULL)[:count]
    has_times = (low != NULL) & (high >= low)  # in a damaged table, the end may come first
    low = np.where(has_times, low, first)
    high = np.where(has_times, high, np.where(following > low, following, last))
    times = _Times(numbers, low, high, mark, mark_end, last - first).with_empty(empty)
    numbers, low, high, mark, mark_end, extent = times
    reach = np.maximum.accumulate(end)
    before, after = np.searchsorted(reach, low, "right"), np.searchsorted(columns["start"], high)
    for i, number in enumerate(numbers.tolist()):
        running = slice(int(before[i]), int(after[i]))
        began, ended = (np.clip(times[running], low[i], high[i]) for times in (columns["start"], end))
        phases, span = phase_times(began, ended, place[running]), int(high[i]) - int(low[i])
        idle, host = span - sum(phases.values()), None
        if mark[i] != NULL and mark_end[i] != NULL:
            host = int(mark_end[i]) - int(mark[i])
        yield Step(owner, known(number), int(low[i]), span, phases, idle, host, int(extent[i]))


def phase_places(table: Table) -> Ints:
    """Each row's phase as an index into ``PHASES``; rows without a known phase are "other"."""
    phase = table.coded("phase")
    places = [PHASES.index(text if text in PHASES else "other") for text in [*phase.values, "other"]]
    return np.array(places)[phase.codes]


def phase_times(start: Ints, end: Ints, place: Ints) -> dict[str, int]:
    """The time of each phase on one device, ns. Overlapping time counts once, for the first of its phases."""
    times: dict[str, int] = {}
    before = 0
    for i in np.flatnonzero(np.bincount(place)).tolist():  # those that occur
        so_far = covered(start[place <= i], end[place <= i])
        if so_far > before:
            times[PHASES[i]] = so_far - before
        before = so_far
    return times
