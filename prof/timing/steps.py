"""The time of each step by phase: forward, backward, optimizer, data, other, and idle (no operation).

Overlapping time counts once: if operations of two phases overlap, it counts for the phase that comes first in
``PHASES``. So the phases and the idle time sum to the step's time. A step lasts from the start of its first operation
to the start of the next step's; the last step lasts to the end of its last operation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.timing.gpus import covered, devices_of_rows, ends
from pyprof.table.columns import NULL, Ints, Table, distinct, known

PHASES = ("forward", "backward", "optimizer", "data", "other")


@dataclass(frozen=True, slots=True)
class Step:
    """A step on one device; ``number`` is None for a capture without steps, which counts as one."""

    owner: Annotated[int, doc("number of the device")]
    number: Annotated[int | None, doc("number of the step")]
    start_ns: Annotated[int, doc("start of its first operation")]
    span_ns: Annotated[int, doc("from there to the next step's first operation")]
    phase_ns: Annotated[dict[str, int], doc("time by phase, each instant counted once")]
    idle_ns: Annotated[int, doc("time in which no operation ran")]


def slowest_steps(table: Table) -> dict[int, tuple[int, int]]:
    """Start and duration of each marked step, by number. With several GPUs, the slowest one decides its duration."""
    _, owner = devices_of_rows(table)
    found: dict[int, tuple[int, int]] = {}
    for step in steps(table, owner):
        if step.number is not None:
            start, span = found.get(step.number, (step.start_ns, 0))
            found[step.number] = min(start, step.start_ns), max(span, step.span_ns)
    return found


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
    """One record per (owner, step), in that order. Rows outside of all steps count only if there are no steps."""
    start, end, number = table.ints("start"), ends(table), table.ints("step")
    place = phase_places(table)
    rows = np.flatnonzero(start != NULL)
    if np.any(number[rows] != NULL):
        rows = rows[number[rows] != NULL]
    if not len(rows):
        return []
    keys, group = distinct(owner[rows], number[rows])
    order = np.argsort(group, kind="stable")
    members = np.split(rows[order], np.flatnonzero(np.diff(group[order])) + 1)
    firsts = {key: int(start[rows].min()) for key, rows in zip(keys, members, strict=True)}
    return [
        _step(device, step, start[rows], end[rows], place[rows], firsts.get((device, step + 1)))
        for (device, step), rows in zip(keys, members, strict=True)
    ]


def _step(owner: int, number: int, start: Ints, end: Ints, place: Ints, following: int | None) -> Step:
    """A step from its rows; ``following``: the start of the next step."""
    low, high = int(start.min()), int(end.max())
    if following is not None and following > low:
        high = following
        start, end = np.minimum(start, high), np.minimum(end, high)
    phases = phase_times(start, end, place)
    return Step(owner, known(number), low, high - low, phases, high - low - sum(phases.values()))


def phase_places(table: Table) -> Ints:
    """Each row's phase as an index into ``PHASES``; rows without a known phase are "other"."""
    phase = table.coded("phase")
    places = [PHASES.index(text if text in PHASES else "other") for text in [*phase.values, "other"]]
    return np.array(places)[phase.codes]


def phase_times(start: Ints, end: Ints, place: Ints) -> dict[str, int]:
    """The time of each phase on one device, ns. Overlapping time counts once, for the first of its phases."""
    times: dict[str, int] = {}
    before = 0
    for i, name in enumerate(PHASES):
        so_far = covered(start[place <= i], end[place <= i])
        if so_far > before:
            times[name] = so_far - before
        before = so_far
    return times
