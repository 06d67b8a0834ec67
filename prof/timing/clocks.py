"""The clocks, power and energy of each GPU while it worked, from the readings of ``pyprof run --nvml``.

A reading stands for the time from half-way to the one before it to half-way to the next. Its weight is the part of that
time in which an operation ran on the GPU, so the means are those of the work and leave out idleness.

Energy is the difference of NVML's counter between two times, interpolated between readings; beside it, power is
integrated over the same time (trapezoids). Both are of the whole GPU, idle time included.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc, nan_doc
from pyprof.nvml import reason_names
from pyprof.prof.timing.gpus import device_rows, ends
from pyprof.prof.timing.steps import Step
from pyprof.table.columns import NULL, Bools, Floats, Ints, Table, known
from pyprof.table.gpu_samples import GpuSamples
from pyprof.table.intervals import united

FELL = 0.98  # a clock below this share of the GPU's limit has fallen; NVML's steps are 15 MHz, 0.8% of an H200's limit
WORKED = 0.1  # a reading counts as one of a working GPU if it worked for this share of its time
MOST = 20  # falls that are listed

Spans = tuple[Ints, Ints]  # starts and ends, ns


@dataclass(frozen=True, slots=True)
class ReasonTime:
    name: Annotated[str, doc("what held the clocks back, by NVML: power cap, thermal slowdown, ...")]
    ns: Annotated[int, doc("time of work with it")]


@dataclass(frozen=True, slots=True)
class Fall:
    """A stretch of work during which the SM clock stayed below its limit."""

    start_ns: Annotated[int, doc("since the capture began")]
    length_ns: Annotated[int, doc("until the reading at which the clock was back, idle time included")]
    lowest_mhz: Annotated[int, doc("the lowest SM clock read", "MHz")]
    reasons: Annotated[tuple[str, ...], doc("what NVML named meanwhile")]


@dataclass(frozen=True, slots=True)
class Clocks:
    """The readings of one GPU. Means and extremes are of the time in which an operation ran; NaN if unknown."""

    rank: Annotated[int | None, doc("rank in the distributed job")]
    pid: Annotated[int | None, doc("process")]
    ordinal: Annotated[int | None, doc("the device, as its process numbers it")]
    readings: Annotated[int, doc("number of readings")]
    period_ns: Annotated[int, doc("from one reading to the next")]
    work_ns: Annotated[int, doc("time with an operation that the readings cover")]
    sm_mhz: Annotated[float, nan_doc("mean SM clock", "MHz")]
    lowest_sm_mhz: Annotated[float, nan_doc("lowest SM clock", "MHz")]
    highest_sm_mhz: Annotated[float, nan_doc("highest SM clock", "MHz")]
    sm_limit_mhz: Annotated[int | None, doc("highest SM clock that the GPU allows", "MHz")]
    memory_mhz: Annotated[float, nan_doc("mean memory clock", "MHz")]
    lowest_memory_mhz: Annotated[float, nan_doc("lowest memory clock", "MHz")]
    memory_limit_mhz: Annotated[int | None, doc("highest memory clock that the GPU allows", "MHz")]
    fallen_ns: Annotated[int, doc("time of work with the SM clock more than 2% below its limit")]
    falls: Annotated[tuple[Fall, ...], doc("these times, in order; at most 20")]
    reasons: Annotated[tuple[ReasonTime, ...], doc("what held the clocks back, the longest first")]
    power_w: Annotated[float, nan_doc("mean power while it worked", "W")]
    power_limit_w: Annotated[float, nan_doc("power limit in force", "W")]
    power_is: Annotated[str, doc("what NVML's power reading is of: the instant, or the mean of a second")]
    highest_temperature_c: Annotated[float, nan_doc("highest temperature", "°C")]
    energy_ns: Annotated[int, doc("the time that the energies are of: that of the steps, or else of all operations")]
    energy_j: Annotated[float, nan_doc("by NVML's energy counter", "J")]
    integrated_j: Annotated[float, nan_doc("by integrated power", "J")]
    updates: Annotated[int, doc("how often NVML's power reading, or else its counter, changed in that time")]
    steps: Annotated[int, doc("steps in that time; 0 where the capture marks none")]

    @property
    def joule_per_step(self) -> float:
        """J per step by the energy counter, or else by integrated power; NaN without steps."""
        energy = self.integrated_j if math.isnan(self.energy_j) else self.energy_j
        return energy / self.steps if self.steps else math.nan


def clocks(table: Table, steps: Sequence[Step] = ()) -> tuple[Clocks, ...]:
    """One record per GPU that has readings during its operations. ``steps``: those whose energy is asked for."""
    found: list[Clocks] = []
    if not table.samples:
        return ()
    rows = dict(device_rows(table, ~table.coded("kind").among("cpu")))
    for gpu in table.samples:
        of_gpu = rows.get((gpu.rank, gpu.pid, gpu.device))
        if of_gpu is not None and len(of_gpu) and len(gpu):
            found.append(_clocks(gpu, united(table.ints("start")[of_gpu], ends(table)[of_gpu]), steps))
    return tuple(found)


def _clocks(gpu: GpuSamples, work: Spans, steps: Sequence[Step]) -> Clocks:
    begin, end = _shares(gpu.time_ns)
    weight = _covered(work, begin, end)
    worked = weight >= np.maximum(WORKED * (end - begin), 1)
    window, count = _energy_window(gpu.time_ns, work, steps)
    fallen = worked & _fallen(gpu)
    return Clocks(
        rank=known(gpu.rank),
        pid=known(gpu.pid),
        ordinal=known(gpu.device),
        readings=len(gpu),
        period_ns=gpu.period_ns,
        work_ns=int(weight.sum()),
        sm_mhz=_mean(gpu.sm_mhz, weight),
        lowest_sm_mhz=_extreme(gpu.sm_mhz, worked, min),
        highest_sm_mhz=_extreme(gpu.sm_mhz, worked, max),
        sm_limit_mhz=known(gpu.sm_limit_mhz),
        memory_mhz=_mean(gpu.memory_mhz, weight),
        lowest_memory_mhz=_extreme(gpu.memory_mhz, worked, min),
        memory_limit_mhz=known(gpu.memory_limit_mhz),
        fallen_ns=int(weight[fallen].sum()),
        falls=_falls(gpu, fallen, worked, begin, end),
        reasons=_reasons(gpu.reasons, weight),
        power_w=_mean(gpu.power_mw, weight) / 1e3,
        power_limit_w=math.nan if gpu.power_limit_mw == NULL else gpu.power_limit_mw / 1e3,
        power_is=gpu.power,
        highest_temperature_c=_extreme(gpu.temperature_c, worked, max),
        energy_ns=max(int((window[1] - window[0]).sum()), 0),
        energy_j=counted_joule(gpu, window),
        integrated_j=integrated_joule(gpu, window),
        updates=_updates(gpu, window),
        steps=count,
    )


# Time


def _shares(time: Ints) -> Spans:
    """The time that each reading stands for: to half-way to its neighbours, as far on the outer side of the ends."""
    if len(time) == 1:
        return time, time + 1
    middle = (time[:-1] + time[1:]) // 2
    return np.r_[2 * time[0] - middle[0], middle], np.r_[middle, 2 * time[-1] - middle[-1]]


def _covered(spans: Spans, begin: Ints, end: Ints) -> Ints:
    """How much of each interval from ``begin`` to ``end`` the spans cover, ns."""
    return _before(spans, end) - _before(spans, begin)


def _before(spans: Spans, at: Ints) -> Ints:
    """How much time the spans cover before each time."""
    start, stop = spans
    total = np.r_[0, np.cumsum(stop - start)]
    place = np.searchsorted(start, at, side="right") - 1
    inside = np.minimum(at, stop[place]) - start[place]
    return np.where(place < 0, 0, total[np.maximum(place, 0)] + inside)


def _energy_window(time: Ints, work: Spans, steps: Sequence[Step]) -> tuple[Spans, int]:
    """The spans whose energy counts, and how many steps they are: the steps that the readings cover, or else, where
    none are marked, the part of the run that they cover.
    """
    first, last = int(time[0]), int(time[-1])
    marked = [step for step in steps if step.number is not None and step.span_ns > 0]
    if not marked:
        return (np.maximum(work[0][:1], first), np.minimum(work[1][-1:], last)), 0
    inside = [step for step in marked if first <= step.start_ns and step.start_ns + step.span_ns <= last]
    start = np.array([step.start_ns for step in inside], np.int64)
    span = np.array([step.span_ns for step in inside], np.int64)
    return (united(start, start + span) if inside else (start, span)), len(inside)


# Clocks


def _mean(values: Ints, weight: Ints) -> float:
    has_value = (values != NULL) & (weight > 0)
    return float(np.average(values[has_value], weights=weight[has_value])) if has_value.any() else math.nan


def _extreme(values: Ints, worked: Bools, pick: Callable[[list[int]], int]) -> float:
    has_value = values[worked & (values != NULL)].tolist()
    return float(pick(has_value)) if has_value else math.nan


def _fallen(gpu: GpuSamples) -> Bools:
    """The readings with an SM clock below the GPU's limit; without a known limit, below the highest one read."""
    limit = gpu.sm_limit_mhz if gpu.sm_limit_mhz != NULL else int(gpu.sm_mhz.max())
    return np.asarray((gpu.sm_mhz != NULL) & (gpu.sm_mhz < FELL * limit), bool)


def _falls(gpu: GpuSamples, fallen: Bools, worked: Bools, begin: Ints, end: Ints) -> tuple[Fall, ...]:
    """Stretches of readings below the limit. A reading of an idle GPU does not end one: its clock says nothing."""
    readings = np.flatnonzero(worked)
    found: list[Fall] = []
    stretch: list[int] = []
    for reading in [*readings.tolist(), -1]:
        if reading >= 0 and fallen[reading]:
            stretch.append(reading)
        elif stretch:
            bits = np.bitwise_or.reduce(np.where(gpu.reasons[stretch] == NULL, 0, gpu.reasons[stretch]))
            low, high = int(begin[stretch[0]]), int(end[stretch[-1]])
            found.append(Fall(low, high - low, int(gpu.sm_mhz[stretch].min()), tuple(reason_names(int(bits)))))
            stretch = []
    return tuple(found[:MOST])


def _reasons(bits: Ints, weight: Ints) -> tuple[ReasonTime, ...]:
    """The time of work with each reason, the longest first."""
    time: dict[str, int] = {}
    for value in np.unique(bits[(bits != NULL) & (weight > 0)]).tolist():
        for name in reason_names(value):
            time[name] = time.get(name, 0) + int(weight[bits == value].sum())
    return tuple(ReasonTime(name, ns) for name, ns in sorted(time.items(), key=lambda item: -item[1]))


# Energy


def counted_joule(gpu: GpuSamples, window: Spans) -> float:
    """Joule by NVML's counter over some spans; NaN where the readings do not cover them."""
    has_value = gpu.energy_mj != NULL
    time, energy = gpu.time_ns[has_value], gpu.energy_mj[has_value].astype(np.float64)
    if not _covers(time, window):
        return math.nan
    low, high = (np.interp(at, time, energy) for at in window)
    return float((high - low).sum() / 1e3)


def integrated_joule(gpu: GpuSamples, window: Spans) -> float:
    """Joule by power, integrated between the readings (trapezoids); NaN where they do not cover the spans."""
    has_value = gpu.power_mw != NULL
    time, power = gpu.time_ns[has_value], gpu.power_mw[has_value].astype(np.float64)
    if not _covers(time, window):
        return math.nan
    grown: Floats = np.r_[0.0, np.cumsum((power[1:] + power[:-1]) / 2 * np.diff(time))]  # mW × ns = pJ

    def until(at: Ints) -> Floats:
        place = np.clip(np.searchsorted(time, at, side="right") - 1, 0, len(time) - 2)
        since = (at - time[place]).astype(np.float64)
        slope = (power[place + 1] - power[place]) / (time[place + 1] - time[place])
        grew: Floats = grown[place] + since * (power[place] + slope * since / 2)
        return grew

    return float((until(window[1]) - until(window[0])).sum() / 1e12)


def _updates(gpu: GpuSamples, window: Spans) -> int:
    """How often power changed, or the counter where power is unknown: the energies are as fine as that.

    Both change at the same times, and power is read more often.
    """
    values = gpu.power_mw if bool((gpu.power_mw != NULL).any()) else gpu.energy_mj
    has_value = values != NULL
    inside = _covered(window, gpu.time_ns[has_value][:-1], gpu.time_ns[has_value][1:]) > 0 if len(window[0]) else False
    return int(((np.diff(values[has_value]) != 0) & inside).sum())


def _covers(time: Ints, window: Spans) -> bool:
    start, end = window
    return len(time) > 1 and len(start) > 0 and bool(time[0] <= start[0] < end[-1] <= time[-1])
