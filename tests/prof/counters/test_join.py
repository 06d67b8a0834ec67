"""Reports of Nsight Compute against captures of the same program: whole, in part, reordered, repeated, misspelled."""

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from pyprof.parse.ncu.reader import read
from pyprof.parse.ncu.report import Launch, Report
from pyprof.parse.read import read_profile
from pyprof.prof.counters.join import join
from pyprof.prof.counters.kernel_keys import spelled
from pyprof.table.columns import NULL, Coded, Table
from tests.paths import GOLDEN


def table_of(name: str) -> Table:
    return read_profile(GOLDEN / name)[2]


@pytest.fixture(scope="module")
def lenet() -> Table:
    return table_of("ncu/h200_lenet.sqlite.gz")


@pytest.fixture(scope="module")
def lenet_report() -> Report:
    return read(GOLDEN / "ncu" / "h200_lenet.raw.csv.gz")


@pytest.fixture(scope="module")
def gpt2() -> Table:
    return table_of("ncu/h200_gpt2_block.sqlite.gz")


@pytest.fixture(scope="module")
def gpt2_report() -> Report:
    return read(GOLDEN / "ncu" / "h200_gpt2_block.base.csv.gz")


def part(report: Report, rows: Iterable[int], change: Callable[[Launch], Launch] = lambda one: one) -> Report:
    """Some launches of a report, in that order."""
    chosen = list(rows)
    launches = tuple(change(report.launches[row]) for row in chosen)
    return replace(report, launches=launches, metrics={name: v[chosen] for name, v in report.metrics.items()})


def kernels(table: Table) -> list[int]:
    return np.flatnonzero(table.coded("kind").among("kernel")).tolist()


def found(report: Report, table: Table) -> dict[int, int]:
    """The launch, by its number in the report, of each kernel that has one, by its place among the kernels."""
    launches = join(report, table).launches[0]
    return {place: int(launches[row]) for place, row in enumerate(kernels(table)) if launches[row] >= 0}


def how(report: Report, table: Table) -> Counter[str]:
    return Counter(join(report, table).certainty.take(kernels(table)).texts())


def without_ranges(one: Launch) -> Launch:
    return one._replace(ranges=())


def steps(table: Table, count: int, marked: bool = True) -> Table:
    """The capture's step, again and again."""
    length = int(table.ints("start").max() + 10**9)
    parts = []
    for number in range(count):
        each = table.with_column("step", np.full(len(table), number if marked else NULL, np.int64))
        for key in ("start", "apiStart"):
            each = each.with_column(key, table.ints(key) + number * length)
        parts.append(each)
    return Table.concat(parts)


# ----- whole runs: the n-th kernel is the n-th launch -----


def test_all_kernels_of_two_programs_by_key(lenet, lenet_report, gpt2, gpt2_report):
    assert found(lenet_report, lenet) == {n: n for n in range(54)}
    assert how(lenet_report, lenet) == {"key": 54}
    assert found(gpt2_report, gpt2) == {n: n for n in range(107)}
    assert how(gpt2_report, gpt2) == {"key": 107}
    assert join(gpt2_report, gpt2).unmatched == ()


def test_memsets_have_no_launch_and_no_reason(lenet, lenet_report):
    joined = join(lenet_report, lenet)
    others = np.flatnonzero(~lenet.coded("kind").among("kernel"))
    assert len(others) == 5
    assert not joined.matched[others].any()
    assert joined.reason.take(others).texts() == [""] * 5


@pytest.mark.parametrize("name", ["h200_lenet_init.sqlite.gz", "ncu/h200_lenet.sqlite.gz"])
def test_a_capture_of_another_day(name, lenet_report):
    """The same program on another H200: the same 54 kernels."""
    table = table_of(name)
    assert found(lenet_report, table) == {n: n for n in range(54)}


def test_torch_profilers_names(lenet_report):
    """Demangled by another library, with parameters' types written out; 52 kernels, whose order is the same."""
    table = table_of("h200_lenet_fp32.json.gz")
    names = table.coded("kShortName").take(kernels(table)).texts()
    matched = found(lenet_report, table)
    assert len(matched) >= 50
    for place, launch in matched.items():
        assert spelled(names[place])[0] == spelled(lenet_report.launches[launch].name)[0]
    assert list(matched.values()) == sorted(matched.values())


# ----- spelling -----


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("void at::native::scale<(int)4, float>(int, T2)", "void native::scale<4, float>(int, float*)"),
        ("void scale<at::native::Add<float>, 3ul>(int)", "scale<native::Add<float>, (unsigned long)3>"),
        ("_ZN2at6native5scaleILi4EfEEviPT0_", "void at::native::scale<4, float>(int, float*)"),
        ("void f<(bool)1, (anonymous namespace)::Op>(int)", "void f<true, <unnamed>::Op>(int)"),
        ("void f<std::array<char *, (unsigned long)2>>(int)", "void f<std::array<char*, 2ul> >(int)"),
        ("nvjet_sm90_tst_128x256", "nvjet_sm90_tst_128x256"),
        ("std::enable_if<true, void>::type a::f<4>(int)", "f<(int)4>(T1)"),
    ],
)
def test_names_that_are_one(one, other):
    assert spelled(one) == spelled(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("void f<4>(int)", "void f<2>(int)"), ("void f<float>(int)", "void f<double>(int)"), ("f", "g"),
     ("void f<-1>(int)", "void f<1>(int)")],
)  # fmt: skip
def test_names_that_are_two(one, other):
    assert spelled(one) != spelled(other)


@pytest.mark.parametrize("ranges", [True, False], ids=["with ranges", "without"])
def test_bare_names(ranges, lenet, lenet_report):
    """--print-kernel-base function: no template arguments."""

    def bare(one: Launch) -> Launch:
        name = spelled(one.name)[0]
        return one._replace(name=name, names=(name,), ranges=one.ranges if ranges else ())

    report = part(lenet_report, range(54), bare)
    assert found(report, lenet) == {n: n for n in range(54)}
    assert how(report, lenet) == {"key": 54}


# ----- parts of a run -----


@pytest.mark.parametrize("skip", range(0, 100, 9))
@pytest.mark.parametrize("change", [lambda one: one, without_ranges], ids=["with ranges", "without"])
def test_launch_skip_and_launch_count(skip, change, gpt2, gpt2_report):
    rows = range(skip, min(skip + 25, 107))
    report = part(gpt2_report, rows, change)
    assert found(report, gpt2) == {row: n for n, row in enumerate(rows)}


@pytest.mark.parametrize("pattern", ["elementwise", "gemm|nvjet|Kernel2", "reduce", "layer_norm|softmax|SoftMax", "."])
@pytest.mark.parametrize("skip", [0, 1, 3])
def test_a_filter_of_names_with_a_skip(pattern, skip, gpt2, gpt2_report):
    rows = [n for n, one in enumerate(gpt2_report.launches) if re.search(pattern, one.name)][skip:]
    assert found(part(gpt2_report, rows), gpt2) == {row: n for n, row in enumerate(rows)}


def test_the_real_parts_of_both_runs(lenet, gpt2):
    """-k regex:'gemm|nvjet|cudnn|elementwise' --launch-skip 3 --launch-count 12; a name is the function's own."""
    for table, file in (
        (lenet, "ncu/h200_lenet_subset.details.csv.gz"),
        (gpt2, "ncu/h200_gpt2_block_subset.raw.csv.gz"),
    ):
        names = table.coded("kLongName").take(kernels(table)).texts()
        wanted = [n for n, name in enumerate(names) if re.search("gemm|nvjet|cudnn|elementwise", spelled(name)[0])]
        assert found(read(GOLDEN / file), table) == {place: n for n, place in enumerate(wanted[3:15])}


def test_a_filter_of_ranges(gpt2, gpt2_report):
    """--nvtx-include of the backward pass: all of its kernels, and none of those that are like them elsewhere."""
    rows = [n for n, one in enumerate(gpt2_report.launches) if any("Backward" in each.text for each in one.ranges)]
    assert 30 < len(rows) < 80
    assert found(part(gpt2_report, rows), gpt2) == {row: n for n, row in enumerate(rows)}


def test_one_of_many_that_are_alike_is_matched_by_order():
    """Five equal kernels, of which the report has two: the first two, by order, and the others say why not."""
    table, report = plain(["relu"] * 5), launches(["relu"] * 2)
    assert found(report, table) == {0: 0, 1: 1}
    joined = join(report, table)
    assert joined.certainty.texts() == ["order", "order", "", "", ""]
    assert joined.reason.texts()[2:] == ["the report has 2 of this name, the capture 5"] * 3


def test_neighbours_make_an_equal_kernel_certain():
    """relu stands three times, and only once between gemm and sum."""
    table = plain(["relu", "gemm", "relu", "sum", "relu"])
    joined = join(launches(["gemm", "relu", "sum"]), table)
    assert joined.launches[0].tolist() == [-1, 0, 1, 2, -1]
    assert joined.certainty.texts() == ["", "key", "key", "key", ""]


def test_a_block_of_a_repeated_layer_is_a_matter_of_order():
    """Three equal layers, of which the report has the gemm and relu of one, and no range says of which."""
    joined = join(launches(["gemm", "relu"]), plain(["gemm", "relu", "norm"] * 3))
    assert joined.launches[0].tolist() == [0, 1, -1, -1, -1, -1, -1, -1, -1]
    assert joined.certainty.texts()[:2] == ["order", "order"]


# ----- order -----


@pytest.mark.parametrize("first", [0, 30])
def test_a_report_that_was_sorted_is_in_order_by_its_numbers(first, gpt2, gpt2_report):
    rows = random.Random(first).sample(range(first, 107), 107 - first)
    report = part(gpt2_report, rows)
    assert found(report, gpt2) == {row: n for n, row in enumerate(rows)}
    assert how(report, gpt2) == Counter({"key": 107 - first, "": first}) - Counter({"": 0})


@pytest.mark.parametrize("seed", range(6))
def test_some_launches_here_and_there(seed, gpt2, gpt2_report):
    """What is said to be certain is right; the rest has the right key, in order."""
    rows = sorted(random.Random(seed).sample(range(107), 50))
    report = part(gpt2_report, rows)
    joined, places = join(report, gpt2), kernels(gpt2)
    matched = found(report, gpt2)
    assert sorted(matched.values()) == [*range(50)]
    assert list(matched.values()) == [*range(50)]
    certainty = joined.certainty.take(places).texts()
    assert [place for place, launch in matched.items() if certainty[place] == "key" and rows[launch] != place] == []
    for place, launch in matched.items():
        one, other = report.launches[launch], gpt2_report.launches[place]
        assert (one.grid, one.block, spelled(one.name)) == (other.grid, other.block, spelled(other.name))
    assert Counter(certainty)["key"] >= 20


def test_a_reordered_report_whose_numbers_are_lost(gpt2, gpt2_report):
    """Kernels that no other is like are found; of others the name, grid, block and op are right, by order."""
    rows = random.Random(7).sample(range(107), 107)
    numbers = iter(range(107))
    report = part(gpt2_report, rows, lambda one: one._replace(id=next(numbers)))
    joined, places = join(report, gpt2), kernels(gpt2)
    assert joined.matched[places].all()
    certainty = joined.certainty.take(places).texts()
    for place, row in enumerate(places):
        launch = int(joined.launches[0][row])
        if certainty[place] == "key":
            assert rows[launch] == place
        one, other = report.launches[launch], gpt2_report.launches[place]
        assert (one.grid, one.block, spelled(one.name)) == (other.grid, other.block, spelled(other.name))
    assert Counter(certainty)["key"] > 60
    assert Counter(certainty)["order"] > 10


def test_kernels_on_several_streams_are_in_the_order_of_their_launch(lenet, lenet_report):
    """On the GPU the last kernel runs first; the CPU launched it last."""
    start = lenet.ints("start").copy()
    start[kernels(lenet)[-1]] = start.min() - 5
    assert found(lenet_report, lenet.with_column("start", start)) == {n: n for n in range(54)}


# ----- repetition -----


@pytest.mark.parametrize("marked", [True, False], ids=["marked steps", "no marks"])
@pytest.mark.parametrize("change", [lambda one: one, without_ranges], ids=["with ranges", "without"])
def test_one_measured_step_is_that_of_each_step(marked, change, lenet, lenet_report):
    table = steps(lenet, 3, marked)
    assert found(part(lenet_report, range(54), change), table) == {n: n % 54 for n in range(162)}
    assert how(part(lenet_report, range(54), change), table) == {"key": 162}


def test_a_part_of_a_step_is_that_part_of_each_step(gpt2, gpt2_report):
    rows = range(40, 60)
    wanted = {107 * step + row: n for step in range(4) for n, row in enumerate(rows)}
    assert found(part(gpt2_report, rows), steps(gpt2, 4)) == wanted


def test_the_report_of_two_steps_and_a_capture_of_five(lenet, lenet_report):
    """Each step has both launches of each kernel, and no launch is left."""
    again = [*range(54), *range(54)]
    numbers = iter(range(108))
    report = part(lenet_report, again, lambda one: one._replace(id=next(numbers)))
    table = steps(lenet, 5)
    joined, rows = join(report, table), kernels(table)
    assert joined.unmatched == ()
    assert [each[rows].tolist() for each in joined.launches] == [[*range(54)] * 5, [*range(54, 108)] * 5]


def in_passes(report: Report, count: int) -> Report:
    """Each launch so many times, each time with other metrics."""
    size = len(report)
    numbers = iter(range(size * count))
    again = part(report, [n for n in range(size) for _ in range(count)], lambda one: one._replace(id=next(numbers)))
    metrics = {name: values.copy() for name, values in again.metrics.items()}
    for turn, name in enumerate(sorted(metrics)):
        metrics[name][np.arange(size * count) % count != turn % count] = np.nan
    return replace(again, metrics=metrics)


@pytest.mark.parametrize("first", [0, 20], ids=["the whole run", "a part of it"])
@pytest.mark.parametrize("times", [1, 3], ids=["one step", "three steps"])
def test_a_row_for_each_pass(first, times, lenet, lenet_report):
    """Each kernel three times, with a third of the metrics each time."""
    report = in_passes(part(lenet_report, range(first, 54)), 3)
    table = steps(lenet, times)
    joined, rows = join(report, table), kernels(table)
    for turn, launches_ in enumerate(joined.launches):
        wanted = [3 * (n - first) + turn if n >= first else -1 for n in range(54)]
        assert launches_[rows].tolist() == wanted * times
    assert len(joined.launches) == 3
    assert not [each for each in joined.unmatched if each.in_report]


def test_a_row_for_each_pass_with_the_same_metrics(lenet, lenet_report):
    numbers = iter(range(108))
    twice = part(lenet_report, [n for n in range(54) for _ in "ab"], lambda one: one._replace(id=next(numbers)))
    joined, rows = join(twice, lenet), kernels(lenet)
    assert [each[rows].tolist() for each in joined.launches] == [[*range(0, 108, 2)], [*range(1, 108, 2)]]


@pytest.mark.parametrize("change", [lambda one: one, without_ranges], ids=["with ranges", "without"])
def test_a_process_for_each_pass(change, lenet, lenet_report):
    """Application replay, with a table from each run: the same launches under other process ids."""
    both = part(lenet_report, [*range(54), *range(54)], change)
    moved = [one._replace(process_id=9) if n >= 54 else one for n, one in enumerate(both.launches)]
    joined = join(replace(both, launches=tuple(moved)), lenet)
    assert [each[kernels(lenet)].tolist() for each in joined.launches] == [[*range(54)], [*range(54, 108)]]


def test_two_ranks(lenet, lenet_report):
    """Two processes on two devices in both: each has its own launches."""
    other = lenet.with_column("pid", lenet.ints("pid") + 1).with_column("device", lenet.ints("device") + 1)
    both = part(lenet_report, [*range(54), *range(54)])
    moved = [one._replace(process_id=9, device=1) if n >= 54 else one for n, one in enumerate(both.launches)]
    assert found(replace(both, launches=tuple(moved)), Table.concat([other, lenet])) == {
        **{n: 54 + n for n in range(54)}, **{54 + n: n for n in range(54)},
    }  # fmt: skip


def test_one_of_two_ranks_that_both_call_their_device_0(lenet, lenet_report):
    other = lenet.with_column("pid", lenet.ints("pid") + 1)
    assert found(lenet_report, Table.concat([lenet, other])) == {n: n for n in range(54)}


# ----- one side only -----


def plain(names: Sequence[str], grids: Sequence[str] = ()) -> Table:
    """A capture of kernels with these names, one after the other."""
    count = len(names)
    sizes = list(grids) or ["[4, 1, 1]"] * count
    return Table(count, {
        "kind": Coded.of(["kernel"] * count), "kLongName": Coded.of(names), "kShortName": Coded.of(names),
        "grid": Coded.of(sizes), "block": Coded.of(["[128, 1, 1]"] * count),
        "start": np.arange(count, dtype=np.int64), "kDuration": np.full(count, 1000, np.int64),
        "pid": np.ones(count, np.int64), "device": np.zeros(count, np.int64),
    })  # fmt: skip


def launches(names: Sequence[str], metrics: dict[str, list[float]] | None = None) -> Report:
    found = tuple(
        Launch(n, name, (name,), 1, device=0, grid=(4, 1, 1), block=(128, 1, 1)) for n, name in enumerate(names)
    )
    return Report("r.csv", found, {name: np.array(v, float) for name, v in (metrics or {}).items()}, {})


def test_what_one_side_has_alone_is_listed_with_the_reason():
    table = plain(["gemm", "relu", "sum", "sum"], ["[4, 1, 1]", "[4, 1, 1]", "[4, 1, 1]", "[9, 1, 1]"])
    joined = join(launches(["gemm", "sum", "sum", "sum", "autotune"]), table)
    assert joined.certainty.texts() == ["key", "", "order", ""]
    assert joined.reason.texts() == [
        "", "the report has no kernel of this name", "", "the report has this kernel with another grid, block or op",
    ]  # fmt: skip
    assert {(each.in_report, each.name, each.reason, each.count) for each in joined.unmatched} == {
        (False, "relu", "the report has no kernel of this name", 1),
        (False, "sum", "the report has this kernel with another grid, block or op", 1),
        (True, "sum", "the capture has 2 of this name, the report 3", 2),
        (True, "autotune", "the capture has no kernel of this name", 1),
    }


def test_another_program_has_other_ops(lenet, gpt2_report):
    """What two programs share, such as fills of one element, is no match by key where the ops around it differ."""
    joined = join(gpt2_report, lenet)
    assert joined.matched.sum() < 8
    sure = np.flatnonzero(joined.certainty.among("key"))
    for row in sure.tolist():
        nodes = lenet.coded("nodes").take([row]).texts()[0]
        assert gpt2_report.launches[int(joined.launches[0][row])].ranges[-1].text.split(",")[0] in nodes


def test_a_failed_replay_is_matched_and_unknown():
    joined = join(launches(["gemm", "relu"], {"gpu__time_duration.sum": [5, np.nan]}), plain(["gemm", "relu"]))
    assert joined.matched.all()
    assert joined.report.failed.tolist() == [False, True]


def test_an_empty_capture(lenet_report):
    joined = join(lenet_report, plain([]))
    assert len(joined.launches[0]) == 0
    assert sum(each.count for each in joined.unmatched) == 54
