"""Files that are refused, damaged or odd, and the warnings of a capture."""

import gzip
import sqlite3
from contextlib import closing

import pytest

from pyprof.errors import InputError, SchemaError
from pyprof.parse.attribute.contexts import Contexts
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.nsys.reader import read
from pyprof.parse.tables.correlate import correlate
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, call, kernel, push, write


def test_profiler_warnings_are_passed_on(tmp_path):
    events = [(1, 2, "CUDA device 0: Unified Memory trace is off"), (2, 1, "just information")]
    capture = read(write(tmp_path / "a.sqlite", DIAGNOSTIC_EVENT=events, **{API: [call(5, 1)]}))
    assert capture.warnings[-1] == "nsys: CUDA device 0: Unified Memory trace is off"
    assert "no GPU activity" in capture.warnings[0]


def test_schema_error_names_the_column(tmp_path):
    path = write(tmp_path / "a.sqlite", drop={KERNEL: "correlationId"}, **{KERNEL: [kernel(1, 1)], API: [call(0, 1)]})
    with pytest.raises(SchemaError, match=rf"{path}: table {KERNEL} has no column correlationId"):
        read(path)


@pytest.mark.parametrize(("place", "value"), [(0, "soon"), (5, b"x"), (4, "1e400"), (4, float("inf"))])
def test_a_value_that_is_no_number_is_unknown_and_its_kernel_stays(tmp_path, place, value):
    row = [*kernel(1, 1)]
    row[place] = value
    got = read(write(tmp_path / "a.sqlite", **{KERNEL: [tuple(row), kernel(100, 2)], API: [call(0, 1)]}))
    took = 10 if place else 0  # without a start, a kernel counts 0 ns
    assert sorted(got.columns["kDuration"].tolist()) == [took, 10]
    what = f"1 GPU operations, which take {took} ns, have values that are not whole numbers, which are unknown"
    assert sum(text.startswith(what) for text in got.warnings) == 1


@pytest.mark.parametrize(("place", "column"), [(0, "start"), (1, "end"), (5, "globalTid")])
def test_a_range_whose_time_is_no_number_is_no_range_and_the_others_stay(tmp_path, place, column):
    row = [*push(1, 5, "aten::mm, op_id = 1")]
    row[place] = "soon"
    ranges = [tuple(row), push(7, 12, "aten::relu, op_id = 2")]
    kernels, calls = [kernel(2, 1), kernel(9, 2)], [call(2, 1), call(8, 2)]
    got = read(write(tmp_path / "a.sqlite", **{KERNEL: kernels, API: calls, NVTX: ranges}))
    assert correlate(got).coded("op").texts() == ["", '["relu"]']
    found = f"1 rows of NVTX_EVENTS have values that are not whole numbers, which are unknown ({column})"
    assert [text for text in got.warnings if text.startswith(found)] == [
        f"{found}; 1 ranges without a time or a thread are left out"
    ]


def test_another_database_is_refused(tmp_path):
    path = tmp_path / "a.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE customers (name)")
    with pytest.raises(InputError, match="expected an nsys SQLite export, found a database with customers"):
        read(path)


def test_an_export_without_events_says_what_to_record(tmp_path):
    path = write(tmp_path / "a.sqlite", DIAGNOSTIC_EVENT=[(1, 2, "no permission")])
    with pytest.raises(InputError, match="found an nsys export with none \\(profile with -t cuda,nvtx\\)"):
        read(path)


@pytest.mark.parametrize("size", [20, 5000])
def test_a_cut_database_is_refused(tmp_path, size):
    path = write(tmp_path / "a.sqlite", **{KERNEL: [kernel(i, i) for i in range(500)], API: [call(0, 1)]})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match="expected a whole SQLite database, found an error"):
        read(path)


def test_a_cut_gzip_file_is_refused(tmp_path):
    path = write(tmp_path / "a.sqlite", **{KERNEL: [kernel(1, 1)], API: [call(0, 1)]})
    packed = tmp_path / "a.sqlite.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert correlate(read(packed)).rows == 1
    packed.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(InputError, match="expected a whole gzip file"):
        read(packed)


def test_ranges_that_are_never_closed_cost_no_more_than_others(tmp_path):
    # pushed without a pop, as after an exception: each is around all that follows, 1,000 deep at the end
    count = 1000
    tables = {
        KERNEL: [kernel(100 + 20 * i, i + 1) for i in range(count)],
        API: [call(50 + 20 * i, i + 1) for i in range(count)],
        NVTX: [
            *(push(40 + 20 * i, None, f"iteration {i}") for i in range(count)),
            push(30, None, "aten::mm, seq = 3, op_id = 4"),
        ],
    }
    tree = RangeTree(capture := read(write(tmp_path / "net.sqlite", **tables)))
    assert int(tree.parent.max()) >= count - 1
    found = correlate(capture)
    contexts = Contexts(tree, tree.innermost_of_rows(capture)[0])
    assert max(map(len, contexts.paths)) == 2  # and not 1,001: the op, and the innermost iteration
    assert set(found.coded("op").texts()) == {'["mm"]'}
    assert set(found.ragged("seqId").lists()[-1]) == {3}
