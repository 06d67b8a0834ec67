"""The host's own share of its captured time, place by place, from calls that were timed without the profiler."""

import numpy as np
import pytest

from pyprof.prof.replay.replayed_run import replay
from pyprof.prof.replay.timed_calls import AHEAD, NEAR, OF_HELD, QUEUE, _aligned, timed_shares
from pyprof.prof.replay.without_profiler import without_profiler
from pyprof.table.columns import Coded
from pyprof.table.measured_steps import MeasuredStep, TimedCalls
from tests.prof.replay.machine import CALL, Machine

STEPS = 3


def run_of(calls, timed, end_ns=0, kernel_ns=500, step_ns=None, repeat=1):
    """A capture of equal steps beside the timed iteration.

    ``calls``: per launch, the host's captured work before it and its place: the count of marked calls that had begun by
    then in the step, and the name of the one around it, or "backward". ``timed``: name, gap and own time of each call.
    """
    part = [event for before, _, _ in calls for event in (("work", before), ("launch", 1, kernel_ns))] * repeat
    table, host = Machine().run(part * STEPS).tables()
    order, count = np.argsort(table.ints("start"), kind="stable"), len(calls) * repeat
    step = np.empty(len(table), np.int64)
    step[order] = np.repeat(np.arange(STEPS), count)
    place = np.argsort(np.argsort(host.ints("start"), kind="stable"))
    begun, names = (np.array([call[key] for call in calls] * repeat * STEPS, object)[place] for key in (1, 2))
    host = host.with_column("calls", begun.astype(np.int64) + len(timed) * (place // count))
    host = host.with_column("step", place // count)
    host = host.with_column("op", Coded.of(f'["{name}"]' if name else "" for name in names))
    host = host.with_column("phase", Coded.of("backward" if name == "backward" else "forward" for name in names))
    names = tuple(dict.fromkeys(name for name, _, _ in timed))
    numbers = tuple(names.index(name) for name, _, _ in timed)
    record = TimedCalls(names, numbers, tuple(t[1] for t in timed), tuple(t[2] for t in timed), end_ns)
    table.measured = (MeasuredStep(9, step_ns or 1, step_ns or 1, alone=True, calls=record),)
    return replay(table.with_column("step", step), host, "net.json")


# Captured: 20 µs before each launch, 4 for the call. Timed: mm and relu take 6 µs with what comes before them, a view
# launches nothing and takes 2, and the backward pass after relu takes 18.
CALLS = [(20_000, 1, "mm"), (20_000, 3, "relu"), (20_000, 3, "backward"), (20_000, 3, "backward")]
TIMED = [("mm", 2_000, 4_000), ("view", 500, 1_500), ("relu", 1_000, 3_000)]


def test_each_place_has_a_share_of_its_own():
    """mm 6 of 24 µs, but in the first step, where the capture begins in the middle of the 20 µs before the call; relu
    with the view before it 6 of 24; the backward pass 18 of 48."""
    found = timed_shares(run_of(CALLS, TIMED, end_ns=18_000))
    captured = 20_000 + CALL
    assert found.of_call[4:8] == pytest.approx([6_000 / captured] * 2 + [18_000 / (2 * captured)] * 2, rel=0.05)
    assert found.of_all == pytest.approx((6_000 + 6_000 + 18_000) / (4 * captured), rel=0.05)


def test_on_a_slower_day_all_of_the_host_is_slower_but_never_slower_than_captured():
    found = timed_shares(run_of(CALLS, TIMED, end_ns=18_000))
    assert found.at(2 * found.of_all) == pytest.approx(2 * found.of_call) and found.at(9.0).tolist() == [1.0] * 12


def test_the_replay_fits_the_level_to_the_measured_step():
    """A step in a row took 45 µs where the timed iteration took 30: half as long again, at each place."""
    run = run_of(CALLS, TIMED, end_ns=18_000)
    run.table.measured = (MeasuredStep(1, 45_000, 45_000), *run.table.measured)
    _, found = without_profiler(run)
    assert found.step_ns == pytest.approx(45_000, rel=0.01)
    assert found.host_share == pytest.approx(1.5 * timed_shares(run).of_all, rel=0.02)


def test_a_pause_of_the_programs_own_stays_as_it_is():
    """1 ms before a launch, of which the profiler has no part."""
    calls = [(1_000_000, 1, "mm"), (20_000, 2, "relu")]
    found = timed_shares(run_of(calls, [("mm", 999_000, 5_000), ("relu", 0, 6_000)]))
    assert found.of_call[2] == pytest.approx(1.0, abs=0.01) and found.of_call[3] == pytest.approx(6 / 24, rel=0.05)


def test_a_full_queue_gives_only_a_bound():
    """1,200 launches of the backward pass in 12 ms of the host's, in which the GPU is always busy: of 24 captured µs
    each, at most 10 are the host's, and likely OF_HELD times the share of the forward pass, a quarter."""
    backward = [(20_000, 1, "backward")] * (QUEUE + 200)
    timed = [("mm", 2_000, 4_000)]
    found = timed_shares(run_of([(20_000, 1, "mm"), *backward], timed, 12_000_000, kernel_ns=10_000))
    assert found.of_call[-1] == pytest.approx(OF_HELD * found.of_call[len(backward) + 1], rel=0.01)


def test_other_calls_than_the_timed_ones_say_nothing():
    assert timed_shares(run_of(CALLS, [("add", 2_000, 4_000), ("sub", 0, 1_000), ("mul", 0, 4_000)])) is None
    run = run_of(CALLS, TIMED)
    run.table.measured = ()
    assert timed_shares(run) is None


def test_the_medians_of_iterations_with_the_same_calls_count():
    run = run_of(CALLS, TIMED, end_ns=18_000)
    (last,) = run.table.measured
    slow = TimedCalls(last.calls.names, last.calls.name, (90_000,) * 3, (90_000,) * 3, 90_000)
    other = TimedCalls(("mm",), (0,), (1,), (1,), 1)
    expected = timed_shares(run).of_call
    many = [MeasuredStep(n, 1, 1, calls=calls) for n, calls in enumerate((slow, last.calls, other))]
    run.table.measured = (*many, last)
    assert timed_shares(run).of_call == pytest.approx(expected)


def test_calls_that_a_step_leaves_out_or_makes_besides_are_skipped():
    """Names 0 to 39 in turn were timed. The step makes two unknown calls first, and leaves out 20 to 24."""
    name = np.arange(40)
    own = np.concatenate([[-9, -9], np.arange(20), np.arange(25, 40)])
    counted = np.arange(1, len(own) + 1)
    found = _aligned(counted, own, name)
    assert found[:2].tolist() == [-1, -1]
    assert found[2:22].tolist() == list(range(20)) and found[22:].tolist() == list(range(25, 40))


def test_a_place_far_away_is_found():
    """As where a step's data are made by some thousand calls, in each step by another number of them."""
    name = np.concatenate([np.zeros(5 * NEAR, np.int64), 1 + np.arange(2 * AHEAD)])
    own = 1 + np.arange(2 * AHEAD)
    assert _aligned(3 + np.arange(len(own)), own, name).tolist() == (5 * NEAR + np.arange(len(own))).tolist()


def test_no_calls_are_aligned_with_nothing():
    none = np.zeros(0, np.int64)
    assert _aligned(none, none, np.arange(4)) is None
    assert _aligned(np.arange(4), np.full(4, 7), np.arange(4)) is None
