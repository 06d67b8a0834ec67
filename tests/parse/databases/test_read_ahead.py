"""Large files are read ahead by threads: the same rows, the same errors, and no thread is left behind."""

import gzip
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pyprof.errors import InputError, PyprofError
from pyprof.parse.databases import database as module
from pyprof.parse.databases import joined_rows, unpacked_file
from pyprof.parse.databases.database import database
from pyprof.parse.databases.read_ahead import read_ahead
from pyprof.parse.detect import lean_reader, reader
from pyprof.parse.tables.correlate import correlate
from tests import tables
from tests.paths import GOLDEN

CAPTURES = ("h200_gpt2_step", "h200_lenet_init", "h200_gpt2_cudagraph_node", "h200x4_collectives")
HOSTILE = (
    "view_forever_KERNEL.sqlite.gz",
    "view_forever_StringIds.sqlite.gz",
    "cut99_runs_for_minutes.sqlite.gz",
    "schema_flip.sqlite.gz",
    "schema_bytes_5532.sqlite.gz",
    "hang_9192.sqlite.gz",
    "inj.sqlite.gz",
)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Read every file as a large one, in many small parts."""
    monkeypatch.setattr(module, "AHEAD_BYTES", 0)
    monkeypatch.setattr(joined_rows, "CHUNK", 50)
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def test_items_come_in_order_and_errors_where_they_happened() -> None:
    def items() -> Iterator[int]:
        yield from range(100)
        raise ValueError("damaged")

    found: list[int] = []
    with pytest.raises(ValueError, match="damaged"):
        found.extend(read_ahead(items, 3))
    assert found == list(range(100))


def test_it_runs_in_another_thread_and_only_so_far_ahead() -> None:
    made: list[int] = []
    threads: set[int] = set()

    def items() -> Iterator[int]:
        for number in range(50):
            threads.add(threading.get_ident())
            made.append(number)
            yield number

    with closing(read_ahead(items, 2)) as found:
        for number in found:
            assert len(made) <= number + 4  # two wait, one is handed over, one is being made
    assert len(made) == 50 and threading.get_ident() not in threads


def test_a_caller_that_leaves_early_ends_the_thread() -> None:
    closed: list[bool] = []

    def items() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    before = threading.active_count()
    found = read_ahead(items, 2)
    assert next(found) == 1
    found.close()
    assert threading.active_count() == before
    assert closed == [True]


@pytest.mark.parametrize("name", CAPTURES)
def test_real_captures_give_the_same_table_each_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = GOLDEN / f"{name}.sqlite.gz"
    alone = tables.rows(correlate(lean_reader(path)(path)))
    before = threading.active_count()
    monkeypatch.setattr(module, "AHEAD_BYTES", 0)
    for rows in (7, 50, 1_000):
        monkeypatch.setattr(joined_rows, "CHUNK", rows)
        assert tables.rows(correlate(lean_reader(path)(path))) == alone
    assert threading.active_count() == before


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_give_the_same_error(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "net.sqlite"
    with gzip.open(data / "round2" / "hostile" / name) as packed, file.open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    alone = outcome(file)
    before = threading.active_count()
    monkeypatch.setattr(module, "AHEAD_BYTES", 0)
    assert outcome(file) == alone
    assert threading.active_count() == before


@pytest.mark.parametrize("name", ["cut99_runs_for_minutes.sqlite.gz", "hang_9192.sqlite.gz"])
def test_rows_that_are_not_in_the_order_of_their_numbers_are_damage(name: str, data: Path) -> None:
    """SQLite finds them by halving, and would leave out those between two numbers without a word."""
    file = data / "round2" / "hostile" / name
    assert "CUPTI_ACTIVITY_KIND_RUNTIME are not in the order of their numbers" in outcome(file)


def outcome(file: Path) -> str:
    try:
        return f"{reader(file)(file).rows} rows"
    except PyprofError as error:
        return str(error)


def test_a_view_without_an_end_is_refused_from_a_thread(tmp_path: Path, ahead: None) -> None:
    file = tmp_path / "a"
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE u (a)")
        db.executemany("INSERT INTO u VALUES (?)", ((i,) for i in range(2_000)))
        db.execute("CREATE VIEW t AS SELECT x.a FROM u x, u y, u z, u v")
        db.commit()
    with pytest.raises(InputError, match=r"do not end|rows, which its"), database(file) as found:
        found.ints("t", "a")


def test_reading_stopped_half_way_leaves_the_connection_usable(tmp_path: Path, ahead: None) -> None:
    file = tmp_path / "a"
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE t (a)")
        db.executemany("INSERT INTO t VALUES (?)", ((i,) for i in range(5_000)))
        db.commit()
    with database(file) as found:
        for _ in range(50):
            parts = found.chunks(["a"], "t")
            assert next(iter(parts))[0][0].tolist() == list(range(50))
            parts.close()  # type: ignore[attr-defined]
            assert found.rows("SELECT count(*) FROM t") == [(5_000,)]
        assert found.ints("t", "a")[0].tolist() == list(range(5_000))


def test_what_is_read_beside_the_block_comes_back_with_its_notes(tmp_path: Path, ahead: None) -> None:
    file = tmp_path / "a"
    with closing(sqlite3.connect(file)) as db:
        db.execute("CREATE TABLE t (a)")
        db.execute("CREATE TABLE u (a)")
        db.executemany("INSERT INTO t VALUES (?)", [(1,), ("x",)])
        db.executemany("INSERT INTO u VALUES (?)", [(3,), (4,)])
        db.commit()
    with database(file) as found:
        with found.beside(lambda other: other.ints("t", "a")[0].tolist()) as result:
            assert found.ints("u", "a")[0].tolist() == [3, 4]
            assert result()[0] == 1
        assert found.wrong_types() == ["1 rows of t have values that are not whole numbers, which are unknown (a)"]
        with pytest.raises(InputError), found.beside(fails) as result:
            result()


def fails(_: module.Database) -> None:
    raise InputError("a", "expected a number, found a text")


def test_a_packed_file_is_read_where_an_unnamed_file_gets_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(handle: int, name: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(unpacked_file, "link_unnamed", refused)
    with database(GOLDEN / "h200_lenet.sqlite.gz") as found:
        (count,) = found.connection.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
    assert count == 52  # of LeNet's 57 operations, the kernels
