"""A thread that launches nothing changes nothing, and makes no contexts of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyprof.parse.capture import Capture
from pyprof.parse.correlate import Nest, correlate
from pyprof.parse.nsys import read
from tests import tables
from tests.parse.nsys_file import API, KERNEL, NVTX, call, kernel, push, write

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


def capture(path: Path, ranges: list[tuple[Any, ...]]) -> Capture:
    path.mkdir()
    calls = [call(20, 1), call(120, 2, tid=2)]
    return read(write(path / "net.sqlite", **{KERNEL: [kernel(200, 1), kernel(220, 2)], API: calls, NVTX: ranges}))


def paths(found: Capture) -> list[tuple[str, ...]]:
    nest = Nest(found)
    nest.give_contexts(nest.place(found)[0])
    return [tuple(scope.name for scope in path) for path in nest.paths]


def test_the_table_is_the_same(tmp_path: Path) -> None:
    alone, beside = (capture(tmp_path / str(i), ranges) for i, ranges in enumerate((OPS, OPS + IDLE)))
    assert tables.rows(correlate(beside)) == tables.rows(correlate(alone))
    assert correlate(beside).coded("op").texts() == ['["linear"]', '["linear"]']


def test_only_ranges_that_rows_can_ask_for_have_contexts(tmp_path: Path) -> None:
    assert paths(capture(tmp_path / "net", OPS + IDLE)) == [
        ("aten::linear",),
        ("MmBackward0",),  # autograd's range around the node
        ("aten::linear", "aten::mm"),
        ("MmBackward0", "MmBackward0"),
    ]
