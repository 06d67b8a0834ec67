"""Table, annotation and, where there is one, the profiler's capture -> a trace.

A process has its GPUs, then its threads. A GPU has its steps, its idle time, counters, and each stream: the program
projected on it, then its operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pyprof.errors import InputError
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.limits.roofline import Roofline, roofline
from pyprof.prof.perfetto.gpu_slices import ARGUMENTS, arguments, forward_of, load
from pyprof.prof.perfetto.host_slices import Host, calls_of, ranges_of
from pyprof.prof.perfetto.lanes import nested_lanes, single_lanes
from pyprof.prof.perfetto.projection import project, sums
from pyprof.prof.perfetto.tracks import Arg, Counter, Slices, Trace, Track, grouped
from pyprof.prof.timing.steps import PHASES, steps
from pyprof.prof.timing.waiting import WORDS, waiting
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Bools, Coded, Ints, Ragged, Table, distinct

if TYPE_CHECKING:
    from pyprof.parse.attribute.capture import Capture

__all__ = ["collect"]

LATEST = 1 << 60  # ns, 36 years: an epoch's times would lie below; sums of such times fit 64 bits
LARGEST = (1 << 31) - 1  # of a process or thread number in a trace
MADE_UP = 1 << 30  # numbers from here on stand for those that are unknown, too large or there twice


def collect(
    name: str,
    table: Table,
    annotation: Annotation,
    peaks: Peaks | None = None,
    capture: Capture | None = None,
    columns: Sequence[str] = ARGUMENTS,
    ranges: bool = True,
) -> Trace:
    """The trace of a run, with the CPU's ranges if the capture's are wanted.

    Raises InputError where no row has a start: PyProf's own tables have none.
    """
    _check_times(name, table)
    trace = Trace()
    args, trace.notes = arguments(columns, table, annotation, peaks)
    layout = _Layout(trace, table)
    rows = np.flatnonzero(table.ints("start") != NULL)
    on_host = table.coded("kind").among("cpu")[rows]
    _devices(layout, rows[~on_host], table, annotation, roofline(table, annotation, peaks))
    calls, call = calls_of(table, capture)
    hosts = [calls, *_ranges(table, capture if ranges else None)]
    *places, own = _threads(layout, [*hosts, _rows_as_host(table, rows[on_host])])
    track = layout.track_of_rows
    track[rows[on_host]] = own
    opens, closes, from_calls = _flows(call, forward_of(table, annotation), track >= 0, len(calls))
    for host, place in zip(hosts, places, strict=True):
        flows = from_calls if host is calls else None
        length = host.end - host.start
        trace.slices.append(Slices(place, host.start, length, host.name, host.category, host.args, flows))
    trace.slices.append(_operations(table, rows, track, args, opens, closes))
    return _from_zero(trace)


def _check_times(name: str, table: Table) -> None:
    if not bool((table.ints("start") != NULL).any()):
        raise InputError(
            name, "expected start times, found none (PyProf's tables have none): make it with pyprof parse"
        )
    for key in ("start", "kDuration", "apiStart", "apiDuration"):
        known = table.ints(key)[table.ints(key) != NULL]
        if bool((np.abs(known.astype(np.float64)) > LATEST).any()):
            raise InputError(name, f"expected times of less than 2**60 ns, found {known.max()} in {key}")


def _devices(layout: _Layout, rows: Ints, table: Table, annotation: Annotation, limits: Roofline) -> None:
    for number in range(len(layout.devices)):
        mine = rows[layout.device[rows] == number]
        if len(mine):
            _device(layout, number, mine, table, annotation, limits)


def _ranges(table: Table, capture: Capture | None) -> list[Host]:
    if capture is None or not len(capture.ranges):
        return []
    ranks = np.unique(table.ints("rank"))
    return [ranges_of(capture, int(ranks[0]) if len(ranks) == 1 else NULL)]


def _from_zero(trace: Trace) -> Trace:
    """The trace, moved so that none of its times is negative; others stay the capture's."""
    early = min(trace.first(), 0)
    if early < 0:
        trace.slices = [replace(part, start=part.start - early) for part in trace.slices]
        trace.counters = [replace(counter, time=counter.time - early) for counter in trace.counters]
        trace.notes.append(f"times are {-early} ns later than in the capture, which begins before 0")
    return trace


# Tracks


class _Layout:
    """The tracks, made as they are needed, and where each row of the table lies."""

    def __init__(self, trace: Trace, table: Table) -> None:
        self.trace = trace
        self.table = table
        self.track_of_rows = np.full(len(table), -1, np.int64)
        self.devices, self.device = distinct(*(table.ints(key) for key in ("rank", "pid", "device")))
        self._processes: dict[tuple[int, int], int] = {}
        self._threads: dict[tuple[int, int, int], int] = {}
        self._taken: set[int] = set()

    def process(self, rank: int, pid: int) -> int:
        key = (rank, pid)
        if key not in self._processes:
            told = [f"rank {rank}"] if rank != NULL else []
            known = pid if 0 < pid <= LARGEST else 0
            number = self._number(known)
            if number != known and pid != NULL:
                told.append(f"process {pid}")
            self._processes[key] = self.trace.add(Track("process", ", ".join(told) or "process", -1, number))
        return self._processes[key]

    def thread(self, rank: int, pid: int, tid: int) -> int:
        key = (rank, pid, tid)
        if key not in self._threads:
            process = self.process(rank, pid)
            above = self.trace.tracks[process].pid
            known = tid if 0 < tid <= LARGEST else 0
            number = above if known == pid else self._number(known)  # the main thread has its process's number
            name = "thread" if tid in (number, NULL) else f"thread {tid}"
            self._threads[key] = self.trace.add(Track("thread", name, process, above, number))
        return self._threads[key]

    def _number(self, wanted: int) -> int:
        """The number itself, or one that no other process or thread of the trace has."""
        number = wanted
        while not number or number in self._taken:
            number = MADE_UP + len(self._taken) if number < MADE_UP else number + 1
        self._taken.add(number)
        return number

    def child(self, parent: int, name: str, about: str = "", kind: str = "slices", unit: str = "") -> int:
        pid = self.trace.tracks[parent].pid
        if kind == "counter":
            return self.trace.add(Track("counter", name, parent, pid, unit=unit, about=about))
        return self.trace.add(Track("group" if kind == "group" else "slices", name, parent, pid, about=about))


def _device(layout: _Layout, number: int, rows: Ints, table: Table, annotation: Annotation, limits: Roofline) -> None:
    """The tracks of one GPU: the slices of its steps, idle time and streams' program, its counters."""
    rank, pid, ordinal = layout.devices[number]
    gpu = table.coded("gpu").take(rows).texts()
    name = next(filter(None, gpu), "")
    title = " ".join(["GPU", *([str(ordinal)] if ordinal != NULL else [])]) + (f": {name}" if name else "")
    group = layout.child(layout.process(rank, pid), title, "\n".join(limits.notes()), "group")
    _steps(layout, group, table.take(rows))
    streams = table.ints("stream")[rows]
    for stream in np.unique(streams).tolist():
        mine = rows[streams == stream]
        title = "stream" if stream == NULL else f"stream {stream}"
        _program(layout, group, title, mine, table, annotation, limits)
        start = table.ints("start")[mine]
        lane = single_lanes(start, start + np.maximum(table.ints("kDuration")[mine], 0))
        tracks = np.array([layout.child(group, title) for _ in range(int(lane.max()) + 1)], np.int64)
        layout.track_of_rows[mine] = tracks[lane]
    _idle(layout, group, table.take(rows), rows)
    _counters(layout, group, rows, table, annotation)


def _steps(layout: _Layout, group: int, table: Table) -> None:
    found = [step for step in steps(table, np.zeros(len(table), np.int64)) if step.number is not None]
    if not found:
        return
    start = np.array([step.start_ns for step in found], np.int64)
    span = np.array([step.span_ns for step in found], np.int64)
    args = [Arg(f"{phase}_ns", np.array([s.phase_ns.get(phase, NULL) for s in found], np.int64)) for phase in PHASES]
    args.append(Arg("idle_ns", np.array([step.idle_ns for step in found], np.int64)))
    names = Coded.of(f"step {step.number}" for step in found)
    about = "a step lasts from its first operation to the next step's; where two phases overlap, the first counts"
    _add(layout, group, "steps", about, start, start + span, names, _all("step", len(found)), args, nested=False)


def _idle(layout: _Layout, group: int, table: Table, rows: Ints) -> None:
    waited = waiting(table)
    found = np.flatnonzero(waited.idle_ns > 0)
    if not len(found):
        return
    length, end = waited.idle_ns[found], table.ints("start")[found]
    called = table.ints("apiStart")[found]
    late = np.where(called == NULL, NULL, np.clip(np.where(called == NULL, 0, called) - (end - length), 0, length))
    cause = waited.cause.take(found)
    names = Coded.of(WORDS[text] for text in cause.texts())
    args = [
        Arg("idle_why", cause),
        Arg("late_ns", late),
        Arg("before", table.coded("kShortName").take(found)),
        Arg("before_idx", rows[found] + 1),
    ]
    about = "nothing ran on the GPU; late_ns: until the CPU called for the operation that ended it"
    _add(layout, group, "idle", about, end - length, end, names, _all("idle", len(found)), args, nested=False)


def _counters(layout: _Layout, group: int, rows: Ints, table: Table, annotation: Annotation) -> None:
    """Rates are sums over what runs at a time; a row without a count adds nothing, and is shown as such."""
    start = table.ints("start")[rows]
    duration = np.maximum(table.ints("kDuration")[rows], 0)
    flop, nbytes = annotation.flops[rows], annotation.bytes[rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        tflops = np.where(flop == NULL, np.nan, flop / duration / 1e3)
        gbps = np.where(nbytes == NULL, np.nan, nbytes / duration)
    one = np.ones(len(rows))
    told = (
        ("operations at once", one, "", "0: the GPU is idle"),
        ("TFLOP/s", tflops, "TFLOP/s", "of the operations that run and whose FLOPs are known"),
        ("GB/s", gbps, "GB/s", "of the operations that run and whose bytes are known"),
        ("operations without FLOPs", np.where(flop == NULL, one, np.nan), "", "no model counts them"),
    )
    for name, value, unit, about in told:
        time, total = load(start, start + duration, value)
        if len(time):
            track = layout.child(group, name, about, "counter", unit)
            layout.trace.counters.append(Counter(track, time, total))


def _program(
    layout: _Layout, group: int, title: str, rows: Ints, table: Table, annotation: Annotation, limits: Roofline
) -> None:
    found = project(table, rows)
    if len(found.start):
        about = "phases, layers and ops over the operations that they launched on this stream"
        args = sums(found, table, annotation, limits)
        _add(layout, group, f"{title}: layers", about, found.start, found.end, found.name, found.level, args)


def _add(
    layout: _Layout,
    parent: int,
    name: str,
    about: str,
    start: Ints,
    end: Ints,
    names: Coded,
    category: Coded,
    args: Sequence[Arg],
    nested: bool = True,
) -> None:
    lane = (nested_lanes if nested else single_lanes)(start, end)
    tracks = np.array([layout.child(parent, name, about) for _ in range(int(lane.max()) + 1)], np.int64)
    layout.trace.slices.append(Slices(tracks[lane], start, end - start, names, category, args))


# Threads


def _rows_as_host(table: Table, rows: Ints) -> Host:
    start = table.ints("start")[rows]
    end = start + np.maximum(table.ints("kDuration")[rows], 0)
    rank, pid, tid = (table.ints(key)[rows] for key in ("rank", "pid", "tid"))
    return Host(rank, pid, tid, start, end, table.coded("kShortName").take(rows), _all("cpu", len(rows)))


def _threads(layout: _Layout, hosts: Sequence[Host]) -> list[Ints]:
    """The track of every slice on a CPU thread. What does not nest goes to further tracks of the thread."""
    sizes = [len(host) for host in hosts]
    rank, pid, tid, start, end = (
        np.concatenate([getattr(host, key) for host in hosts]) for key in ("rank", "pid", "tid", "start", "end")
    )
    keys, thread = distinct(rank, pid, tid)
    track = np.full(len(start), -1, np.int64)
    order = np.argsort(thread, kind="stable")
    ends = np.cumsum(np.bincount(thread, minlength=len(keys)))
    for key, mine in zip(keys, np.split(order, ends)[:-1], strict=True):
        lane = nested_lanes(start[mine], end[mine])
        first = layout.thread(*(int(number) for number in key))
        name = layout.trace.tracks[first].name
        lanes = [first, *(layout.child(first, f"{name}, overlapping") for _ in range(int(lane.max())))]
        track[mine] = np.array(lanes, np.int64)[lane]
    return [*np.split(track, np.cumsum(sizes)[:-1])]


# Slices of operations, and flows


def _operations(table: Table, rows: Ints, track: Ints, args: Sequence[Arg], opens: Ragged, closes: Ragged) -> Slices:
    taken = [Arg(arg.name, arg.data.take(rows) if isinstance(arg.data, Coded) else arg.data[rows]) for arg in args]
    duration = np.maximum(table.ints("kDuration")[rows], 0)
    names, kinds = table.coded("kShortName").take(rows), table.coded("kind").take(rows)
    return Slices(
        track[rows], table.ints("start")[rows], duration, names, kinds, taken, opens.take(rows), closes.take(rows)
    )


def _flows(call: Ints, forward: Ints, shown: Bools, calls: int) -> tuple[Ragged, Ragged, Ragged]:
    """The flows that leave each row, those that end in it, and those that leave each call.

    Flow i + 1 leads from the launch of row i to the row, flow rows + i + 1 from its forward op to the row.
    """
    count = len(call)
    launched = np.flatnonzero((call >= 0) & shown)
    backward = np.flatnonzero((forward >= 0) & shown)
    back = count + backward + 1
    opens = grouped(forward[backward], back, count)
    closes = grouped(np.concatenate([launched, backward]), np.concatenate([launched + 1, back]), count)
    return opens, closes, grouped(call[launched], launched + 1, calls)


def _all(text: str, rows: int) -> Coded:
    return Coded(np.zeros(rows, np.int32), [text])
