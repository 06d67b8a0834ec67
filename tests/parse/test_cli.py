"""The command parse.py: its options, what it writes where, and that a failure leaves nothing."""

import csv
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from pyprof.parse.cli import build_parser, main
from pyprof.parse.summary import printable
from pyprof.table.intervals import covered
from pyprof.table.read_table import read_table
from tests.parse.kineto.kineto_file import begin, call, kernel, op
from tests.parse.kineto.kineto_file import write as write_trace
from tests.parse.nsys.nsys_file import API, KERNEL, NVTX, push, write
from tests.parse.nsys.nsys_file import call as api_call
from tests.parse.nsys.nsys_file import kernel as gpu_kernel
from tests.paths import GOLDEN


@pytest.fixture(name="trace")
def fixture_trace(tmp_path):
    mark = {"ph": "X", "cat": "user_annotation", "pid": 7, "tid": 70}
    return write_trace(
        tmp_path / "net.json",
        begin(0),
        {**mark, "name": "ProfilerStep#4", "ts": 0, "dur": 25},
        {**mark, "name": "ProfilerStep#5", "ts": 25, "dur": 25},
        op("aten::relu", 10, 10, External_id=1),
        call(12, 1),
        op("aten::tanh", 30, 10, External_id=2),
        call(32, 2),
        kernel(20, 5, 1),
        kernel(40, 5, 2),
        distributedInfo={"rank": 3},
    )


def test_the_options_are_frozen():
    names = {name for action in build_parser()._actions for name in action.option_strings}
    assert names == {
        "-h", "--help", "-o", "--output", "--force", "--from", "--to", "--step", "--range", "--rank",
        "--summary", "--exact", "--graphs", "--inductor", "-q", "--quiet", "--json", "--version",
    }  # fmt: skip


def ops(path: Path) -> list[str]:
    return read_table(path).coded("op").texts()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["relu", "tanh"]),
        (["--from", "30us"], ["tanh"]),
        (["--to", "30us"], ["relu"]),
        (["--from", "0.04ms", "--to", "0.041ms"], ["tanh"]),
        (["--step", "4"], ["relu"]),
        (["--step", "4-5"], ["relu", "tanh"]),
        (["--range", "ProfilerStep#5"], ["tanh"]),
        (["--range", "aten::*"], ["relu", "tanh"]),
        (["--rank", "3"], ["relu", "tanh"]),
        (["--rank", "3", "--step", "5", "--from", "-1s"], ["tanh"]),
    ],
)
def test_options_select_rows(options, expected, trace, tmp_path):
    options = [f"--from={options[i + 1]}" if o == "--from" else o for i, o in enumerate(options)]
    options = [o for i, o in enumerate(options) if i == 0 or not options[i - 1].startswith("--from=")]
    assert main([str(trace), "-q", "-o", str(tmp_path / "net.dict"), *options]) == 0
    assert [json.loads(text) for text in ops(tmp_path / "net.dict")] == [[name] for name in expected]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--step", "9"], "no row is left by --step 9; steps 4, 5, ranks 3, rows start at 20,000 to 40,000 ns"),
        (["--rank", "0"], "no row is left by --rank 0; steps 4, 5, ranks 3"),
        (["--range", "x"], "no row is left by --range x; its ranges are, for example, ProfilerStep#4, ProfilerStep#5"),
        (["--from", "1s"], "no row is left by --from 1000000000ns"),
    ],
)
def test_a_selection_without_rows_is_an_error_and_says_what_there_is(options, words, trace, tmp_path, capsys):
    assert main([str(trace), "-o", str(tmp_path / "net.dict"), *options]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"parse.py: {trace}: {words}")
    assert err.count("\n") == 1
    assert not (tmp_path / "net.dict").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from", "soon"], "expected a time like 12ms"),
        (["--step", "5-4"], "expected a step like 3"),
        (["--rank", "-1"], "expected"),
        (
            ["-o", "net.txt"],
            "expected a name that ends in .dict, .dict.gz, .parquet, .csv, .csv.gz, .pyprof, found 'net.txt'",
        ),
        (["--summary", "-o", "net.dict"], "leave out -o"),
    ],
)
def test_wrong_usage_exits_with_2(options, words, trace, capsys):
    with pytest.raises(SystemExit) as done:
        main([str(trace), *options])
    assert done.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a.dict", "a.dict.gz", "a.parquet"])
def test_the_suffix_decides_the_format(name, trace, tmp_path):
    assert main([str(trace), "-q", "-o", str(tmp_path / name)]) == 0
    assert ops(tmp_path / name) == ['["relu"]', '["tanh"]']
    assert main([str(trace), "-q", "-o", str(tmp_path / name)]) == 1  # it is there
    assert main([str(trace), "-q", "-o", str(tmp_path / name), "--force"]) == 0


def test_csv_has_the_columns_of_net_dict(trace, tmp_path):
    assert main([str(trace), "-q", "-o", str(tmp_path / "a.csv")]) == 0
    with (tmp_path / "a.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["op"] for row in rows] == ['["relu"]', '["tanh"]']
    first = {key: rows[0][key] for key in ("kDuration", "kLongName", "grid", "seqId", "occupancy", "bytes", "step")}
    assert first == {
        "kDuration": "5000", "kLongName": "void gemm<float>(int)", "grid": "[4, 5, 6]", "seqId": "", "occupancy": "",
        "bytes": "", "step": "4",
    }  # fmt: skip


def test_several_files_make_one_table(trace, tmp_path):
    database = write(
        tmp_path / "net.sqlite",
        **{KERNEL: [gpu_kernel(100, 1)], API: [api_call(15, 1)], NVTX: [push(10, 20, "aten::exp, op_id = 1")]},
    )
    out = tmp_path / "net.parquet"
    assert main([str(trace), str(database), str(trace), "-q", "-o", str(out)]) == 0
    table = read_table(out)
    assert table.coded("op").texts() == ['["relu"]', '["tanh"]', '["exp"]', '["relu"]', '["tanh"]']
    assert table.ints("rank").tolist() == [3, 3, 1, 3, 3]
    assert table.ints("pid").tolist() == [7, 7, 1_000_000_007, 2_000_000_007, 2_000_000_007]
    assert len(set(table.ints("opId").tolist())) == 5
    assert main([str(trace), str(database), "-q", "--rank", "1", "-o", str(out), "--force"]) == 0
    assert read_table(out).coded("op").texts() == ['["exp"]']


def test_one_bad_file_of_several_writes_nothing(trace, tmp_path, capsys):
    (tmp_path / "bad.json").write_text("hello")
    assert main([str(trace), str(tmp_path / "bad.json"), "-o", str(tmp_path / "net.dict")]) == 1
    assert capsys.readouterr().err.startswith(f"parse.py: {tmp_path / 'bad.json'}: expected")
    assert not (tmp_path / "net.dict").exists()


def test_a_summary_is_aligned_words_on_standard_output(trace, capsys):
    assert main([str(trace), "--summary"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines() == [
        f"file        {trace}",
        "profiler    kineto",
        "GPU         unknown",
        "processes   1 (7); rank 3",
        "rows        2 kernels",
        "GPU time    0.010 ms",
        "span        0.025 ms, busy 0.010 ms (40.0%)",
        "attributed  100% of GPU time has an op",
        "steps       4, 5",
        "ranges      ProfilerStep#4, ProfilerStep#5",
        "warning     the trace has no shapes: profile with record_shapes=True to have FLOPs and bytes",
    ]


def test_a_summary_says_why_rows_have_no_op(tmp_path, capsys):
    tables = {
        KERNEL: [gpu_kernel(-20, 1), gpu_kernel(100, 5), gpu_kernel(101, 6)],
        API: [api_call(90, 5), api_call(99, 6)],
    }
    path = write(
        tmp_path / "net.sqlite", **tables, **{NVTX: [push(89, 95, "mine"), push(96, 100, "aten::mm, seq = 5")]}
    )
    assert main([str(path), "--summary"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "attributed  33.3% of GPU time has an op" in lines
    assert "  without   33.3%: launched before the capture" in lines
    assert "  without   33.3%: only user ranges around the launch" in lines


def test_a_capture_without_pytorchs_ranges_says_what_to_do(tmp_path, capsys):
    path = write(tmp_path / "net.sqlite", **{KERNEL: [gpu_kernel(100, 5)], API: [api_call(90, 5)]})
    assert main([str(path), "-o", str(tmp_path / "net.dict")]) == 0
    assert "warning: no PyTorch ranges in the capture: profile with pyprof.init()" in capsys.readouterr().err


MARKED = '{"v":1,"mod":"torch","op":"relu","args":[]}'


@pytest.mark.parametrize(
    ("ranges", "says"),
    [
        ([push(80, 95, MARKED), push(170, 180, "sort", tid=2)], True),
        ([push(80, 95, MARKED), push(170, 180, "ReluBackward0, seq = 5", tid=2)], False),
        ([push(80, 95, MARKED), push(170, 195, MARKED, tid=2)], False),  # the second thread is marked as well
        ([push(80, 95, "layer:a")], False),  # the user's own
    ],
)
def test_markers_without_autograd_s_ranges_say_what_is_missing(ranges, says, tmp_path, capsys):
    tables = {KERNEL: [gpu_kernel(100, 5), gpu_kernel(200, 6)], API: [api_call(90, 5), api_call(190, 6, tid=2)]}
    path = write(tmp_path / "net.sqlite", **tables, **{NVTX: ranges})
    assert main([str(path), "--summary"]) == 0
    warned = "warning     markers without PyTorch's own ranges: kernels of backward passes have no op"
    assert (warned in capsys.readouterr().out) == says


def test_data_goes_to_standard_output_and_words_to_standard_error(trace, capfd):
    assert main([str(trace)]) == 0
    out, err = capfd.readouterr()
    assert out.startswith('{"kShortName": "gemm"')
    assert [line.partition(" ")[0] for line in err.splitlines()] == ["parse.py:"] * 2
    assert "\x1b" not in err
    assert main([str(trace), "-q"]) == 0
    assert capfd.readouterr().err == ""


def rich_modules():
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "rich"}


@pytest.fixture
def no_rich():
    """Forget rich for a test, and afterwards what the test loaded of it: two copies of it do not know each other."""
    before = rich_modules()
    for name in before:
        del sys.modules[name]
    yield
    for name in rich_modules():
        del sys.modules[name]
    sys.modules.update(before)


def test_rich_is_loaded_on_a_terminal_only(no_rich, trace, tmp_path, monkeypatch, capfd):
    assert main([str(trace), "-o", str(tmp_path / "a.dict")]) == 0
    assert not rich_modules()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main([str(trace), "-o", str(tmp_path / "b.dict")]) == 0
    assert "rich" in sys.modules
    assert (tmp_path / "a.dict").read_bytes() == (tmp_path / "b.dict").read_bytes()


def test_names_of_the_file_cannot_drive_the_terminal(tmp_path, capsys):
    path = write(
        tmp_path / "net.sqlite",
        **{KERNEL: [gpu_kernel(100, 1)], API: [api_call(15, 1)], NVTX: [push(10, 20, "evil\x1b[2J\nname")]},
    )
    assert main([str(path), "--summary"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "ranges      evil?[2J name" in out.splitlines()
    assert printable("a\tb\x9bc\u202ed") == "a b?c?d"


def test_busy_time_counts_overlaps_once():
    assert covered(np.array([30, 0, 5]), np.array([40, 10, 20])) == 30
    assert covered(np.array([], np.int64), np.array([], np.int64)) == 0


def test_a_missing_file_is_one_line(tmp_path, capsys):
    assert main([str(tmp_path / "none.json")]) == 1
    assert capsys.readouterr().err == f"parse.py: {tmp_path / 'none.json'}: cannot be read: No such file or directory\n"


@pytest.mark.parametrize("name", ["h200_lenet_fp32.json.gz", "h200_lenet.sqlite.gz"])
def test_the_time_window_of_a_real_capture_parts_it_without_loss(name, tmp_path):
    whole, parts = tmp_path / "whole.dict", []
    assert main([str(GOLDEN / name), "-q", "-o", str(whole)]) == 0
    middle = int(read_table(whole).ints("start")[20])
    for number, option in enumerate((f"--to={middle}", f"--from={middle}ns")):
        parts.append(tmp_path / f"{number}.dict")
        assert main([str(GOLDEN / name), "-q", option, "-o", str(parts[-1])]) == 0
    assert b"".join(part.read_bytes() for part in parts) == whole.read_bytes()
    assert len(parts[0].read_bytes().splitlines()) == 20


def test_a_pipe_is_no_profilers_file(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    for name in ("-", str(tmp_path / "pipe")):
        assert main([name]) == 1
        assert "is read more than once and cannot come through a pipe: save it first" in capsys.readouterr().err


def test_a_name_that_a_spreadsheet_would_run(tmp_path):
    names = [(1, "=HYPERLINK(1)"), (101, "@SUM(1)"), (50, "cudaLaunchKernel_v7000")]
    file = write(tmp_path / "net.sqlite", StringIds=names, **{KERNEL: [gpu_kernel(100, 5)], API: [api_call(20, 5)]})
    assert main([str(file), "-o", str(tmp_path / "net.csv"), "-q"]) == 0
    with (tmp_path / "net.csv").open(newline="") as lines:
        row = next(csv.DictReader(lines))
    assert (row["kShortName"], row["kLongName"], row["kDuration"]) == ("'=HYPERLINK(1)", "'@SUM(1)", "10")
