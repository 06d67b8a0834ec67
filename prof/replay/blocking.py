"""Calls that hold the host until the GPU has done something, and what they take without that.

Such calls are synchronisations, copies from and to pageable memory, ``cudaFree``, and launches into a full queue. Their
recorded duration is split: the wait, which the replay finds from the operation waited for; what the call took after the
operation had ended (``tail``); and the call's own time, which for one that waited is that of calls that did not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.prof.replay.dependencies import SKEW_NS, waited_for
from pyprof.prof.replay.recorded_run import KIND, ROW_KINDS, Recorded
from pyprof.table.columns import Bools, Ints

# The operations that a stream of CUDA takes before a launch must wait until the first of them is done: A100 and H200,
# CUDA 11.8 to 13.0, in nsys exports of training steps with many small kernels.
QUEUE = 1022
UNKNOWN_NS = 2_000  # what a call takes, and the return from a wait, where the capture has none to take it from
LONGEST_OWN_NS = 10_000  # a call that waited does not take longer by itself
# A host that reads memory again and again until a kernel has written there makes no call. Such pauses follow the
# kernel's launch and end with the kernel: in DeepEP's dispatch on an H800, where they take 2 to 23 ms, 25 to 67 µs
# before its end. A pause for another reason ends so near to a kernel's end by chance alone.
POLLED_NS = 1_000_000  # the least time of such a pause
AT_END_NS = 100_000  # between the ends of kernel and pause
AGAIN = 3  # pauses after launches of one kernel; all of them must end so


@dataclass(frozen=True, slots=True)
class Blocked:
    """What calls wait for: ``call`` ends ``tail`` ns after the end of the operation ``work``, if that is later."""

    own: Ints  # per call: its duration without waiting, ns
    call: Ints
    work: Ints
    tail: Ints
    cause: Ints  # index into tasks.LAGS
    held: Bools  # per operation: whether its own call waits for it


def blocked_calls(run: Recorded, sync: int, queue: int) -> Blocked:
    """What each call waits for. ``sync`` and ``queue``: the causes as tasks number them."""
    calls, work = run.calls, run.work
    holding = _held_by_copies(run)
    held = np.flatnonzero(holding)
    synced = waited_for(run)
    full_call, full_work = _full_queue(run)
    call = np.concatenate([synced.target, work.call[held], full_call])
    source = np.concatenate([synced.source, held, full_work])
    cause = np.repeat([sync, sync, queue], [len(synced.target), len(held), len(full_call)])
    duration = calls.end - calls.start
    late = np.full(len(calls), np.iinfo(np.int64).min)
    np.maximum.at(late, call, work.end[source])
    waited = late > calls.start  # the call began before what it waits for had ended
    own = np.where(waited, np.minimum(_usual(run, duration, waited), duration), duration)
    tail = calls.end[call] - work.end[source]
    last = (work.end[source] == late[call]) & waited[call]
    tail = np.where(last, tail, np.minimum(_median(tail[last]), tail))
    return Blocked(own, call, source, tail, cause, holding)


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


def _median(values: Ints) -> int:
    return round(float(np.median(values))) if len(values) else UNKNOWN_NS


def _usual(run: Recorded, duration: Ints, waited: Bools) -> Ints:
    """Per call, the median duration of calls of its kind that did not wait, at most ``LONGEST_OWN_NS``."""
    found = np.full(len(duration), LONGEST_OWN_NS, np.int64)
    for kind in np.unique(run.calls.kind).tolist():
        mine = run.calls.kind == kind
        found[mine] = min(_median(duration[mine & ~waited]), LONGEST_OWN_NS)
    return found


def _held_by_copies(run: Recorded) -> Bools:
    """Operations of copies whose call in the capture ended after them, or after they began, if it was a long one."""
    calls, work = run.calls, run.work
    call = np.maximum(work.call, 0)
    copies = (work.call >= 0) & (calls.kind[call] == KIND["copy"]) & run.holding[work.row]
    ended = (calls.end[call] >= work.end - SKEW_NS) & (calls.end[call] > work.start)  # else it waits for its own call
    found: Bools = copies & (ended | (calls.end[call] > work.start + LONGEST_OWN_NS))
    return found


def _full_queue(run: Recorded) -> tuple[Ints, Ints]:
    """Launches, and the operation of their stream that must be done before they return."""
    work = run.work
    order = np.lexsort((np.arange(len(work)), work.lane))
    if len(order) <= QUEUE:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    later, earlier = order[QUEUE:], order[:-QUEUE]
    known = (work.lane[later] == work.lane[earlier]) & (work.call[later] >= 0)
    later, earlier = later[known], earlier[known]
    full = work.end[earlier] <= run.calls.end[work.call[later]] + SKEW_NS  # no more than that were in the queue
    return work.call[later[full]], earlier[full]
