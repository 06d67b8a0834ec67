"""``pyprof bench``: the statement, sweeps, CSV, JSON, figure, a replayed capture, and one line for each error."""

import csv
import gzip
import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from pyprof.benchmark import bench as bench_module  # noqa: E402
from pyprof.benchmark import bench_command  # noqa: E402
from pyprof.benchmark.statement import Statement  # noqa: E402
from pyprof.benchmark.timer import Effort  # noqa: E402
from tests.answered import answer  # noqa: E402
from tests.paths import GOLDEN  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(bench_command, "QUICK", Effort(trial_s=0.0005, trials=3))
    monkeypatch.setattr(bench_module, "cache_bytes", lambda _: 1 << 12)


def run(*words):
    try:
        return bench_command.main([*words, "--quick", "-q", "--device", "cpu"])
    except SystemExit as stop:
        return stop.code


LINEAR = ["F.linear(x, w)", "--setup", "x = rand(M, 8)", "--setup", "w = rand(6, 8)"]


def test_a_sweep_as_json(capfdbinary):
    assert run(*LINEAR, "--sweep", "M=2:8:*2", "--sweep", "dtype=fp64,bf16", "--backward", "--warm", "--json") == 0
    found = answer(capfdbinary.readouterr().out, "bench", "bench")
    assert (found["statement"], found["setup"]) == ("F.linear(x, w)", "x = rand(M, 8)\nw = rand(6, 8)")
    rows = found["measurements"]
    assert [(*row["variables"].values(), row["direction"]) for row in rows[:4]] == [
        (2, "fp64", "forward"),
        (2, "fp64", "backward"),
        (2, "bf16", "forward"),
        (2, "bf16", "backward"),
    ]
    # 2*M*N*K, and a backward with two products; x, w and the result of 8 and 2 bytes
    assert [row["flop"] for row in rows] == [192, 384, 192, 384, 384, 768, 384, 768, 768, 1536, 768, 1536]
    assert [row["bytes"] for row in rows if row["direction"] == "forward"] == [
        8 * (16 + 48 + 12), 2 * (16 + 48 + 12), 8 * (32 + 48 + 24), 2 * (32 + 48 + 24),
        8 * (64 + 48 + 48), 2 * (64 + 48 + 48),
    ]  # fmt: skip
    for row in rows:
        assert row["low_s"] <= row["median_s"] <= row["high_s"] and row["warm_s"] > 0
        assert row["flop_per_s"] == pytest.approx(row["flop"] / row["median_s"])
        assert (row["method"], row["empty_node_s"], row["clock_mhz"]) == ("cpu timer", None, None)


def test_a_sweep_as_csv_and_as_a_table(tmp_path, capsys):
    file = tmp_path / "sweep.csv"
    assert run(*LINEAR, "--sweep", "M=2,4", "--csv", str(file)) == 0
    with file.open(newline="") as lines:
        header, *rows = csv.reader(lines)
    assert header[:4] == ["M", "direction", "median_s", "low_s"]
    assert [row[:2] for row in rows] == [["2", "forward"], ["4", "forward"]]
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:3] == ["M", "median", "quartiles"] and len(table) == 3
    assert run(*LINEAR, "--sweep", "M=2,4", "--csv", "-") == 0
    assert capsys.readouterr().out.startswith("M,direction,median_s,")


def test_one_point_in_sentences(capsys):
    assert run("y = x + 1", "--setup", "x = torch.randn(64, 64)") == 0
    out = capsys.readouterr().out
    assert out.startswith("y = x + 1 on ") and "torch.utils.benchmark" in out


@pytest.mark.slow
def test_a_sweep_as_a_figure(tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "sweep.svg"
    assert run(*LINEAR, "--sweep", "M=2:16:*2", "--sweep", "dtype=fp32,bf16", "--plot", str(file)) == 0
    text = file.read_text()
    assert "dtype=bf16" in text and "FLOP/s" in text and "B/s" in text


@pytest.mark.parametrize("text", ["[i * x for i in range(2)]", "(lambda: x * 2)()", "y = [i * x for i in range(2)]"])
def test_tensors_within_comprehensions_and_functions_are_arguments(text):
    statement = Statement(text, "x = rand(8)", torch.device("cpu"), backward=False)
    subject = statement.subject({})
    assert list(subject.kwargs) == ["x"]
    subject()


def test_layouts_and_alignments_reach_rand(capsys):
    check = "assert x.stride() == (1, 4) and x.data_ptr() % 64 == 16 and x.dtype == torch.float16"
    words = ["--sweep", "layout=column", "--sweep", "align=16", "--sweep", "dtype=fp16"]
    assert run("x.relu()", "--setup", f"x = rand(4, 8); {check}", *words) == 0


WRONG = [
    ([], 2, "expected either a STATEMENT or --replay FILE"),
    (["x", "--replay", "net.dict"], 2, "expected either a STATEMENT or --replay FILE"),
    (["--replay", "net.dict", "--warm"], 2, "--warm does not go with --replay"),
    (["x", "--where", "op == 'mm'"], 2, "--where goes with --replay"),
    (["x", "--top", "3"], 2, "--top goes with --replay"),
    (["--replay", "net.dict", "--where", "nonsense =="], 2, "argument --where"),
    (["x", "--sweep", "M=3:1:*2"], 2, "argument --sweep: M: 3:1:*2 does not rise from its first value to its last"),
    (["x", "--sweep", "M=1", "--sweep", "M=2"], 1, "--sweep M was given twice"),
    (["x +", "--setup", ""], 2, "no Python code: invalid syntax (<statement>, line 1)"),
    (["x", "--setup", "x = ("], 2, "no Python code: '(' was never closed (<setup>, line 1)"),
    (["x"], 1, "<statement> line 1: NameError: name 'x' is not defined"),
    (["x.no", "--setup", "x = rand(3)"], 1, "<statement> line 1: AttributeError: 'Tensor' object has no attribute"),
    (["1", "--setup", "a = 1\nb = a / 0"], 1, "<setup> line 2: ZeroDivisionError: division by zero"),
    (["x.relu()", "--setup", "x = torch.randn(3)", "--backward"], 1, "x.relu(): no gradient to measure"),
    (["x", "--setup", "x = rand(3)", "--sweep", "align=2"], 1, "align: torch.float32 has 4 bytes per element"),
    (["x", "--plot", "x.png"], 2, "--plot needs a --sweep of several numbers"),
    (["--replay", "none.dict"], 1, "none.dict: cannot be read: No such file or directory"),
    (["x", "--peaks", "none.json"], 1, "none.json: cannot be read"),
]


@pytest.mark.parametrize(("words", "code", "message"), WRONG)
def test_errors_are_one_line(words, code, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(*words) == code
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err
    if code == 1:
        assert len(err.splitlines()) == 1


def test_a_taken_file_is_told_before_anything_is_measured(tmp_path, capsys):
    file = tmp_path / "taken.csv"
    file.write_text("mine")
    assert run("1/0", "--csv", str(file)) == 1
    assert "taken.csv: exists; give --force" in capsys.readouterr().err


def test_help_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; from pyprof.benchmark.bench_command import main; main(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage: pyprof bench" in done.stdout


# A capture


def cpu_op(name, start, duration, dims, types, strides, values):
    args = {"Input Dims": dims, "Input type": types, "Input Strides": strides, "Concrete Inputs": values}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": start, "dur": duration,
            "args": {"External id": int(start), **args}}  # fmt: skip


@pytest.fixture
def capture(tmp_path):
    """Two products, a relu of an impossible size, and an op that no torch has."""
    product = [[[4, 5], [5, 6]], ["float", "float"], [[5, 1], [1, 5]], ["", ""]]
    events = [
        cpu_op("aten::mm", 10, 30, *product),
        cpu_op("aten::mm", 50, 50, *product),
        cpu_op("aten::relu", 110, 20, [[1 << 50]], ["float"], [[1]], [""]),
        cpu_op("evil::[red]system", 140, 10, [[4]], ["float"], [[1]], [""]),
        cpu_op("aten::unheard_of", 160, 5, [[4]], ["float"], [[1]], [""]),
    ]
    file = tmp_path / "net.json.gz"
    file.write_bytes(gzip.compress(json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()))
    return str(file)


def test_a_replayed_capture(capture, capfdbinary):
    assert run("--replay", capture, "--json") == 0
    found = answer(capfdbinary.readouterr().out, "replay", "bench")
    mm, relu, *others = found["rows"]
    assert (mm["op"], mm["calls"], mm["product"]) == ("aten::mm", 2, True)
    assert mm["arguments"] == "fp32[4,5], fp32[5,6 strides 1,5]"
    assert mm["capture_s"] == pytest.approx(40e-6)  # (30 + 50) / 2 µs
    assert mm["ratio"] == pytest.approx(mm["alone_s"] / 40e-6)
    assert (relu["alone_s"], relu["ratio"]) == (None, None) and relu["why"].startswith(
        "it needs 4.19e+06 GiB of memory"
    )
    assert [(row["op"], row["why"]) for row in others] == [
        ("evil::[red]system", "evil::[red]system is no op of torch's own"),
        ("aten::unheard_of", "aten::unheard_of is no op of this torch that pyprof has a model of"),
    ]
    assert found["products"]["calls"] == found["all"]["calls"] == 1
    assert found["all"]["capture_s"] == pytest.approx(80e-6)
    assert found["all"]["alone_s"] == pytest.approx(2 * mm["alone_s"])
    assert (found["shown_s"], found["total_s"]) == (pytest.approx(115e-6), pytest.approx(115e-6))


def test_the_heaviest_calls_that_a_condition_selects(capture, tmp_path, capsys):
    assert run("--replay", capture, "--top", "1", "--where", "sil < 25000", "--csv", str(tmp_path / "r.csv")) == 0
    out = capsys.readouterr().out
    assert "aten::relu: not made again: it needs" in out and "mm" not in out
    assert "These are 57.1% of 35 µs in the capture." in out  # 20 of 20 + 10 + 5
    assert (tmp_path / "r.csv").read_text().startswith("op,direction,arguments,calls,capture_s,")
    assert run("--replay", capture, "--where", "sil > 1e9") == 1
    assert "no row for which sil > 1e9 is true" in capsys.readouterr().err
    assert run("--replay", capture) == 0
    assert "evil::[red]system" in capsys.readouterr().out  # a name is no markup


@pytest.mark.slow
def test_a_capture_of_another_device_is_said_to_be_one(capfdbinary):
    assert run("--replay", str(GOLDEN / "h200_lenet_fp32.json.gz"), "--top", "2", "--json") == 0
    found = answer(capfdbinary.readouterr().out, "replay", "bench")
    assert found["device_in_capture"] == ["NVIDIA H200"]
    assert found["warnings"][-1].startswith("the capture is of NVIDIA H200, and the calls were timed on ")
