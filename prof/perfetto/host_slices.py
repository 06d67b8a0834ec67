"""What the CPU threads did: the CUDA calls, and the ranges where the input is a profiler's file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pyprof.prof.perfetto.tracks import Arg
from pyprof.table.columns import NULL, Coded, Ints, Table, distinct

if TYPE_CHECKING:
    from pyprof.parse.attribute.capture import Capture

__all__ = ["Host", "calls_of", "ranges_of"]


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
    """The CUDA calls, and of each row the one that launched it (-1: none is known).

    A kernel table knows the calls that launched its rows, a profiler's file the others too (synchronisations).
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
    own = Host(rank, pid, tid, begin, begin + length[first], api, _same("api", len(first)), [corr])
    return (own if capture is None else _with_others(own, capture)), call


def _with_others(own: Host, capture: Capture) -> Host:
    """The calls of the table first, then those of the file that launched none of its rows."""
    from pyprof.parse.stats.open_recording import recording

    with recording(Path(capture.file)) as events:
        api = events.api
    known = set(zip(own.pid.tolist(), own.tid.tolist(), own.start.tolist(), strict=True))
    each = zip(api.pid.tolist(), api.tid.tolist(), api.start.tolist(), strict=True)
    rest = np.array([i for i, key in enumerate(each) if key not in known], np.int64)
    if not len(rest):
        return own
    others = api.at(rest)
    ranks = np.unique(own.rank)
    rank = np.full(len(rest), ranks[0] if len(ranks) == 1 else NULL, np.int64)
    return Host(
        np.concatenate([own.rank, rank]),
        np.concatenate([own.pid, others.pid]),
        np.concatenate([own.tid, others.tid]),
        np.concatenate([own.start, others.start]),
        np.concatenate([own.end, others.end]),
        Coded.concat([own.name, others.name]),
        _same("api", len(own) + len(rest)),
        [
            Arg(arg.name, np.concatenate([arg.data, np.full(len(rest), NULL, np.int64)]))
            for arg in own.args
            if isinstance(arg.data, np.ndarray)
        ],
    )


def ranges_of(capture: Capture, rank: int) -> Host:
    """The ranges of a profiler's file, but those that are rows themselves (in a capture without a GPU)."""
    from pyprof.parse.attribute.scope import ENGINE, Kind

    ranges = capture.ranges
    kept = np.ones(len(ranges), bool)
    if capture.is_host and capture.launch_range is not None:
        kept[capture.launch_range[capture.launch_range >= 0]] = False
    rows = np.flatnonzero(kept)
    pid, tid = np.array(capture.threads, np.int64).reshape(-1, 2)[ranges.thread[rows]].T
    scope = ranges.scope[rows].astype(np.int32)
    texts = [(ENGINE if s.kind == Kind.ENGINE else "") + s.name for s in capture.scopes]
    named = {"sizes": "sizes", "dtypes": "dtypes", "strides": "strides", "args": "args", "marker": "text"}
    args = [Arg(name, Coded(scope, [getattr(s, field) for s in capture.scopes])) for name, field in named.items()]
    numbers = [Arg("seq", ranges.seq[rows]), Arg("op_id", ranges.op_id[rows])]
    start = ranges.start[rows]
    end = np.maximum(np.minimum(ranges.end[rows], _last(capture)), start)
    kinds = Coded(scope, [s.kind.name.lower() for s in capture.scopes])
    return Host(np.full(len(rows), rank, np.int64), pid, tid, start, end, Coded(scope, texts), kinds, [*args, *numbers])


def _last(capture: Capture) -> int:
    """When the capture ended: ranges that were never closed end then."""
    return max(capture.ranges.last_time(), int(capture.launch_time.max(initial=NULL)))


def _same(text: str, rows: int) -> Coded:
    return Coded(np.zeros(rows, np.int32), [text])
