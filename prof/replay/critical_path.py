"""The chain of tasks that decides how long the run takes, and what its time goes to, by kind and by place.

From the task that ends last, each task's predecessor on the path is the dependency that let it begin last. The times on
the path add up to the length of the run. Only what shortens a task on the path shortens the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import numpy as np

from pyprof.command.json_schema import Record, doc
from pyprof.prof.kernels.name_patterns import is_collective
from pyprof.prof.replay.recorded_run import ROW_KINDS, Recorded
from pyprof.prof.replay.replayed_run import Replayed
from pyprof.prof.replay.tasks import CALL, HOST, SYNC, Tasks
from pyprof.prof.timing.blocking_copies import call_places
from pyprof.table.columns import Bools, Ints, Table, distinct

PathClass = Literal["host", "kernels", "copies", "communication", "synchronisation", "latency"]
CLASSES: tuple[PathClass, ...] = get_args(PathClass)
_HOST, _KERNELS, _COPIES, _COMMUNICATION, _SYNC, _LATENCY = range(len(CLASSES))


class PathTime(Record):
    """The critical path by what its time goes to; the sum is replayed_ns."""

    host: Annotated[int, doc("ns of the host between calls and in calls")]
    kernels: Annotated[int, doc("ns of kernels and of opaque CUDA graphs")]
    copies: Annotated[int, doc("ns of copies and memsets")]
    communication: Annotated[int, doc("ns of the kernels of collectives")]
    synchronisation: Annotated[int, doc("ns from the end of the work that the host waited for to the call's return")]
    latency: Annotated[int, doc("ns between a launch and its start, between kernels, and between streams")]


class PlaceOnPath(Record):
    """The time on the path of one op and line, of one class."""

    what: Annotated[PathClass, doc("as in critical_path")]
    op: Annotated[
        str,
        doc(
            "what the user called; where that is unknown, the name of the kernel or call, or before which call the "
            "host worked"
        ),
    ]
    line: Annotated[str, doc("the innermost line of the user's code; empty: unknown")]
    ns: Annotated[int, doc("its time on the path")]
    tasks: Annotated[int, doc("number of its tasks on the path")]


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The path in order of time: one entry per task on it."""

    task: Ints
    own: Ints  # the task's own time on the path, ns
    own_class: Ints  # index into CLASSES
    lag: Ints  # time between the task before and this one, ns
    lag_class: Ints

    def by_class(self) -> PathTime:
        classes, times = np.append(self.own_class, self.lag_class), np.append(self.own, self.lag)
        return PathTime(*map(int, np.bincount(classes, times, len(CLASSES))))


def critical_path(replayed: Replayed, communicates: Bools) -> CriticalPath:
    """The path of a replay. ``communicates``: per row of the kernel table, whether it is a collective."""
    path, cause, gap = _backwards(replayed.tasks, replayed.ends)
    own_class = _classes(replayed.run, replayed.tasks, path, communicates)
    own = replayed.tasks.duration[path]
    # A call that ends with a wait takes its own time while it waits: what remains is the return from the wait.
    waited = cause == SYNC
    gap[waited], own[waited] = gap[waited] + own[waited], 0
    before = np.append(own_class[:1], own_class[:-1])
    lag_class = np.where(gap < 0, before, np.where(waited, _SYNC, _LATENCY))
    return CriticalPath(path, own, own_class, gap, np.where(cause < 0, _HOST, lag_class))


def _backwards(tasks: Tasks, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """The tasks of the path in order of time, and the cause and lag of each one's dependency; cause -1: the first."""
    task, path = int(ends.argmax()), []
    begin, seen = int(tasks.release.min()), set[int]()
    while True:
        seen.add(task)
        between = slice(int(tasks.first[task]), int(tasks.first[task + 1]))
        reached = ends[tasks.source[between]] + tasks.lag[between]
        edge = between.start + int(reached.argmax()) if len(reached) else -1
        # Of calls whose times overlap on one thread, which no profiler records, each may wait for the other.
        if edge < 0 or int(reached.max()) < int(tasks.release[task]) or int(tasks.source[edge]) in seen:
            path.append((task, -1, int(tasks.release[task]) - begin))
            break
        path.append((task, int(tasks.cause[edge]), int(tasks.lag[edge])))
        task = int(tasks.source[edge])
    found = np.array(path[::-1], np.int64)
    return found[:, 0], found[:, 1], found[:, 2]


def _classes(run: Recorded, tasks: Tasks, path: Ints, communicates: Bools) -> Ints:
    on_host = np.isin(tasks.kind[path], (HOST, CALL))
    of_kind = np.array([_COPIES if kind in ("memcpy", "memset") else _KERNELS for kind in ROW_KINDS])
    of_work = np.where(communicates[run.work.row], _COMMUNICATION, of_kind[run.work.kind])
    return np.where(on_host, _HOST, of_work[np.where(on_host, 0, tasks.item[path])])


def communicates(table: Table) -> Bools:
    """Which rows are kernels of collectives, by their names."""
    long, short = table.coded("kLongName"), table.coded("kShortName")
    named = np.where(long.codes >= 0, long.where(is_collective), short.where(is_collective))
    return named & table.coded("kind").among("kernel")


def path_places(replayed: Replayed, path: CriticalPath) -> list[PlaceOnPath]:
    """The places of the path, most time first. What the host does between two calls belongs to the second's op.

    A task that begins before the one that it depends on ends shortens that one's time.
    """
    names, place = _places(replayed, path.task)
    lag_place = np.where(path.lag < 0, np.append(place[:1], place[:-1]), place)
    ns = np.append(path.own, path.lag)
    spent = np.flatnonzero(ns)
    both = np.append(path.own_class, path.lag_class)[spent], np.append(place, lag_place)[spent]
    keys, group = distinct(*both)
    sums, counts = (np.bincount(group, weights, len(keys)).astype(int).tolist() for weights in (ns[spent], None))
    found = zip(keys, sums, counts, strict=True)
    places = [PlaceOnPath(CLASSES[what], *names[where], took, count) for (what, where), took, count in found]
    return sorted(places, key=lambda each: (-each.ns, each.what, each.op, each.line))


def _places(replayed: Replayed, task: Ints) -> tuple[list[tuple[str, str]], Ints]:
    """The distinct places, and that of each task: an operation's own, or a call's.

    Where a call's is unknown, its name stands for it, apart from what the host did before it: a call of a microsecond
    may follow seconds of the program's own code.
    """
    table, host, run, tasks = replayed.table, replayed.host, replayed.run, replayed.tasks
    is_work, item = ~np.isin(tasks.kind[task], (HOST, CALL)), tasks.item[task]
    rows, calls = run.work.row[item[is_work]], run.calls.row[item[~is_work]]
    of_work, work_place = call_places(table, rows)
    of_calls, call_place = call_places(host, calls)
    work_names, called = table.coded("kShortName").take(rows).texts(), host.coded("name").take(calls).texts()
    before = (tasks.kind[task[~is_work]] == HOST).tolist()
    host_names = [f"before {name}" if own else name for name, own in zip(called, before, strict=True)]
    number: dict[tuple[str, str], int] = {}
    place = np.empty(len(task), np.int64)
    parts = ((is_work, of_work, work_place, work_names), (~is_work, of_calls, call_place, host_names))
    for chosen, places, at, names in parts:
        called_at = [(op, str(where)) for op, where in places]
        found = [called_at[p] if any(called_at[p]) else (name, "") for p, name in zip(at.tolist(), names, strict=True)]
        place[chosen] = [number.setdefault(each, len(number)) for each in found]
    return list(number), place
