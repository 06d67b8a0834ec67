"""pyprof stats as its users meet it: options, the three forms, what is missing, hostile texts, broken input."""

import csv
import io
import json

import pytest

from pyprof.parse.stats.cli import build_parser, main
from tests.parse.nsys.nsys_file import KERNEL, NVTX, kernel, push, write

HOSTILE = 'a "quoted", name\x1b[31m<int>\nof two lines'
DRIVING = "gemm\x9b2J\x85of\u2028two"
NAMES = [(1, "short"), (101, HOSTILE), (2, "other"), (102, "x" * 101)]


@pytest.fixture
def file(tmp_path):
    rows = [kernel(0, 1), kernel(20, 2, name=2)]
    rows[1] = (20, 50, *rows[1][2:])  # 30 ns
    return str(write(tmp_path / "net.sqlite", StringIds=NAMES, **{KERNEL: rows}))


def run(capsys, *argv: str) -> tuple[str, str]:
    assert main(list(argv)) == 0
    out, err = capsys.readouterr()
    return out, err


def test_the_options():
    found = {option for action in build_parser()._actions for option in action.option_strings}
    assert found == {
        *("-h", "--help", "-r", "--report", "-f", "--format", "-o", "--output", "--force", "--json"),
        *("-q", "--quiet", "--version"),
    }


def test_json_has_control_characters_escaped(tmp_path, capsys):
    names = [(1, "short"), (101, DRIVING)]
    file = write(tmp_path / "net.sqlite", StringIds=names, **{KERNEL: [kernel(0, 1)]})
    out, _ = run(capsys, str(file), "--report", "cuda_gpu_kern_sum", "--format", "json")
    assert r"gemm\u009b2J\u0085of\u2028two" in out
    assert [row["Name"] for row in json.loads(out)] == [DRIVING]


def test_columns(file, capsys):
    out, err = run(capsys, file, "--report", "cuda_gpu_kern_sum:base")
    assert out == (
        "\n"
        " ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum:base):\n"
        "\n"
        " Time (%)  Total Time (ns)  Instances  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)  Name \n"
        " --------  ---------------  ---------  --------  --------  --------  --------  -----------  -----\n"
        "     75.0               30          1      30.0      30.0        30        30          0.0  other\n"
        "     25.0               10          1      10.0      10.0        10        10          0.0  short\n"
    )
    assert err == ""


def test_a_hostile_name_cannot_reach_the_terminal_and_a_long_one_is_cut(file, capsys):
    out, _ = run(capsys, file, "-r", "cuda_gpu_kern_sum")
    long, hostile = [line.split("  0.0  ")[1].rstrip() for line in out.splitlines()[5:7]]
    assert long == "x" * 99 + "…"
    assert hostile == 'a "quoted", name\N{REPLACEMENT CHARACTER}[31m<int>\N{REPLACEMENT CHARACTER}of two lines'


def test_csv_is_whole_and_read_back(file, capsys):
    out, _ = run(capsys, file, "-r", "cuda_gpu_kern_sum,cuda_gpu_kern_gb_sum", "-f", "csv")
    first, second = out.split("\n\n")
    rows = list(csv.DictReader(io.StringIO(first)))
    assert [row["Name"] for row in rows] == ["x" * 101, HOSTILE.replace("\x1b", "?")]  # it may be shown on a terminal
    assert rows[1]["Avg (ns)"] == "10.0"
    assert next(csv.DictReader(io.StringIO(second)))["GridXYZ"] == "   4    5    6"


def test_json_of_one_report_is_a_list_and_of_several_an_object(file, capsys):
    (one, two) = json.loads(run(capsys, file, "-r", "cuda_gpu_kern_sum", "--format", "json")[0])
    assert one == {
        "Time (%)": 75.0,
        "Total Time (ns)": 30,
        "Instances": 1,
        "Avg (ns)": 30.0,
        "Med (ns)": 30.0,
        "Min (ns)": 30,
        "Max (ns)": 30,
        "StdDev (ns)": 0.0,
        "Name": "x" * 101,
    }
    assert two["Name"] == HOSTILE
    out, err = run(capsys, file, "-r", "osrt_sum,cuda_gpu_kern_sum:base", "-f", "json")
    assert {name: len(rows) for name, rows in json.loads(out).items()} == {"osrt_sum": 0, "cuda_gpu_kern_sum:base": 2}
    assert err == f"pyprof stats: skipped: {file} does not contain OS Runtime trace data.\n"
    assert json.loads(run(capsys, file, "-r", "osrt_sum", "-f", "json")[0]) == []


def test_without_report_the_usual_six_and_what_is_missing_once(file, capsys):
    out, err = run(capsys, file)
    assert [line for line in out.splitlines() if "**" in line] == [" ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):"]
    assert err.splitlines() == [
        f"pyprof stats: skipped: {file} does not contain {what}."
        for what in ("NV Tools Extension (NVTX) data", "OS Runtime trace data", "CUDA trace data", "GPU memory data")
    ]


def test_all(file, capsys):
    out, _ = run(capsys, file, "-r", "all")
    assert out.count("**") == 3  # kernels by name, by grid, with copies


def test_an_unknown_value_is_empty_in_csv_and_null_in_json(tmp_path, capsys):
    tables = {NVTX: [push(0, 100, "step")], KERNEL: [kernel(20, 1)], "CUPTI_ACTIVITY_KIND_RUNTIME": []}
    tables["CUPTI_ACTIVITY_KIND_RUNTIME"] = [(10, 14, 0, push(0, 1, "x")[5], 1, 50)]
    file = str(write(tmp_path / "a.sqlite", **tables))
    out, _ = run(capsys, file, "-r", "nvtx_gpu_proj_trace", "-f", "csv")
    assert out.splitlines()[1] == ":step,20,10,0,100,PushPop,7,1,1,0,0,1,,:1"
    (row,) = json.loads(run(capsys, file, "-r", "nvtx_gpu_proj_trace", "-f", "json")[0])
    assert row["ParentId"] is None


def test_output_is_written_and_not_overwritten_unasked(file, tmp_path, capsys):
    target = tmp_path / "out.csv"
    argv = [file, "-r", "cuda_gpu_kern_sum:base", "-f", "csv", "-o", str(target)]
    assert run(capsys, *argv) == ("", "")
    assert target.read_text().splitlines()[1] == "75.0,30,1,30.0,30.0,30,30,0.0,other"
    target.write_text("mine")
    assert main(argv) == 1
    assert "exists; give --force" in capsys.readouterr().err
    assert target.read_text() == "mine"
    run(capsys, *argv, "--force")
    assert target.read_text().startswith("Time (%),")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["-r", "nvtx"], "there is no report 'nvtx'; there are: nvtx_sum,"),
        (["-r", "osrt_sum:base"], "there is no 'osrt_sum:base'"),
        (["-r", ""], "there is no report ''"),
        (["-f", "html"], "invalid choice"),
    ],
)
def test_bad_usage(words, complaint, file, capsys):
    with pytest.raises(SystemExit) as done:
        main([file, *words])
    assert done.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "found an empty file"),
        (b"SQLite format 3\0" + b"\1" * 200, "found an error"),
        (b"{}", "torch.profiler"),
        (b"\x1f\x8b\x08\0", "broken gzip file"),
    ],
)
def test_a_broken_file_is_one_line_and_leaves_no_output(content, complaint, tmp_path, capsys):
    broken = tmp_path / "net.sqlite"
    broken.write_bytes(content)
    assert main([str(broken), "-o", str(tmp_path / "out")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"pyprof stats: {broken}: ") and complaint in err and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["net.sqlite"]


def test_a_missing_column_is_named(tmp_path, capsys):
    file = write(tmp_path / "a.sqlite", drop={KERNEL: "end"}, **{KERNEL: [kernel(0, 1)]})
    assert main([str(file)]) == 1
    assert "table CUPTI_ACTIVITY_KIND_KERNEL has no column end" in capsys.readouterr().err
