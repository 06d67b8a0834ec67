"""Edits applied to runs of a few tasks, whose times after the edit are worked out by hand.

Without marked steps, times count from the start of the GPU's first operation, at 10 µs in all of these runs.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.forecast import Forecaster, likely_shares
from pyprof.prof.changes.effect.scenario import apply, captured
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from pyprof.table.measured_steps import MeasuredStep
from tests.parse.kineto.kineto_file import MAIN, begin, call, kernel, op, write, x
from tests.prof.changes.rules import advice_rows

NONE, ONE = np.zeros(0), np.ones(1)


def base(folder, *events, **header):
    file = write(folder / "net.json", begin(0), op("aten::mm", 0, 6), *events, **header)
    loaded = load_table(file, host=True)
    return BaseRun(loaded.table, annotate(loaded.table), loaded.host, loaded.name)


def of_rows(*rows):
    """What rules ask of a scenario of these rows, whose host makes no calls that wait."""
    none = np.zeros(0, np.int64)
    calls = SimpleNamespace(before=none, among=lambda *kinds: none.astype(bool))
    base = SimpleNamespace(recorded=SimpleNamespace(calls=calls))
    run = advice_rows.run(*rows)
    return SimpleNamespace(
        run=run, table=run.table, before=None, calls=lambda found: found, base=base, edits=(), is_compiled=False
    )


def edit(rows, ns, left, **more):
    rows, ns, left = np.array(rows), np.array(ns, float), np.array(left, float)
    return Edit("test", "Change it.", "", "", rows, ns, left, **more)


@pytest.fixture
def host_bound(tmp_path):
    """µs: three launches of 5 at 0, 50 and 100, each followed by a kernel of 20 that begins 5 after its call."""
    launches = [call(50 * n, n + 1) for n in range(3)]
    kernels = [kernel(50 * n + 10, 20, n + 1) for n in range(3)]
    return base(tmp_path, *launches, *kernels)


def test_without_edits_and_with_all_of_the_hosts_time_it_is_the_capture(host_bound):
    assert captured(host_bound).step_ns(1.0, NONE) == 120_000


@pytest.mark.parametrize(("keeps_views", "step_ns"), [(False, 70_000), (True, 92_500)])
def test_ops_that_launch_nothing_stay_where_a_kernel_beside_them_goes(tmp_path, keeps_views, step_ns):
    """µs: launches of 5 at 0, 50 and 100; 16 ops begin between the first two, of which one op and its parts have 8.

    Without the second kernel and its launch, the third call is at 55 in place of 105; half of the work of 45 before the
    second launch remains, 22.5.
    """
    views = [op("aten::view", 6 + 2 * n, 1) for n in range(16)]
    launches = [call(50 * n, n + 1) for n in range(3)]
    run = captured(base(tmp_path, *views, *launches, *(kernel(50 * n + 10, 20, n + 1) for n in range(3))))
    after = apply(edit([1], [0], [0], keeps_views=keeps_views), run)
    assert after.step_ns(1.0, np.ones(1)) == step_ns


def test_the_first_launch_of_a_step_launches_the_graph(host_bound):
    graph = edit([0, 1, 2], [20_000] * 3, [0] * 3, graph=True)
    assert apply(graph, captured(host_bound))._within_graphs.tolist() == [False, True, True]


def test_the_pace_of_a_long_run(host_bound, tmp_path):
    """The host needs 105 µs until its last launch has returned; kernels of 60 in a row the GPU 182."""
    assert captured(host_bound).lasting_ns(ONE) == 105_000
    launches = [call(50 * n, n + 1) for n in range(3)]
    run = captured(base(tmp_path, *launches, *(kernel(10 + 61 * n, 60, n + 1) for n in range(3))))
    assert run.lasting_ns(ONE) == 182_000


def test_the_host_on_an_idle_gpu(tmp_path):
    """Launches at 0, 50 and 100 µs, of which the last returns at 105; kernels of 600 µs would hold nothing up."""
    launches = [call(50 * n, n + 1) for n in range(3)]
    run = captured(base(tmp_path, *launches, *(kernel(10 + 601 * n, 600, n + 1) for n in range(3))))
    assert run.alone_ns(1.0) == 105_000
    unknown, known = (likely_shares(run.base, 1_800_000.0, ns, 11) for ns in (0.0, 105_000.0))
    assert known[5] > 1.3 * unknown[5]  # the capture's host is as fast as without the profiler


def test_what_ran_before_the_capture_is_not_in_the_pace_of_a_long_run(tmp_path):
    """The same kernels, held back for 500 µs by work from before the capture: again 182 µs, with one 60 longer 242."""
    launches = [call(50 * n, n + 1) for n in range(3)]
    run = captured(base(tmp_path, *launches, *(kernel(510 + 61 * n, 60, n + 1) for n in range(3))))
    assert run.lasting_ns(ONE) == 182_000
    longer = np.zeros(len(run.base.tasks), np.int64)
    longer[run.base.work_task[1]] = 60_000
    assert run.lasting_ns(ONE, longer) == 242_000


def test_half_of_the_hosts_time(host_bound):
    """Calls end at 2.5, 27.5 and 52.5 (segments of 22.5, calls of 2.5); the kernels begin 5 later."""
    assert captured(host_bound).step_ns(0.5, NONE) == pytest.approx(70_000, abs=2)


def test_the_profiler_costs_at_most_25_microseconds_per_range(tmp_path):
    """A pause of 1 ms in which nothing is recorded keeps all but 25 of its µs."""
    run = base(tmp_path, call(0, 1), kernel(10, 20, 1), call(1005, 2), kernel(1015, 20, 2))
    assert captured(run).step_ns(0.5, NONE) == pytest.approx(1_035_000 - 25_000 - 5000 - 7500, abs=2)


def test_a_kernel_that_vanishes_takes_its_launch_along(host_bound):
    """Without the second launch: its segment of 45 and its call of 5 are gone, and the end comes 50 earlier."""
    after = apply(edit([1], [0], [0]), captured(host_bound))
    assert after.step_ns(1.0, np.ones(1)) == 70_000
    assert after.run.rows == 2 and len(after.rows.table) == 2


def test_a_faster_kernel_does_not_help_where_the_host_is_the_limit(host_bound):
    after = apply(edit([0, 1], [5000, 5000], [1, 1]), captured(host_bound))
    assert after.step_ns(1.0, np.ones(1)) == 120_000
    assert after.run.dur.tolist() == [5000, 5000, 20_000]


def test_edits_follow_each_other(host_bound):
    """The second edit names rows of the run after the first: its row 1 is the third kernel."""
    first = apply(edit([1], [0], [0]), captured(host_bound))
    second = apply(edit([1], [50_000], [1]), first)
    assert second.step_ns(1.0, np.ones(2)) == 100_000
    assert [each.rows.tolist() for each in second.edits] == [[1], [1]]


def test_an_error_of_durations_scales_what_the_edit_said_alone(host_bound):
    after = apply(edit([2], [40_000], [1]), captured(host_bound))
    assert after.step_ns(1.0, np.array([1.5])) == 160_000


def test_launches_that_are_added_take_the_host(host_bound):
    """Two launches, each of which takes 1.2 times the mean of the 3 that there are: their calls take 0.35 of 15 µs, and
    of the two pieces of work of 45 µs before them 20 remain, since the profiler costs at most 25."""
    after = apply(edit([1], [20_000], [1], added=np.array([2.0])), captured(host_bound))
    assert after.step_ns(host_bound.own_share, np.ones(1)) == pytest.approx(
        captured(host_bound).step_ns(host_bound.own_share, NONE) + 2 * 1.2 * (40_000 + 0.35 * 15_000) / 3, abs=2
    )


@pytest.mark.parametrize("graph_first", [True, False])
def test_launches_that_are_added_within_a_graph_take_the_host_nothing(host_bound, graph_first):
    """Of the launch that the casts belong to, nothing remains: it goes with its graph."""
    graph = edit([0, 1, 2], [20_000, 20_000, 20_000], [0, 0, 0], graph=True)
    casts = edit([1], [20_000], [1], added=np.array([2.0]))
    order = (graph, casts) if graph_first else (casts, graph)
    alone = apply(graph, captured(host_bound)).step_ns(host_bound.own_share, np.ones(1))
    after = apply(order[1], apply(order[0], captured(host_bound)))
    assert after.step_ns(host_bound.own_share, np.ones(2)) == pytest.approx(alone, abs=2)


def test_a_wait_that_is_released(tmp_path):
    """The host waits from 20 for a kernel that ends at 510; without the wait, it launches the next one at 33."""
    wait = x("cuda_runtime", "cudaDeviceSynchronize", 20, 493, correlation=2)
    run = base(tmp_path, call(0, 1), kernel(10, 500, 1), wait, call(523, 3), kernel(533, 7, 3))
    before = captured(run)
    assert before.step_ns(1.0, NONE) == 530_000
    place = np.flatnonzero(run.recorded.calls.among("device sync"))
    after = apply(Edit("test", "Do not wait.", "", "", released=place), before)
    # the second kernel follows the first: 500, the gap between two kernels (1.1 by default), 7
    assert after.step_ns(1.0, np.ones(1)) == 508_100


def test_a_measured_step_sets_the_hosts_pace(host_bound):
    """70 µs are measured where the capture has 120: half of the host's time was the profiler's.

    Steps differ by 6%, so that what is usual of other programs, 0.35 of it, counts for a little, too.
    """
    forecaster = Forecaster(host_bound, 70_000)
    assert 0.44 < forecaster.shares[5] < 0.5
    assert forecaster.forecast(captured(host_bound)).ns == pytest.approx(70_000, rel=0.02)


def test_an_interval_contains_the_mean(host_bound):
    found = Forecaster(host_bound).forecast(captured(host_bound))
    assert found.low < found.ns < found.high


def test_steps_that_the_capture_timed_without_the_profiler_set_it_too(host_bound):
    host_bound.table.measured = tuple(MeasuredStep(number, 70_000, 60_000, False) for number in range(4))
    forecaster = Forecaster(host_bound)
    assert forecaster.measured
    assert forecaster.forecast(captured(host_bound)).ns == pytest.approx(70_000, rel=0.02)


@pytest.mark.parametrize(("count", "few"), [(49, True), (50, False)])
def test_few_launches_may_take_long(tmp_path, count, few):
    """Without marked steps all is one step: of fewer than 50 launches the share is uncertain by more."""
    run = base(
        tmp_path, *(each for n in range(count) for each in (call(50 * n, n + 1), kernel(50 * n + 10, 20, n + 1)))
    )
    own = run.host_share
    assert (own.low == pytest.approx(0.72 * own.share)) == few


def test_gaps_go_with_the_kernels_around_them(tmp_path):
    """Three kernels in a row, 1.1 µs apart: without the last two, two gaps go, too."""
    launches = [call(6 * n, n + 1) for n in range(3)]
    run = base(tmp_path, *launches, *(kernel(20 + 51.1 * n, 50, n + 1) for n in range(3)))
    before, one = captured(run), np.ones(1)
    after = apply(edit([1, 2], [0, 0], [0, 0]), before)
    saved = before.step_ns(1.0, NONE) - after.step_ns(1.0, one)
    assert saved == pytest.approx(2 * 51_100, abs=50)


@pytest.mark.parametrize(("left", "step_ns"), [(1, 204_000), (0.5, 202_000), (0, 204_000)])
def test_fewer_kernels_have_fewer_gaps_between_them(tmp_path, left, step_ns):
    """µs: three kernels of 100, 2 apart, launched long before. The last two take 50 each, and half as many launches
    remain: so do half of the gaps. Where the host's work goes alone, as into a CUDA graph, kernels and gaps stay."""
    launches = [call(6 * n, n + 1) for n in range(3)]
    run = captured(base(tmp_path, *launches, *(kernel(10 + 102 * n, 100, n + 1) for n in range(3))))
    assert run.step_ns(1.0, NONE) == 304_000
    assert apply(edit([1, 2], [50_000] * 2, [left] * 2), run).step_ns(1.0, np.ones(1)) == step_ns


def test_an_edit_saves_what_it_takes_from_the_step_whose_time_counts(tmp_path):
    """Two steps, of which the time of the second counts: without its kernel of 400 µs, it is 400 µs shorter."""
    marks = [x("user_annotation", f"ProfilerStep#{n}", 50 * n, 50, MAIN) for n in range(2)]
    launches = [call(50 * n + 5, n + 1) for n in range(2)]
    kernels = [kernel(15, 20, 1), kernel(65, 400, 2)]
    scenario = captured(base(tmp_path, *marks, *launches, *kernels))
    after = apply(edit([1], [0], [1]), scenario)
    saved = scenario.step_ns(1.0, NONE) - after.step_ns(1.0, np.ones(1))
    assert saved == pytest.approx(400_000, abs=20_000)
