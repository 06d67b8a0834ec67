"""When marked steps begin and end on their GPU; all times in ns, worked out by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyprof.parse.attribute.capture import OPEN
from pyprof.parse.attribute.step_times import step_times
from pyprof.parse.attribute.steps import Marks, _until
from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.notebook import load
from pyprof.prof.timing.steps import owners, steps
from pyprof.table.columns import NULL, Coded
from pyprof.table.netdict import read_netdict, write_netdict
from pyprof.table.parquet import read_parquet, write_parquet
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, write


def columns(*rows: tuple[Any, ...]) -> dict[str, Any]:
    """Rows of (step, its mark, the next mark, start, duration[, stream[, device]]); None: unknown."""
    full = [(*row, *(0, 0)[len(row) - 5 :]) for row in rows]
    keys = ("step", "markStart", "markEnd", "start", "kDuration", "stream", "device")
    values = [[NULL if value is None else value for value in column] for column in zip(*full, strict=True)]
    return {key: np.array(column, np.int64) for key, column in zip(keys, values, strict=True)}


def times(*rows: tuple[Any, ...], **more: Any) -> list[tuple[int, int] | None]:
    """Each row's step: when it begins and ends."""
    start, end = step_times({**columns(*rows), **more})
    pairs = zip(start.tolist(), end.tolist(), strict=True)
    return [None if pair == (NULL, NULL) else pair for pair in pairs]


def test_where_the_gpu_keeps_up_a_step_lasts_from_mark_to_mark() -> None:
    assert times((1, 0, 100, 20, 30), (2, 100, 200, 130, 30)) == [(0, 100), (100, 200)]


def test_where_the_gpu_is_late_a_step_begins_when_it_is_done_with_the_one_before() -> None:
    # the host marks 0, 10 and 20, and ends at 30; the GPU works 100 on each of the three
    late = [(1, 0, 10, 5, 100), (2, 10, 20, 105, 100), (3, 20, 30, 205, 100)]
    assert times(*late) == [(0, 105), (105, 205), (205, 305)]


def test_work_that_was_launched_before_the_first_mark_is_not_of_the_first_step() -> None:
    # a kernel of before the capture runs until 40; no launch of it is known
    assert times((None, None, None, 0, 40), (1, 10, 60, 40, 10)) == [None, (40, 60)]


def test_a_step_lasts_until_other_work_lets_the_next_one_begin() -> None:
    """The host marks 0, 10 and 60. Work of no step keeps the main stream until 40; step 1 has a kernel elsewhere."""
    assert times((1, 0, 10, 2, 3, 7), (None, None, None, 5, 35), (2, 10, 60, 40, 10)) == [(0, 40), None, (40, 60)]


@pytest.mark.parametrize(("returned", "begins"), [
    (100_000, 900_000),  # it waits for 800 µs, and nothing on record runs: work of before the capture
    (799_999, 900_000), (800_000, 0),  # more than 100 µs, and no more
    (850_000, 0),  # 50 µs: as long as launching takes
    (None, 0),
])  # fmt: skip
def test_a_queue_from_before_the_capture_is_not_of_the_first_step(returned: int | None, begins: int) -> None:
    called = np.array([NULL if returned is None else returned - 10] * 2)
    api = {"apiStart": called, "apiDuration": np.array([10, 10])}
    kernels = [(1, 0, 1_000_000, 900_000, 30_000), (1, 0, 1_000_000, 930_000, 80_000)]
    assert times(*kernels, **api) == [(begins, 1_010_000)] * 2


def test_a_long_call_queues_its_kernel_when_it_returns() -> None:
    """The call begins at 100 µs and takes 750: its kernel waits for 50, as long as launching takes."""
    api = {"apiStart": np.array([100_000]), "apiDuration": np.array([750_000])}
    assert times((1, 0, 1_000_000, 900_000, 30_000), **api) == [(0, 1_000_000)]


def test_a_wait_for_the_steps_own_copy_is_of_the_step() -> None:
    """The kernel waits for 800 µs, of which a copy on another stream runs for 700."""
    rows = [(1, 0, 1_000_000, 200_000, 700_000, 7), (1, 0, 1_000_000, 900_000, 30_000)]
    api = {"apiStart": np.array([90_000, 90_000]), "apiDuration": np.array([10_000, 10_000])}
    kind = Coded.of(["memcpy", "kernel"])
    assert times(*rows, kind=kind, **api) == [(0, 1_000_000)] * 2


def test_the_last_step_lasts_until_its_range_ends_or_with_all_its_work() -> None:
    assert times((1, 0, 100, 20, 30)) == [(0, 100)]
    assert times((1, 0, 100, 20, 30), (1, 0, 100, 90, 25, 7)) == [(0, 115)] * 2  # of whichever stream
    assert times((1, 0, None, 20, 30)) == [(0, 50)]  # its range was never closed


def test_copies_on_another_stream_may_run_through_several_steps() -> None:
    copy = (1, 0, 100, 10, 350, 7)
    kernels = [(1, 0, 100, 20, 60), (2, 100, 200, 120, 60), (3, 200, 300, 220, 60)]
    kind = Coded.of(["memcpy", "kernel", "kernel", "kernel"])
    assert times(copy, *kernels, kind=kind) == [(0, 100), (0, 100), (100, 200), (200, 300)]


def test_step_0_begins_with_its_first_operation_and_ends_at_the_first_mark() -> None:
    assert times((0, None, 100, 20, 30), (1, 100, 200, 120, 10)) == [(20, 100), (100, 200)]


def test_a_step_ends_with_its_range_where_something_else_follows() -> None:
    # step 1 ends at 100 and step 2 begins at 200; between them ran an evaluation, or a step without any operation
    assert times((1, 0, 100, 20, 30), (None, None, None, 120, 50), (2, 200, 300, 210, 10)) == [
        (0, 100), None, (200, 300),
    ]  # fmt: skip
    # the GPU is late: step 1 ends at 130 with its work, the evaluation at 210, and step 2 begins then
    assert times((1, 0, 100, 20, 110), (None, None, None, 130, 80), (2, 200, 300, 210, 10)) == [
        (0, 130), None, (210, 300),
    ]  # fmt: skip


def test_each_device_has_its_own_times() -> None:
    first, second = (1, 0, 10, 5, 100, 0, 0), (2, 10, 20, 105, 100, 0, 0)
    assert times(first, (1, 0, 10, 5, 3, 0, 1), second, (2, 10, 20, 12, 3, 0, 1)) == [
        (0, 105), (0, 10), (105, 205), (10, 20),
    ]  # fmt: skip


def test_without_marks_nothing_is_said() -> None:
    assert times((1, None, None, 20, 30), (2, None, None, 120, 30)) == [None, None]


# From a file to the table


def table_of(folder: Path, ranges: list[tuple[Any, ...]], launches: tuple[int, ...]) -> Any:
    """A kernel of 10 ns at each of these times, when it is launched, too."""
    kernels = [kernel(at, at) for at in launches]
    return correlate(
        read(write(folder / "net.sqlite", **{KERNEL: kernels, API: [call(at, at) for at in launches], NVTX: ranges}))
    )


def marks_of(table: Any) -> list[tuple[int | None, int | None]]:
    pairs = zip(table.ints("markStart").tolist(), table.ints("markEnd").tolist(), strict=True)
    return [(None if a == NULL else a, None if b == NULL else b) for a, b in pairs]


def test_each_process_has_its_own_marks(tmp_path: Path) -> None:
    """Process 7 begins step 3 at 10 and step 4 at 20; process 8 begins step 9 at 16."""
    ranges = [push(10, 19, "ProfilerStep#3"), push(20, 30, "ProfilerStep#4"), push(16, 30, "ProfilerStep#9", pid=8)]
    launches = [(12, 7), (17, 7), (18, 8), (22, 7), (25, 8)]
    kernels = [kernel(at, at, pid=pid) for at, pid in launches]
    calls = [call(at, at, pid=pid) for at, pid in launches]
    table = correlate(read(write(tmp_path / "net.sqlite", **{KERNEL: kernels, API: calls, NVTX: ranges})))
    assert table.ints("start").tolist() == [12, 17, 18, 22, 25]
    assert table.ints("step").tolist() == [3, 3, 9, 4, 9]
    assert marks_of(table) == [(10, 20), (10, 20), (16, 30), (20, 30), (16, 30)]


@pytest.mark.parametrize(
    ("ranges", "launches", "expected"),
    [
        # the gap from 19 to 20 belongs to step 3; nothing follows step 4
        ([push(10, 19, "ProfilerStep#3"), push(20, 30, "ProfilerStep#4")], (12, 22), [(10, 20), (20, 30)]),
        # a launch in the gap: step 3 ends with its range
        (
            [push(10, 15, "ProfilerStep#3"), push(20, 30, "ProfilerStep#4")],
            (12, 17, 22),
            [(10, 15), (None,) * 2, (20, 30)],
        ),
        # not the next step
        ([push(10, 15, "ProfilerStep#3"), push(20, 30, "ProfilerStep#9")], (12, 22), [(10, 15), (20, 30)]),
    ],
)
def test_marks_are_those_of_the_host(tmp_path: Path, ranges: Any, launches: Any, expected: Any) -> None:
    assert marks_of(table_of(tmp_path, ranges, launches)) == expected


def test_net_dict_and_parquet_keep_the_times(tmp_path: Path) -> None:
    table = table_of(tmp_path, [push(10, 20, "ProfilerStep#3"), push(20, 30, "ProfilerStep#4")], (12, 22, 40))
    with (tmp_path / "net.dict").open("wb") as out:
        write_netdict(table, out)
    write_parquet(table, tmp_path / "net.parquet")
    with (tmp_path / "net.dict").open("rb") as file:
        tables = [read_netdict(file, "net.dict"), read_parquet(tmp_path / "net.parquet")]
    assert (table.ints("stepStart") != NULL).tolist() == [True, True, False]
    for read_again in tables:
        for key in ("markStart", "markEnd", "stepStart", "stepEnd"):
            assert read_again.ints(key).tolist() == table.ints(key).tolist()


STEPS = [push(0, 100, "ProfilerStep#1"), push(100, 160, "ProfilerStep#2"), push(160, 250, "ProfilerStep#3"),
         push(250, 300, "ProfilerStep#4"), push(300, 305, "ProfilerStep#5")]  # fmt: skip


def listed(table: Any) -> list[tuple[Any, ...]]:
    """Number, start, time, idle time, time on the host and GPU extent of each step."""
    return [
        (s.number, s.start_ns, s.span_ns, s.idle_ns, s.mark_ns, s.extent_ns) for s in steps(table, owners(table)[0])
    ]


def test_a_step_without_gpu_work_is_listed_with_its_time(tmp_path: Path) -> None:
    """Steps 2 and 3 launch nothing; the mark of step 5, after all work, is only the end of the loop."""
    table = table_of(tmp_path, STEPS, (20, 260))
    assert table.coded("emptySteps").texts() == ["[[2,100,160],[3,160,250]]", ""]
    assert listed(table) == [(1, 0, 100, 90, 100, 10), (2, 100, 60, 60, 60, 0), (3, 160, 90, 90, 90, 0),
                             (4, 250, 50, 40, 50, 10)]  # fmt: skip
    with (tmp_path / "net.dict").open("wb") as out:
        write_netdict(table, out)
    summary = load(tmp_path / "net.dict").summary()
    assert "2 of the 4 steps launch no work on the GPU." in summary.sentences
    assert load(tmp_path / "net.dict").where("start >= 0").steps["step"].tolist() == [1, 2, 3, 4]
    assert load(tmp_path / "net.dict").where("start > 100").steps["step"].tolist() == [4]
    found = summary.numbers.steps
    assert [(s.name, s.rows, s.ns) for s in found] == [("1", 1, 100), ("2", 0, 60), ("3", 0, 90), ("4", 1, 50)]


def test_a_late_gpu_reaches_a_step_without_work_when_it_is_done(tmp_path: Path) -> None:
    """The kernel of step 1 runs from 20 to 220: step 2, marked at 100, has no time left, and step 3 begins at 220."""
    table = table_of(tmp_path, STEPS, (20, 260))
    table = table.with_column("kDuration", np.array([200, 10]))
    begin, end = step_times(table.columns)
    table = table.with_column("stepStart", begin).with_column("stepEnd", end)
    assert listed(table) == [(1, 0, 220, 20, 100, 200), (2, 220, 0, 0, 60, 0), (3, 220, 30, 30, 90, 0),
                             (4, 250, 50, 40, 50, 10)]  # fmt: skip


@pytest.mark.parametrize("text", ["7", "[7]", "[[2,3]]", '[["a",1,2]]', "[[2,9,1]]", "[[2,1e99,3]]", "[[1,120,130]]"])
def test_a_damaged_list_of_empty_steps_is_left_out(tmp_path: Path, text: str) -> None:
    table = table_of(tmp_path, STEPS, (20, 260)).with_column("emptySteps", Coded.of([text, text]))
    assert [step[0] for step in listed(table)] == [1, 4]


def test_a_mark_that_was_never_closed_has_no_end() -> None:
    """Step 1 ends with its own range at 10, because a launch at 15 is before step 2 begins; step 2 is left open."""
    marks = Marks(np.zeros(2, np.int64), np.array([0, 20]), np.array([10, OPEN - 1000]), np.array([1, 2]))
    assert _until(marks, np.arange(2), np.array([5, 15, 25])).tolist() == [10, NULL]
