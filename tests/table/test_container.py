"""The container net.pyprof: written whole or not at all, read by every command, and checked."""

import json
import os
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyprof.errors import InputError, PyprofError
from pyprof.parse.cli import main as parse
from pyprof.parse.detect import is_table, reader
from pyprof.prof.cli import main as prof
from pyprof.prof.load import load_memory, load_table
from pyprof.prof.report.cli import main as report
from pyprof.table.columns import NULL, Coded, MemoryTable, Table
from pyprof.table.container import Container, is_container, read_container, write_container
from pyprof.table.parquet import write_parquet
from tests.parse.kineto.kineto_file import begin, call, kernel, op
from tests.parse.kineto.kineto_file import write as write_trace
from tests.parse.kineto.test_memory import memory
from tests.tables import TEXT, encodable, rows


def small(**more):
    columns = {"time": [1, 2, 3], "bytes": [8, 16, -8], "peer": [2, NULL, 0], **more}
    return MemoryTable(3, {key: np.array(values, np.int64) for key, values in columns.items()})


KERNELS = Table(1, {"kShortName": Coded.of(["gemm"]), "kDuration": np.array([7], np.int64)})
WHOLE = Container(KERNELS, small(), "kineto", ("net.json",), ("a warning",))


@pytest.fixture(name="trace")
def fixture_trace(tmp_path):
    events = [op("aten::mm", 10, 20, External_id=1), call(12, 1), kernel(20, 5, 1), memory(11, 512, total=600)]
    return write_trace(tmp_path / "net.json", begin(0), *events)


def test_what_is_written_comes_back(tmp_path):
    write_container(WHOLE, tmp_path / "net.pyprof")
    found = read_container(tmp_path / "net.pyprof")
    assert (found.profiler, found.files, found.warnings) == ("kineto", ("net.json",), ("a warning",))
    assert rows(found.kernels) == rows(KERNELS)
    assert {key: found.memory.columns[key].tolist() for key in ("time", "bytes", "peer")} == {
        "time": [1, 2, 3], "bytes": [8, 16, -8], "peer": [2, NULL, 0],
    }  # fmt: skip
    assert sorted(os.listdir(tmp_path / "net.pyprof")) == ["kernels.parquet", "memory.parquet", "meta.json"]
    assert os.listdir(tmp_path) == ["net.pyprof"]  # nothing is left beside it


@settings(max_examples=20)
@given(text=TEXT.filter(encodable), number=st.integers(-(2**60), 2**60))
def test_any_text_and_number_comes_back(text, number, tmp_path):
    table = MemoryTable(1, {"time": np.array([number]), "bytes": np.array([1]), "aten": Coded.of([text])})
    write_container(Container(None, table, text, (text,)), tmp_path / "net.pyprof", force=True)
    found = read_container(tmp_path / "net.pyprof")
    assert (found.memory.coded("aten").texts(), found.memory.ints("time").tolist()) == ([text], [number])
    assert (found.profiler, found.files, found.kernels) == (text, (text,), None)


def test_a_name_that_is_not_utf8_is_kept_as_far_as_text_can(tmp_path):
    write_container(Container(KERNELS, None, None, ("net\udcff.json",)), tmp_path / "net.pyprof")
    assert read_container(tmp_path / "net.pyprof").files == ("net\ufffd.json",)


def test_every_command_reads_it(trace, tmp_path, capfdbinary):
    folder = str(tmp_path / "net.pyprof")
    assert parse([str(trace), "-o", folder, "-q"]) == 0
    assert is_container(tmp_path / "net.pyprof") and is_table(tmp_path / "net.pyprof")
    capfdbinary.readouterr()
    assert prof(["-q", "--csv", str(trace)]) == 0
    direct = capfdbinary.readouterr().out
    assert prof(["-q", "--csv", folder]) == 0
    assert capfdbinary.readouterr().out == direct
    loaded = load_table(folder)
    assert loaded.profiler == "kineto" and len(loaded.memory) == 1
    assert load_memory(tmp_path / "net.pyprof").memory.ints("allocated").tolist() == [600]
    assert report([folder, "-q", "-o", str(tmp_path / "page.html")]) == 0
    assert 'id="memory-section"' in (tmp_path / "page.html").read_text()


def test_a_net_dict_and_a_parquet_file_stay_the_kernel_table(trace, tmp_path):
    for name in ("net.dict", "net.parquet"):
        assert parse([str(trace), "-o", str(tmp_path / name), "-q"]) == 0
        assert load_table(tmp_path / name).memory is None
        with pytest.raises(InputError, match="expected allocations, found a kernel table, which has none"):
            load_memory(tmp_path / name)


def test_json_says_the_form(trace, tmp_path, capfdbinary):
    assert parse([str(trace), "-o", str(tmp_path / "net.pyprof"), "--json"]) == 0
    found = json.loads(capfdbinary.readouterr().out)["output"]
    assert found == {"name": str(tmp_path / "net.pyprof"), "form": "container", "rows": 1}


# Overwriting


def test_it_is_overwritten_only_with_force(trace, tmp_path, capfdbinary):
    folder = tmp_path / "net.pyprof"
    write_container(WHOLE, folder)
    assert parse([str(trace), "-o", str(folder)]) == 1
    assert b"exists; give --force" in capfdbinary.readouterr().err
    assert read_container(folder).warnings == ("a warning",)
    assert parse([str(trace), "-o", str(folder), "--force", "-q"]) == 0
    assert read_container(folder).files == (trace.name,)
    assert sorted(os.listdir(tmp_path)) == ["net.json", "net.pyprof"]


@pytest.mark.parametrize("there", ["folder", "file"])
def test_nothing_but_a_container_is_ever_removed(there, tmp_path):
    target = tmp_path / "net.pyprof"
    if there == "folder":
        target.mkdir()
        (target / "thesis.tex").write_text("years of work")
    else:
        target.write_text("years of work")
    with pytest.raises(PyprofError, match="is no container of pyprof's: it is left alone"):
        write_container(WHOLE, target, force=True)
    assert (target / "thesis.tex" if there == "folder" else target).read_text() == "years of work"


def test_a_failure_leaves_nothing_and_keeps_what_was(tmp_path, monkeypatch):
    target = tmp_path / "net.pyprof"
    write_container(WHOLE, target)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyprof.table.parquet.write_columns", full)
    with pytest.raises(PyprofError, match="cannot be written: No space left on device"):
        write_container(Container(KERNELS, None), target, force=True)
    assert read_container(target).warnings == ("a warning",) and os.listdir(tmp_path) == ["net.pyprof"]


def test_a_missing_folder_is_said_before_the_work(trace, tmp_path, capfdbinary):
    assert parse([str(trace), "-o", str(tmp_path / "no" / "net.pyprof")]) == 1
    assert b"there is no folder" in capfdbinary.readouterr().err


# Damage


def damaged(tmp_path, **changes):
    folder = tmp_path / "net.pyprof"
    if folder.exists():
        shutil.rmtree(folder)
    write_container(WHOLE, folder)
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, **changes}))
    return folder


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": 2}, "expected 'pyprof/container' version 1, found 'pyprof/container' version 2"),
        ({"format": "other"}, "found 'other' version 1"),
        ({"format": 5}, "expected a container's description"),
        ({"tables": {"kernels.parquet": -1}}, "expected a container's description"),
    ],
)
def test_another_meta_is_refused(changes, words, tmp_path):
    with pytest.raises(InputError) as error:
        read_container(damaged(tmp_path, **changes))
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_table_that_is_not_there(tmp_path):
    folder = damaged(tmp_path)
    (folder / "memory.parquet").unlink()
    with pytest.raises(InputError, match=r"expected the table memory\.parquet, which meta\.json names, found none"):
        read_container(folder)


def test_a_name_with_a_path_is_not_followed(tmp_path):
    write_parquet(KERNELS, tmp_path / "secret.parquet")
    found = read_container(damaged(tmp_path, tables={"../secret.parquet": 1}))
    assert (found.kernels, found.memory) == (None, None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": ' + "[" * 100_000])
def test_a_meta_that_is_no_json(text, tmp_path):
    folder = damaged(tmp_path)
    (folder / "meta.json").write_text(text)
    with pytest.raises(InputError, match="expected a container's description, found another text"):
        read_container(folder)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"peer": [9, NULL, 0]}, "column peer: expected pairs of rows, found 9 in row 0"),
        ({"peer": [-5, NULL, NULL]}, "column peer: expected pairs of rows, found -5"),
        ({"peer": [1, 2, 0]}, "column peer: expected pairs of rows, found 1 in row 0"),
        ({"peer": [0, NULL, NULL]}, "column peer: expected pairs of rows, found 0 in row 0"),
        ({"time": [1, NULL, 3]}, "column time: expected a time in ns, found none in row 1"),
        ({"time": [1, 2, 2**62]}, "column time: expected a time in ns"),
        ({"bytes": [1, NULL, 3]}, "column bytes: expected a number of bytes, found none"),
        ({"bytes": [2**60, 2**60, 2**60]}, "column bytes: expected a sum below 2**61"),
        ({"allocated": [2**62, 1, 1]}, "column allocated: expected a number of bytes"),
    ],
)
def test_rows_that_do_not_fit_together(columns, words, tmp_path):
    write_container(Container(None, small(**columns)), tmp_path / "net.pyprof")
    with pytest.raises(InputError) as error:
        read_container(tmp_path / "net.pyprof")
    assert words in str(error.value)


def test_a_kernel_table_in_place_of_the_memory_table(tmp_path):
    folder = damaged(tmp_path)
    write_parquet(KERNELS, folder / "memory.parquet", force=True)
    with pytest.raises(InputError, match="expected the memory table, found no column 'time'"):
        read_container(folder)


def test_other_readers_say_what_it_is(tmp_path):
    write_container(WHOLE, tmp_path / "net.pyprof")
    with pytest.raises(InputError, match=r"found a container of pyprof's, parsed already: give it to prof\.py"):
        reader(tmp_path / "net.pyprof")


def test_the_parquet_files_are_parquet(tmp_path):
    write_container(WHOLE, tmp_path / "net.pyprof")
    table = pq.read_table(tmp_path / "net.pyprof" / "memory.parquet")
    assert table.column("bytes").to_pylist() == [8, 16, -8] and table.column("peer").to_pylist() == [2, None, 0]
    assert table.schema.field("bytes").metadata[b"unit"] == b"bytes"


def test_several_files_keep_their_blocks_and_processes_apart(trace, tmp_path):
    folder = tmp_path / "two.pyprof"
    assert parse([str(trace), str(trace), "-o", str(folder), "-q"]) == 0
    memory_table = read_container(folder).memory
    assert memory_table.ints("rank").tolist() == [0, 1]
    assert memory_table.ints("pid").tolist() == [7, 1_000_000_007]
