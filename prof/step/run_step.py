"""The one record of a run's step: its time, its spread, its rates' denominator, and what limits it.

The time is that of a step without the profiler where steps were timed before it began (``pyprof run``,
``pyprof.profile``), and the captured one otherwise. It is the median of the steps; where the mean is longer by a tenth,
some steps take far longer than most, and the mean says how fast the program advances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.step.device_shares import SHARES, lead_ns, shares_of_devices
from pyprof.prof.step.step_times import Begin, step_times
from pyprof.prof.timing.blocking_copies import call_places
from pyprof.prof.timing.loading import without_loading
from pyprof.prof.timing.profiler_cost import unprofiled
from pyprof.prof.timing.waiting import CAUSES, loader_calls, waiting
from pyprof.prof.work.annotate import Annotation
from pyprof.table.attribution import launched_alone
from pyprof.table.columns import NULL, Floats, Ints, Table
from pyprof.table.losses import losses

Limit = Literal["gpu", "communication", "data", "sync", "host", "latency", "incomplete", "unknown"]
Loader = Literal["", "single process", "workers"]
GPU_LIMITS = 0.75  # from this share of a step on, the GPU's work limits it: less than a quarter can be won elsewhere
SUREST: tuple[Limit, ...] = ("data", "sync", "communication", "host", "latency", "unknown")
MOST_PLACES = 10  # where the host pauses, that are told
UNEVEN = 1.1  # mean over median from which on the mean is the step's time


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the step's time."""

    cause: Annotated[str, doc("gpu, communication, data, sync, host, latency or unknown")]
    ns: Annotated[float, doc("of the step; all shares add up to it")]
    captured_ns: Annotated[float, doc("of the step as captured, with the profiler's cost")]


@dataclass(frozen=True, slots=True)
class DeviceStep:
    """The step on one device."""

    owner: Annotated[int, doc("number of the device")]
    limit: Annotated[Limit, doc("what limits it there")]
    shares: Annotated[tuple[Share, ...], doc("what the step's time is spent on")]


@dataclass(frozen=True, slots=True)
class RunStep:
    """The step as the user runs it."""

    unit: Annotated[Literal["step", "capture"], doc("what the times are those of; capture: no steps are known")]
    count: Annotated[int, doc("number of captured steps whose length is known; of a lone one, too, if it is not")]
    numbers: Annotated[tuple[int, ...], doc("their numbers; empty for a capture")]
    wall_ns: Annotated[float, doc("the step's time: without the profiler if steps were timed, else as captured")]
    timed: Annotated[bool, doc("whether it was timed without the profiler")]
    of: Annotated[Literal["median", "mean", "one"], doc("which figure of the steps it is")]
    low_ns: Annotated[float, doc("the shortest of the steps that it is the figure of")]
    high_ns: Annotated[float, doc("the longest of them")]
    steps: Annotated[int, doc("number of the steps that it is the figure of")]
    captured_ns: Annotated[float, doc("the same figure of the steps as captured")]
    begins: Annotated[Begin, doc("where a step begins: at its mark, at a DataLoader's call, or at its first operation")]
    host_alone_ns: Annotated[
        float | None, doc("the host's time for a step that began on an idle GPU, without the profiler; null: not timed")
    ]
    lead_ns: Annotated[
        float, doc("idle time as captured, of the shares, from the step's beginning to its first operation on the GPU")
    ]
    loader: Annotated[Loader, doc("the kind of DataLoader that was called; empty if no call was recorded")]
    limit: Annotated[Limit, doc("what limits the step")]
    shares: Annotated[tuple[Share, ...], doc("what its time is spent on: the mean of the devices")]
    devices: Annotated[tuple[DeviceStep, ...], doc("the same of each device")]

    def share(self, cause: str) -> float:
        """The ns of the step that are spent on a cause."""
        return next((share.ns for share in self.shares if share.cause == cause), 0.0)

    @property
    def busy_ns(self) -> float:
        """The time of the step in which the GPU works, communication included."""
        return self.share("gpu") + self.share("communication")

    @property
    def total_ns(self) -> float:
        """The time of all captured steps as the user runs them, on one device: what rates refer to."""
        return self.wall_ns * self.count


def run_step(table: Table, annotation: Annotation) -> RunStep | None:
    """The record of a capture, where no steps are marked without the loading of the model; None without any time."""
    if not (table.ints("step") != NULL).any():
        table, annotation, _ = without_loading(table, annotation)
    times = step_times(table)
    lengths = np.array([*times.lengths().values()], np.int64)
    if not lengths.any():
        return None
    numbers = tuple(number for number in times.lengths() if number is not None)
    captured, of = _figure(lengths)
    known = unprofiled(table.measured)
    wall, low, high, steps = captured, int(lengths.min()), int(lengths.max()), len(lengths)
    timed = known is not None and bool(numbers) and known.step_ns <= captured
    if known is not None and timed:
        wall, low, high, steps = known.step_ns, known.low_ns, known.high_ns, known.count - known.count // 2
        of = "median" if steps > 1 else "one"
    lost = bool(losses(table)) or bool(launched_alone(table.coded("reason")).any())
    loader = _loader(table)
    slowed = ("host",) if loader == "workers" else ("host", "data")
    per_step = {} if lost else _per_step(shares_of_devices(table, annotation, times), lengths, captured, slowed)
    both = {owner: (without_profiler(each, wall, slowed), each) for owner, each in per_step.items()}
    devices = tuple(DeviceStep(owner, _limit(_shares(*each), wall), _shares(*each)) for owner, each in both.items())
    shares = _shares(*np.mean([*both.values()], axis=0)) if both else ()
    limit: Limit = "incomplete" if lost else _limit(shares, wall)
    return RunStep(
        unit="step" if numbers else "capture",
        count=max(len(numbers), 1),
        numbers=numbers,
        wall_ns=float(wall),
        timed=timed,
        of=of,
        low_ns=float(low),
        high_ns=float(high),
        steps=steps,
        captured_ns=captured,
        begins=times.begins,
        host_alone_ns=known.host_alone_ns if known is not None else None,
        lead_ns=lead_ns(table, times),
        loader=loader,
        limit=limit,
        shares=shares,
        devices=devices,
    )


def _figure(lengths: Ints) -> tuple[float, Literal["median", "mean", "one"]]:
    median, mean = float(np.median(lengths)), float(np.mean(lengths))
    if len(lengths) == 1:
        return median, "one"
    return (mean, "mean") if mean > UNEVEN * median else (median, "median")


def _per_step(
    sums: Mapping[int, Floats], lengths: Ints, captured: float, slowed: Sequence[str]
) -> Mapping[int, Floats]:
    """The shares of a captured step on each device, from those of all steps. ``lengths``: of these, on the slowest one.

    What a device's steps are shorter than the slowest one's is time for which the host gave it no work. Where the step
    is shorter than the mean, the steps that take longer do the same work: the rest comes off idle time first.
    """
    found, scale = {}, max(captured / float(lengths.mean()), 1.0)
    for owner, each in sums.items():
        mean = each / max(len(lengths), float(each.sum() / lengths.mean())) * scale
        mean[SHARES.index("host")] += max(captured, float(lengths.mean())) - mean.sum()
        found[owner] = without_profiler(mean, captured, slowed)
    return found


def _shares(without: Floats, captured: Floats) -> tuple[Share, ...]:
    return tuple(map(Share, SHARES, without.tolist(), captured.tolist()))


def without_profiler(captured: Floats, wall: float, slowed: Sequence[str] = ("host",)) -> Floats:
    """The shares of a step that takes ``wall`` ns, from those of a longer one, in the order of ``SHARES``.

    What makes a step longer, a profiler or a slow iteration, is mostly the host's time (``slowed``; that of batches
    too, where the program's own process makes them), and hardly that of the GPU, worker processes or a wait. So what
    the step is shorter comes off the host's shares first; if that is not enough, off the other idle time, and last off
    the GPU's, each in proportion.
    """
    found, excess = captured.copy(), float(captured.sum()) - wall
    idle = [name for name in SHARES if name not in ("gpu", "communication", *slowed)]
    for names in (slowed, idle, ("gpu", "communication")):
        places = [SHARES.index(name) for name in names]
        there = float(found[places].sum())
        if excess > 0 and there > 0:
            removed = min(excess, there)
            found[places] *= 1 - removed / there
            excess -= removed
    return found


def _limit(shares: tuple[Share, ...], wall: float) -> Limit:
    """The GPU's work if it takes most of the step; otherwise what takes the rest.

    Of causes that each take a quarter of the step, the one with the surest evidence: a DataLoader's calls, waits for
    values, communication, and last the host, which is what no record explains better. Where no record explains half of
    the step, it is not known.
    """
    ns = defaultdict(float, {share.cause: share.ns for share in shares})
    if ns["gpu"] >= GPU_LIMITS * wall:
        return "gpu"
    if ns["unknown"] > wall / 2:
        return "unknown"
    sure = [name for name in SUREST if ns[name] >= (1 - GPU_LIMITS) * wall]
    return sure[0] if sure else max(SUREST, key=lambda name: ns[name])


def _loader(table: Table) -> Loader:
    calls = loader_calls(table).values()
    if not calls:
        return ""
    return "workers" if any(bool(workers.any()) for _, _, workers in calls) else "single process"


@dataclass(frozen=True, slots=True)
class HostPlace:
    """A place before whose launch the GPU waits for the host."""

    op: Annotated[str, doc("what the user called, whose launch ends the pause")]
    line: Annotated[str, doc("the program's line, and the library's that it leads to")]
    ns: Annotated[float, doc("per step as captured: idle time of the GPU in pauses of 0.2 ms or longer before it")]
    pauses: Annotated[float, doc("number of them per step")]


def host_places(table: Table, step: RunStep) -> list[HostPlace]:
    """The places of a capture's steps, of all devices together, per device."""
    paused = waiting(table).parts[:, CAUSES.index("host")]
    rows = np.flatnonzero(paused > 0)
    if step.numbers:
        rows = rows[np.isin(table.ints("step")[rows], step.numbers)]
    places, group = call_places(table, rows)
    per = step.count * max(len(step.devices), 1)
    ns = np.bincount(group, weights=paused[rows], minlength=len(places)) / per
    count = np.bincount(group, minlength=len(places)) / per
    found = [
        HostPlace(op, str(place), float(ns[i]), float(count[i])) for i, (op, place) in enumerate(places) if any(place)
    ]
    return sorted(found, key=lambda place: (-place.ns, place.line))[:MOST_PLACES]
