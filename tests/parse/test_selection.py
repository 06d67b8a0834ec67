"""Selecting rows by time, step, rank and named range; tables of several files."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.parse.merge import apart
from pyprof.parse.nsys.reader import read
from pyprof.parse.selection import Selection, Spans, named_spans, parse_steps, parse_time, select
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import NULL, Coded, Ragged, Table
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, write


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("12ms", 12_000_000), ("1.5s", 1_500_000_000), ("300us", 300_000), ("42", 42), ("42ns", 42),
        ("-1s", -1_000_000_000), ("0.1us", 100), ("0.000000001s", 1),
    ],
)  # fmt: skip
def test_times_have_units(text, ns):
    assert parse_time(text) == ns


@pytest.mark.parametrize("text", ["", "ms", "1e3", "1.5", "0.0001us", "5 ms", "5m", "٣ms", "9" * 20, "1.s", "+5"])
def test_other_text_than_a_time_is_refused(text):
    with pytest.raises(ValueError, match="expected"):
        parse_time(text)


def test_steps_are_one_or_first_and_last():
    assert parse_steps("3") == (3, 3)
    assert parse_steps("3-5") == (3, 5)
    for text in ("", "5-3", "-1", "a", "1-2-3", "1,2"):
        with pytest.raises(ValueError, match="expected a step"):
            parse_steps(text)


def small(**columns) -> Table:
    rows = len(next(iter(columns.values())))
    made = {key: np.array(value, np.int64) for key, value in columns.items()}
    return Table(rows, {"kind": Coded.of(["kernel"] * rows), **made})


def test_a_window_of_time_keeps_the_rows_that_start_in_it():
    table = small(start=[-5, 0, 9, 10, 11])
    assert select(table, Selection(begin_ns=0, end_ns=10)).tolist() == [False, True, True, False, False]
    assert select(table, Selection(end_ns=0)).tolist() == [True, False, False, False, False]
    assert select(table, Selection()).all()


def test_rows_of_no_step_or_rank_are_in_none():
    table = small(step=[NULL, 1, 2, 3], rank=[NULL, 0, 1, 1])
    assert select(table, Selection(steps=(0, 2))).tolist() == [False, True, True, False]
    assert select(table, Selection(rank=0)).tolist() == [False, True, False, False]
    assert select(table, Selection(steps=(0, 9), rank=1)).tolist() == [False, False, True, True]


@given(
    st.lists(st.tuples(st.integers(1, 2), st.integers(0, 20), st.integers(0, 9)), max_size=8),
    st.lists(st.tuples(st.integers(1, 2), st.integers(-2, 30)), min_size=1, max_size=12),
)
def test_inside_a_span_equals_the_quadratic_definition(spans, launches):
    table = small(pid=[pid for pid, _ in launches], apiStart=[time for _, time in launches])
    pid, start, length = np.array(spans, np.int64).reshape(-1, 3).T
    kept = select(table, Selection(range_name="x"), Spans(pid, start, start + length))
    assert kept.tolist() == [
        any(p == owner and a <= time < a + max(n, 1) for owner, a, n in spans) for p, time in launches
    ]


def test_a_range_keeps_what_other_threads_launched_meanwhile(tmp_path):
    path = write(
        tmp_path / "net.sqlite",
        **{
            KERNEL: [kernel(100, 1), kernel(120, 2), kernel(140, 3), kernel(150, 4, pid=8), kernel(900, 5)],
            API: [call(15, 1), call(25, 2, tid=2), call(50, 3), call(20, 4, pid=8), call(31, 5)],
            NVTX: [push(10, 30, "step one"), push(31, 33, "layer:head"), push(70, 80, "step [two]")],
        },
    )
    capture = read(path)
    table = correlate(capture)

    def kept(name: str) -> list[int]:
        mask = select(table, Selection(range_name=name), named_spans(capture, name))
        return table.ints("corr")[mask].tolist()

    assert kept("step one") == [1, 2]  # not process 8's
    assert kept("step*") == [1, 2]
    assert kept("layer:head") == kept("head") == [5]
    assert kept("step [two]") == kept("nothing") == []


def test_tables_of_several_files_are_kept_apart():
    first = small(pid=[7, 7], opId=[0, 1], corr=[1, 2], kDuration=[5, 6])
    second = small(pid=[7, 7], opId=[NULL, 0], corr=[1, 2], kDuration=[7, 8])
    third = small(pid=[8, 9], opId=[4, 4], corr=[1, 2], kDuration=[9, 10])
    whole = Table.concat(apart([first, second, third]))
    assert whole.ints("pid").tolist() == [7, 7, 1_000_000_007, 1_000_000_007, 8, 9]
    assert whole.ints("opId").tolist() == [0, 1, NULL, 2, 7, 7]
    assert whole.ints("rank").tolist() == [0, 0, 1, 1, NULL, NULL]  # the third has two processes
    assert whole.ints("kDuration").tolist() == [5, 6, 7, 8, 9, 10]


def test_a_files_own_rank_goes_before_its_place():
    tables = apart([small(pid=[7], rank=[1]), small(pid=[8]), small(pid=[9])])
    assert [table.ints("rank").tolist() for table in tables] == [[1], [NULL], [2]]  # 1 is taken
    alone = apart([small(pid=[7])])
    assert alone[0].ints("rank").tolist() == [NULL]


def test_columns_of_every_kind_are_put_together():
    parts = [Coded.of(["a", "", "b"]), Coded.empty(1), Coded.of(["b", "c"])]
    whole = Coded.concat(parts)
    assert whole.texts() == ["a", "", "b", "", "b", "c"]
    assert whole.values == ["a", "b", "c"]
    lists = [[1, 2], [], [3]]
    cut = Ragged.of([[9], *lists]).take(np.array([1, 2, 3]))
    assert Ragged.concat([cut, Ragged.empty(1), Ragged.of(lists)]).lists() == [*lists, [], *lists]
    table = Table(3, {"kind": Coded.of(["kernel", "memset", ""]), "seqId": Ragged.of(lists)})
    assert json.dumps(Table.concat([table, table.take([2, 0])]).coded("kind").texts()) == json.dumps(
        ["kernel", "memset", "", "", "kernel"]
    )
