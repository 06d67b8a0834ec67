"""Columns in memory."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.table.columns import NULL, Coded, Table, compact, distinct, folded, kept_with_table

NUMBERS = st.sampled_from([NULL, NULL + 1, -1, 0, 1, 2, 3, 1 << 40, (1 << 62) - 1])


def test_distinct_rows_ascend() -> None:
    found, number = distinct(np.array([2, NULL, 2, 2]), np.array([5, 7, 4, 5]))
    assert found == [(NULL, 7), (2, 4), (2, 5)]
    assert number.tolist() == [2, 0, 1, 2]
    assert distinct(np.zeros(0, np.int64), np.zeros(0, np.int64)) == ([], pytest.approx([]))


@given(st.lists(st.tuples(NUMBERS, NUMBERS, st.integers(0, 3000)), min_size=1, max_size=20))
def test_distinct_is_what_a_set_gives(rows: list[tuple[int, int, int]]) -> None:
    found, number = distinct(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))
    assert found == sorted(set(rows))
    assert [found[i] for i in number.tolist()] == rows


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 9)), min_size=1, max_size=20))
def test_few_keys_are_counted_the_same(rows: list[tuple[int, int]]) -> None:
    found, number = distinct(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))
    assert found == sorted(set(rows))
    assert [found[i] for i in number.tolist()] == rows


@given(st.lists(st.integers(-1, 1), min_size=1, max_size=6))
def test_a_column_of_one_value_takes_no_memory_and_stays_the_same(values: list[int]) -> None:
    found = folded(np.array(values, np.int64))
    assert found.tolist() == values and found.dtype == np.int64
    assert (found.strides == (0,)) == (len(set(values)) == 1)


def test_a_text_column_without_texts_takes_no_memory() -> None:
    found = compact({"op": Coded.empty(3), "layer": Coded.of(["a", "", "a"])})
    assert [column.texts() for column in found.values() if isinstance(column, Coded)] == [["", "", ""], ["a", "", "a"]]
    assert Coded.empty(4).take([0, 2]).texts() == ["", ""]
    assert Coded.empty(4).take(np.array([True, False, True, True])).texts() == ["", "", ""]


def test_texts_that_stand_twice_in_one_column_are_one_after_concat() -> None:
    found = Coded.concat([Coded(np.array([0, 1, 2, -1], np.int32), ["a", "a", ""])])
    assert (found.values, found.codes.tolist()) == (["a"], [0, 0, -1, -1])


@pytest.mark.parametrize("texts", [["a", "a"], ["", ""], ["a", "b"], ["", "b"]])
def test_few_texts_are_spread_over_many_rows(texts):
    rows = np.array([1, 0, 0, 1, 1])
    found = Coded.of(texts).spread(rows)
    assert found.texts() == [texts[row] for row in rows.tolist()]
    assert (found.codes.strides == (0,)) == (texts[0] == texts[1])
    assert len(Coded.of([]).spread(rows[:0])) == 0


def test_a_result_is_kept_with_its_table_and_made_again_for_other_arguments() -> None:
    asked: list[tuple[int, object]] = []

    @kept_with_table
    def rows_and(table: Table, other: object = None) -> int:
        asked.append((len(table), other))
        return len(asked)

    one, two, first, second = Table(3, {}), Table(5, {}), object(), object()
    assert [rows_and(one), rows_and(one), rows_and(two), rows_and(one)] == [1, 1, 2, 1]
    assert [rows_and(one, first), rows_and(one, first), rows_and(one, second), rows_and(one)] == [3, 3, 4, 5]
    assert asked == [(3, None), (5, None), (3, first), (3, second), (3, None)]
