"""Table, annotation and the profiler's capture, if there is one -> a trace.

In the trace, each process has its GPUs, then its threads. A GPU has its steps, its idle time and counters. For each
stream it has the program projected onto the GPU's time, then the operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pyprof.errors import InputError
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.limits.roofline import roofline
from pyprof.prof.perfetto.gpu_slices import Run, add_gpus, same
from pyprof.prof.perfetto.host_slices import Host, calls_of, ranges_of
from pyprof.prof.perfetto.lanes import nested_lanes
from pyprof.prof.perfetto.memory_counters import add_memory
from pyprof.prof.perfetto.tracks import Arg, Slices, Trace, grouped
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.table.limit_columns import with_limits
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Bools, Ints, MemoryTable, Ragged, Table, distinct, greatest, numbered, value_at
from pyprof.table.graph_replays import replay_numbers

if TYPE_CHECKING:
    from pyprof.parse.attribute.capture import Capture

LATEST = 1 << 60  # ns, 36 years: times since 1970 are below it, and sums of two such times fit into 64 bits

# The columns of prof.py shown as arguments of operations by default. Name, start and duration belong to every slice.
ARGUMENTS = tuple(
    """idx op mod layer trace dir phase step params args flops bytes ai tflops gbps sol sol_ns bound unit tc tcprec
    dtype advice role family aten seq occ occ_limit waves tail grid block longname reason device stream tid pid
    rank""".split()
)


def collect(
    name: str,
    table: Table,
    annotation: Annotation,
    peaks: Peaks | None = None,
    capture: Capture | None = None,
    columns: Sequence[str] = ARGUMENTS,
    ranges: bool = True,
    memory: MemoryTable | None = None,
) -> Trace:
    """The trace of a run. With ``capture`` and ``ranges`` it has the ranges on the CPU, too; with ``memory`` counters.

    Raises InputError where no row has a start: PyProf's own tables have none.
    """
    _check_times(name, table)
    shown, limit_notes = with_limits([COLUMN[name] for name in columns], table, annotation, peaks)
    trace = Trace(notes=limit_notes)
    rows = np.flatnonzero(table.ints("start") != NULL)
    on_host = table.coded("kind").among("cpu")[rows]
    track = add_gpus(trace, Run(table, annotation, roofline(table, annotation, peaks)), rows[~on_host])
    if memory is not None:
        add_memory(trace, memory)
    calls, call = calls_of(table, capture)
    hosts = [calls, *_ranges(table, capture if ranges else None)]
    *host_tracks, of_cpu_ops = _add_threads(trace, [*hosts, _rows_as_host(table, rows[on_host])])
    track[rows[on_host]] = of_cpu_ops
    opens, closes, from_calls = _flows(call, forward_of(table, annotation), track >= 0, len(calls))
    for host, places in zip(hosts, host_tracks, strict=True):
        flows = from_calls if host is calls else None
        length = host.end - host.start
        trace.slices.append(Slices(places, host.start, length, host.name, host.category, host.args, flows))
    args = [Arg(column.name, column.get(table, annotation).take(rows)) for column in shown]
    start, duration = table.ints("start")[rows], np.maximum(table.ints("kDuration")[rows], 0)
    names, kinds = table.coded("kShortName").take(rows), table.coded("kind").take(rows)
    flows_of_rows = opens.take(rows), closes.take(rows)
    trace.slices.append(Slices(track[rows], start, duration, names, kinds, args, *flows_of_rows))
    return _from_zero(trace)


def _check_times(name: str, table: Table) -> None:
    if not bool((table.ints("start") != NULL).any()):
        why = "expected start times, found none (PyProf's tables have none): make it with pyprof parse"
        raise InputError(name, why)
    for key in ("start", "kDuration", "apiStart", "apiDuration"):
        known = table.ints(key)[table.ints(key) != NULL]
        if bool((np.abs(known.astype(np.float64)) > LATEST).any()):
            raise InputError(name, f"expected times of less than 2**60 ns, found {known.max()} in {key}")


def _from_zero(trace: Trace) -> Trace:
    """The trace, with all times moved if any is negative; otherwise times stay those of the capture."""
    early = min(trace.first(), 0)
    if early < 0:
        trace.slices = [replace(part, start=part.start - early) for part in trace.slices]
        trace.counters = [replace(counter, time=counter.time - early) for counter in trace.counters]
        trace.notes.append(f"times are {-early} ns later than in the capture, which begins before 0")
    return trace


# Threads


def _ranges(table: Table, capture: Capture | None) -> list[Host]:
    if capture is None or not len(capture.ranges):
        return []
    ranks = np.unique(table.ints("rank"))
    return [ranges_of(capture, int(ranks[0]) if len(ranks) == 1 else NULL)]


def _rows_as_host(table: Table, rows: Ints) -> Host:
    start = table.ints("start")[rows]
    end = start + np.maximum(table.ints("kDuration")[rows], 0)
    rank, pid, tid = (table.ints(key)[rows] for key in ("rank", "pid", "tid"))
    return Host(rank, pid, tid, start, end, table.coded("kShortName").take(rows), same("cpu", len(rows)))


def _add_threads(trace: Trace, hosts: Sequence[Host]) -> list[Ints]:
    """The track of every slice on a CPU thread, by host. Slices that do not nest get further tracks of the thread."""
    fields = ("rank", "pid", "tid", "start", "end")
    rank, pid, tid, start, end = (np.concatenate([getattr(host, field) for host in hosts]) for field in fields)
    keys, thread = distinct(rank, pid, tid)
    track = np.full(len(start), -1, np.int64)
    order = np.argsort(thread, kind="stable")
    ends = np.cumsum(np.bincount(thread, minlength=len(keys)))
    for key, of_thread in zip(keys, np.split(order, ends)[:-1], strict=True):
        lane = nested_lanes(start[of_thread], end[of_thread])
        first = trace.thread(*(int(number) for number in key))
        name = trace.tracks[first].name
        lanes = [first, *(trace.child(first, f"{name}, overlapping") for _ in range(int(lane.max())))]
        track[of_thread] = np.array(lanes, np.int64)[lane]
    return [*np.split(track, np.cumsum([len(host) for host in hosts])[:-1])]


# Flows


def _flows(call: Ints, forward: Ints, shown: Bools, calls: int) -> tuple[Ragged, Ragged, Ragged]:
    """The flows that leave each row, those that end in it, and those that leave each call. Flow i + 1 leads from the
    launch of row i to the row, flow rows + i + 1 from its forward op to the row."""
    count = len(call)
    launched = np.flatnonzero((call >= 0) & shown)
    backward = np.flatnonzero((forward >= 0) & shown)
    back = count + backward + 1
    opens = grouped(forward[backward], back, count)
    closes = grouped(np.concatenate([launched, backward]), np.concatenate([launched + 1, back]), count)
    return opens, closes, grouped(call[launched], launched + 1, calls)


def forward_of(table: Table, annotation: Annotation) -> Ints:
    """For the first row of each backward op, the row of its forward op that did the arithmetic; -1 for all others.

    A forward op is identified by its process, name and sequence number. Several nested ops around a launch have
    numbers; the greatest one is that of the innermost op. (Composite ops show the number that the next node gets.) If
    several ops match (a graph is replayed), the last one before the backward op counts.
    """
    forward, start, direction = np.full(len(table), -1, np.int64), table.ints("start"), table.coded("dir")
    order = np.argsort(np.where(start == NULL, np.iinfo(np.int64).max, start), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    columns = [table.ragged(key) for key in ("seqId", "altSeqId")]
    holder = np.concatenate([np.repeat(np.arange(len(table)), np.diff(column.offsets)) for column in columns])
    number = np.concatenate([column.values[column.offsets[0] : column.offsets[-1]] for column in columns])
    first = np.full(len(table), NULL, np.int64)
    first[holder[::-1]] = number[::-1]
    known = (np.bincount(holder, minlength=len(table)) > 0) & (table.coded("op").codes >= 0)
    _, owner = numbered(table.ints("rank"), table.ints("pid"), table.coded("op").codes)
    rows = order[(known & direction.among("bprop"))[order]]
    once, _ = numbered(*(each[rows] for each in (owner, first, table.ints("opId"), replay_numbers(table))))
    rows = rows[once]
    wanted = owner[rows], first[rows], place[rows]
    is_forward = known & direction.among("fprop")
    ops, inner = order[is_forward[order]], greatest(number, holder, len(table))
    kept = ~annotation.role.among("aux")[ops]
    kept[numbered(owner[ops], inner[ops])[0]] = True  # the first of several, which may be the only one
    ops, of_op = ops[kept], is_forward[holder]
    around = holder[of_op]
    exact = _last_before((owner[ops], inner[ops], place[ops]), wanted)
    nested = _last_before((owner[around], number[of_op], place[around]), wanted)
    forward[rows] = value_at(order, np.where(exact >= 0, exact, nested), -1)
    return forward


def _last_before(events: tuple[Ints, Ints, Ints], wanted: tuple[Ints, Ints, Ints]) -> Ints:
    """The place of the last event with the owner and number of each that is wanted, before its place; -1: none.

    ``events``, ``wanted``: owners, numbers and places in time.
    """
    owner, number, place = (np.concatenate(pair) for pair in zip(events, wanted, strict=True))
    _, key = numbered(owner, number)
    span, count = int(place.max(initial=0)) + 1, len(events[0])
    code = key * span + place
    before = np.sort(np.append(code[:count], -1))
    found = before[np.searchsorted(before, code[count:]) - 1]
    return np.where(found // span == key[count:], found % span, -1)
