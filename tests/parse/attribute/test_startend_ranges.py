"""NVTX start/end ranges: a process's, on whatever thread they begin and end."""

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.notes import range_names
from pyprof.parse.nsys.reader import read
from pyprof.parse.selection import Selection, named_spans, select
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL
from tests import tables
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, startend, write

OP = "aten::conv2d, seq = 5, op_id = 1, sizes = [[1, 3, 8, 8], [4, 3, 3, 3]]"
USE = "aten::relu, op_id = 2, sizes = [[1, 4, 6, 6]], input_op_ids = [(1,0)]"


def capture(path: Path, ranges: list[tuple[Any, ...]]) -> Capture:
    """Launches at 20, 40 and 60 on thread 1 and at 45 on thread 2."""
    calls = [call(20, 1), call(40, 2), call(60, 3), call(45, 4, tid=2)]
    kernels = [kernel(100 + 20 * i, i) for i in range(1, 5)]
    return read(write(path / "net.sqlite", **{KERNEL: kernels, API: calls, NVTX: ranges}))


def test_they_hold_the_launches_of_all_threads_for_range(tmp_path: Path) -> None:
    found = capture(tmp_path, [startend(30, 50, "epoch", tid=3, end_tid=4), push(15, 30, OP)])
    table = correlate(found)
    kept = select(table, Selection(range_name="epoch"), named_spans(found, "epoch"))
    assert table.ints("corr")[kept].tolist() == [2, 4]
    assert "epoch" in range_names(found)


def test_they_are_around_no_launch(tmp_path: Path) -> None:
    table = correlate(capture(tmp_path, [startend(0, 99, "aten::mm, seq = 9, op_id = 3"), push(15, 30, OP)]))
    assert table.coded("op").texts() == ['["conv2d"]', "", "", ""]
    assert table.coded("nodes").texts() == ['["aten::conv2d"]', "", "", ""]
    of_thread_2 = "launched by a thread whose ops were not recorded"
    assert table.coded("reason").texts() == ["", *["no range around the launch"] * 2, of_thread_2]


def test_one_never_ended_lasts_to_the_end(tmp_path: Path) -> None:
    found = capture(tmp_path, [startend(30, None, "rest")])
    assert select(correlate(found), Selection(range_name="rest"), named_spans(found, "rest")).tolist() == [
        False, True, True, True,
    ]  # fmt: skip


def test_they_mark_steps(tmp_path: Path) -> None:
    ranges = [startend(10, 30, "ProfilerStep#7"), startend(35, 50, "pyprof.step 8", end_tid=2)]
    assert correlate(capture(tmp_path, ranges)).ints("step").tolist() == [7, 8, NULL, 8]
    (tmp_path / "both").mkdir()
    ranges.append(push(55, 70, "ProfilerStep#9"))
    assert correlate(capture(tmp_path / "both", ranges)).ints("step").tolist() == [7, 8, 9, 8]


def test_shapes_inferred_stay_with_their_op(tmp_path: Path) -> None:
    """The number of a range is its place among the push/pop ranges, whatever stands between."""
    ranges = [startend(1, 2, "a"), startend(1, 3, USE), push(15, 30, OP), startend(1, 4, "b"), push(35, 44, USE)]
    table = correlate(capture(tmp_path, ranges))
    assert table.coded("outs").texts()[0] == "[[1, 4, 6, 6]]"
    assert table.ints("opId")[:2].tolist() == [0, 1]


SPANS = st.lists(st.tuples(st.integers(0, 70), st.integers(1, 50), st.sampled_from(["a", OP, USE])), max_size=5)


@given(SPANS, st.permutations(range(3)))
@settings(max_examples=40)
def test_nothing_but_steps_and_ranges_changes(
    tmp_path: Path, spans: list[tuple[int, int, str]], order: list[int]
) -> None:
    pushed = [push(15, 30, OP), push(35, 44, USE), push(38, 43, "aten::mm, op_id = 9")]
    mixed = [pushed[i] for i in order] + [startend(begin, begin + length, text) for begin, length, text in spans]
    file = tmp_path / "net.sqlite"
    results = []
    for ranges in ([pushed[i] for i in order], mixed[::-1][: len(spans)] + mixed[: len(order)]):
        file.unlink(missing_ok=True)
        results.append(tables.rows(correlate(capture(tmp_path, ranges))))
    assert results[0] == results[1]


def test_the_capture_of_a_library_keeps_its_ranges(data: Path) -> None:
    """TensorRT's engine: 2,444 start/end ranges, each open where it says."""
    found = read(next((data / "nsys").glob("*poolformer*")))
    assert len(found.spans) == 2444
    assert {found.scopes[code].name for code in np.unique(found.spans.scope).tolist()} >= {"myelinTensorGetMemory"}
