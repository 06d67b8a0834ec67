"""A capture and its replay side by side: when each call and operation begins and ends, and how the two differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.errors import InputError
from pyprof.prof.replay.recorded_run import Recorded, recorded
from pyprof.prof.replay.tasks import ARRIVAL, WORK, Tasks, simulate, tasks_of
from pyprof.table.columns import NULL, HostTable, Ints, Table, greatest
from pyprof.table.intervals import covered
from pyprof.table.losses import losses

COMPLETE = 0.99  # the least share of the GPU's time that must have a launch in the capture
SAME_NS = 100_000  # clocks of processes that differ by less are the same, and the kernels differ


@dataclass(frozen=True, slots=True)
class ReplayedStep:
    """A step, from when the GPU had finished the step before; the first one, from its first operation."""

    number: Annotated[int, doc("of the step")]
    recorded_ns: Annotated[int, doc("from the GPU's end of the step before to the end of this one, in the capture")]
    replayed_ns: Annotated[int, doc("the same in the replay")]


@dataclass
class Replayed:
    """A replayed capture."""

    table: Table
    host: HostTable
    run: Recorded
    tasks: Tasks
    ends: Ints  # per task, ns

    @cached_property
    def work_end(self) -> Ints:
        """When each operation ends in the replay."""
        return self.ends[self.tasks.of(WORK)]

    @cached_property
    def work_start(self) -> Ints:
        """When each operation begins in the replay."""
        found = self.work_end - self.tasks.duration[self.tasks.of(WORK)]
        arrived = self.tasks.kind == ARRIVAL
        found[self.tasks.item[arrived]] = self.ends[arrived]
        return found

    @property
    def recorded_ns(self) -> int:
        """From the first event of the capture to the last."""
        return self.run.finish() - self.run.begin()

    @property
    def replayed_ns(self) -> int:
        return int(self.ends.max()) - self.run.begin()

    @property
    def difference(self) -> float:
        """How much longer the replay is, as a share of the capture."""
        return self.replayed_ns / self.recorded_ns - 1 if self.recorded_ns else 0.0

    @property
    def is_complete(self) -> bool:
        return self.launched_share >= COMPLETE

    @cached_property
    def launched_share(self) -> float:
        """The share of the GPU's time, in marked steps if there are any, whose launch is in the capture. The others
        begin when they did in the capture."""
        work = self.run.work
        inside = self.table.ints("step")[work.row] != NULL
        time = (work.end - work.start) * (inside if inside.any() else 1)
        return float(time[work.call >= 0].sum()) / max(float(time.sum()), 1.0)

    def idle_ns(self) -> tuple[int, int]:
        """Time between each device's first and last operation in which it had none: in the capture, in the replay."""
        work = self.run.work
        keys = [lane[:2] for lane in self.run.lanes]
        device = np.array([keys.index(key) for key in keys], np.int64)[work.lane]
        sums = [0, 0]
        for number in np.unique(device).tolist():
            mine = device == number
            for place, (start, end) in enumerate(((work.start, work.end), (self.work_start, self.work_end))):
                sums[place] += int(end[mine].max() - start[mine].min()) - covered(start[mine], end[mine])
        return sums[0], sums[1]

    def steps(self) -> list[ReplayedStep]:
        """The steps that the capture marks."""
        work = self.run.work
        number = self.table.ints("step")[work.row]
        marked = number != NULL
        if not marked.any():
            return []
        steps, group = np.unique(number[marked], return_inverse=True)
        times = []
        for start, end in ((work.start, work.end), (self.work_start, self.work_end)):
            finish = np.maximum.accumulate(greatest(end[marked], group, len(steps)))
            times.append(np.diff(finish, prepend=start[marked][group == 0].min()).tolist())
        return [ReplayedStep(*step) for step in zip(steps.tolist(), *times, strict=True)]

    def with_tasks(self, tasks: Tasks) -> Replayed:
        """The replay of other tasks of the same run."""
        return Replayed(self.table, self.host, self.run, tasks, simulate(tasks))


def aligned(table: Table, host: HostTable, meetings: Sequence[Ints]) -> tuple[Table, HostTable]:
    """The tables with the times of all processes on the clock of one, where captures count from their own begin.

    The kernels of a collective (the rows of one of ``meetings``) end together in all ranks: a clock is moved by the
    median difference of their ends to those of a process of a smaller number, which has been moved before.
    """
    end, pid = table.ints("start") + np.maximum(table.ints("kDuration"), 0), table.ints("pid")
    ahead: dict[tuple[int, int], list[int]] = {}
    for rows in meetings:
        first, *others = rows[np.argsort(pid[rows], kind="stable")].tolist()
        for row in others:
            ahead.setdefault((int(pid[row]), int(pid[first])), []).append(int(end[row] - end[first]))
    shifts: dict[int, int] = {}
    for (process, reference), differences in sorted(ahead.items()):
        shifts.setdefault(process, round(float(np.median(differences))) + shifts.get(reference, 0))
    shifts = {process: shift for process, shift in shifts.items() if abs(shift) > SAME_NS}
    if not shifts:
        return table, host
    for key in ("start", "apiStart"):
        table = table.with_column(key, _moved(table.ints(key), table.ints("pid"), shifts))
    return table, host.with_column("start", _moved(host.ints("start"), host.ints("pid"), shifts))


def _moved(times: Ints, pid: Ints, shifts: Mapping[int, int]) -> Ints:
    ahead = np.array([shifts.get(process, 0) for process in pid.tolist()], np.int64)
    return np.where(times == NULL, NULL, times - ahead)


def refuse_incomplete(table: Table, name: str) -> None:
    """Raise InputError if the capture has lost records; the error says which, and how to record it anew."""
    lost = losses(table)
    if lost:
        why, remedy = ("; ".join(dict.fromkeys(texts)) for texts in zip(*map(astuple, lost), strict=True))
        raise InputError(
            name, f"expected a complete capture, found an incomplete capture: {why}; to record it anew: {remedy}"
        )


def replay(
    table: Table, host: HostTable, name: str, meetings: Sequence[Ints] = (), handed: Sequence[Ints] = ()
) -> Replayed:
    """Replay a kernel table and its host calls. ``name``: of the file.

    ``meetings``: the rows of each collective of which the table has all ranks. Without them, a collective takes as long
    as in the capture, with its wait for the other ranks. ``handed``: the rows of each transfer whose sender did not
    wait for its receiver, that of the receiver first. Raises InputError if there is nothing to replay, or if the
    capture is incomplete: then what runs after what is not on record.
    """
    refuse_incomplete(table, name)
    table, host = aligned(table, host, meetings)
    run = recorded(table, host, name)
    place = np.full(len(table) + 1, -1, np.int64)
    place[run.work.row] = np.arange(len(run.work))
    known = ([place[rows] for rows in each if (place[rows] >= 0).all()] for each in (meetings, handed))
    tasks = tasks_of(run, *known)
    return Replayed(table, host, run, tasks, simulate(tasks))
