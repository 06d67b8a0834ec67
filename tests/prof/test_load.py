"""One way in for every command that judges: a kernel table, or a profiler's file by its content."""

import ast
import gzip
import io
import json
import os
import shutil
import threading
from types import SimpleNamespace

import pytest

from pyprof.errors import InputError, SchemaError
from pyprof.prof.kept_files import keep_files
from pyprof.prof.load import load_table
from tests.paths import GOLDEN

ROW = b"{'kShortName': 'gemm', 'kDuration': 7}\n"


@pytest.mark.parametrize(
    ("file", "rows", "profiler"), [("h200_lenet.sqlite.gz", 57, "nsys"), ("h200_lenet_fp32.json.gz", 57, "kineto")]
)
def test_a_profilers_file_under_any_name(file, rows, profiler, tmp_path):
    shutil.copy(GOLDEN / file, tmp_path / "net.dict")
    found = load_table(tmp_path / "net.dict", ranges=True)
    assert len(found.table) == rows and (found.table.coded("op").codes >= 0).any()
    assert found.profiler.startswith(profiler) and found.capture.rows == rows and found.warnings == ()
    assert found.name == f"{tmp_path}/net.dict"


@pytest.mark.parametrize("name", ["net.dict", "net.sqlite", "net.json"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_kernel_table_under_any_name(name, pack, tmp_path):
    (tmp_path / name).write_bytes(pack(ROW))
    found = load_table(tmp_path / name)
    assert found.table.ints("kDuration").tolist() == [7]
    assert (found.profiler, found.capture, found.warnings) == (None, None, ())


def test_a_dictionary_that_begins_with_another_column_is_a_kernel_table(tmp_path):
    (tmp_path / "net").write_bytes(b'{"op": ["mm"], "kDuration": 7, "kShortName": "gemm"}\n')
    assert load_table(tmp_path / "net").table.coded("op").texts() == ['["mm"]']


@pytest.mark.parametrize("name", [None, "-"])
def test_standard_input_is_a_kernel_table(name, monkeypatch):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(ROW * 3))))
    found = load_table(name)
    assert (found.name, len(found.table)) == ("-", 3)


def test_a_named_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(ROW * 2))
    writer.start()
    assert len(load_table(tmp_path / "pipe").table) == 2
    writer.join()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "or a kernel table (net.dict, net.parquet), found an empty file"),
        (b"a,b\n1,2\n", "or a kernel table (net.dict, net.parquet), found text that starts 'a,b"),
        (b"<?xml version='1.0'?>", "found XML: an .nvvp project"),
        (b"NVR\0rest", "found an Nsight Compute report"),
        (b'{"traceEvents": []}', "found one without events"),
        (
            gzip.compress(ROW * 99, mtime=0)[:40],
            "expected whole gzip data, found its end is missing; copy the file again",
        ),
    ],
)
def test_what_is_neither_is_told_with_what_it_is(content, words, tmp_path):
    (tmp_path / "net.dict").write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_table(tmp_path / "net.dict")
    assert words in str(caught.value) and str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("sizes", "[[2, 'x']]", "column sizes: expected a list of shapes, found '[[2, \"x\"]]'"),
        ("sizes", "[2, 3]", "column sizes: expected a list of shapes"),
        ("sizes", "[[-1]]", "column sizes: expected a list of shapes"),
        ("sizes", "[[4611686018427387904]]", "column sizes: expected a list of shapes"),
        ("sizes", "{}", "column sizes: expected a list of shapes"),
        ("kDuration", "-7", "column kDuration: expected ns from 0 to 4611686018427387904, found -7"),
        ("kDuration", "9223372036854775807", "column kDuration: expected ns from 0 to 4611686018427387904, found 922"),
        ("start", "9223372036854775807", "column start: expected ns from -2305843009213693952 to 23058430092136"),
        ("markStart", "-9223372036854775807", "column markStart: expected ns from -2305843009213693952 to 230584300"),
        ("stepEnd", "9223372036854775807", "column stepEnd: expected ns from -2305843009213693952 to 23058430092136"),
        ("dtypes", "[1]", "column dtypes: expected a list of dtypes"),
        ("strides", "[['a']]", "column strides: expected a list of strides"),
        ("op", "[[1]]", "column op: expected a list of texts"),
        ("trace", "{'a': 1}", "column trace: expected a list of texts"),
        ("gpuInfo", "[1]", "column gpuInfo: expected facts by name"),
    ],
)
def test_a_column_of_another_form_is_one_error(column, value, words, tmp_path):
    (tmp_path / "net.dict").write_text(f"{{'kShortName': 'gemm', 'kDuration': 7, '{column}': {value}}}\n")
    with pytest.raises(SchemaError) as caught:
        load_table(tmp_path / "net.dict")
    assert str(caught.value).startswith(f"{tmp_path}/net.dict: {words}")


def test_durations_that_do_not_add_up_within_64_bits_are_one_error(tmp_path):
    (tmp_path / "net.dict").write_text(f"{{'kShortName': 'gemm', 'kDuration': {1 << 62}}}\n" * 2)
    with pytest.raises(SchemaError, match="expected at most 4611686018427387904 ns in all, found 9223372036854775808"):
        load_table(tmp_path / "net.dict")


def test_a_profilers_shapes_of_another_form_are_unknown_and_said(tmp_path):
    trace = json.loads(gzip.decompress((GOLDEN / "h200_lenet_fp32.json.gz").read_bytes()))
    for event in trace["traceEvents"]:
        if "Input Dims" in event.get("args", {}):
            event["args"]["Input Dims"] = [{"a": 1}]
    (tmp_path / "net.json").write_text(json.dumps(trace))
    found = load_table(tmp_path / "net.json")
    assert set(found.table.coded("sizes").texts()) == {""}
    assert any("shapes of another form than torch's" in warning for warning in found.warnings)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        load_table(tmp_path / "net.sqlite")
    with pytest.raises(InputError, match="found a folder without nsys's tables"):
        load_table(tmp_path)


def test_it_says_what_it_does():
    said = []
    with keep_files(0):
        load_table(GOLDEN / "h200_lenet.sqlite.gz", said.append)
    assert said == ["reading h200_lenet.sqlite.gz", "attributing 57 rows"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_table_that_powershell_wrote(encoding, tmp_path):
    (tmp_path / "net.dict").write_bytes(ROW.decode().replace("\n", "\r\n").encode(encoding))
    assert load_table(tmp_path / "net.dict").table.ints("kDuration").tolist() == [
        ast.literal_eval(ROW.decode())["kDuration"]
    ]
