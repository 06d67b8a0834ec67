"""Databases that would never end, or fill the memory: one line within seconds. Real ones read as before."""

import gzip
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pyprof.errors import InputError
from pyprof.parse.databases import guarded_connection
from pyprof.parse.databases.database import database
from pyprof.parse.databases.guarded_connection import BYTES_PER_ROW, Guard
from pyprof.parse.detect import reader
from tests.parse.nsys.nsys_file import API, KERNEL, call, kernel, push, write
from tests.paths import GOLDEN

SECONDS = 15  # far more than is needed, and less than the 20 s that a user may be expected to wait


def made(path: Path, *queries: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        for query in queries:
            db.execute(query)
        db.commit()
    return path


def refused(path: Path, found: str) -> None:
    begun = time.process_time()
    with pytest.raises(InputError) as error:
        reader(path)(path)
    assert time.process_time() - begun < SECONDS
    message = str(error.value)
    assert message.startswith(f"{path}: expected a whole SQLite database, found {found}"), message
    assert "\n" not in message


def capture(path: Path, rows: int = 3) -> Path:
    return write(path, **{KERNEL: [kernel(i, i) for i in range(rows)], API: [call(0, 1)]})


def as_view(path: Path, select: str) -> Path:
    """A capture in which the view ``select`` stands in place of the kernels; the table is named ``x``."""
    return made(capture(path), f"ALTER TABLE {KERNEL} RENAME TO x", f"CREATE VIEW {KERNEL} AS {select}")


@pytest.mark.parametrize("keep", [True, False])
def test_a_table_whose_name_is_no_text_is_none(tmp_path, keep):
    """Found by the fuzzer: its name could not be sorted among the others, for the error of a file without events."""
    whole = capture(tmp_path / "a") if keep else made(tmp_path / "a", "CREATE TABLE x (i)")
    rename = "UPDATE sqlite_master SET name = CAST(name AS BLOB) WHERE name = 'StringIds'"
    path = made(whole, "CREATE TABLE IF NOT EXISTS StringIds (id, value)", "PRAGMA writable_schema = ON", rename)
    with database(path) as db:
        assert "StringIds" not in db.columns and all(isinstance(name, str) for name in db.columns)
    with pytest.raises(InputError) as error:
        reader(path)(path)
    assert "\n" not in str(error.value)


def test_a_view_that_repeats_itself_is_refused(tmp_path):
    select = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    columns = 'i AS start, i AS "end", i AS correlationId, i AS globalPid'
    refused(as_view(tmp_path / "a", f"{select} SELECT {columns} FROM n"), "a view that repeats itself")


def test_a_view_of_a_product_of_tables_ends(tmp_path):
    product = "SELECT a.* FROM " + ", ".join(
        f"x {letter}" for letter in "abcdefghijklmnop"
    )  # 3 ** 16 = 43 million rows
    refused(as_view(tmp_path / "a", product), "")


def test_a_view_that_makes_rows_that_are_not_in_the_file_is_refused(tmp_path):
    path = as_view(tmp_path / "a", "SELECT a.* FROM x a, x b, x c, x d, x e, x f, x g, x h, x i")  # 3 ** 9 = 19,683
    most = path.stat().st_size // BYTES_PER_ROW
    assert most < 19_683
    refused(path, f"a table of more than {most:,} rows, which its {path.stat().st_size:,} bytes cannot hold")


def test_a_product_that_counts_to_nothing_ends(tmp_path):
    product = "SELECT a.* FROM " + ", ".join(f"x {letter}" for letter in "abcdefghijklmnopqrst")
    refused(as_view(tmp_path / "a", f"{product} WHERE a.start + t.start < 0"), "tables or views that do not end")


def test_views_that_double_each_other_are_refused_before_sqlite_expands_them(tmp_path):
    views = [f"CREATE VIEW v{i} AS SELECT * FROM v{i - 1} UNION ALL SELECT * FROM v{i - 1}" for i in range(1, 40)]
    path = made(capture(tmp_path / "a"), f"CREATE VIEW v0 AS SELECT * FROM {KERNEL}", *views)
    refused(path, "views within views that do not end")


@pytest.mark.parametrize("function", ["zeroblob(100000000)", "hex(zeroblob(9))", "printf('%900000000d', 1)"])
def test_a_view_that_makes_large_values_is_refused(tmp_path, function):
    columns = f'{function} AS start, x."end" AS "end", x.correlationId AS correlationId'
    refused(as_view(tmp_path / "a", f"SELECT {columns} FROM x"), "a view that calls ")


def test_views_that_profilers_make_are_read(tmp_path):
    path = as_view(tmp_path / "a", "SELECT * FROM x UNION ALL SELECT * FROM x WHERE 0")
    assert reader(path)(path).rows == 3


def test_a_virtual_table_is_no_table(tmp_path):
    path = made(tmp_path / "a", "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    made(path, "CREATE VIRTUAL TABLE NVTX_EVENTS USING fts5(text)")
    with database(path) as db:
        assert db.has("StringIds")
        assert not db.has("NVTX_EVENTS")


def test_one_text_read_with_every_row_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(guarded_connection, "TEXT_BYTES", 1 << 20)
    monkeypatch.setattr(guarded_connection, "TEXT_BYTES_PER_BYTE", 2)
    rows = [push(i, i + 1, 1) for i in range(1000)]
    path = write(tmp_path / "a", StringIds=[(1, "x" * 100_000)], NVTX_EVENTS=rows, **{KERNEL: [kernel(1, 1)]})
    refused(path, f"far more text than its {path.stat().st_size:,} bytes hold")


@pytest.mark.skipif(not hasattr(sqlite3.Connection, "setlimit"), reason="Connection.setlimit is of Python 3.11")
def test_texts_longer_together_than_sqlite_s_limit_are_read_in_smaller_parts(tmp_path, monkeypatch):
    rows = [push(i, i + 1, f"{i:06} " + "x" * 1_000) for i in range(3_000)]
    path = write(tmp_path / "a", NVTX_EVENTS=rows, **{KERNEL: [kernel(1, 1)]})
    monkeypatch.setattr(guarded_connection, "LONGEST_TEXT", 100_000)
    got = reader(path)(path)
    assert len(got.ranges) == 3_000
    assert len(got.scopes) == 3_000


def test_pages_that_lead_back_to_themselves_are_refused(tmp_path):
    """Behind its first leaf, the table's root page leads to itself: SQLite would walk it for years."""
    path = capture(tmp_path / "a", rows=5_000)
    with closing(sqlite3.connect(path)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (KERNEL,)).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    data, root = bytearray(path.read_bytes()), (page - 1) * size
    assert data[root] == 5  # an inner page of a table
    for cell in range(1, int.from_bytes(data[root + 3 : root + 5], "big")):
        place = root + int.from_bytes(data[root + 12 + 2 * cell : root + 14 + 2 * cell], "big")
        data[place : place + 4] = page.to_bytes(4, "big")
    path.write_bytes(data)
    refused(path, "")


def test_names_that_are_not_utf8_are_one_line(tmp_path):
    path = capture(tmp_path / "a")
    data = path.read_bytes().replace(b"tableCUPTI", b"tableCUPT\xff")  # SQLite's message quotes the table's name
    path.write_bytes(data.replace(b"CREATE TABLE CUPTI", b"CREATF TABLE CUPTI"))
    refused(path, "names that are not UTF-8")


@pytest.mark.parametrize("name", ["h200_gpt2_step.sqlite.gz", "h200_lenet.sqlite.gz"])
def test_a_real_capture_takes_a_small_part_of_what_it_may(name, tmp_path, monkeypatch):
    guards: list[Guard] = []
    connect: Callable[[Guard, Path], sqlite3.Connection] = Guard.connect

    def watched(guard: Guard, plain: Path) -> sqlite3.Connection:
        guards.append(guard)
        return connect(guard, plain)

    monkeypatch.setattr(Guard, "connect", watched)
    with gzip.open(GOLDEN / name) as packed, (tmp_path / "a.sqlite").open("wb") as plain:
        shutil.copyfileobj(packed, plain)
    assert reader(tmp_path / "a.sqlite")(tmp_path / "a.sqlite").rows
    size = (tmp_path / "a.sqlite").stat().st_size
    for guard in guards:
        used = guarded_connection.STEPS + guarded_connection.STEPS_PER_BYTE * size - guard._steps_left
        assert used < 2 * size  # of 64 for each byte, and 20 million
        assert not guard.broken
