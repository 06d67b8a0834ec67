"""Calls that hold the host until the GPU has done something, and what they take without that.

Such calls are synchronisations, copies from and to pageable memory, and ``cudaFree``. Their recorded duration is split:
the wait, which the replay finds from the operation waited for; what the call took after the operation had ended
(``tail``); and the call's own time, which for one that waited is that of calls that did not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.prof.replay.dependencies import SKEW_NS, waited_for
from pyprof.prof.replay.recorded_run import KIND, Recorded
from pyprof.table.columns import Bools, Ints

UNKNOWN_NS = 2_000  # what a call takes, and the return from a wait, where the capture has none to take it from
LONGEST_OWN_NS = 10_000  # a call that waited does not take longer by itself


@dataclass(frozen=True, slots=True)
class Blocked:
    """What calls wait for: ``call`` ends ``tail`` ns after the end of the operation ``work``, if that is later."""

    own: Ints  # per call: its duration without waiting, ns
    call: Ints
    work: Ints
    tail: Ints
    held: Bools  # per operation: whether its own call waits for it


def blocked_calls(run: Recorded) -> Blocked:
    """What each call waits for."""
    calls, work = run.calls, run.work
    holding = _held_by_copies(run)
    held = np.flatnonzero(holding)
    synced = waited_for(run)
    call, source = np.append(synced.target, work.call[held]), np.append(synced.source, held)
    duration = calls.end - calls.start
    late = np.full(len(calls), np.iinfo(np.int64).min)
    np.maximum.at(late, call, work.end[source])
    waited = late > calls.start  # the call began before what it waits for had ended
    own = np.where(waited, np.minimum(_usual(run, duration, waited), duration), duration)
    tail = calls.end[call] - work.end[source]
    last = (work.end[source] == late[call]) & waited[call]
    tail = np.where(last, tail, np.minimum(_median(tail[last]), tail))
    return Blocked(own, call, source, tail, holding)


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
