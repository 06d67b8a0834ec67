"""Which operations a call waits for, and how long; and which operations of other streams an operation waits for.

Where the capture records streams and events of synchronising calls (nsys; torch.profiler with
enable_cuda_sync_events), dependencies follow CUDA's rules. Where it has the calls' names alone, two rules take their
place, of which none can make an operation wait for something that in the capture ended after it began:

* a stream may wait where its process called cudaStreamWaitEvent since the stream's last launch, for as many operations
  as there were such calls. They are the last ones of other streams, by their end, that were launched before the last
  cudaEventRecord; or before the last cudaStreamWaitEvent, in captures without those calls (PyTorch 1.13 to 2.0);
* a call that waits for a stream or an event waits for the last operation, by its end, that was done when it returned.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pyprof.prof.replay.recorded_run import KIND, ROW_KINDS, Recorded, by_group, median_or
from pyprof.table.columns import Bools, Ints, distinct

SKEW_NS = 2000  # by which the clocks of host and GPU may differ, as profilers align them
LATE_NS = 10_000  # what began later than expected by this waited for something
UNKNOWN_NS = 2_000  # what a call takes, and the return from a wait, where the capture has none to take it from
LONGEST_OWN_NS = 10_000  # a call that waited does not take longer by itself
# A host that reads memory again and again until a kernel has written there makes no call. Such pauses follow the
# kernel's launch and end with the kernel: in DeepEP's dispatch on an H800, where they take 2 to 23 ms, 25 to 67 µs
# before its end. A pause for another reason ends so near to a kernel's end by chance alone.
POLLED_NS = 1_000_000  # the least time of such a pause
AT_END_NS = 100_000  # between the ends of kernel and pause
AGAIN = 3  # pauses after launches of one kernel; all of them must end so


class Edges(NamedTuple):
    """Dependencies: ``target`` waits for the end of the operation ``source``."""

    target: Ints
    source: Ints


_NONE, _NEVER = np.zeros(0, np.int64), np.iinfo(np.int64).min


class Blocked(NamedTuple):
    """What calls wait for: ``call`` ends ``tail`` ns after the end of the operation ``work``, if that is later."""

    own: Ints  # per call: its duration without waiting, ns
    call: Ints
    work: Ints
    tail: Ints
    held: Bools  # per operation: whether its own call waits for it


def blocked_calls(run: Recorded) -> Blocked:
    """What each call waits for: one that synchronises, and one that copies from or to pageable memory.

    Its recorded duration is split: the wait, which the replay finds from the operation waited for; what the call took
    after the operation had ended; and the call's own time, which for one that waited is that of calls that did not.
    """
    calls, work = run.calls, run.work
    holding = _held_by_copies(run)
    held = np.flatnonzero(holding)
    synced = waited_for(run)
    call, source = np.append(synced.target, work.call[held]), np.append(synced.source, held)
    duration = calls.end - calls.start
    late = np.full(len(calls), np.iinfo(np.int64).min)
    np.maximum.at(late, call, work.end[source])
    waited = late > calls.start  # the call began before what it waits for had ended
    usual = by_group(calls.kind, duration, ~waited, lambda values: median_or(UNKNOWN_NS, values))  # of a kind's calls
    own = np.where(waited, np.minimum(np.minimum(usual, LONGEST_OWN_NS), duration), duration)
    tail = calls.end[call] - work.end[source]
    last = (work.end[source] == late[call]) & waited[call]
    tail = np.where(last, tail, np.minimum(median_or(UNKNOWN_NS, tail[last]), tail))
    return Blocked(own, call, source, tail, holding)


def _held_by_copies(run: Recorded) -> Bools:
    """Operations of copies whose call in the capture ended after them, or after they began, if it was a long one."""
    calls, work = run.calls, run.work
    call = np.maximum(work.call, 0)
    copies = (work.call >= 0) & (calls.kind[call] == KIND["copy"]) & run.holding[work.row]
    ended = (calls.end[call] >= work.end - SKEW_NS) & (calls.end[call] > work.start)  # else it waits for its own call
    found: Bools = copies & (ended | (calls.end[call] > work.start + LONGEST_OWN_NS))
    return found


def polled(run: Recorded) -> tuple[Ints, Ints]:
    """Calls before which the host waits for a kernel by reading memory, and the kernel: the thread's last launch."""
    calls, work = run.calls, run.work
    launched = np.full(len(calls), -1, np.int64)
    launched[work.call[work.call >= 0]] = np.flatnonzero(work.call >= 0)  # of several, the last
    since = np.maximum(calls.before, 0)
    after = np.where((calls.before >= 0) & (calls.after < 0), launched[since], -1)
    call = np.flatnonzero((after >= 0) & (calls.start - calls.end[since] > POLLED_NS))
    kernel = after[call]
    name = run.kernel[work.row[kernel]]
    near = np.abs(work.end[kernel] - calls.start[call]) < AT_END_NS
    kept = near & (work.kind[kernel] == ROW_KINDS.index("kernel"))
    for number in np.unique(name).tolist():
        mine = name == number
        kept[mine] &= bool(kept[mine].all()) and int(mine.sum()) >= AGAIN
    return call[kept], kernel[kept]


def waited_for(run: Recorded) -> Edges:
    """The operations (source) that synchronising calls (target) wait for.

    A call that waits for a whole device waits for all work launched before, but for none that in the capture was not
    done when it returned; one for a stream, for what was launched there before; one for an event, for what was launched
    on the stream before the event was recorded there.
    """
    calls, work = run.calls, run.work
    target = np.flatnonzero(calls.among("device sync", "free", "stream sync", "event sync"))
    of_device, of_event = (calls.among(*kinds)[target] for kinds in (("device sync", "free"), ("event sync",)))
    record = calls.record[target]
    lane = np.where(of_event, np.where(record >= 0, calls.stream[record], -1), calls.stream[target])
    until = np.where(of_event & (lane >= 0), record, target)
    tail = np.array([_tails(run, number, until) for number in range(len(run.lanes))])
    end = np.where(tail >= 0, work.end[tail], _NEVER)
    own = np.array([pid for pid, *_ in run.lanes])[:, None] == _pid_of_calls(run)[target]
    done = own & (tail >= 0) & (end <= calls.end[target] + SKEW_NS)
    latest = np.where(done, end, _NEVER)
    known = (tail >= 0) & (np.arange(len(tail))[:, None] == lane)
    chosen = np.where(of_device, done, np.where(lane >= 0, known, done & (end == latest.max(axis=0))))
    lanes, number = np.nonzero(chosen)
    return Edges(target[number], tail[lanes, number])


def _tails(run: Recorded, lane: int, calls: Ints) -> Ints:
    """The last operation of a lane that was launched before each call; -1: none."""
    rows = np.flatnonzero(run.work.lane == lane)
    at = np.searchsorted(run.work.position[rows], calls) - 1
    return np.where(at >= 0, rows[np.maximum(at, 0)], -1) if len(rows) else np.full(len(calls), -1)


def _pid_of_calls(run: Recorded) -> Ints:
    return np.array([pid for pid, _ in run.threads], np.int64)[run.calls.thread]


def between_streams(run: Recorded) -> Edges:
    """The operations (source) of other streams that operations (target) wait for."""
    pid = _pid_of_calls(run)
    found = []
    for process in np.unique(run.work.pid).tolist():
        calls = np.flatnonzero((pid == process) & run.calls.among("wait", "record"))
        rows = np.flatnonzero(run.work.pid == process)
        if len(np.unique(run.work.lane[rows])) < 2 or not np.any(run.calls.kind[calls] == KIND["wait"]):
            continue
        waits = calls[run.calls.kind[calls] == KIND["wait"]]
        recorded = bool(np.any(run.calls.record[waits] >= 0))
        places = _in_order(run, calls, rows)
        found.append(_recorded_waits(run, places) if recorded else _inferred_waits(run, places))
    return Edges(*(np.concatenate(columns) for columns in zip(*found, strict=True))) if found else Edges(_NONE, _NONE)


def _recorded_waits(run: Recorded, places: list[tuple[int, bool]]) -> Edges:
    """By CUDA's rules. A stream's next operation waits for what the stream was made to wait for."""
    tail: dict[int, int] = {}  # stream -> its last operation
    pending: dict[int, set[int]] = {}  # stream -> the operations that its next one waits for
    recorded: dict[int, set[int]] = {}  # call -> what is done when the event that it recorded is
    target: list[int] = []
    source: list[int] = []
    record, stream, kind = run.calls.record, run.calls.stream, run.calls.kind
    for place, is_call in places:
        if is_call:
            lane = int(stream[place])
            if kind[place] == KIND["record"]:
                recorded[place] = {*pending.get(lane, ()), *([tail[lane]] if lane in tail else [])}
            else:
                pending.setdefault(lane, set()).update(recorded.get(int(record[place]), ()))
            continue
        lane = int(run.work.lane[place])
        others = pending.pop(lane, set()) - {tail.get(lane)}
        target += [place] * len(others)
        source += sorted(others)
        tail[lane] = place
    return Edges(np.array(target, np.int64), np.array(source, np.int64))


def _in_order(run: Recorded, calls: Ints, rows: Ints) -> list[tuple[int, bool]]:
    """The calls and operations of a process in the order of the host: (place, whether it is a call)."""
    position = np.concatenate([calls, run.work.position[rows]])
    order = np.argsort(position, kind="stable")
    is_call = order < len(calls)
    places = np.concatenate([calls, rows])[order]
    return list(zip(places.tolist(), is_call.tolist(), strict=True))


def _inferred_waits(run: Recorded, places: list[tuple[int, bool]]) -> Edges:
    """By the rules in the module's text."""
    start, end, lanes = run.work.start, run.work.end, run.work.lane
    kind = run.calls.kind
    any_record = any(is_call and kind[place] == KIND["record"] for place, is_call in places)
    history: dict[int, list[int]] = {}  # lane -> its last operations when an event was recorded, oldest first
    tail: dict[int, int] = {}
    waits = 0  # since the last launch
    target: list[int] = []
    source: list[int] = []
    for place, is_call in places:
        if is_call:
            waits += int(kind[place] == KIND["wait"])
            if kind[place] == KIND["record"] or not any_record:
                for lane, last in tail.items():
                    kept = history.setdefault(lane, [])
                    if not kept or kept[-1] != last:
                        kept.append(last)
            continue
        lane = int(lanes[place])
        if run.work.call[place] < 0:
            tail[lane] = place
            continue
        if waits:
            begun = start[place] + SKEW_NS
            few = (kept[:-9:-1] for other, kept in history.items() if other != lane)  # of each, the last few
            done = (next((row for row in rows if end[row] <= begun), -1) for rows in few)
            found = sorted((row for row in done if row >= 0), key=lambda row: -end[row])[:waits]
            target += [place] * len(found)
            source += found
        tail[lane], waits = place, 0
    return Edges(np.array(target, np.int64), np.array(source, np.int64))


def room_on_gpu(run: Recorded, expected: Ints) -> Edges:
    """Kernels (target) that waited for room, which kernels of other streams (source) took.

    A kernel with more blocks than the GPU can run at once leaves no room until its last blocks have begun. So a kernel
    that in the capture began later than all else explains (``expected``), while an earlier launched kernel of another
    stream ran, begins at the same time before that one's end.
    """
    work = run.work
    kernel = work.kind == ROW_KINDS.index("kernel")
    late = np.flatnonzero(kernel & (work.call >= 0) & (work.start > expected + LATE_NS))
    source = np.full(len(late), -1, np.int64)
    device = distinct(*np.array(run.lanes, np.int64).T[:2])[1]  # of each lane
    for lane in np.unique(work.lane[kernel]).tolist() if len(late) else ():
        rows = np.flatnonzero(kernel & (work.lane == lane))
        rows = rows[np.argsort(work.start[rows], kind="stable")]
        at = np.searchsorted(work.start[rows], work.start[late]) - 1
        found = rows[at]
        ran = (at >= 0) & (work.lane[late] != lane) & (device[work.lane[late]] == device[lane])
        ran &= (work.end[found] >= work.start[late] - SKEW_NS) & (work.position[found] < work.position[late])
        better = ran & ((source < 0) | (work.end[found] < work.end[source]))
        source[better] = found[better]
    return Edges(late[source >= 0], source[source >= 0])
