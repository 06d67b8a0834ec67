"""The replay of a run as it would be without the profiler, whose cost is on the host.

Each range (op, marker, layer) and each call of the GPU's API costs the profiler time. In the replay, the host's work
keeps a share of its recorded time, but loses at most ``MOST_NS`` for each range and call, so that pauses, in which
there are none, stay. Where steps were timed before the profiler started, the share is the one with which the replay's
steps take as long as these; otherwise, and where the host does not limit the step, it is an estimate with an interval.
Where each call was timed, too (``timed_calls``), each has a share of its own, and only their level is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import Record, doc
from pyprof.prof.replay.recorded_run import ranges_before
from pyprof.prof.replay.replayed_run import Replayed
from pyprof.prof.replay.tasks import CALL, HOST
from pyprof.prof.replay.timed_calls import TimedShares, timed_shares
from pyprof.prof.timing.profiler_cost import OwnShare, estimated_share, unprofiled
from pyprof.table.columns import Floats

MOST_NS = 25_000  # a range or call does not cost a profiler more
LEAST_SHARE, REPLAYS = 0.02, 24
# Standard deviations of a step from run to run, by the step: where the GPU is the limit, and where the host has to do
# with it, which on a machine that others use, too, is half as fast for seconds. Of 278 changes of twelve programs on
# H200s, measured in turns, three to five pairs of blocks each, the pairs of one change differ by 0.097 to 0.125 of the
# step where the host has to do with it, and by 0.002 to 0.028 otherwise (medians of four recordings); a range of four
# is 2.06 deviations. No prediction has a part in that (docs/explanation/advice.md).
GPU_DEVIATION, HOST_DEVIATION = 0.01, 0.055
HOST_MATTERS = 0.15  # of the step's time, the part that goes with the host's work, from which on it does so fully
TENTH = 1.2816  # a normal distribution has a tenth beyond this many standard deviations
GPU_LIMITS = 0.9  # if nearly no host time makes a step at most this much shorter, the GPU limits it


class ProfilerRemoved(Record):
    """The replay without the profiler's cost on the host."""

    measured_ns: Annotated[float | None, doc("the step as it was timed before the profiler started; null: it was not")]
    step_ns: Annotated[float, doc("the mean step of this replay; of the whole run where no steps are marked")]
    low_ns: Annotated[float, doc("the same with the low end of the interval of host_share")]
    high_ns: Annotated[float, doc("and with its high end")]
    profiled_ns: Annotated[float, doc("the mean step of the replay with the profiler's cost")]
    host_share: Annotated[float, doc("how much of the host's recorded time is the program's own")]
    host_share_measured: Annotated[bool, doc("whether it follows from measured steps; otherwise it is an estimate")]
    per_range_ns: Annotated[float, doc("what a range (op, marker, layer) costs the profiler, on average")]
    per_call_ns: Annotated[float, doc("what a call of the GPU's API costs it")]


def without_profiler(replayed: Replayed) -> tuple[Replayed, ProfilerRemoved]:
    """The replay without the profiler's cost, and its step with an 80% interval: that of the share of the host's time,
    and how steps differ from run to run."""
    timed = timed_shares(replayed)
    scaled = partial(_scaled, replayed, timed)
    share = _fitted(replayed, scaled, timed.interval() if timed else estimated_share(replayed.table))
    found, *ends = (scaled(value) for value in (share.share, share.low, share.high))
    step, low, high = (mean_step_ns(run) for run in (found, *ends))
    more = TENTH * run_to_run_ns(step, mean_step_ns(scaled(LEAST_SHARE)))
    low, high = step - math.hypot(max(step - low, 0), more), step + math.hypot(max(high - step, 0), more)
    saved = replayed.tasks.duration - found.tasks.duration
    of_ranges, of_calls = (int(saved[replayed.tasks.kind == kind].sum()) for kind in (HOST, CALL))
    ranges = int(ranges_before(replayed.host, replayed.run.calls).sum())
    per_range, per_call = of_ranges / max(ranges, 1), of_calls / max(len(replayed.run.calls), 1)
    known, profiled = unprofiled(replayed.table.measured), mean_step_ns(replayed)
    timed_ns = None if known is None else known.step_ns
    return found, ProfilerRemoved(timed_ns, step, low, high, profiled, share.share, share.measured, per_range, per_call)


def run_to_run_ns(step_ns: float, hostless_ns: float) -> float:
    """The standard deviation of a step from run to run in ns. ``hostless_ns``: the step with hardly any host time."""
    by_host = min(max(1 - hostless_ns / max(step_ns, 1.0), 0.0) / HOST_MATTERS, 1.0)
    return step_ns * math.hypot(GPU_DEVIATION, HOST_DEVIATION * by_host)


def mean_step_ns(replayed: Replayed) -> float:
    """The mean of the steps after the first one, which may begin in the middle; of a single step or none, that."""
    steps = [step.replayed_ns for step in replayed.steps()]
    return float(np.mean(steps[1:] or steps)) if steps else float(replayed.replayed_ns)


def _fitted(replayed: Replayed, scaled: Callable[[float], Replayed], usual: OwnShare) -> OwnShare:
    """The share with which the replay's step is as long as those that were measured without the profiler; the usual one
    where none were measured, where the capture marks no steps, and where the host does not limit them."""
    found = unprofiled(replayed.table.measured)
    if found is None or not replayed.steps():
        return usual
    shares = np.geomspace(LEAST_SHARE, 1.0, REPLAYS)
    steps = np.maximum.accumulate([mean_step_ns(scaled(share)) for share in shares])
    if steps[0] > GPU_LIMITS * found.step_ns >= GPU_LIMITS**2 * np.interp(usual.share, shares, steps):
        return usual
    share, low, high = np.interp((found.step_ns, found.low_ns, found.high_ns), steps, shares).tolist()
    return OwnShare(share, low, high, measured=True)


def _scaled(replayed: Replayed, timed: TimedShares | None, share: float) -> Replayed:
    """The run with this share of the host's captured time; calls that were timed have shares of their own, in full."""
    if timed is None:
        return with_hosts_at(replayed, np.full(len(replayed.run.calls), share))
    return with_hosts_at(replayed, timed.at(share), np.where(np.isnan(timed.of_call), MOST_NS, np.inf))


def with_hosts_at(replayed: Replayed, share: Floats, most_ns: Floats | float = MOST_NS) -> Replayed:
    """The run with the host's work for each call at this share of it, but at most ``most_ns`` shorter per range and
    call."""
    tasks, ranges = replayed.tasks, ranges_before(replayed.host, replayed.run.calls)
    duration = tasks.duration.copy()
    for kind, events in ((HOST, 1 + ranges), (CALL, 1)):
        of_calls = tasks.of(kind)
        duration[of_calls] -= np.minimum((1 - share) * duration[of_calls], most_ns * events).astype(np.int64)
    return replayed.with_tasks(replace(tasks, duration=duration))
