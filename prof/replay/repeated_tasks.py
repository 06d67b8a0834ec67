"""Tasks with some calls made once more: the host's work before them, the calls, and what they launch.

The calls that are repeated wait for each other as the original ones do. The first of them begins when the call before
which they come would have begun, which then waits for the last of them; and what they launch comes after all that was
launched on its streams before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pyprof.prof.replay.recorded_run import Work
from pyprof.prof.replay.tasks import CALL, DEPENDS, GAP, HOST, WORK, Tasks
from pyprof.table.columns import Ints, offsets_of


class Repeat(NamedTuple):
    """Calls of one thread, in order, that are made again before another call."""

    calls: Ints
    before: int


@dataclass(frozen=True, slots=True)
class RepeatedTasks:
    """The structure of the longer list of tasks. Numbers of base tasks and dependencies are those of the base."""

    origin: Ints  # per task: the base task that it is, or repeats
    place: Ints  # per base task: its own place
    begins: Ints  # per repeat: the place of its first task
    first: Ints
    source: Ints
    edge: Ints  # per dependency: the base's; -1 where it has no lag
    cause: Ints
    repeated: Ints  # places of the tasks that are made again

    def tasks(self, base: Tasks) -> Tasks:
        """The tasks with the base's durations and lags."""
        release = base.release[self.origin]
        release[self.repeated] = base.release.min()
        return Tasks(
            kind=base.kind[self.origin],
            item=base.item[self.origin],
            duration=base.duration[self.origin],
            release=release,
            first=self.first,
            source=self.source,
            lag=self.lags(base.lag),
            cause=self.cause,
        )

    def lags(self, lag: Ints) -> Ints:
        """The lags of the dependencies by those of the base's, or several lines of them."""
        return np.where(self.edge >= 0, lag[..., self.edge], 0)


def repeated_tasks(base: Tasks, work: Work, repeats: Sequence[Repeat]) -> RepeatedTasks:
    """The structure of the tasks with these repeats."""
    return _Builder(base, work, repeats).build()


@dataclass(slots=True)
class _Edges:
    """Dependencies of repeated tasks, by places."""

    target: list[int] = field(default_factory=list)
    source: list[int] = field(default_factory=list)
    edge: list[int] = field(default_factory=list)
    cause: list[int] = field(default_factory=list)

    def add(self, target: int, source: int, edge: int, cause: int) -> None:
        self.target.append(target)
        self.source.append(source)
        self.edge.append(edge)
        self.cause.append(cause)


class _Builder:
    def __init__(self, base: Tasks, work: Work, repeats: Sequence[Repeat]) -> None:
        self.base, self.work = base, work
        self.call_of = np.where(base.kind == WORK, work.call[np.where(base.kind == WORK, base.item, 0)], base.item)
        self.is_work = base.kind == WORK
        on_host = np.isin(base.kind, (HOST, CALL))
        self.owned = on_host | (self.is_work & (self.call_of >= 0))  # tasks of calls
        calls = int(base.item[on_host].max(initial=-1)) + 1
        self.host_task = np.full(calls, -1, np.int64)
        self.host_task[base.item[base.kind == HOST]] = np.flatnonzero(base.kind == HOST)
        self.by_call = self._tasks_by_call(calls)
        self._of_lane: dict[int, Ints] = {}  # the operations of each lane
        self._tails: dict[int, tuple[int, int]] = {}  # lane -> (base task before, place of the last repeated task)
        self.repeats = sorted(repeats, key=lambda repeat: int(self.host_task[repeat.before]))

    def _tasks_by_call(self, calls: int) -> tuple[Ints, Ints]:
        """The tasks in order of their calls, and where each call's begin."""
        owned = np.flatnonzero(self.owned)
        order = owned[np.argsort(self.call_of[owned], kind="stable")]
        return order, np.searchsorted(self.call_of[order], np.arange(calls + 1))

    def _of_calls(self, calls: Ints) -> Ints:
        order, begins = self.by_call
        parts = [order[begins[call] : begins[call + 1]] for call in calls.tolist()]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)

    def build(self) -> RepeatedTasks:
        base, parts = self.base, [self._of_calls(repeat.calls) for repeat in self.repeats]
        at = np.array([self.host_task[repeat.before] for repeat in self.repeats], np.int64)
        counts = np.array([len(part) for part in parts], np.int64)
        shift = np.zeros(len(base) + 1, np.int64)
        np.add.at(shift, at, counts)
        place = np.arange(len(base)) + np.cumsum(shift)[:-1]
        begins = at + offsets_of(counts)[:-1]
        repeated = np.concatenate([np.arange(b, b + n) for b, n in zip(begins, counts, strict=True)] or [place[:0]])
        origin = np.empty(len(base) + int(counts.sum()), np.int64)
        origin[place] = np.arange(len(base))
        origin[repeated] = np.concatenate(parts or [place[:0]])
        target = np.repeat(np.arange(len(base)), np.diff(base.first))
        source, edges = place[base.source], _Edges()
        for repeat, part, begin in zip(self.repeats, parts, begins.tolist(), strict=True):
            self._add(repeat, part, begin, place, source, edges)
        targets = np.concatenate([place[target], np.array(edges.target, np.int64)])
        order = np.argsort(targets, kind="stable")
        per_task = np.bincount(targets, minlength=len(origin))
        return RepeatedTasks(
            origin=origin,
            place=place,
            begins=begins,
            first=offsets_of(per_task),
            source=np.concatenate([source, np.array(edges.source, np.int64)])[order],
            edge=np.concatenate([np.arange(len(base.source)), np.array(edges.edge, np.int64)])[order],
            cause=np.concatenate([base.cause, np.array(edges.cause, np.int64)])[order],
            repeated=repeated,
        )

    def _add(self, repeat: Repeat, part: Ints, begin: int, place: Ints, source: Ints, edges: _Edges) -> None:
        """The dependencies of one repeat; ``source``, of the base's dependencies, changes where these come between."""
        base = self.base
        before = int(self.host_task[repeat.before])
        new = {task: begin + k for k, task in enumerate(part.tolist())}
        waiting = base.edges_of(before)
        last_call, lanes = -1, dict[int, int]()
        for task in part.tolist():
            kind, number = int(base.kind[task]), new[task]
            if kind == HOST and last_call >= 0:
                edges.add(number, last_call, -1, DEPENDS)
            elif kind == HOST:
                for edge in waiting:
                    edges.add(number, int(source[edge]), edge, int(base.cause[edge]))
            else:
                self._add_inner(task, new, place, edges)
            if kind == CALL:
                last_call = number
            elif kind == WORK:
                lane = int(self.work.lane[base.item[task]])
                self._follow(task, number, lanes.get(lane, -1), lane, before, place, edges)
                lanes[lane] = number
        if last_call >= 0:
            source[waiting.start : waiting.stop] = last_call
        for lane, number in lanes.items():
            self._precede(lane, number, before, source)

    def _add_inner(self, task: int, new: dict[int, int], place: Ints, edges: _Edges) -> None:
        """What a call or an operation waits for, but for the operation before it on its stream."""
        base = self.base
        for edge in base.edges_of(task):
            of, cause = int(base.source[edge]), int(base.cause[edge])
            if cause == GAP or (cause == DEPENDS and of not in new):
                continue
            edges.add(new[task], new.get(of, int(place[of])), edge, cause)

    def _tail(self, lane: int, before: int) -> int:
        """The last base operation of a lane before a task; -1: none."""
        tasks = self._lane_tasks(lane)
        at = int(np.searchsorted(tasks, before)) - 1
        return int(tasks[at]) if at >= 0 else -1

    def _lane_tasks(self, lane: int) -> Ints:
        if lane not in self._of_lane:
            lanes = self.work.lane[np.where(self.is_work, self.base.item, 0)]
            self._of_lane[lane] = np.flatnonzero(self.is_work & (lanes == lane))
        return self._of_lane[lane]

    def _follow(
        self, task: int, number: int, previous: int, lane: int, before: int, place: Ints, edges: _Edges
    ) -> None:
        """An operation comes after the one before it on its stream: a repeated one, or the last before the repeat."""
        base = self.base
        gap = next((e for e in base.edges_of(task) if base.cause[e] == GAP), -1)
        if previous < 0:
            tail = self._tail(lane, before)
            known, repeated = self._tails.get(lane, (-1, -1))
            previous = repeated if known == tail and repeated >= 0 else int(place[tail]) if tail >= 0 else -1
        if previous >= 0:
            edges.add(number, previous, gap, GAP)

    def _precede(self, lane: int, number: int, before: int, source: Ints) -> None:
        """The stream's next operation after the repeat comes after its last one."""
        base, tasks = self.base, self._lane_tasks(lane)
        self._tails[lane] = self._tail(lane, before), number
        at = int(np.searchsorted(tasks, before))
        for task in tasks[at : at + 1].tolist():
            for edge in base.edges_of(task):
                if base.cause[edge] == GAP:
                    source[edge] = number
