"""Which steps are compared, how long they are, and what noise their spread makes: all by hand."""

import numpy as np
import pytest

from pyprof.errors import InputError
from pyprof.prof.diff.compared_steps import find_steps
from pyprof.prof.diff.noise import band_ns
from pyprof.table.columns import NULL, Table
from tests.prof.diff.diff_rows import US, row, side, table_of


def steps(*us: float, gap: float = 0.0):
    """Steps of one operation each."""
    return [[row(each, "relu", gap=gap)] for each in us]


def found(table: Table):
    return find_steps("net.dict", table)


def test_a_step_lasts_until_the_next_one_starts_and_the_last_until_its_end():
    table = table_of([[row(10, "relu"), row(20, "gelu", gap=5)], [row(10, "relu", gap=0.1)]])
    got = found(table)
    assert got.numbers == (0, 1)
    assert got.span_ns.tolist() == [35_100, 10_000]  # 10 + 5 + 20 and the 0.1 before the next; 10
    assert got.idle_ns.tolist() == [5_100, 0]
    assert got.phase_ns["forward"].tolist() == [30_000, 10_000]


def test_a_first_step_that_warms_up_is_left_out_and_said():
    got = found(table_of(steps(300, 100, 101, 99, 100)))
    assert got.numbers == (1, 2, 3, 4)
    assert got.left_out == ((0, "3.00 times the median step"),)
    assert got.step.tolist() == [-1, 0, 1, 2, 3]


def test_a_first_step_before_others_that_take_no_time_is_left_out():
    assert found(table_of(steps(5, 0, 0, 0))).left_out == ((0, "the median step takes no time"),)


def test_a_step_that_was_cut_short_is_left_out():
    assert found(table_of(steps(100, 101, 99, 20))).left_out == ((3, "0.20 times the median step"),)


def test_steps_that_come_again_are_the_programs_own():
    """Gradients of four steps are gathered, then comes the update: every fourth is longer, and all count."""
    got = found(table_of(steps(*[100, 100, 100, 130] * 3)))
    assert (len(got), got.left_out) == (12, ())
    assert got.span_ns.mean() == 107_500


def test_a_rare_step_is_left_out():
    got = found(table_of(steps(*[100] * 15, 180, *[100] * 10)))
    assert got.left_out == ((15, "1.80 times the median step"),)


def test_steps_that_differ_by_less_than_a_tenth_all_count():
    # The median distance from 100 is 0, so that any other step would be an outlier by spread alone.
    assert found(table_of(steps(109, 100, 100, 100, 91))).left_out == ()


def test_steps_that_spread_far_are_no_outliers_of_each_other():
    # Median 120, distances 20, 0, 20, 40, 60: median 20, so that 5 * 1.4826 * 20 = 148 is allowed.
    assert found(table_of(steps(100, 120, 140, 80, 180))).left_out == ()


def test_two_steps_both_count():
    assert found(table_of(steps(300, 100))).numbers == (0, 1)


def test_the_last_step_is_left_out_where_steps_end_in_a_wait():
    # Each step is followed by 10 us of nothing, of 110: the last one's wait is not in the capture.
    got = found(table_of(steps(100, 100, 100, 100, gap=10)))
    assert got.numbers == (0, 1, 2)
    assert got.left_out == ((3, "the capture ends with it"),)
    assert got.span_ns.tolist() == [110_000] * 3
    assert got.idle_ns.tolist() == [10_000] * 3


def test_rows_without_a_step_count_only_where_there_are_no_steps():
    some = found(table_of([[row(5, "relu")], [row(7, "relu")]], [None, 4]))
    assert (some.numbers, some.outside_rows, some.outside_ns) == ((4,), 1, 5_000)
    none = found(table_of(steps(5, 7), [None, None]))
    assert none.numbers == (None,)
    assert none.span_ns.tolist() == [12_000]
    assert none.outside_rows == 0


def test_of_several_gpus_a_step_is_their_mean():
    one, other = (table_of([[row(us, "relu")]], device=device) for device, us in ((0, 10), (1, 20)))
    got = found(Table.concat([one, other]))
    assert got.devices == 2
    assert got.span_ns.tolist() == [15_000]  # (10 + 20) / 2
    assert got.sums(np.zeros(2, np.int64), 1, np.array([10.0, 20.0])).tolist() == [[15.0]]


def test_a_table_without_starts_is_a_step_as_long_as_its_rows():
    table = table_of(steps(5, 7)).with_column("start", np.full(2, NULL, np.int64))
    got = found(table)
    assert (got.timed, got.span_ns.tolist(), got.idle_ns.tolist()) == (False, [12_000], [0])


def test_steps_that_were_asked_for_are_taken_as_they_are():
    table = table_of(steps(300, 100, 101))
    got = find_steps("net.dict", table, lambda number: number <= 1)
    assert got.numbers == (0, 1)
    assert got.left_out == ((2, "not asked for"),)
    with pytest.raises(InputError, match=r"net\.dict: no step was left: it has steps 0 to 2"):
        find_steps("net.dict", table, lambda number: number > 5)


def test_the_host_is_late_where_the_launch_comes_after_the_gpu_fell_idle():
    # Idle from 10 to 30; the call for the second row came at 25: 15 of the 20 us are the host's.
    table = table_of([[row(10, "relu"), row(10, "gelu", gap=20)]])
    table = table.with_column("apiStart", np.array([0, 25 * US], np.int64))
    got = found(table)
    assert (got.idle_ns.tolist(), got.late_ns.tolist()) == ([20_000], [15_000])


def test_loading_before_the_first_kernel_is_left_out():
    copy = {**row(500, name="[CUDA memcpy Host-to-Device]"), "kind": "memcpy"}
    got = side(table_of([[copy, row(10, "relu")]], [None]))
    assert got.steps.span_ns.tolist() == [10_000]
    assert got.loading is not None
    assert got.loading.before_ns == 500_000


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        # Variances 1 and 1, 3 steps each: 4 degrees of freedom, t = 4.604, and sqrt(1/3 + 1/3).
        ([9, 10, 11], [19, 20, 21], 4.604 * (2 / 3) ** 0.5),
        # Variances 0 and 8 (5, 9): Welch leaves 1 degree of freedom, t = 63.657, and sqrt(8 / 2).
        ([10, 10], [5, 9], 63.657 * 2),
        # One step on a side varies as the other does: 2 degrees of freedom, t = 9.925, sqrt(1 + 1/3).
        ([9, 10, 11], [12], 9.925 * (4 / 3) ** 0.5),
        ([7, 7, 7], [9, 9], 0.0),
    ],
)
def test_noise_is_welchs_interval(a, b, expected):
    assert band_ns(np.array(a, float), np.array(b, float)) == pytest.approx(expected)


def test_noise_is_unknown_with_one_step_each():
    assert np.isnan(band_ns(np.array([1.0]), np.array([2.0])))


def test_noise_covers_99_of_100_differences_without_a_change():
    random = np.random.default_rng(7)
    outside = sum(
        abs(b.mean() - a.mean()) > band_ns(a, b)
        for a, b in ((random.normal(100, 3, 5), random.normal(100, 3, 6)) for _ in range(4000))
    )
    assert 15 <= outside <= 65  # 40 expected, standard deviation 6.3
