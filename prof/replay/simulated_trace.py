"""The simulated timeline as a trace for Perfetto: calls by thread, operations by stream, and the critical path."""

from __future__ import annotations

import numpy as np

from pyprof.prof.perfetto.lanes import single_lanes
from pyprof.prof.perfetto.tracks import Arg, Slices, Trace
from pyprof.prof.replay.critical_path import CLASSES, CriticalPath
from pyprof.prof.replay.replayed_run import Replayed
from pyprof.prof.replay.tasks import CALL, HOST
from pyprof.table.columns import NULL, Coded, Ints


def simulated_trace(replayed: Replayed, path: CriticalPath) -> Trace:
    """The trace of a replay. Each slice has the times of the capture as arguments, from the same begin."""
    trace = Trace()
    begin = replayed.run.begin()
    trace.slices += [_calls(replayed, trace, begin), _work(replayed, trace, begin), _path(replayed, trace, path)]
    trace.notes.append("simulated by pyprof replay: times are those of the replay, recorded_start_ns is the capture's")
    return trace


def _calls(replayed: Replayed, trace: Trace, begin: int) -> Slices:
    calls, tasks = replayed.run.calls, replayed.tasks
    start, end = replayed.ends[tasks.of(HOST)], replayed.ends[tasks.of(CALL)]
    tracks = [trace.thread(NULL, pid, tid) for pid, tid in replayed.run.threads]
    return Slices(
        track=np.array(tracks, np.int64)[calls.thread],
        start=start - begin,
        duration=np.maximum(end - start, 0),
        name=replayed.host.coded("name").take(calls.row),
        category=replayed.host.coded("kind").take(calls.row),
        args=[Arg("recorded_start_ns", calls.start - begin), Arg("recorded_ns", calls.end - calls.start)],
    )


def _work(replayed: Replayed, trace: Trace, begin: int) -> Slices:
    run, work = replayed.run, replayed.run.work
    start, end = replayed.work_start, replayed.work_end
    track = np.empty(len(work), np.int64)
    for number, (pid, device, stream) in enumerate(run.lanes):
        mine = np.flatnonzero(work.lane == number)
        if not len(mine):
            continue
        order = mine[np.argsort(start[mine], kind="stable")]
        words = [f"stream {stream}" if stream != NULL else "stream", f"GPU {device}" if device != NULL else ""]
        name = ", ".join(filter(None, words))
        track[order] = trace.on_lanes(trace.process(NULL, pid), name, single_lanes(start[order], end[order]))
    return Slices(
        track=track,
        start=start - begin,
        duration=end - start,
        name=replayed.table.coded("kShortName").take(work.row),
        category=replayed.table.coded("kind").take(work.row),
        args=[Arg("recorded_start_ns", work.start - begin), Arg("op", replayed.table.coded("op").take(work.row))],
    )


def _path(replayed: Replayed, trace: Trace, path: CriticalPath) -> Slices:
    """One track of the path's tasks, which follow each other without a gap."""
    pid = replayed.run.threads[0][0] if replayed.run.threads else NULL
    track = trace.child(trace.process(NULL, pid), "critical path")
    took = path.own + path.lag
    end = np.maximum.accumulate(np.cumsum(took))
    start = np.append(0, end[:-1])
    return Slices(
        track=np.full(len(end), track),
        start=start,
        duration=end - start,
        name=_names(replayed, path.task),
        category=Coded(path.own_class.astype(np.int32), list(CLASSES)),
    )


def _names(replayed: Replayed, task: Ints) -> Coded:
    kind, item = replayed.tasks.kind[task], replayed.tasks.item[task]
    host, table = replayed.host.coded("name"), replayed.table.coded("kShortName")
    is_work = ~np.isin(kind, (HOST, CALL))
    codes = np.empty(len(task), np.int32)
    codes[is_work] = table.codes[replayed.run.work.row[item[is_work]]] + len(host.values)
    codes[~is_work] = host.codes[replayed.run.calls.row[item[~is_work]]]
    return Coded(codes, [*host.values, *table.values])
