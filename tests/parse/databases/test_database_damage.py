"""Databases with values that no profiler writes: one line, or all rows with the times that can be."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pyprof.errors import InputError
from pyprof.parse.detect import reader
from pyprof.parse.stats.recording import recording
from pyprof.parse.stats.reports import REPORTS, wanted
from pyprof.parse.tables.correlate import correlate
from pyprof.table.columns import Table
from tests.parse.formats import test_rocpd
from tests.parse.nsys.nsys_file import API, COLUMNS, KERNEL, NVTX, call, kernel, process, push, startend, thread, write
from tests.parse.stats.stats_rows import nvprof_file

ODD = (None, "abc", b"\x00\xff", "7", 2.5, -3, 0, (1 << 63) - 1, -(1 << 63))
TABLES: dict[str, list[tuple[Any, ...]]] = {
    "StringIds": [(1, "gemm"), (101, "void gemm<float>(int)"), (50, "cudaLaunchKernel_v7000"), (60, "aten::mm")],
    KERNEL: [kernel(100, 5, node=2), kernel(200, 6)],
    "CUPTI_ACTIVITY_KIND_MEMCPY": [(300, 310, 0, 7, 8, process(7), 64, 1)],
    API: [call(20, 5), call(40, 6), call(60, 8)],
    NVTX: [
        push(10, 90, "aten::mm, seq = 3, op_id = 4, sizes = [[2, 3], [3, 4]]"),
        push(15, 30, 60, domain=3),
        startend(5, 95, "step"),
    ],
    "CUDA_GRAPH_NODE_EVENTS": [(12, 13, thread(7, 1), 2, None)],
    "TARGET_INFO_GPU": [(0, 0, "NVIDIA H200", 9)],
    "TARGET_INFO_CUDA_DEVICE": [(7, 0, 0)],
    "MPI_RANKS": [(process(7), 3)],
    "DIAGNOSTIC_EVENT": [(0, 2, "lost")],
}
WHOLE: dict[str, Callable[[Path], Path]] = {
    "nsys": lambda path: write(path, **TABLES),
    "nvprof": nvprof_file,
    "rocpd": lambda path: test_rocpd.write(path, test_rocpd.V3, test_rocpd.rocprof()),
    "rpd": lambda path: test_rocpd.write(path, test_rocpd.RPD, test_rocpd.rpd()),
}
GPU_NS = 30  # two kernels and a copy of 10 ns


def parsed(path: Path) -> tuple[Table, list[str]]:
    capture = reader(path)(path)
    return correlate(capture), capture.warnings


def columns(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [(table, row[1]) for table in tables for row in db.execute(f'PRAGMA table_info("{table}")')]


def damaged(whole: Path, *queries: str, values: tuple[Any, ...] = ()) -> Path:
    path = whole.with_name("damaged.sqlite")
    shutil.copy(whole, path)
    with closing(sqlite3.connect(path)) as db:
        for query in queries:
            db.execute(query, values)
        db.commit()
    return path


def survives(path: Path, rows: int, what: object) -> None:
    """One line; or every row, and times that add up to no more than the file's."""
    try:
        table, _ = parsed(path)
    except InputError as error:
        if "\n" in str(error) or not str(error).startswith(str(path)):
            pytest.fail(f"{what}: {error}")
        return
    assert table.rows <= rows, what
    assert table.ints("kDuration").min(initial=0) >= 0, what
    assert int(table.ints("kDuration").sum()) < 1 << 51, what
    with suppress(InputError), recording(path) as found:
        for report in REPORTS:
            wanted(report.name).rows(found)


@pytest.fixture(name="nsys")
def fixture_nsys(tmp_path: Path) -> Path:
    return write(tmp_path / "net.sqlite", **TABLES)


def test_the_whole_file(nsys):
    table, warnings = parsed(nsys)
    assert (table.rows, int(table.ints("kDuration").sum()), warnings) == (3, GPU_NS, ["nsys: lost"])
    assert {column for table in TABLES for column in COLUMNS[table].split(", ")}  # every column below is one of these


@pytest.mark.parametrize("name", WHOLE)
def test_any_value_in_any_column_is_one_line_or_all_rows(name, tmp_path):
    whole = WHOLE[name](tmp_path / "net.db")
    rows = parsed(whole)[0].rows
    for table, column in columns(whole):
        for value in ODD:
            survives(
                damaged(whole, f'UPDATE "{table}" SET "{column}" = ?', values=(value,)), rows, (table, column, value)
            )
        survives(damaged(whole, f'ALTER TABLE "{table}" DROP COLUMN "{column}"'), rows, (table, column, "dropped"))


@pytest.mark.parametrize("name", WHOLE)
def test_a_table_less_or_empty_is_one_line_or_the_other_rows(name, tmp_path):
    whole = WHOLE[name](tmp_path / "net.db")
    rows = parsed(whole)[0].rows
    for table in {table for table, _ in columns(whole)}:
        survives(damaged(whole, f'DROP TABLE "{table}"'), rows, table)
        survives(damaged(whole, f'DELETE FROM "{table}"'), rows, table)


def test_views_are_tables(nsys):
    for name in TABLES:
        seen = damaged(nsys, f'ALTER TABLE "{name}" RENAME TO "x"', f'CREATE VIEW "{name}" AS SELECT * FROM "x"')
        assert int(parsed(seen)[0].ints("kDuration").sum()) == GPU_NS, name


@pytest.mark.parametrize(
    ("change", "left"),
    [
        ('"end" = NULL', 20),  # of 30 ns, without the kernel's 10
        ("start = NULL", 20),
        ('"end" = start - 1', 20),
        ('"end" = 9223372036854775807', 20),
        ("start = -9223372036854775808", 20),
        ('"end" = start', 20),
    ],
)
def test_a_kernel_whose_times_cannot_be_stays_and_counts_nothing(nsys, change, left):
    table, warnings = parsed(damaged(nsys, f"UPDATE {KERNEL} SET {change} WHERE correlationId = 5"))
    assert (table.rows, int(table.ints("kDuration").sum())) == (3, left)
    warning = "1 GPU operations have impossible times (none, or an end before the start): they count as 0 ns"
    assert (warning in warnings) == (change != '"end" = start')
    assert table.ints("corr").tolist().count(5) == 1
    assert set(table.ints("start").tolist()) <= {100, 200, 300, 110, 99}


def test_names_that_are_lost_are_empty(nsys):
    table, _ = parsed(damaged(nsys, "UPDATE StringIds SET value = NULL"))
    assert table.coded("kShortName").texts() == ["", "", "[CUDA memcpy Host-to-Device]"]


def test_an_nvprof_kernel_without_times_does_not_move_the_others(tmp_path):
    # CUPTI writes 0 for both times where it could not collect them: 1970, in a file whose times are since then
    whole = nvprof_file(tmp_path / "net.sql")
    lost = damaged(
        whole,
        "INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL SELECT 0, 0, 2, deviceId, name"
        " FROM CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    )
    table, warnings = parsed(lost)
    assert table.ints("kDuration").tolist() == [10, 0]
    assert table.ints("start").tolist() == [50, 50]  # since the first range at 1,000
    assert len(warnings) == 1


@pytest.mark.parametrize("query", ["DELETE FROM", "DROP TABLE"])
def test_an_nvprof_database_without_calls_has_its_kernels(query, tmp_path):
    table, _ = parsed(damaged(nvprof_file(tmp_path / "net.sql"), f"{query} CUPTI_ACTIVITY_KIND_RUNTIME"))
    assert (table.rows, table.coded("reason").texts()) == (1, ["no API row"])


def test_ranges_of_an_export_without_texts_of_their_own(nsys):
    table, _ = parsed(damaged(nsys, f"ALTER TABLE {NVTX} DROP COLUMN text", f"UPDATE {NVTX} SET domainId = 0"))
    assert table.coded("reason").texts()[0].startswith("only user ranges around the launch") or table.rows == 3


def test_shapes_that_are_none_are_unknown(tmp_path):
    tables = {**TABLES, NVTX: [push(10, 90, "aten::mm, seq = 3, op_id = 4, sizes = [[2, x]]")]}
    table, _ = parsed(write(tmp_path / "net.sqlite", **tables))
    assert table.coded("sizes").texts() == ["", "", ""]
    assert table.coded("op").texts()[0] == '["mm"]'
