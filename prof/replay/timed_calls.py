"""What share of the host's captured time the program needs without the profiler, call by call, where it was timed.

In one iteration before the capture, pyprof times PyTorch's calls (``TimedCalls``), and the captured steps make the same
ones. Each call of the GPU's API lies within one of them or after it, and the captured host time at that place stands
against the time that was measured there. The backward pass is one place, after the last call of the forward pass.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pyprof.prof.replay.recorded_run import Recorded
from pyprof.prof.replay.replayed_run import Replayed
from pyprof.prof.replay.tasks import CALL, HOST, SYNC
from pyprof.prof.timing.profiler_cost import OwnShare
from pyprof.table.columns import NULL, Floats, HostTable, Ints
from pyprof.table.measured_steps import MeasuredStep, TimedCalls

ALIKE = 0.9  # of a step's calls, how many must have the name of the timed ones for the two to be the same
AHEAD, NEAR = 16, 200  # calls that are compared to find a place, and how far from the expected one it is sought
EVERYWHERE = 20  # times in a step that it is sought among all timed calls
WAITED = 0.2  # the host may wait for the GPU for this share of the time at a place; with more, the rest is not known
SURE = 0.1  # half of the 80% interval of the logarithm of the host's time in an iteration
# Where the host launches more than a GPU's queue holds, and the GPU works nearly as long as the host took, the queue
# was full, as in a long backward pass: the host needs that time at most. The share of backward passes is 1.4 times
# that of the rest in the median of 17 programs on H100 and H200 (0.8 to 2.1): a profiler records no markers in them.
QUEUE, HELD, OF_HELD = 1_000, 0.85, 1.4
LEAST, MOST = 0.05, 1.0  # of a share: a profiler makes no work twenty times as long, and none shorter


@dataclass(frozen=True, slots=True, eq=False)
class TimedShares:
    """The share of the captured host time that was measured without the profiler."""

    of_call: Floats  # per call of the replay, of the time for it and before it; NaN: not known
    of_all: float  # the mean over all captured time

    def at(self, share: float | Floats) -> Floats:
        """Per call, the share if that of all is this one: on another day, all of the host is faster or slower."""
        found: Floats = np.where(np.isnan(self.of_call), self.of_all, self.of_call) * (share / self.of_all)
        return np.minimum(found, 1.0)

    def interval(self) -> OwnShare:
        """The share of all captured time, with its 80% interval."""
        low, high = (self.of_all * math.exp(side * SURE) for side in (-1, 1))
        return OwnShare(self.of_all, low, min(high, 1.0), measured=True)


def timed_shares(replayed: Replayed) -> TimedShares | None:
    """None if no calls were timed, or the captured steps make other ones."""
    timed = _timed(replayed.table.measured)
    place = None if timed is None else _places(timed, replayed.run, replayed.host)
    if timed is None or place is None:
        return None
    run, tasks, count = replayed.run, replayed.tasks, 2 * len(timed.name)
    spent = (tasks.duration[tasks.of(HOST)] + tasks.duration[tasks.of(CALL)]).astype(np.float64)
    counted, steps = _whole_visits(replayed, place)
    known = np.flatnonzero(place >= 0)
    captured, waited = (
        np.bincount(place[counted], ns[counted], count) / np.maximum(np.bincount(steps, minlength=count), 1)
        for ns in (spent, _waited_ns(replayed))
    )
    used = np.flatnonzero(captured > 0)
    took = np.diff(_left_at(timed)[used], prepend=0.0)
    share = np.full(count, np.nan)
    share[used] = np.clip((took - waited[used]) / captured[used], LEAST, MOST)
    busy, launches = _given(replayed, place, count)
    held = (launches[used] > QUEUE) & (busy[used] > HELD * took)
    share[used[waited[used] > WAITED * took]] = np.nan
    spent_at = np.bincount(place[counted], spent[counted], count)
    certain = used[~held & ~np.isnan(share[used])]
    if not spent_at[certain].any():
        return None
    of_others = float(np.average(share[certain], weights=spent_at[certain]))
    share[used[held]] = np.minimum(share[used[held]], OF_HELD * of_others)
    of_call = np.full(len(run.calls), np.nan)
    of_call[known] = share[place[known]]
    measured = ~np.isnan(of_call)
    return TimedShares(of_call, float(np.average(of_call[measured], weights=spent[measured])))


def _timed(measured: Sequence[MeasuredStep]) -> TimedCalls | None:
    """The calls of the last iteration whose calls were timed; their times are the medians of all iterations that made
    the same calls. None if none were timed."""
    every = [step.calls for step in measured if step.calls is not None and step.calls.name]
    if not every:
        return None
    last = every[-1]
    same = [each for each in every if (each.names, each.name) == (last.names, last.name)]
    gap, own = (np.median([getattr(each, key) for each in same], axis=0) for key in ("gap_ns", "own_ns"))
    end = int(np.median([each.end_ns for each in same]))
    return replace(last, gap_ns=tuple(gap.astype(int).tolist()), own_ns=tuple(own.astype(int).tolist()), end_ns=end)


def _left_at(timed: TimedCalls) -> Floats:
    """Per place, the time at which the host leaves it: the end of a timed call, or the begin of the next one."""
    gap, own = np.array(timed.gap_ns, np.float64), np.array(timed.own_ns, np.float64)
    ends = np.cumsum(gap + own)
    begins = np.append((ends - own)[1:], ends[-1] + timed.end_ns)
    found: Floats = np.stack([ends, begins], axis=1).ravel()
    return found


def _whole_visits(replayed: Replayed, place: Ints) -> tuple[Ints, Ints]:
    """(the calls at a place in a step, without those of the place and step in which the capture begins in the middle of
    the host's work, and per place and step of these, the place)."""
    calls, step = replayed.run.calls, replayed.host.ints("step")[replayed.run.calls.row]
    known = np.flatnonzero(place >= 0)
    visits, number = np.unique(np.stack([place[known], step[known]]), axis=1, return_inverse=True)
    begins = (calls.before[known] < 0) & (calls.after[known] < 0)
    whole = ~np.isin(np.arange(visits.shape[1]), number[begins])
    return known[whole[number]], visits[0][whole]


def _given(replayed: Replayed, place: Ints, count: int) -> tuple[Floats, Floats]:
    """Per place, what the host gives the GPU there, per step: ns of work, and launches."""
    work = replayed.run.work
    launched = np.flatnonzero(work.call >= 0)
    launched = launched[place[work.call[launched]] >= 0]
    at = place[work.call[launched]]
    steps = len(np.unique(replayed.host.ints("step")[replayed.run.calls.row[np.flatnonzero(place >= 0)]]))
    return np.bincount(at, (work.end - work.start)[launched], count) / steps, np.bincount(at, minlength=count) / steps


def _waited_ns(replayed: Replayed) -> Floats:
    """Per call: how long the host waits for the GPU in it."""
    calls, tasks = replayed.run.calls, replayed.tasks
    target = np.repeat(np.arange(len(tasks)), np.diff(tasks.first))
    waiting = np.unique(target[tasks.cause == SYNC])
    waiting = waiting[tasks.kind[waiting] == CALL]
    found, call = np.zeros(len(calls)), tasks.item[waiting]
    found[call] = np.maximum(calls.end[call] - calls.start[call] - tasks.duration[waiting], 0)
    return found


def _places(timed: TimedCalls, run: Recorded, host: HostTable) -> Ints | None:
    """Per call of the GPU's API: twice the number of the timed call that it lies in, and one more if it comes after it;
    -1: unknown. None if a step makes other calls than the timed ones."""
    row = run.calls.row
    counted, step = host.ints("calls")[row], host.ints("step")[row]
    own, name = _names(timed, run, host), np.array(timed.name)
    found = np.full(len(row), -1, np.int64)
    for number in np.unique(step[(step != NULL) & (counted != NULL)]).tolist():
        mine = np.flatnonzero((step == number) & (counted != NULL))
        inside = own[mine] >= 0
        of_marked = _aligned(counted[mine[inside]], own[mine[inside]], name)
        if of_marked is None:
            return None
        last = np.cumsum(inside) - 1  # per call, the last one within a timed call
        began = np.where(last >= 0, of_marked[last], -1)
        # Calls that launch nothing are counted only.
        began = np.where(began >= 0, began + counted[mine] - counted[mine[inside]][last], -1)
        found[mine] = np.where((began >= 0) & (began < len(name)), 2 * began + ~inside, -1)
    return found


def _names(timed: TimedCalls, run: Recorded, host: HostTable) -> Ints:
    """Per call of the GPU's API: the name of PyTorch's call around it, by number; -1: none that was timed."""
    row = run.calls.row
    number = {name: at for at, name in enumerate(timed.names)}
    ops = host.coded("op")
    innermost = (json.loads(text)[-1:] if text else [] for text in ops.values)
    named = np.array([*(number.get(str(name[0]), -1) if name else -1 for name in innermost), -1])
    return np.where(host.coded("phase").take(row).among("backward"), -1, named[ops.codes[row]])


def _aligned(counted: Ints, own: Ints, name: Ints) -> Ints | None:
    """Per call of a step, in order: the number of the timed call that it is, -1: unknown. None if they are others.

    ``counted``: the calls in the capture until then; ``own``: each one's name; ``name``: those of the timed calls. The
    step may make a few calls more than the timed one, or fewer: where names differ, a place is sought at which the
    following calls agree.
    """
    if not len(own):
        return None
    found, at, before, unknown = np.full(len(own), -1, np.int64), 0, int(counted[0]), 0
    everywhere = EVERYWHERE
    while at < len(own):
        agreeing, moved = _nearest(name, counted[at : at + AHEAD], own[at : at + AHEAD], before, NEAR)
        if agreeing < ALIKE and everywhere:
            everywhere -= 1
            far = len(name) + abs(int(counted[at]) - before)
            agreeing, moved = _nearest(name, counted[at : at + AHEAD], own[at : at + AHEAD], before, far)
        if agreeing < ALIKE:
            unknown, at = unknown + 1, at + 1
            if unknown > (1 - ALIKE) * len(own):
                return None
            continue
        before += moved
        same = _named(name, counted[at:] - before) == own[at:]
        until = at + max(len(same) if same.all() else int(same.argmin()), 1)
        found[at:until] = counted[at:until] - before
        at = until
    return found


def _nearest(name: Ints, counted: Ints, own: Ints, before: int, far: int) -> tuple[float, int]:
    """(the share of these calls with the name of the timed one, by how many calls the count before them is off), at the
    place, at most ``far`` away, where most of them have it; of several the nearest."""
    moved = np.arange(-far, far + 1)
    moved = moved[np.argsort(np.abs(moved), kind="stable")]
    agree = np.zeros(len(moved))
    for each, wanted in zip(counted.tolist(), own.tolist(), strict=True):
        agree += _named(name, each - (before + moved)) == wanted
    best = int(agree.argmax())
    return float(agree[best]) / len(own), int(moved[best])


def _named(name: Ints, at: Ints) -> Ints:
    """The names at these places; -1 outside."""
    return np.where((at >= 0) & (at < len(name)), name[np.clip(at, 0, len(name) - 1)], -1)
