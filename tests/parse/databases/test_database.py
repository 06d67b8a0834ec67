"""Columns of a database as arrays, whatever the table is and whatever it holds."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pyprof.errors import SchemaError
from pyprof.parse.databases import joined_rows
from pyprof.parse.databases.database import Source, database
from pyprof.table.columns import NULL

BIG, SMALL = (1 << 63) - 1, -(1 << 63) + 1


def made(path: Path, *queries: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        for query in queries:
            db.execute(query)
        db.commit()
    return path


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(joined_rows, "CHUNK", 3)
    return


def ints(path: Path, *columns: str, where: str = "1") -> list[list[int]]:
    with database(path) as db:
        return [column.tolist() for column in db.ints("t", *columns, where=where)]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 6, 7])
def test_all_rows_come_in_order_whatever_their_number(count: int, tmp_path: Path) -> None:
    rows = [f"INSERT INTO t VALUES ({i * i}, {-i})" for i in range(count)]
    path = made(tmp_path / "a", "CREATE TABLE t (a INTEGER, b INTEGER)", *rows)
    assert ints(path, "a", "b") == [[i * i for i in range(count)], [-i for i in range(count)]]


def test_row_numbers_may_have_gaps_and_be_negative(tmp_path: Path) -> None:
    path = made(
        tmp_path / "a",
        "CREATE TABLE t (a INTEGER)",
        "INSERT INTO t (rowid, a) VALUES (-9, 1), (-1, 2), (0, 3), (7, 4), (1000000000000, 5)",
    )
    assert ints(path, "a") == [[1, 2, 3, 4, 5]]
    assert ints(path, "a", where="a % 2 = 1 OR a = 2") == [[1, 2, 3, 5]]


def test_dense_row_numbers_may_be_followed_by_a_gap(tmp_path: Path) -> None:
    """Dense numbers are read by their number; the gap ends that, and the last number of all is read, too."""
    numbers = [*range(1, 10), 10**15, *range(10**15 + 5, 10**15 + 12), BIG - 1, BIG]
    rows = ", ".join(f"({number}, {number % 1000})" for number in numbers)
    path = made(tmp_path / "a", "CREATE TABLE t (a INTEGER)", f"INSERT INTO t (rowid, a) VALUES {rows}")
    assert ints(path, "a") == [[number % 1000 for number in numbers]]
    assert ints(path, "a", where="a > 6") == [[number % 1000 for number in numbers if number % 1000 > 6]]


def test_what_is_missing_is_null_and_extremes_are_exact(tmp_path: Path) -> None:
    path = made(tmp_path / "a", "CREATE TABLE t (a, b)", f"INSERT INTO t VALUES (NULL, 1), ({BIG}, 2), ({SMALL}, NULL)")
    assert ints(path, "a", "c", "b") == [[NULL, BIG, SMALL], [NULL, NULL, NULL], [1, 2, NULL]]


@pytest.mark.parametrize(
    "queries",
    [
        ("CREATE TABLE u (a)", "INSERT INTO u VALUES (5), (3), (3), (4)", "CREATE VIEW t AS SELECT a FROM u"),
        ("CREATE TABLE t (k PRIMARY KEY, a) WITHOUT ROWID", "INSERT INTO t VALUES (1, 5), (2, 3), (3, 3), (4, 4)"),
        ("CREATE TABLE t (rowid, a)", "INSERT INTO t VALUES (1, 5), (1, 3), (1, 3), (0, 4)"),
        ("CREATE TABLE t (ROWID, _RowId_, a)", "INSERT INTO t VALUES (1, 1, 5), (1, 1, 3), (1, 1, 3), (0, 1, 4)"),
        ("CREATE TABLE t (rowid, _rowid_, oid, a)", *(f"INSERT INTO t VALUES (1, 1, 1, {i})" for i in (5, 3, 3, 4))),
        ("CREATE TABLE t (a)", "INSERT INTO t VALUES (5), (3), (3), (4)", "CREATE INDEX i ON t (a)"),
    ],
)
def test_any_kind_of_table(queries: tuple[str, ...], tmp_path: Path) -> None:
    """Four rows, more than one chunk."""
    assert ints(made(tmp_path / "a", *queries), "a", where="a >= 3") == [[5, 3, 3, 4]]


@pytest.mark.parametrize("value", ["'abc'", "x'00ff'", "'1,2'", "''", "1e300", "9e999", "'1 2'"])
def test_another_value_is_unknown_and_said(value: str, tmp_path: Path) -> None:
    path = made(tmp_path / "a", "CREATE TABLE t (a, b)", f"INSERT INTO t VALUES (1, 4), (2, 5), ({value}, 6)")
    with database(path) as db:
        assert [column.tolist() for column in db.ints("t", "a", "b")] == [[1, 2, NULL], [4, 5, 6]]
        found = "1 rows of t have values that are not whole numbers, which are unknown (a)"
        assert (db.wrong_types(), db.wrong_types(but=["t"])) == ([found], [])


def test_whole_numbers_with_a_point_are_numbers(tmp_path: Path) -> None:
    """pandas writes a column with missing values so."""
    path = made(tmp_path / "a", "CREATE TABLE t (a)", "INSERT INTO t VALUES (1), (2.0), (3.5)")
    assert ints(path, "a") == [[1, 2, NULL]]


def test_texts_are_joined_byte_by_byte(tmp_path: Path) -> None:
    texts = ["a", "", "é\0b", "x" * 70_000, "\ud800"]
    path = tmp_path / "a"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (a)")
        for text in texts:
            db.execute("INSERT INTO t VALUES (CAST(? AS TEXT))", (text.encode("utf-8", "surrogatepass"),))
        db.commit()
    with database(path) as db:
        found = list(db.chunks(["length(CAST(a AS BLOB))"], "t", text="a"))
    assert [part.tolist() for (part,), _ in found] == [[1, 0, 4], [70_000, 3]]
    assert [text for _, text in found] == ["aé\0b".encode(), b"x" * 70_000 + b"\xed\xa0\x80"]


SOURCE = Source(
    "t", (("number", "a"), ("kind", "b"), ("name", "c")), required=("number",), order=("number",), only=("kind", (1, 2))
)


def test_a_source_is_read_by_our_names_and_only_the_rows_that_count(tmp_path: Path) -> None:
    path = made(tmp_path / "x", "CREATE TABLE t (a, b)", "INSERT INTO t VALUES (30, 2), (10, 1), (20, 3), (40, NULL)")
    with database(path) as db:
        data = {name: column.tolist() for name, column in db.read(SOURCE).items()}
        assert data == {"number": [30, 10], "kind": [2, 1], "name": [NULL, NULL]}
        assert list(db.read(SOURCE, "kind")) == ["kind"]
    path = made(tmp_path / "y", "CREATE TABLE t (a)", "INSERT INTO t VALUES (30), (10)")
    with database(path) as db:  # no column says which rows count
        assert db.read(SOURCE, "number")["number"].tolist() == [30, 10]


def test_records_are_sorted_and_of_any_type(tmp_path: Path) -> None:
    path = made(tmp_path / "x", "CREATE TABLE t (a, b)", "INSERT INTO t VALUES (30, 'x'), (10, NULL), (20, x'00')")
    with database(path) as db:
        assert db.records(SOURCE) == [(10, None, None), (20, b"\0", None), (30, "x", None)]
        assert db.records(replace(SOURCE, order=()), "kind", "number") == [("x", 30), (None, 10), (b"\0", 20)]


def test_a_missing_table_has_no_rows_and_a_missing_required_column_is_an_error(tmp_path: Path) -> None:
    with database(made(tmp_path / "x", "CREATE TABLE u (a)")) as db:
        assert {name: len(column) for name, column in db.read(SOURCE).items()} == {"number": 0, "kind": 0, "name": 0}
        assert db.records(SOURCE) == []
    with database(made(tmp_path / "y", "CREATE TABLE t (b)", "INSERT INTO t VALUES (1)")) as db:
        assert db.records(SOURCE) == []
        with pytest.raises(SchemaError, match=r"table t has no column a \(export it again with a newer profiler\)"):
            db.read(SOURCE)
