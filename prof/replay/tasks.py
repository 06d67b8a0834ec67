"""The run as tasks in an order in which each comes after all that it waits for, and when they end.

A call has two tasks: the host's work before it (since the thread's previous call, or since the hand-over from another
thread), and the call itself. A GPU operation is a task. A task begins when all tasks that it waits for have ended, each
with a lag that is a cost of its own: the latency of a launch, the gap between two kernels, the wake-up after a
synchronisation. No task has a recorded start, but those that begin without a cause within the capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyprof.errors import PyprofError
from pyprof.gc_pause import uncollected
from pyprof.prof.replay.dependencies import Blocked, between_streams, blocked_calls, polled, room_on_gpu
from pyprof.prof.replay.latencies import Latencies, latencies
from pyprof.prof.replay.recorded_run import Recorded, previous_in
from pyprof.table.columns import Ints, offsets_of

HOST, CALL, WORK, ARRIVAL = range(4)
# What the lag of a dependency is
LAGS = ("", "launch", "gap", "stream wait", "room", "synchronisation", "meeting")
DEPENDS, LAUNCH, GAP, STREAM_WAIT, ROOM, SYNC, MEETING = range(len(LAGS))
WAIT_NS = 1500  # from the end of an operation to the start of one on another stream that waits for its event
BEFORE_NS = 50_000  # a stream whose first operation begins later than expected by this had work from before the capture


@dataclass(slots=True)
class Tasks:
    """The tasks, and the dependencies by target in the same order."""

    kind: Ints  # HOST, CALL, WORK or ARRIVAL, the begin of a collective's kernel
    item: Ints  # index into the run's calls or its work
    duration: Ints  # ns
    release: Ints  # ns; the task begins at that time or after; the begin of the capture where nothing else is known
    first: Ints  # offsets of the tasks' dependencies in the columns below, one more than tasks
    source: Ints
    lag: Ints  # ns after the end of ``source``
    cause: Ints  # index into LAGS

    def __len__(self) -> int:
        return len(self.kind)

    def of(self, kind: int) -> Ints:
        """The task of each call (HOST, CALL) or operation (WORK)."""
        chosen = np.flatnonzero(self.kind == kind)
        return chosen[np.argsort(self.item[chosen])]


def tasks_of(run: Recorded, meetings: Sequence[Ints] = (), handed: Sequence[Ints] = ()) -> Tasks:
    """The tasks of a recorded run.

    ``meetings``: the operations of each collective whose ranks are all in the capture. ``handed``: of each transfer
    whose sender did not wait for its receiver, the operation that receives and the one that sends.
    """
    before = previous_in(run.work.lane)
    typical = latencies(run, before)
    blocked = blocked_calls(run)
    builder = _Builder(run, blocked)
    builder.add_host()
    builder.add_calls()
    builder.add_work(before, typical)
    builder.add_meetings(meetings, handed)
    return builder.tasks()


class _Builder:
    """Collects dependencies by number: host segments, then calls, then operations."""

    def __init__(self, run: Recorded, blocked: Blocked) -> None:
        self.run, self.blocked = run, blocked
        self.calls, self.rows = len(run.calls), len(run.work)
        self.duration = np.zeros(2 * self.calls + self.rows, np.int64)
        self.release = np.full(len(self.duration), run.begin(), np.int64)
        self.edges: list[tuple[Ints, Ints, Ints, Ints]] = []
        self.meeting = np.zeros(0, np.int64)  # the operations that meet others, each of which has an arrival

    def add(self, target: Ints, source: Ints, lag: Ints, cause: int) -> None:
        self.edges.append((target, source, lag, np.full(len(target), cause, np.int64)))

    def add_host(self) -> None:
        """The host's work before each call, by the thread's previous call or by the hand-over."""
        calls = self.run.calls
        since = np.where(calls.after >= 0, calls.after, calls.before)
        known = np.flatnonzero(since >= 0)
        self.duration[known] = np.maximum(calls.start[known] - calls.end[since[known]], 0)
        begins = np.flatnonzero(since < 0)
        self.release[begins] = calls.start[begins]
        until, kernel = polled(self.run)
        self.duration[until] = 0
        self.add(until, 2 * self.calls + kernel, calls.start[until] - self.run.work.end[kernel], SYNC)
        self.add(known, self.calls + since[known], np.zeros_like(known), DEPENDS)
        both = np.flatnonzero((calls.after >= 0) & (calls.before >= 0))
        self.add(self.calls + both, self.calls + calls.before[both], np.zeros_like(both), DEPENDS)

    def add_calls(self) -> None:
        """Each call, with the operations that it waits for."""
        every, blocked = np.arange(self.calls), self.blocked
        self.duration[self.calls : 2 * self.calls] = blocked.own
        self.add(self.calls + every, every, np.zeros_like(every), DEPENDS)
        lag = blocked.tail - blocked.own[blocked.call]
        self.add(self.calls + blocked.call, 2 * self.calls + blocked.work, lag, SYNC)

    def add_work(self, before: Ints, typical: Latencies) -> None:
        """Each operation, after its launch, its stream's operation before, and those that its stream waits for."""
        work, first = self.run.work, 2 * self.calls
        self.duration[first:] = work.end - work.start
        launched = np.flatnonzero(work.call >= 0)
        call = work.call[launched]
        inside = typical.inside[launched]
        self.add(first + launched, np.where(inside, call, self.calls + call), typical.launch[launched], LAUNCH)
        follows = np.flatnonzero(before >= 0)
        self.add(first + follows, first + before[follows], typical.gap[follows], GAP)
        known, calls = work.call >= 0, self.run.calls
        called = np.where(typical.inside, calls.start[work.call], calls.end[work.call]) + typical.launch
        expected = np.where(known, called, work.start)  # by its launch and its stream alone
        expected = np.where(before >= 0, np.maximum(expected, work.end[before] + typical.gap), expected)
        target, source = between_streams(self.run)
        self.add(first + target, first + source, np.full(len(target), WAIT_NS), STREAM_WAIT)
        np.maximum.at(expected, target, work.end[source] + WAIT_NS)
        target, source = room_on_gpu(self.run, expected)
        self.add(first + target, first + source, work.start[target] - work.end[source], ROOM)
        expected[target] = work.start[target]
        first_known = np.full(len(self.run.lanes), np.iinfo(np.int64).max)
        np.minimum.at(first_known, work.lane[known], work.start[known])
        queued = (before >= 0) & (work.start < first_known[work.lane])  # when the capture began
        as_recorded = np.flatnonzero((~known & ~queued) | ((before < 0) & (work.start > expected + BEFORE_NS)))
        self.release[first + as_recorded] = work.start[as_recorded]

    def add_meetings(self, meetings: Sequence[Ints], handed: Sequence[Ints] = ()) -> None:
        """Collectives: an operation arrives when it could begin, and all end a time after the last one has arrived.

        That time is the duration of the operation that arrived last, which is the shortest one. An operation that
        receives waits for its sender in the same way, which does not wait for it.
        """
        if not meetings and not handed:
            return
        self.meeting = np.concatenate([*meetings, *handed])
        first, arrival = 2 * self.calls, len(self.duration)
        place = np.full(arrival, -1, np.int64)
        place[first + self.meeting] = arrival + np.arange(len(self.meeting))
        self.edges = [(np.where(place[edge[0]] >= 0, place[edge[0]], edge[0]), *edge[1:]) for edge in self.edges]
        self.release = np.append(self.release, self.release[first + self.meeting])
        self.release[first + self.meeting] = self.run.begin()
        self.duration = np.append(self.duration, np.zeros_like(self.meeting))
        for rows in meetings:
            self.duration[first + rows] = self.duration[first + rows].min()
            target, source = np.repeat(first + rows, len(rows)), np.tile(place[first + rows], len(rows))
            self.add(target, source, np.zeros_like(target), MEETING)
        for receiver, sender in handed:
            self.duration[first + receiver] = self.duration[first + np.array([receiver, sender])].min()
            target, source = (
                first + np.array([receiver, receiver, sender]),
                place[first + np.array([receiver, sender, sender])],
            )
            self.add(target, source, np.zeros_like(target), MEETING)

    def tasks(self) -> Tasks:
        """All tasks, each after those that it waits for."""
        target, source, lag, cause = (np.concatenate(columns) for columns in zip(*self.edges, strict=True))
        order = topological(target, source, len(self.duration)) if len(self.meeting) else self._in_host_order()
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        by_target = np.argsort(place[target], kind="stable")
        counts = np.bincount(place[target], minlength=len(order))
        parts = self.calls, self.calls, self.rows, len(self.meeting)
        return Tasks(
            kind=np.repeat([HOST, CALL, WORK, ARRIVAL], parts)[order],
            item=np.concatenate([*(np.arange(count) for count in parts[:3]), self.meeting])[order],
            duration=self.duration[order],
            release=self.release[order],
            first=offsets_of(counts),
            source=place[source[by_target]],
            lag=lag[by_target],
            cause=cause[by_target],
        )

    def _in_host_order(self) -> Ints:
        """The order of the host's calls: the segment, the call, what it launches; a copy that its call waits for first.

        Nothing waits for what is launched later, but for the kernels of other ranks.
        """
        work = self.run.work
        position = np.concatenate([np.arange(self.calls), np.arange(self.calls), work.position])
        part = np.concatenate([np.zeros(self.calls), np.full(self.calls, 2), np.where(self.blocked.held, 1, 3)])
        part[2 * self.calls :][work.call < 0] = -1
        return np.lexsort((np.arange(len(position)), part, position))


@uncollected()
def simulate(tasks: Tasks) -> Ints:
    """The end of each task, ns: a task begins as soon as all that it waits for has ended."""
    source, lag, ends, begin = tasks.source.tolist(), tasks.lag.tolist(), tasks.release.tolist(), 0
    for task, (until, took) in enumerate(zip(tasks.first[1:].tolist(), tasks.duration.tolist(), strict=True)):
        time = ends[task]
        for edge in range(begin, until):
            end = ends[source[edge]] + lag[edge]
            if end > time:
                time = end
        ends[task], begin = time + took, until
    return np.array(ends, np.int64)


def topological(target: Ints, source: Ints, tasks: int) -> Ints:
    """The tasks in an order in which each comes after its sources. Raises PyprofError if there is none."""
    waiting = np.bincount(target, minlength=tasks).tolist()
    by_source = np.argsort(source, kind="stable")
    offsets = offsets_of(np.bincount(source, minlength=tasks)).tolist()
    targets = target[by_source].tolist()
    order = [task for task, count in enumerate(waiting) if not count]
    for task in order:  # which grows
        for follower in targets[offsets[task] : offsets[task + 1]]:
            waiting[follower] -= 1
            if not waiting[follower]:
                order.append(follower)
    if len(order) < tasks:
        raise PyprofError("the collectives of the ranks wait for each other in a circle: replay one rank alone")
    return np.array(order, np.int64)
