"""The critical path by place in the program: which op and line of the user's its time goes to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.prof.kernels.name_patterns import is_collective
from pyprof.prof.replay.critical_path import CLASSES, CriticalPath, PathClass
from pyprof.prof.replay.recorded_run import Recorded
from pyprof.prof.replay.replayed_run import Replayed
from pyprof.prof.replay.tasks import CALL, HOST, Tasks
from pyprof.prof.timing.blocking_copies import call_places
from pyprof.table.columns import Bools, Ints, Table


@dataclass(frozen=True, slots=True)
class PathPlace:
    """The time on the path of one op and line, of one class."""

    what: PathClass
    op: str
    line: str
    ns: int
    tasks: int


def communicates(table: Table) -> Bools:
    """Which rows are kernels of collectives, by their names."""
    long, short = table.coded("kLongName"), table.coded("kShortName")
    named = np.where(long.codes >= 0, long.where(is_collective), short.where(is_collective))
    return named & table.coded("kind").among("kernel")


def path_places(replayed: Replayed, path: CriticalPath) -> list[PathPlace]:
    """The places of the path, most time first. What the host does between two calls belongs to the second's op.

    A task that begins before the one that it depends on ends shortens that one's time.
    """
    names, place = _places(replayed.table, replayed.host, replayed.run, replayed.tasks, path.task)
    lag_place = np.where(path.lag < 0, np.append(place[:1], place[:-1]), place)
    found: dict[tuple[int, int], list[int]] = {}
    for classes, at, times in ((path.own_class, place, path.own), (path.lag_class, lag_place, path.lag)):
        for what, where, ns in zip(classes.tolist(), at.tolist(), times.tolist(), strict=True):
            if ns:
                sums = found.setdefault((what, where), [0, 0])
                sums[0] += ns
                sums[1] += 1
    places = [PathPlace(CLASSES[what], *names[where], ns, count) for (what, where), (ns, count) in found.items()]
    return sorted(places, key=lambda each: (-each.ns, each.what, each.op, each.line))


def _places(table: Table, host: Table, run: Recorded, tasks: Tasks, task: Ints) -> tuple[list[tuple[str, str]], Ints]:
    """The distinct places, and that of each task: an operation's own, or a call's.

    Where a call's is unknown, its name stands for it, apart from what the host did before it: a call of a microsecond
    may follow seconds of the program's own code.
    """
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
