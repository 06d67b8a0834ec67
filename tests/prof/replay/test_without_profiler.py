"""A run without the profiler's cost on the host."""

import numpy as np
import pytest

from pyprof.prof.replay import without_profiler as module
from pyprof.prof.replay.replayed_run import replay
from pyprof.prof.replay.without_profiler import mean_step_ns, without_profiler
from pyprof.prof.timing.profiler_cost import KINETO, OwnShare
from pyprof.table.measured_steps import MeasuredStep
from tests.prof.replay.machine import CALL, Machine

LAUNCHES, STEPS = 100, 4


def profiled(kernel_ns, own_ns=6000, cost_ns=10_000, pause_ns=0, measured=None, ranges=1):
    """Steps of 100 launches. Before each, the host works ``own_ns`` and the profiler ``cost_ns`` for its
    ranges."""
    part = [("work", own_ns + cost_ns), ("launch", 1, kernel_ns)] * LAUNCHES
    machine = Machine().run([*part, ("work", pause_ns)] * STEPS)
    table, host = machine.tables()
    order = np.argsort(table.ints("start"))
    step = np.empty(len(table), np.int64)
    step[order] = np.repeat(np.arange(STEPS), LAUNCHES)
    table = table.with_column("step", step).with_column("occupancy", np.full(len(table), 50.0))
    host = host.with_column("ranges", np.full(len(host), ranges, np.int64))
    table.measured = () if measured is None else (MeasuredStep(1, measured, measured),)
    return replay(table, host, "net.json")


def test_the_share_is_the_one_with_which_a_step_takes_as_long_as_measured():
    """20 µs a launch with the profiler, 10 without it: 1.0 ms a step, half of the host's time."""
    _, found = without_profiler(profiled(2000, measured=LAUNCHES * (6000 + CALL)))
    assert found.profiled_ns == pytest.approx(LAUNCHES * (16_000 + CALL), rel=0.01)
    assert found.step_ns == pytest.approx(LAUNCHES * 10_000, rel=0.01)
    assert found.host_share_measured and found.host_share == pytest.approx(0.5, abs=0.01)
    assert found.per_range_ns + found.per_call_ns == pytest.approx(10_000, rel=0.02)


def test_a_step_that_is_a_little_longer_than_the_gpu_s_work_is_met_too():
    """70 µs a launch with the profiler, and kernels with their gaps of 13.1, which the GPU needs at any share of the
    host's time up to 0.19: the step of 14.58 µs a launch is at 14.58/70."""
    _, found = without_profiler(profiled(12_000, own_ns=2000, cost_ns=64_000, ranges=3, measured=LAUNCHES * 14_580))
    assert found.step_ns == pytest.approx(LAUNCHES * 14_580, rel=0.01)
    assert found.host_share_measured and found.host_share == pytest.approx(14.58 / 70, abs=0.01)


def test_without_measured_steps_the_estimate_has_an_interval():
    _, found = without_profiler(profiled(2000))
    assert not found.host_share_measured and found.host_share == KINETO
    assert found.step_ns == pytest.approx(KINETO * found.profiled_ns, rel=0.02)
    assert found.low_ns == pytest.approx(0.35 * found.profiled_ns, rel=0.02)
    assert found.high_ns == pytest.approx(0.66 * found.profiled_ns, rel=0.02)


def test_where_the_gpu_is_the_limit_it_stays():
    """Kernels of 30 µs: a step takes 100 x 31.1 µs with the profiler and without it."""
    _, found = without_profiler(profiled(30_000, measured=3_110_000))
    assert found.step_ns == pytest.approx(3_110_000, rel=0.01) == found.profiled_ns
    assert found.low_ns == pytest.approx(found.step_ns * (1 - 0.0128), rel=0.001)  # clocks: 1% from run to run
    assert found.high_ns == pytest.approx(found.step_ns * (1 + 0.0128), rel=0.001)
    assert not found.host_share_measured


def test_a_pause_is_not_the_profiler_s():
    """5 ms in which nothing is called, in each step: a range costs 25 µs at most."""
    run = profiled(2000, pause_ns=5_000_000, measured=LAUNCHES * 10_000 + 5_000_000)
    _, found = without_profiler(run)
    assert mean_step_ns(run) == pytest.approx(LAUNCHES * 20_000 + 5_000_000, rel=0.01)
    assert found.step_ns == pytest.approx(LAUNCHES * 10_000 + 5_000_000, rel=0.01)
    assert found.host_share == pytest.approx(0.5, abs=0.03)


def test_a_step_that_no_host_makes_that_short():
    """Measured 0.1 ms, but the kernels alone take 0.2: the host's share is as small as it can be."""
    _, found = without_profiler(profiled(2000, measured=100_000))
    assert found.host_share == pytest.approx(0.02) and found.step_ns > 200_000


@pytest.mark.parametrize(
    ("least", "estimated", "fits"),
    [  # ms, where 10 were measured: with hardly any host time, and with the share that is usual
        (9.1, 11.0, False),  # within 10% of what was measured on both sides: the GPU limits it
        (9.1, 11.2, True),  # 11.2 * 0.9 is more than 10
        (8.9, 10.0, True),
    ],
)
def test_where_the_gpu_is_the_limit_no_share_is_fitted(monkeypatch, least, estimated, fits):
    run = profiled(2000, measured=10_000_000)
    monkeypatch.setattr(
        module, "mean_step_ns", lambda share: 1e6 * (least if share == module.LEAST_SHARE else estimated)
    )
    usual = OwnShare(0.5, 0.4, 0.6, measured=False)
    assert module._fitted(run, lambda share: share, usual).measured == fits
