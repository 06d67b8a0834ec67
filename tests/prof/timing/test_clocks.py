"""Clocks, power and energy: means over the time of work, falls with their reasons, and energy per step, by hand."""

import math
from typing import Any

import numpy as np
import pytest

from pyprof.prof.timing.clocks import Clocks, clocks, counted_joule, integrated_joule
from pyprof.prof.timing.steps import Step
from pyprof.table.columns import NULL, Coded, Ints, Table
from pyprof.table.gpu_samples import GpuSamples
from pyprof.table.intervals import united

MS = 1_000_000


def ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def samples(times_ms: list[int], **series: Any) -> GpuSamples:
    none = [NULL] * len(times_ms)
    names = ("sm_mhz", "memory_mhz", "power_mw", "temperature_c", "reasons", "energy_mj")
    limits = {key: series.pop(key, NULL) for key in ("sm_limit_mhz", "memory_limit_mhz", "power_limit_mw")}
    columns = {name: ints(series.get(name, none)) for name in names}
    return GpuSamples(0, 7, 0, "instant", 10 * MS, **limits, time_ns=ints(times_ms) * MS, **columns)


def run(gpu: GpuSamples, kernels_ms: list[tuple[int, int]], steps: list[Step] | None = None) -> Clocks:
    rows = len(kernels_ms)
    columns = {
        "kShortName": Coded.of(["k"] * rows),
        "kind": Coded.of(["kernel"] * rows),
        "start": ints([start for start, _ in kernels_ms]) * MS,
        "kDuration": ints([end - start for start, end in kernels_ms]) * MS,
        **{key: ints([value] * rows) for key, value in (("rank", 0), ("pid", 7), ("device", 0))},
    }
    (found,) = clocks(Table(rows, columns, [gpu]), steps or [])
    return found


def step(number: int, start_ms: int, span_ms: int) -> Step:
    return Step(0, number, start_ms * MS, span_ms * MS, {}, 0)


def test_the_mean_is_of_the_time_of_work() -> None:
    # Readings at 0, 10, 20, 30 ms stand for -5..5, 5..15, 15..25, 25..35 ms; the kernels cover 5, 10, 0 and 5 ms.
    gpu = samples([0, 10, 20, 30], sm_mhz=[1000, 2000, 345, 1600], memory_mhz=[3000, 3000, 300, 3000])
    found = run(gpu, [(0, 15), (30, 35)])
    assert found.work_ns == 20 * MS
    assert found.sm_mhz == (5 * 1000 + 10 * 2000 + 5 * 1600) / 20  # not the 345 MHz of the idle GPU
    assert (found.lowest_sm_mhz, found.highest_sm_mhz, found.memory_mhz) == (1000, 2000, 3000)


def test_falls_say_when_how_long_and_why() -> None:
    gpu = samples(
        [0, 10, 20, 30, 40, 50],
        sm_mhz=[1980, 1410, 1500, 1965, 1200, 1980],
        reasons=[0, 0x4, 0x4 | 0x20, 0, 0x80, 0],
        sm_limit_mhz=1980,
    )
    found = run(gpu, [(0, 60)])
    # 1,965 MHz is 0.8% below the limit of 1,980: no fall
    assert [(fall.start_ns, fall.length_ns, fall.lowest_mhz, fall.reasons) for fall in found.falls] == [
        (5 * MS, 20 * MS, 1410, ("power cap (software)", "thermal slowdown (software)")),
        (35 * MS, 10 * MS, 1200, ("power brake (hardware)",)),
    ]
    assert found.fallen_ns == 30 * MS
    assert [(reason.name, reason.ns) for reason in found.reasons] == [
        ("power cap (software)", 20 * MS),
        ("thermal slowdown (software)", 10 * MS),
        ("power brake (hardware)", 10 * MS),
    ]


def test_an_idle_reading_neither_falls_nor_ends_a_fall() -> None:
    gpu = samples([0, 10, 20, 30], sm_mhz=[1400, 345, 1400, 1980], reasons=[4, 1, 4, 0], sm_limit_mhz=1980)
    found = run(gpu, [(0, 5), (15, 35)])
    assert [(fall.start_ns, fall.length_ns, fall.lowest_mhz) for fall in found.falls] == [(-5 * MS, 30 * MS, 1400)]


def test_energy_is_the_counters_and_the_integral_over_the_steps() -> None:
    # 100 W until 10 ms, then rising to 300 W at 30 ms. The counter: 100 mJ per ms, with a jump of 5 mJ at the end.
    gpu = samples([0, 10, 30], power_mw=[100_000, 100_000, 300_000], energy_mj=[0, 1000, 5005])
    found = run(gpu, [(0, 30)], [step(1, 5, 5), step(2, 10, 10)])
    assert (found.steps, found.energy_ns) == (2, 15 * MS)
    # counter from 5 to 20 ms: 500 -> 1000 + 4005 / 2 = 3002.5 mJ
    assert found.energy_j == pytest.approx((3002.5 - 500) / 1e3)
    # power: 5 ms × 100 W + 10 ms × (100 + 200) / 2 W = 0.5 + 1.5 J
    assert found.integrated_j == pytest.approx(2.0)
    assert found.joule_per_step == pytest.approx(2.5025 / 2)


def test_steps_that_the_readings_do_not_cover_are_left_out() -> None:
    gpu = samples([10, 20, 30], power_mw=[100_000] * 3, energy_mj=[0, 1000, 2000])
    found = run(gpu, [(0, 30)], [step(1, 5, 5), step(2, 10, 10), step(3, 20, 20)])
    assert (found.steps, found.energy_j, found.integrated_j) == (1, pytest.approx(1.0), pytest.approx(1.0))
    none = run(gpu, [(0, 30)], [step(1, 5, 100)])
    assert none.steps == 0 and math.isnan(none.joule_per_step) and math.isnan(none.energy_j)


def test_without_steps_energy_is_of_what_the_readings_cover() -> None:
    gpu = samples([10, 20], power_mw=[100_000, 100_000])
    found = run(gpu, [(0, 15), (16, 40)])
    assert (found.steps, found.energy_ns, found.integrated_j) == (0, 10 * MS, pytest.approx(1.0))
    assert math.isnan(found.energy_j)  # no counter


def test_unknown_is_not_zero() -> None:
    found = run(samples([0, 10], sm_mhz=[NULL, 1500]), [(0, 10)])
    assert (found.sm_mhz, found.lowest_sm_mhz) == (1500, 1500)
    assert math.isnan(found.power_w) and math.isnan(found.memory_mhz) and found.sm_limit_mhz is None
    assert found.reasons == ()


def test_integrals_agree_with_a_fine_sum() -> None:
    rng = np.random.default_rng(1)
    time = np.cumsum(rng.integers(1, 100, 50)) * MS
    power = rng.integers(100_000, 700_000, 50)
    none = np.full(50, NULL, np.int64)
    gpu = GpuSamples(0, 7, 0, "", MS, NULL, NULL, NULL, time, none, none, power, none, none, power.cumsum())
    start, end = ints([int(time[3]) + 7, int(time[20])]), ints([int(time[9]) - 5, int(time[40]) + 3])
    fine = 0.0
    for low, high in zip(start, end, strict=True):
        edges = np.linspace(low, high, 200_001)
        fine += float(np.interp((edges[1:] + edges[:-1]) / 2, time, power).sum() * (high - low) / 200_000 / 1e12)
    assert integrated_joule(gpu, (start, end)) == pytest.approx(fine, rel=1e-6)
    assert math.isnan(integrated_joule(gpu, (start, end + 100_000 * MS)))
    assert counted_joule(gpu, (time[:1], time[-1:])) == pytest.approx(float(power[1:].sum()) / 1e3)


def test_touching_intervals_are_one() -> None:
    assert [part.tolist() for part in united(ints([5, 0, 20, 50]), ints([20, 10, 40, 50]))] == [[0, 50], [40, 50]]
