"""The format of a file follows from its content; .nsys-rep goes through nsys."""

import gzip
import os
import sys
from pathlib import Path

import pytest

from pyprof.errors import InputError
from pyprof.parse.cli import main
from pyprof.parse.detect import reader
from pyprof.parse.stats.cli import main as stats
from pyprof.table.read_table import read_table
from tests.parse.nsys.nsys_file import API, KERNEL, call, kernel, write


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "an empty file"),
        (b"hello", "text that starts 'hello'"),
        (b'{"kShortName": "a", "kDuration": 5}\n', "a kernel table, parsed already: give it to prof.py"),
        (b"{'kShortName': 'a', 'kDuration': 5}\n", "a kernel table, parsed already"),
        (b"PAR1....", "a kernel table, parsed already"),
        (b'"ID","Process ID","Process Name"', "a table of Nsight Compute"),
        (b"==PROF== Connected", "a table of Nsight Compute"),
        (b"NVR\0....", "an Nsight Compute report"),
        (b"<?xml version", "XML: an .nvvp project"),
        (b"\0\x05\x16\x07\0", "what macOS keeps beside a file"),
        (b"PK\x03\x04abc\0", "a zip archive"),
        (b"BZh91AY\0", "a bzip2 file"),
        (b"\xfd7zXZ\0", "an xz file"),
        (b"\x28\xb5\x2f\xfd\0", "a Zstandard file"),
        (b"abc\0\1", "a binary file"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_other_content_is_named_in_one_line(content, found, packed, tmp_path, capsys):
    path = tmp_path / "net.sqlite"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert main([str(path), "-o", str(tmp_path / "net.dict")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(
        f"parse.py: {path}: expected an nsys or nvprof SQLite database or a torch.profiler JSON trace"
    )
    assert f", found {found}" in err
    assert err.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == ["net.sqlite"]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (  # exported by nsys: the first lines of such files
            b'{"data":["[Unknown]","python"]}\n{"Type":79,"CudaEvent":{"startNs":"100","endNs":"200"}}\n',
            "an export of nsys as JSON lines, which is not read (nsys export --type sqlite REPORT.nsys-rep)",
        ),
        (b'{"Type":59,"NvtxEvent":{"Timestamp":"100","Text":"x"}}\n{"Type":59,"NvtxEvent":{}}\n', "an export of nsys"),
        (b'{"epoch": 1, "loss": 0.5}\n{"epoch": 2, "loss": 0.4}\n', "JSON lines, an object in each"),
        # torch/profiler/_memory_profiler.py: (time, action, bytes, category), and times with sizes by category
        (b"[[-1, 0, 1024, 3], [1700000000, 1, 52, null]]", "a memory timeline of torch.profiler"),
        (b"[[1, 2], [[0, 5], [0, 6]]]", "a memory timeline of torch.profiler"),
        (b"[[], []]", "a memory timeline of torch.profiler"),
        (b'{\n  "schema": "1.1.1-chakra.0.0.4", "pid": 5, "nodes": []}', "an execution trace of PyTorch"),
        (b'{"a": 1}', "JSON with 'a' but no list of traceEvents"),
        (  # of a profiler that recorded nothing
            b'{"schemaVersion": 1, "traceEvents": [{"name": "process_name", "ph": "M", "pid": 5, "args": {}},'
            b'{"name": "Record Window End", "ph": "i", "pid": "", "ts": 5}]}',
            "one that has metadata alone (2 names of processes and threads), so that nothing ran: put the",
        ),
    ],
)
@pytest.mark.parametrize("command", [main, stats])
def test_json_of_other_kinds_is_named_with_what_to_do(content, found, command, tmp_path, capsys):
    path = tmp_path / "net.json.gz"
    path.write_bytes(gzip.compress(content))
    assert command([str(path)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"{path}: expected a torch.profiler (Kineto) trace, found {found}" in err


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("export.jsonl", "found an export of nsys as JSON lines, which is not read (nsys export --type sqlite"),
        ("metadata_only.json.gz", "found one that has metadata alone (60 names of processes and threads), so that"),
    ],
)
def test_real_files_of_other_kinds(data, name, found, capsys):
    assert main([str(data / "round3" / "cases" / name)]) == 1
    assert found in capsys.readouterr().err


def test_a_folder_of_traces_says_which_to_give(tmp_path, capsys):
    """torch.profiler.tensorboard_trace_handler writes HOST_PID.TIME.pt.trace.json(.gz), also into folders of runs."""
    (tmp_path / "run").mkdir()
    one, two = (tmp_path / "run" / f"host_5.{time}.pt.trace.json.gz" for time in (17, 18))
    one.touch()
    assert main([str(tmp_path)]) == 1
    assert f"found a folder with one profile (give {one})\n" in capsys.readouterr().err
    two.touch()
    assert main([str(tmp_path)]) == 1
    ranks = f"of a job's ranks: pyprof ranks {tmp_path / 'run'} -o JOB"
    assert f"found a folder with 2 profiles (give one of them, such as {one}; {ranks})\n" in capsys.readouterr().err


REPORT = b"nsys report\0of no documented form"
FAKE = """#!{python}
import pathlib, shutil, sys
pathlib.Path({log!r}).write_text("\\n".join(sys.argv[1:]))
output = next(word for word in sys.argv if word.startswith("--output=")).partition("=")[2]
{action}
"""


@pytest.fixture(name="nsys")
def fixture_nsys(tmp_path, monkeypatch):
    """A command nsys on the PATH that runs the given code and writes down its arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def make(action: str) -> Path:
        log = tmp_path / "words"
        (folder / "nsys").write_text(FAKE.format(python=sys.executable, log=str(log), action=action))
        (folder / "nsys").chmod(0o755)
        return log

    return make


@pytest.fixture(name="report")
def fixture_report(tmp_path):
    path = tmp_path / "a b; echo $(touch x).nsys-rep"
    path.write_bytes(REPORT)
    return path


def test_a_report_is_exported_read_and_the_export_removed(nsys, report, tmp_path):
    database = write(tmp_path / "made.sqlite", **{KERNEL: [kernel(100, 5)], API: [call(90, 5)]})
    log = nsys(f"shutil.copy({str(database)!r}, output)")
    before = sorted(os.listdir(tmp_path))
    assert main([str(report), "-q", "-o", str(tmp_path / "net.dict")]) == 0
    assert read_table(tmp_path / "net.dict").ints("kDuration").tolist() == [10]
    words = log.read_text().splitlines()
    options = ["--include-blobs", "--type", "--force-overwrite", "--output"]
    assert [word.partition("=")[0] for word in words[:-1]] == ["export", *options]
    assert words[-1] == str(report)  # one word, whatever is in it
    assert sorted(os.listdir(tmp_path)) == sorted([*before, "net.dict", "words"])
    assert reader(report)(report).file == str(report)


def test_an_nsys_that_knows_no_payloads_exports_without_them(nsys, report, tmp_path):
    database = write(tmp_path / "made.sqlite", **{KERNEL: [kernel(100, 5)], API: [call(90, 5)]})
    old = "sys.exit(\"unrecognised option '--include-blobs=true'\")"
    nsys(f"{old} if '--include-blobs=true' in sys.argv else shutil.copy({str(database)!r}, output)")
    assert main([str(report), "-q", "-o", str(tmp_path / "net.dict")]) == 0
    assert read_table(tmp_path / "net.dict").ints("kDuration").tolist() == [10]


def test_without_nsys_a_report_says_what_to_do(nsys, report, tmp_path, capsys):
    assert main([str(report), "-o", str(tmp_path / "net.dict")]) == 1
    err = capsys.readouterr().err
    assert err == (
        f"parse.py: {report}: expected nsys on the PATH to read a report, found none"
        " (where it is installed: nsys export --type sqlite FILE, and parse that)\n"
    )
    assert not (tmp_path / "net.dict").exists()


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("sys.exit('Error: the report is cut')", "found exit code 1 and: Error: the report is cut"),
        ("pass", "found exit code 0 and: nothing"),
        ("pathlib.Path(output).write_text('x' * 200)", "expected a whole SQLite database, found an error"),
    ],
)
def test_an_export_that_fails_names_the_report(nsys, report, action, words, capsys):
    nsys(action)
    assert main([str(report)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"parse.py: {report}: expected ")
    assert words in err
    assert "pyprof-" not in err
    assert err.count("\n") == 1


def test_a_binary_file_of_another_name_is_no_report(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(REPORT)
    with pytest.raises(InputError, match=r"found a binary file \(give an \.nsys-rep that name"):
        reader(path)
