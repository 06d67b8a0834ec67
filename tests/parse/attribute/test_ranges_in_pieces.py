"""A range that another one crosses is nested in pieces, and counts once all the same."""

import json
from pathlib import Path
from typing import Any

from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import Table
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, write

CROSSING = push(50, 150, "mine")  # ends within the range that each test adds from 100 on


def table(path: Path, launches: list[int], *ranges: tuple[Any, ...]) -> Table:
    calls = [call(time, number) for number, time in enumerate(launches)]
    kernels = [kernel(1000 + 10 * number, number) for number in range(len(launches))]
    return correlate(read(write(path / "net.sqlite", **{KERNEL: kernels, API: calls, NVTX: [CROSSING, *ranges]})))


def test_an_optimizer_step_in_pieces_ends_one_step(tmp_path: Path) -> None:
    ranges = [
        push(100, 200, "Optimizer.step#SGD.step"),
        push(120, 130, "MmBackward0, op_id = 1", tid=2),  # between the starts of the two pieces
        push(250, 260, "MmBackward0, op_id = 2", tid=2),
    ]
    assert table(tmp_path, [60, 210, 300], *ranges).ints("step").tolist() == [0, 1, 1]


def test_a_mark_in_pieces_is_one_mark(tmp_path: Path) -> None:
    found = table(tmp_path, [120, 200], push(100, 300, "ProfilerStep#3"))
    assert (found.ints("step").tolist(), found.ints("markStart").tolist()) == ([3, 3], [100, 100])


def test_a_node_in_pieces_accumulates_one_gradient(tmp_path: Path) -> None:
    ranges = [
        push(100, 200, "torch::autograd::AccumulateGrad, op_id = 1, sizes = [[7]], input_op_ids = [(1,0)]"),
        push(300, 400, "Optimizer.step#SGD.step, op_id = 3"),
        push(310, 390, "aten::_foreach_add_, op_id = 4"),  # its list was cut
    ]
    assert [json.loads(text) for text in table(tmp_path, [320], *ranges).coded("grads").texts()] == [[[7]]]


def test_an_op_in_pieces_is_recorded_as_a_whole(tmp_path: Path) -> None:
    ranges = [
        push(10, 20, "MmBackward0, seq = 1, op_id = 1", tid=2),
        push(100, 200, "aten::relu, seq = 5, op_id = 2, sizes = [[7]]"),  # autograd's count grows during it
        push(400, 500, "Optimizer.step#SGD.step"),
        push(600, 610, "aten::mm, seq = 6, op_id = 3, sizes = [[2, 2], [2, 2]]"),
    ]
    found = table(tmp_path, [120, 180, 450], *ranges)
    assert found.coded("phase").texts() == ["forward", "forward", "optimizer"]
