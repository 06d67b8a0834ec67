"""A capture as the replay needs it: calls in the order in which the host made them, and the GPU's work by stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pyprof.errors import InputError
from pyprof.prof.timing.gpus import TO_DEVICE, TO_HOST, named_rows
from pyprof.table.api_kinds import GIVING
from pyprof.table.columns import NULL, Bools, HostTable, Ints, Table, distinct, lookup, value_at

# Kinds of calls as numbers, as in the column `kind` of the table of host calls; -1 stands for a call of no kind.
_KINDS = (*GIVING, "device sync", "stream sync", "event sync", "record", "wait", "free")
KIND = {name: number for number, name in enumerate(_KINDS)}
LONGEST_NS = 1 << 60  # 36 years
ROW_KINDS = ("kernel", "memcpy", "memset", "graph")


@dataclass(slots=True)
class Calls:
    """The calls of the GPU's API, in order of start over all threads. A call within another call is part of it."""

    start: Ints  # ns
    end: Ints
    kind: Ints  # a number of KIND; -1: none of them
    thread: Ints
    before: Ints  # the previous call of the thread; -1: none
    after: Ints  # the call of another thread that the thread waited for; -1: none
    stream: Ints  # the lane that it is about, where known; -1
    record: Ints  # the call that recorded the event that it waits for, where known; -1
    row: Ints  # row of the table of host calls

    def __len__(self) -> int:
        return len(self.start)

    def among(self, *kinds: str) -> Bools:
        return np.isin(self.kind, [KIND[kind] for kind in kinds])


@dataclass(slots=True)
class Work:
    """The GPU's operations, in the order in which they were launched."""

    start: Ints  # ns
    end: Ints
    call: Ints  # that launched it; -1: unknown
    position: Ints  # its place among the calls: that of its call, or of the last call before it
    lane: Ints  # its stream: a number for each process, device and stream
    kind: Ints  # index into ROW_KINDS
    pid: Ints
    row: Ints  # row of the kernel table

    def __len__(self) -> int:
        return len(self.start)


@dataclass(slots=True)
class Recorded:
    """The calls and operations of a capture."""

    calls: Calls
    work: Work
    threads: list[tuple[int, ...]]  # (pid, tid) of each thread
    lanes: list[tuple[int, ...]]  # (pid, device, stream) of each lane
    holding: Bools  # per row of the kernel table: whether it is a copy whose call may hold the host
    kernel: Ints  # per row of the kernel table: a number for its name

    def launching(self, rows: Bools) -> Bools:
        """Per call: whether it launches one of these rows (a mask) of the kernel table."""
        found = np.zeros(len(self.calls), bool)
        found[self.work.call[rows[self.work.row] & (self.work.call >= 0)]] = True
        return found

    def begin(self) -> int:
        """The time of the first event."""
        return int(min([*self.calls.start[:1], *([self.work.start.min()] if len(self.work) else [])]))

    def finish(self) -> int:
        """The time at which all work and all calls are done."""
        return int(max(self.calls.end.max(initial=NULL), self.work.end.max(initial=NULL)))


def recorded(table: Table, host: HostTable, name: str) -> Recorded:
    """The run of a kernel table and its table of host calls. Raises InputError if there is nothing to replay.

    Threads that give the GPU no work are left out: NCCL's watchdog asks for events at times of its own.
    """
    on_gpu = np.flatnonzero(~table.coded("kind").among("cpu") & (table.ints("start") != NULL))
    if not len(on_gpu) or not len(host):
        if not len(on_gpu) and table.coded("kind").among("cpu").any():
            found = "ops of the CPU alone (pyprof prof --advise has their advice)"
        else:
            found = "no GPU operation" if len(host) else "no call of CUDA or HIP (record the calls, too)"
        raise InputError(name, f"expected GPU operations and the calls that launched them, found {found}")
    _check_times(table.take(on_gpu), host, name)
    keys, thread = distinct(host.ints("pid"), host.ints("tid"))
    lane_keys, lane = distinct(*(table.ints(key)[on_gpu] for key in ("pid", "device", "stream")))
    top = _outermost(host.ints("start"), host.ints("start") + host.ints("duration"), thread)
    calls, place = _calls(host, top, thread, lane_keys)
    work = _work(table, on_gpu, lane, host, place, calls)
    names = table.coded("kShortName").codes.astype(np.int64)
    return Recorded(calls, work, keys, lane_keys, _holding(table), names)


def _check_times(table: Table, host: HostTable, name: str) -> None:
    """Raise InputError for times whose sums do not fit into 64 bits, as only damaged files have them."""
    for run, took in ((table, "kDuration"), (host, "duration")):
        start, duration = run.ints("start").astype(np.float64), np.maximum(run.ints(took), 0).astype(np.float64)
        if float(np.abs(start).max()) + float(duration.sum()) > LONGEST_NS:
            raise InputError(name, f"expected a run of at most {LONGEST_NS:,} ns, found times that add up to more")


def _holding(table: Table) -> Bools:
    """Copies whose call may hold the host: between host and GPU, not asynchronous or not known to be pinned."""
    between = table.coded("kind").among("memcpy") & named_rows(table, *TO_HOST, *TO_DEVICE)
    is_async = table.coded("api").where(lambda name: "Async" in name)
    return between & (~is_async | ~named_rows(table, "Pinned"))


def _outermost(start: Ints, end: Ints, thread: Ints) -> Ints:
    """For each call, in order of thread and start: the outermost call around it, or itself."""
    found = np.arange(len(start))
    for number in np.unique(thread).tolist():
        rows = np.flatnonzero(thread == number)
        reach = np.maximum.accumulate(end[rows])
        outer = np.append(True, end[rows][1:] > reach[:-1]) | np.append(True, start[rows][1:] >= reach[:-1])
        found[rows] = rows[np.maximum.accumulate(np.where(outer, np.arange(len(rows)), 0))]
    return found


def _calls(host: HostTable, top: Ints, thread: Ints, lanes: list[tuple[int, ...]]) -> tuple[Calls, Ints]:
    """The outermost calls in order of start, and the place of each row of the host table among them."""
    giving = np.isin(thread, thread[host.coded("kind").among(*GIVING)])
    outer = np.flatnonzero((top == np.arange(len(top))) & (giving | ~giving.any()))
    order = outer[np.argsort(host.ints("start")[outer], kind="stable")]
    number = np.full(len(top), -1, np.int64)
    number[order] = np.arange(len(order))
    place = number[top]
    kinds = host.coded("kind")
    kind = np.array([*(KIND.get(value, -1) for value in kinds.values), -1], np.int64)
    start = host.ints("start")[order]
    end = start + host.ints("duration")[order]
    calls = Calls(
        start=start,
        end=end,
        kind=kind[kinds.codes][order],
        thread=thread[order],
        before=previous_in(thread[order]),
        after=_placed(host.ints("after"), place)[order],
        stream=_lane_of(host, lanes)[order],
        record=_placed(host.ints("record"), place)[order],
        row=order,
    )
    calls.after[calls.after >= np.arange(len(order))] = -1  # only of damaged times
    return calls, place


def _placed(rows: Ints, place: Ints) -> Ints:
    """Rows of the host table as places among the outer calls; -1 for none."""
    known = (rows >= 0) & (rows < len(place))
    return np.where(known, place[np.where(known, rows, 0)], -1)


def _lane_of(host: HostTable, lanes: list[tuple[int, ...]]) -> Ints:
    """The lane of each call's stream; streams without work are added to ``lanes``, as such may wait for each other.

    -1: unknown, as where several devices of a process have streams of that number.
    """
    numbers: dict[tuple[int, int], int] = {}
    for number, (pid, _, stream) in enumerate(lanes):
        numbers[pid, stream] = -1 if (pid, stream) in numbers else number
    keys, key = distinct(host.ints("pid"), host.ints("stream"))
    for pid, stream in keys:
        if stream != NULL and (pid, stream) not in numbers:
            numbers[pid, stream] = len(lanes)
            lanes.append((pid, NULL, stream))
    return np.array([-1 if stream == NULL else numbers[pid, stream] for pid, stream in keys], np.int64)[key]


def _work(table: Table, rows: Ints, lane: Ints, host: HostTable, place: Ints, calls: Calls) -> Work:
    start = table.ints("start")[rows]
    call = _call_of(table, rows, host, place)
    before = np.maximum(np.searchsorted(calls.start, start, "right") - 1, 0)
    position = np.where(call >= 0, call, np.minimum(before, _next_launched(start, lane, call)))
    order = np.lexsort((start, call >= 0, position))
    kinds = table.coded("kind")
    kind = np.array([*(ROW_KINDS.index(value) if value in ROW_KINDS else 0 for value in kinds.values), 0], np.int64)
    took = np.maximum(table.ints("kDuration")[rows], 0)
    columns = (start, start + took, call, position, lane, kind[kinds.codes][rows], table.ints("pid")[rows], rows)
    return Work(*(column[order] for column in columns))


def _next_launched(start: Ints, lane: Ints, call: Ints) -> Ints:
    """For each operation, the first call that launched one which its stream began later.

    Streams keep the order of launches, so an operation whose own launch is unknown was launched before that call.
    """
    found = np.full(len(start), np.iinfo(np.int64).max)
    for number in np.unique(lane).tolist():
        rows = np.flatnonzero(lane == number)
        rows = rows[np.argsort(start[rows], kind="stable")]
        places = np.where(call[rows] >= 0, call[rows], np.iinfo(np.int64).max)
        found[rows] = np.minimum.accumulate(places[::-1])[::-1]
    return found


def _call_of(table: Table, rows: Ints, host: HostTable, place: Ints) -> Ints:
    """The call that launched each row: that of its thread, in which its launch begins; -1: unknown."""
    both = [np.concatenate([table.ints(key)[rows], host.ints(key)]) for key in ("pid", "tid")]
    _, thread = distinct(*both)
    api = table.ints("apiStart")[rows]
    found = lookup(thread[len(rows) :], host.ints("start"), thread[: len(rows)], api)
    return np.where(api == NULL, -1, value_at(place, found, -1))


def ranges_before(host: HostTable, calls: Calls) -> Ints:
    """Per call: the ranges (ops, markers, layers) that the process began in the host's work before it."""
    return np.clip(host.ints("ranges")[calls.row], 0, 1 << 31)


def previous_in(group: Ints) -> Ints:
    """For each row, the one before it of the same group, such as a stream; -1: none."""
    order = np.argsort(group, kind="stable")
    found = np.full(len(group), -1, np.int64)
    found[order[1:]] = np.where(group[order][1:] == group[order][:-1], order[:-1], -1)
    return found


def by_group(group: Ints, values: Ints, chosen: Bools, figure: Callable[[Ints], int]) -> Ints:
    """Per row, a figure of the values of the chosen rows of its group."""
    found = np.zeros(len(group), np.int64)
    for number in np.unique(group).tolist():
        mine = group == number
        found[mine] = figure(values[mine & chosen])
    return found


def median_or(otherwise: int, values: Ints) -> int:
    """The median; something else of no values."""
    return round(float(np.median(values))) if len(values) else otherwise
