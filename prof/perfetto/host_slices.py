"""The slices of the CPU threads: the CUDA calls, and if the input is a profiler's file, its ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyprof.prof.perfetto.gpu_slices import same
from pyprof.prof.perfetto.tracks import Arg
from pyprof.table.columns import NULL, Coded, Ints, Table, distinct, numbered

if TYPE_CHECKING:
    from pyprof.parse.attribute.capture import Capture


@dataclass(frozen=True, slots=True)
class Host:
    """Slices on CPU threads; ``rank`` is ``NULL`` where unknown."""

    rank: Ints
    pid: Ints
    tid: Ints
    start: Ints
    end: Ints
    name: Coded
    category: Coded
    args: Sequence[Arg] = ()

    def __len__(self) -> int:
        return len(self.start)


def calls_of(table: Table, capture: Capture | None) -> tuple[Host, Ints]:
    """The CUDA calls, and for each row the index of the call that launched it (-1: unknown).

    A kernel table has the calls that launched its rows, a profiler's file also the others (synchronisations).
    """
    start = table.ints("apiStart")
    rows = np.flatnonzero((start != NULL) & (table.coded("kind").codes >= 0))
    length = np.where(table.ints("apiDuration") == NULL, 0, table.ints("apiDuration"))
    keys, number = distinct(*(table.ints(key)[rows] for key in ("rank", "pid", "tid", "apiStart", "corr")))
    call = np.full(len(table), -1, np.int64)
    call[rows] = number
    first = np.zeros(len(keys), np.int64)
    first[number[::-1]] = rows[::-1]
    rank, pid, tid = (table.ints(key)[first] for key in ("rank", "pid", "tid"))
    api, begin = table.coded("api").take(first), start[first]
    corr = Arg("correlation", table.ints("corr")[first])
    launches = Host(rank, pid, tid, begin, begin + length[first], api, same("api", len(first)), [corr])
    return (launches if capture is None else _with_others(launches, capture)), call


def _with_others(launches: Host, capture: Capture) -> Host:
    """The calls of the table first, then those of the file that launched none of its rows."""
    calls = capture.calls
    if calls is None:
        return launches
    timed = np.flatnonzero((calls.start != NULL) & (calls.end != NULL))
    owners = capture.pids_and_tids(calls.thread[timed])
    places = zip((launches.pid, launches.tid, launches.start), (*owners, calls.start[timed]), strict=True)
    _, number = numbered(*map(np.concatenate, places))
    rest = ~np.isin(number[len(launches) :], number[: len(launches)])
    if not rest.any():
        return launches
    ranks = np.unique(launches.rank)
    unknown = np.full(int(rest.sum()), NULL, np.int64)
    rank = np.full(len(unknown), ranks[0] if len(ranks) == 1 else NULL, np.int64)
    (correlation,) = (arg.data for arg in launches.args)
    assert isinstance(correlation, np.ndarray)
    rows = timed[rest]
    others = rank, *(owner[rest] for owner in owners), calls.start[rows], calls.end[rows]
    before = launches.rank, launches.pid, launches.tid, launches.start, launches.end
    rank, pid, tid, start, end = (np.concatenate(pair) for pair in zip(before, others, strict=True))
    names = Coded.concat([launches.name, calls.name.take(rows)])
    args = [Arg("correlation", np.concatenate([correlation, unknown]))]
    return Host(rank, pid, tid, start, end, names, same("api", len(names)), args)


def ranges_of(capture: Capture, rank: int) -> Host:
    """The ranges of a profiler's file, without those that are rows themselves (in a capture without a GPU)."""
    from pyprof.parse.attribute.scope import ENGINE, Kind

    ranges = capture.ranges
    kept = np.ones(len(ranges), bool)
    if capture.is_host and capture.launch_range is not None:
        kept[capture.launch_range[capture.launch_range >= 0]] = False
    rows = np.flatnonzero(kept)
    pid, tid = capture.pids_and_tids(ranges.thread[rows])
    scope = ranges.scope[rows].astype(np.int32)
    texts = [(ENGINE if s.kind == Kind.ENGINE else "") + s.name for s in capture.scopes]
    named = {"sizes": "sizes", "dtypes": "dtypes", "strides": "strides", "args": "args", "marker": "text"}
    args = [Arg(name, Coded(scope, [getattr(s, field) for s in capture.scopes])) for name, field in named.items()]
    numbers = [Arg("seq", ranges.seq[rows]), Arg("op_id", ranges.op_id[rows])]
    start = ranges.start[rows]
    last = max(ranges.last_time(), int(capture.launch_time.max(initial=NULL)))  # ranges that were never closed end here
    end = np.maximum(np.minimum(ranges.end[rows], last), start)
    kinds = Coded(scope, [s.kind.name.lower() for s in capture.scopes])
    return Host(np.full(len(rows), rank, np.int64), pid, tid, start, end, Coded(scope, texts), kinds, [*args, *numbers])
