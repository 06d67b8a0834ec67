"""Attribution equals its quadratic definition, whatever the nesting, the order of rows and the ties in time."""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL, Table
from tests import tables
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, write

MAIN, AUTOGRAD = 1, 2
OPS = ("aten::mm", "aten::relu", "aten::linear", "Custom")


class Range(NamedTuple):
    start: int
    end: int
    tid: int
    pid: int
    name: str
    seq: int | None  # None: not recorded for autograd
    is_node: bool


@st.composite
def threads(draw: st.DrawFn, pid: int) -> list[Range]:
    """Forward ops nested on one thread, backward nodes with ops inside on another; ties in time are usual."""
    found = []

    def nested(start: int, end: int, tid: int, depth: int, seq: st.SearchStrategy[int | None], node: bool) -> None:
        at = start
        for _ in range(draw(st.integers(2, 4) if depth == 0 else st.integers(0, 2))):
            if at >= end:
                break
            begin = draw(st.integers(at, min(at + 4, end - 1)))
            finish = draw(st.integers(begin + 1, min(begin + 20, end)))
            is_node = node and depth == 0
            name = "MmBackward0" if is_node else draw(st.sampled_from(OPS))
            found.append(Range(begin, finish, tid, pid, name, draw(st.integers(1, 4) if is_node else seq), is_node))
            if depth < 3:
                nested(begin, finish, tid, depth + 1, seq, node)
            at = finish

    nested(0, 40, MAIN, 0, st.none() | st.integers(1, 4), False)
    nested(10, 60, AUTOGRAD, 0, st.none(), True)
    return list(dict.fromkeys(found))  # ranges alike in all are told apart by their order alone


captures = st.tuples(threads(7), threads(8)).map(lambda pair: [*pair[0], *pair[1]])
launches = st.lists(
    st.tuples(st.integers(0, 50), st.sampled_from((MAIN, AUTOGRAD)), st.sampled_from((7, 8))), min_size=1, max_size=8
)


def text(item: Range) -> str:
    return item.name + ("" if item.seq is None else f", seq = {item.seq}") + ", op_id = 5"


def table(folder: Path, ranges: list[Range], points: list[tuple[int, int, int]], order: random.Random | None) -> Table:
    rows: dict[str, list[tuple[Any, ...]]] = {
        KERNEL: [kernel(100 + number // 2, number, pid) for number, (_, _, pid) in enumerate(points)],  # ties
        API: [call(time, number, pid, tid) for number, (time, tid, pid) in enumerate(points)],
        NVTX: [push(r.start, r.end, text(r), r.pid, r.tid) for r in ranges],
    }
    for each in rows.values() if order else ():
        order.shuffle(each)
    path = folder / "net.sqlite"
    path.unlink(missing_ok=True)
    return correlate(read(write(path, **rows)))


def around(ranges: list[Range], time: int, tid: int, pid: int) -> list[Range]:
    """The definition: the thread's ranges with start <= time < end, outermost first; of equal ones the first given."""
    open_ = [r for r in ranges if (r.tid, r.pid) == (tid, pid) and r.start <= time < r.end]
    return sorted(open_, key=lambda r: (r.start, -r.end))


def expected(ranges: list[Range], time: int, tid: int, pid: int) -> tuple[str, str]:
    """(outermost op of the row or of its forward op, direction), by loops over all ranges."""
    path = around(ranges, time, tid, pid)
    nodes = [r for r in path if r.is_node]
    if nodes:
        node = nodes[-1]
        made = [r for r in ranges if r.pid == pid and not r.is_node and r.seq == node.seq and r.start < node.start]
        if not made:
            return "Mm", "bprop"
        forward = max(made, key=lambda r: (r.start, -r.end))
        path = [r for r in around(ranges, forward.start, forward.tid, pid) if r.end >= forward.end]
        return path[0].name.removeprefix("aten::"), "bprop"
    return (path[0].name.removeprefix("aten::"), "fprop") if path else ("", "")


@given(ranges=captures, points=launches)
def test_ops_and_directions_equal_the_quadratic_definition(ranges, points, tmp_path):
    distinct = {(r.start, r.end, r.tid, r.pid): r for r in ranges}  # of ranges alike in time, one
    ranges = list(distinct.values())
    starts = [(r.start, r.pid, r.seq) for r in ranges if r.seq and not r.is_node]
    if len(starts) != len(set(starts)):  # a composite and its first op begin together: which is the last is a tie
        ranges = [r for r in ranges if starts.count((r.start, r.pid, r.seq)) < 2 or r.is_node]
    found = table(tmp_path, ranges, points, None)
    texts = zip(found.coded("op").texts(), found.coded("dir").texts(), strict=True)
    rows = [(json.loads(op)[0] if op else "", way) for op, way in texts]
    by_number = dict(zip(found.ints("corr").tolist(), rows, strict=True))
    keys = list(zip(found.ints("pid").tolist(), found.ints("corr").tolist(), strict=True))
    assert sorted(keys) == sorted((pid, number) for number, (_, _, pid) in enumerate(points))
    assert [by_number[number] for number in range(len(points))] == [expected(ranges, *point) for point in points]


@given(ranges=captures, points=launches, order=st.randoms(use_true_random=False))
def test_the_order_of_the_databases_rows_does_not_matter(ranges, points, order, tmp_path):
    distinct = list({(r.start, r.end, r.tid, r.pid): r for r in ranges}.values())
    straight, mixed = (comparable(table(tmp_path, distinct, points, each)) for each in (None, order))
    assert mixed == straight


def comparable(found: Table) -> list[dict[str, Any]]:
    """The rows; opId is the place of a range in the database, and only who shares it says something."""
    numbers: dict[int, int] = {NULL: NULL}
    op_id = [numbers.setdefault(number, len(numbers)) for number in found.ints("opId").tolist()]
    return [{**row, "opId": number} for row, number in zip(tables.rows(found), op_id, strict=True)]


@pytest.mark.parametrize(("time", "op"), [(9, ""), (10, "relu"), (19, "relu"), (20, "tanh"), (30, "")])
def test_a_launch_at_a_ranges_start_is_inside_and_at_its_end_is_not(tmp_path, time, op):
    ranges = [push(10, 20, "aten::relu, op_id = 1"), push(20, 30, "aten::tanh, op_id = 2")]
    path = write(tmp_path / "a.sqlite", **{KERNEL: [kernel(100, 1)], API: [call(time, 1)], NVTX: ranges})
    assert correlate(read(path)).coded("op").texts() == [f'["{op}"]' if op else ""]


def test_kernels_of_one_nanosecond_stand_in_the_order_of_their_launches(tmp_path):
    path = write(
        tmp_path / "a.sqlite",
        **{KERNEL: [kernel(100, 3), kernel(100, 1), kernel(100, 2)], API: [call(9, 3), call(7, 1), call(8, 2)]},
    )
    assert correlate(read(path)).ints("corr").tolist() == [1, 2, 3]
