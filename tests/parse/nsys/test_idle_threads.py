"""A thread that launches nothing changes nothing, and makes no contexts of its own."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.contexts import Contexts
from pyprof.parse.attribute.notes import CaptureNotes, no_ops
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.nsys import nvtx_sql
from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from tests import tables
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, startend, write

OPS = [
    push(10, 40, "aten::linear, seq = 5, op_id = 1, sizes = [[2, 3], [4, 3]]"),
    push(15, 35, "aten::mm, seq = 5, op_id = 2, sizes = [[2, 3], [3, 4]]"),
    push(100, 150, "autograd::engine::evaluate_function: MmBackward0, op_id = 3", tid=2),
    push(110, 140, "MmBackward0, seq = 5, op_id = 4", tid=2),
]
IDLE = [
    rows
    for i in range(500)
    for rows in (
        push(2 * i, 2 * i + 2, f"batch {i}", tid=3),
        push(2 * i, 2 * i + 1, f"aten::empty, op_id = {100 + i}", tid=3),
    )
]


def capture(path: Path, ranges: list[tuple[Any, ...]], lean: bool = False) -> Capture:
    path.mkdir(exist_ok=True)
    (path / "net.sqlite").unlink(missing_ok=True)
    calls = [call(20, 1), call(120, 2, tid=2)]
    file = write(path / "net.sqlite", **{KERNEL: [kernel(200, 1), kernel(220, 2)], API: calls, NVTX: ranges})
    return read(file, lean)


def paths(found: Capture) -> list[tuple[str, ...]]:
    tree = RangeTree(found)
    paths = Contexts(tree, tree.innermost_of_rows(found)[0]).paths
    return [tuple(scope.name for scope in path) for path in paths]


def test_the_table_is_the_same(tmp_path: Path) -> None:
    alone, beside = (capture(tmp_path / str(i), ranges) for i, ranges in enumerate((OPS, OPS + IDLE)))
    assert tables.rows(correlate(beside)) == tables.rows(correlate(alone))
    assert correlate(beside).coded("op").texts() == ['["linear"]', '["linear"]']


def test_with_more_threads_than_a_condition_can_list_all_ranges_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lean = capture(tmp_path / "lean", OPS + IDLE, lean=True)
    monkeypatch.setattr(nvtx_sql, "MOST_THREADS", 1)
    all_of_them = capture(tmp_path / "all", OPS + IDLE, lean=True)
    assert len(lean.ranges) == len(OPS)
    assert len(all_of_them.ranges) == len(OPS) + len(IDLE)
    assert tables.rows(correlate(lean)) == tables.rows(correlate(all_of_them))


def test_only_ranges_that_rows_can_ask_for_have_contexts(tmp_path: Path) -> None:
    assert paths(capture(tmp_path / "net", OPS + IDLE)) == [
        ("aten::linear",),
        ("MmBackward0",),  # autograd's range around the node
        ("aten::linear", "aten::mm"),
        ("MmBackward0", "MmBackward0"),
    ]


def test_for_a_table_they_are_not_read(tmp_path: Path) -> None:
    for i, ranges in enumerate((OPS + IDLE, IDLE + OPS, OPS)):
        found = capture(tmp_path / str(i), ranges, lean=True)
        assert len(found.ranges) == 4
        assert tables.rows(correlate(found)) == tables.rows(correlate(capture(tmp_path / "all", ranges)))


ELSEWHERE = {  # ranges of a thread without a launch that a row depends on, and what the row has of them
    "the forward op of a backward kernel": (
        [
            push(1, 50, "layer:head", tid=3),
            push(5, 40, "aten::relu, seq = 9, op_id = 8, sizes = [[7]]", tid=3),
            push(100, 150, "autograd::engine::evaluate_function: ReluBackward0, op_id = 3", tid=2),
            push(110, 140, "ReluBackward0, seq = 9, op_id = 4", tid=2),
        ],
        {"op": ["", '["relu"]'], "layer": ["", '["head"]'], "dir": ["", "bprop"]},
    ),
    "the consumer of a convolution's output": (
        [
            push(10, 40, "aten::conv2d, op_id = 6, sizes = [[1, 3, 8, 8], [4, 3, 3, 3]]"),
            push(50, 60, "aten::view, op_id = 7, sizes = [[1, 4, 6, 6]], input_op_ids = [(6,0)]", tid=3),
        ],
        {"outs": ["[[1, 4, 6, 6]]", ""]},
    ),
    "marks of steps": (
        [push(1, 100, "ProfilerStep#4", tid=3), startend(110, 160, "ProfilerStep#5", tid=3)],
        {"step": [4, 5]},
    ),
    "the optimizer's updates": (
        [
            push(50, 60, "Optimizer.step#SGD.step, op_id = 3", tid=3),
            push(70, 75, "torch::autograd::AccumulateGrad, op_id = 4", tid=4),
        ],
        {"step": [0, 1]},
    ),
}


@pytest.mark.parametrize("what", ELSEWHERE)
def test_what_rows_depend_on_is_read(what: str, tmp_path: Path) -> None:
    ranges, expected = ELSEWHERE[what]
    table = correlate(capture(tmp_path / "net", IDLE + ranges, lean=True))
    texts = {key: table.ints(key).tolist() if key == "step" else table.coded(key).texts() for key in expected}
    assert texts == expected


def test_the_warning_about_missing_ops_considers_all_threads(tmp_path: Path) -> None:
    mine = [push(10, 40, "mine")]
    assert CaptureNotes.of(capture(tmp_path / "a", mine + IDLE, lean=True)).warnings == []  # aten::empty
    assert CaptureNotes.of(capture(tmp_path / "b", mine + IDLE[::2], lean=True)).warnings == [no_ops("nsys")]


NAMES = (
    "aten::mm",
    "aten::conv2d",
    "MmBackward0",
    "autograd::engine::evaluate_function: MmBackward0",
    "a::Backward",
    "torch::autograd::AccumulateGrad",
    "Optimizer.step#SGD.step",
    "ProfilerStep#3",
    "layer:a",
    "mine, all mine",
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    parts = [draw(st.sampled_from(NAMES))]
    if draw(st.booleans()):
        parts.append(f"seq = {draw(st.integers(1, 3))}")
    if draw(st.booleans()):
        parts.append(f"op_id = {draw(st.integers(1, 5))}")
        parts.append("sizes = [[2, 3, 4, 4], [3, 3, 1, 1]]")
        if draw(st.booleans()):
            parts.append(f"input_op_ids = [({draw(st.integers(0, 5))},0)]")
    return ", ".join(parts)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[Any, ...]:
    start = draw(st.integers(0, 150))
    row = push(start, start + draw(st.integers(0, 150)), draw(texts()), tid=draw(st.integers(1, 5)))
    return row if draw(st.integers(0, 5)) else (*row[:2], 60, *row[3:])


def with_distinct_op_ids(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The ranges, each op id on the first of them only: PyTorch never gives two ops of a process the same one."""
    seen: set[str] = set()

    def once(match: re.Match[str]) -> str:
        repeated = match[0] in seen
        seen.add(match[0])
        return "" if repeated else match[0]

    return [tuple(re.sub(r", op_id = \d+", once, v) if isinstance(v, str) else v for v in row) for row in rows]


IDLE_OPS = [(0, 0, 60, "aten::mm", None, 72_057_594_155_368_449, 0)] * 2  # of two threads that launch nothing


@settings(max_examples=150)
@example(found=[*IDLE_OPS, (0, 0, 59, "aten::mm", None, 72_057_594_155_368_451, 0)])
@given(found=st.lists(ranges(), max_size=25))
def test_the_table_is_as_if_all_were_read(found: list[tuple[Any, ...]], tmp_path: Path) -> None:
    rows = with_distinct_op_ids(found)
    whole, lean = (capture(tmp_path / "net", rows, way) for way in (False, True))
    assert tables.rows(correlate(lean)) == tables.rows(correlate(whole))
    assert (no_ops("nsys") in CaptureNotes.of(lean).warnings) == (no_ops("nsys") in CaptureNotes.of(whole).warnings)
