"""Every command with --json: one strict JSON object on standard output, of its schema, whatever happens."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pyprof import cli, demo
from pyprof.benchmark import peaks
from pyprof.benchmark.timer import Effort
from pyprof.command.envelope import ANSWERS
from pyprof.command.parser import Parser
from pyprof.parse import cli as parse
from pyprof.parse.stats import cli as stats
from pyprof.parse.stats.reports import REPORTS
from pyprof.prof.limits.peaks_file import load_peaks
from pyprof.prof.report import cli as report
from pyprof.table.columns import Coded, Table
from pyprof.table.netdict import write_netdict
from tests.answered import answer, strict, valid
from tests.paths import GOLDEN
from tests.tables import HOSTILE

LENET = str(GOLDEN / "h200_lenet.sqlite.gz")
BROKEN = b"SQLite format 3\0" + b"\1" * 200
KINETO = str(GOLDEN / "h200_lenet_fp32.json.gz")


def run(main, capfdbinary, *argv: str) -> tuple[int, bytes, str]:
    try:
        code = main(list(argv))
    except SystemExit as stop:
        code = stop.code
    out, err = capfdbinary.readouterr()
    return code, out, err.decode()


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_command_takes_it_and_has_a_schema(command, capfdbinary):
    module = importlib.import_module(command.module)
    parser = module.build_parser()
    assert isinstance(parser, Parser)
    assert "--json" in parser._option_string_actions
    assert command.name in {each.command for each in ANSWERS}
    code, out, err = run(cli.main, capfdbinary, command.name, "--json", "--no-such-option")
    found = answer(out, "error", command.name)
    assert (code, found["command"], found["error"]["type"]) == (2, command.name, "UsageError")
    assert "usage:" in err


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_help_fits_a_terminal_of_80_characters(command, monkeypatch):
    """Except for examples, which can be copied, and the usage of pyprof try, which it writes itself."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = importlib.import_module(command.module).build_parser().format_help().splitlines()
    long = [line for line in lines if len(line) > 80]
    assert all(line.startswith(("  pyprof ", "  prof.py ", "usage: pyprof try")) for line in long), long


OF_WIDTH = {
    "prof": ([LENET], ["--json", "--csv", "--jsonl"]),
    "plan": ([KINETO], ["--json"]),
    "replay": ([KINETO], ["--json"]),
    "diff": ([LENET, LENET], ["--json"]),
    "memory": ([str(GOLDEN / "memory/h200_resnet50.json.gz")], ["--json", "--csv"]),
    "ncu": ([str(GOLDEN / "ncu/h200_lenet.raw.csv.gz")], ["--json", "--csv"]),
}


def test_the_commands_with_a_width_are_known():
    parsers = {command.name: importlib.import_module(command.module).build_parser() for command in cli.COMMANDS}
    of_width = {
        name: [form for form in ("--json", "--csv", "--jsonl") if form in parser._option_string_actions]
        for name, parser in parsers.items()
        if "-w" in parser._option_string_actions
    }
    assert of_width == {name: forms for name, (_, forms) in OF_WIDTH.items()}


@pytest.mark.parametrize(("command", "form"), [(name, form) for name, (_, forms) in OF_WIDTH.items() for form in forms])
def test_a_width_changes_nothing_beside_forms_that_are_no_text(command, form, capfdbinary):
    """Version 1.0.0 took both in all but prof, and scripts may give them."""
    files, _ = OF_WIDTH[command]
    code, out, err = run(cli.main, capfdbinary, command, form, *files)
    assert (code, out) == (0, run(cli.main, capfdbinary, command, "-w", "70", form, *files)[1]), err


# parse


def test_parse_tells_what_was_read_and_written(tmp_path, capfdbinary):
    target = str(tmp_path / "net.parquet")
    code, out, err = run(parse.main, capfdbinary, "--json", "-o", target, LENET)
    found = answer(out, "parse", "parse")
    assert (code, err) == (0, "")
    assert found["output"] == {"name": target, "form": "parquet", "rows": 57}
    assert found["totals"]["rows_by_kind"] == {"kernel": 52, "memset": 5}
    (file,) = found["files"]
    assert (file["name"], file["gpus"]) == (LENET, [{"name": "NVIDIA H200", "count": 1}])
    assert file["profiler"].startswith("nsys 2025.3") and found["input"] == [
        {"name": LENET, "profiler": file["profiler"]}
    ]
    assert file["attributed_percent"] == 100 * file["attributed_ns"] / file["time_ns"] == 100
    assert {key: file[key] for key in found["totals"]} == found["totals"]
    (device,) = file["devices"]
    assert 0 < device["busy_ns"] < device["span_ns"]
    assert Path(target).stat().st_size


@pytest.mark.parametrize(("name", "form"), [("net.dict", "dict"), ("net.csv.gz", "csv"), ("net.dict.gz", "dict")])
def test_parse_tells_the_form(name, form, tmp_path, capfdbinary):
    assert run(parse.main, capfdbinary, "--json", "-o", str(tmp_path / name), LENET)[0] == 0
    # what it says is so: another command reads it
    code, out, _ = run(parse.main, capfdbinary, "--json", "--force", "-o", str(tmp_path / name), KINETO)
    assert (code, answer(out, "parse")["output"]["form"]) == (0, form)


@pytest.mark.parametrize("options", [["--json"], ["--json", "--summary"]])
def test_parse_without_an_output_writes_nothing(options, tmp_path, monkeypatch, capfdbinary):
    monkeypatch.chdir(tmp_path)
    found = answer(run(parse.main, capfdbinary, *options, KINETO)[1], "parse")
    assert found["output"] is None and list(tmp_path.iterdir()) == []
    assert found["totals"]["rows"] == 57


def test_parse_of_several_files(data, capfdbinary):
    files = [str(data / "kineto" / f"h200x2_gpt2_ddp_rank{rank}.json.gz") for rank in (0, 1)]
    found = answer(run(parse.main, capfdbinary, "--json", *files)[1], "parse")
    assert [file["ranks"] for file in found["files"]] == [[0], [1]]
    assert found["totals"]["rows"] == sum(file["rows"] for file in found["files"]) == 1172
    assert found["totals"]["ranks"] == [0, 1]


def test_parse_tells_why_rows_have_no_op(data, capfdbinary):
    file = next((data / "nsys").glob("GindaChen*h100_2gpu_1s*"))
    found = answer(run(parse.main, capfdbinary, "--json", str(file))[1], "parse")
    missing = found["totals"]["unattributed"]
    total = found["totals"]["time_ns"]
    assert sum(each["time_ns"] for each in missing) == total - found["totals"]["attributed_ns"] > 0
    assert [each["percent"] for each in missing] == [100 * each["time_ns"] / total for each in missing]


def test_parse_of_rows_that_were_chosen_and_of_none(capfdbinary):
    found = answer(run(parse.main, capfdbinary, "--json", "--to", "13ms", LENET)[1], "parse")
    assert 0 < found["totals"]["rows"] < 57
    code, out, err = run(parse.main, capfdbinary, "--json", "--step", "99", LENET)
    assert (code, answer(out, "error", "parse")["error"]["type"]) == (1, "PyprofError")
    assert "no row is left by" in err


def test_parse_of_a_capture_without_rows(data, capfdbinary):
    file = str(next((data / "nsys").glob("YoonKyonghwan*")))
    code, out, _ = run(parse.main, capfdbinary, "--json", file)
    assert (code, answer(out, "error", "parse")["error"]["file"]) == (1, file)
    code, out, _ = run(parse.main, capfdbinary, "--json", "--summary", file)
    found = answer(out, "parse")
    assert (code, found["totals"]["rows"], found["totals"]["attributed_percent"]) == (0, 0, None)
    assert found["warnings"]


@pytest.mark.parametrize(
    ("main", "argv", "words"),
    [
        (parse.main, ["--json", "-o", "-", LENET], "standard output"),
        (parse.main, ["--json", "--summary", "-o", "net.dict", LENET], "--summary"),
        (parse.main, ["--json", "-o", "net.txt", LENET], "expected a name that ends in"),
        (parse.main, ["--json"], "required: file"),
        (report.main, ["--json", "-o", "-", LENET], "standard output"),
        (stats.main, ["--json", "-f", "csv", LENET], "not allowed with"),
        (stats.main, ["--json", "-r", "nvtx", LENET], "there is no report 'nvtx'"),
        (peaks.main, ["--json", "-o", "-"], "standard output"),
    ],
)
def test_wrong_usage(main, argv, words, capfdbinary):
    code, out, err = run(main, capfdbinary, *argv)
    found = answer(out, "error")
    assert (code, found["error"]["exit_code"]) == (2, 2)
    assert words in found["error"]["message"] and found["error"]["message"] in err


@pytest.mark.parametrize("main", [parse.main, stats.main, report.main])
@pytest.mark.parametrize(
    "content", [b"", b"\0\1" * 99, b"SQLite format 3\0" + b"\1" * 200, b"{}", b"[1, 2", b"\x1f\x8b"]
)
def test_a_file_that_is_none(main, content, tmp_path, monkeypatch, capfdbinary):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "né\x1bt").write_bytes(content)
    code, out, err = run(main, capfdbinary, "--json", "né\x1bt")
    found = answer(out, "error")
    assert (code, found["error"]["exit_code"], found["error"]["file"]) == (1, 1, "né\x1bt")
    assert found["input"] == [{"name": "né\x1bt", "profiler": None}]
    assert err.count("\n") == 1 and "\x1b" not in err and "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["né\x1bt"]


# stats


@pytest.mark.parametrize("file", [LENET, KINETO])
def test_stats_has_every_table_by_name(file, capfdbinary):
    code, out, err = run(stats.main, capfdbinary, "--json", "-r", "all", file)
    found = answer(out, "stats", "stats")
    assert (code, err) == (0, "")
    assert list(found["tables"]) == [each.name for each in REPORTS]
    for name, table in found["tables"].items():
        assert (table["missing"] is None) == bool(table["rows"]), name
    lacking = dict.fromkeys(table["missing"] for table in found["tables"].values() if table["missing"])
    assert found["warnings"] == [f"{file} does not contain {what}." for what in lacking] != []


def test_stats_rows_are_those_of_the_json_form(capfdbinary):
    argv = ["-r", "cuda_gpu_kern_sum:base", LENET]
    rows = json.loads(run(stats.main, capfdbinary, "-f", "json", *argv)[1])
    found = answer(run(stats.main, capfdbinary, "--json", *argv)[1], "stats")
    table = found["tables"]["cuda_gpu_kern_sum:base"]
    assert table["rows"] == rows
    assert table["columns"][:2] == [
        {"name": "Time (%)", "type": "number", "unit": "%"},
        {"name": "Total Time (ns)", "type": "number", "unit": "ns"},
    ]
    assert table["columns"][-1] == {"name": "Name", "type": "string", "unit": None}


def test_stats_of_many_real_captures(data, capfdbinary):
    for file in sorted([*(data / "nsys").glob("*.gz"), *(data / "kineto").glob("*.json*")]):
        if file.stat().st_size > 1_000_000:
            continue
        code, out, _ = run(stats.main, capfdbinary, "--json", str(file))
        assert code == (valid(strict(out), "stats")["schema"] == "pyprof/error/1")


def test_stats_in_a_file(tmp_path, capfdbinary):
    target = tmp_path / "stats.json"
    assert run(stats.main, capfdbinary, "--json", "-o", str(target), LENET) == (0, b"", "")
    answer(target.read_bytes(), "stats")


# report


def test_report_tells_its_page_and_what_it_says(tmp_path, capfdbinary):
    page = tmp_path / "page.html"
    code, out, err = run(report.main, capfdbinary, "--json", "-o", str(page), LENET)
    found = answer(out, "report", "report")
    assert (code, err) == (0, "")
    assert found["output"] == {"name": str(page), "bytes": page.stat().st_size}
    assert found["title"] == "h200_lenet.sqlite.gz"
    assert found["sentences"][0] == "The step takes 2.581 ms as captured."


def test_report_of_hostile_names(tmp_path, capfdbinary):
    name = "".join(HOSTILE)
    table = Table(1, {"kShortName": Coded.of([name]), "kDuration": np.array([5]), "op": Coded.of([json.dumps([name])])})
    with (tmp_path / "net.dict").open("wb") as out:
        write_netdict(table, out)
    argv = ["--json", "--title", name, "-o", str(tmp_path / "page.html"), str(tmp_path / "net.dict")]
    code, printed, _ = run(report.main, capfdbinary, *argv)
    assert (code, answer(printed, "report")["title"]) == (0, name)


# peaks, run, demo: without torch what they print, with it what they do

FOUND = {
    "format": "pyprof peaks", "version": 1, "device": "NVIDIA H200", "arch": "sm_90", "torch": "2.11.0", "sms": 132,
    "memory_bytes": 150109880320, "cache_bytes": 62914560, "flop_per_s": {"tc_bf16": 8.112e14}, "byte_per_s": 4.25e12,
    "lasting_flop_per_s": {"tc_bf16": 6.88e14}, "link_byte_per_s": {"host_to_device": 5.5e10},
    "curves": {
        "products_flop_per_s": {"bf16": [[4096, 7.77e14], [8192, 8.112e14]]},
        "memory_byte_per_s": {"copy": [[8589934592, 4.25e12]], "triad": []},
        "elementwise_byte_per_s": {"bf16": {"add": 4.2e12}},
    },
    "skipped": {"fp8": "not on this device"},
}  # fmt: skip


def test_peaks_are_what_the_option_peaks_reads(tmp_path, monkeypatch, capfdbinary):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(peaks, "measured_device", lambda name: "cuda")
    monkeypatch.setattr(peaks, "measure", lambda *_, **__: FOUND)
    code, out, err = run(peaks.main, capfdbinary, "--json")
    found = answer(out, "peaks", "peaks")
    assert (code, err) == (0, "")
    assert {key: found[key] for key in FOUND} == FOUND
    (tmp_path / "peaks.json").write_bytes(out)
    assert load_peaks(tmp_path / "peaks.json").byte_per_s == 4.25e12


def test_peaks_without_torch(monkeypatch, capfdbinary):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, out, _ = run(peaks.main, capfdbinary, "--json")
    assert (code, answer(out, "error", "peaks")["error"]["message"][:15]) == (1, "no module torch")


def test_demo_that_fails(tmp_path, monkeypatch, capfdbinary):
    monkeypatch.setattr(demo, "example", lambda name: tmp_path / "missing.py")
    code, out, err = run(demo.main, capfdbinary, "--json", "-o", str(tmp_path / "demo"))
    found = answer(out, "error", "demo")
    assert code == 1 and "exited with 1" in found["error"]["message"]
    assert found["error"]["message"] in err


@pytest.mark.torch
def test_peaks_of_this_machine(monkeypatch, capfdbinary):
    pytest.importorskip("torch")
    monkeypatch.setattr(peaks, "QUICK", Effort(trial_s=0.001, trials=2, gemm=(32, 64), most_bytes=1 << 17))
    monkeypatch.setattr("pyprof.benchmark.sweeps.ON_CPU_ELEMENTS", 1 << 10)
    code, out, _ = run(peaks.main, capfdbinary, "--json", "--quick", "--device", "cpu")
    assert (code, answer(out, "peaks", "peaks")["arch"]) == (0, "cpu")


@pytest.mark.torch
def test_demo_tells_its_files(tmp_path, capfdbinary):
    pytest.importorskip("torch")
    code, out, err = run(demo.main, capfdbinary, "--json", "-o", str(tmp_path))
    found = answer(out, "demo", "demo")
    assert code == 0 and "$ pyprof run" in err
    assert {Path(file) for file in found["output"].values()} == set(tmp_path.iterdir())
    assert [words.split()[1] for words in found["commands"]] == ["run", "parse", "prof", "report"]


@pytest.mark.torch
@pytest.mark.parametrize("ending", ["", "sys.exit(3)", "raise ValueError('mine')"])
def test_run_keeps_standard_output_for_its_object(ending, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(
        "import os, sys, torch\nprint('printed')\nos.system('echo by a child')\ntorch.ones(3).relu()\n"
        f"assert sys.argv[1:] == ['--json']\n{ending}\n"
    )
    command = [sys.executable, "-m", "pyprof", "run", "--json", "-o", str(tmp_path / "net.json.gz")]
    done = subprocess.run([*command, str(tmp_path / "train.py"), "--json"], capture_output=True)
    found = answer(done.stdout, "run", "run")
    code = {"": 0, "sys.exit(3)": 3}.get(ending, 1)
    assert (done.returncode, found["exit_code"]) == (code, code)
    assert found["output"] == {
        "name": str(tmp_path / "net.json.gz"),
        "bytes": (tmp_path / "net.json.gz").stat().st_size,
    }
    assert b"printed\n" in done.stderr and b"by a child\n" in done.stderr


@pytest.mark.torch
def test_run_of_no_script(tmp_path, capfdbinary):
    pytest.importorskip("torch")
    from pyprof.capture import run as running

    code, out, _ = run(running.main, capfdbinary, "--json", "-o", str(tmp_path / "net.json.gz"), "missing.py")
    assert (code, answer(out, "error", "run")["error"]["type"]) == (1, "PyprofError")
    assert list(tmp_path.iterdir()) == []


# Pipes and missing packages


@pytest.mark.parametrize("command", ["pyprof.prof --json", "pyprof.parse --json", "pyprof stats --json", "pyprof.prof"])
def test_a_standard_error_that_is_closed_leaves_standard_output_to_the_data(command):
    words = f"{sys.executable} -m {command} {LENET} 2>&-"
    done = subprocess.run(["bash", "-c", words], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    if "--json" in command:
        valid(strict(done.stdout))
    else:
        assert done.stdout.startswith(b"idx ") and b"prof.py:" not in done.stdout


@pytest.mark.parametrize("command", ["pyprof.prof", "pyprof.parse", "pyprof stats"])
@pytest.mark.parametrize("file", [LENET, "/missing"])
def test_a_standard_output_that_is_closed_is_an_error(command, file):
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m {command} --json {file} >&-"], capture_output=True)
    assert done.returncode == 1
    assert b"standard output: cannot be written: it is closed" in done.stderr and b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [f"pyprof.parse --json {LENET}", f"pyprof stats --json -r all {LENET}", f"pyprof stats --json {LENET}.missing"],
)
def test_a_reader_that_goes_away_is_no_error(command):
    words = f"{sys.executable} -m {command} | head -c 10; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True)
    assert done.returncode == ("missing" in command)
    assert done.stdout == '{"schema":' and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == done.returncode


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("pyprof.parse.cli", "numpy"),
        ("pyprof.parse.stats.cli", "numpy"),
        ("pyprof.prof.cli", "numpy"),
        ("pyprof.prof.cli", "orjson"),
        ("pyprof.prof.report.cli", "jinja2"),
    ],
)
def test_a_package_that_is_missing(module, package, tmp_path):
    code = f"import sys; sys.modules['{package}'] = None; from {module} import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", code, "--json", LENET], capture_output=True, cwd=tmp_path,
                          env={"PYTHONPATH": str(GOLDEN.parents[1])})  # fmt: skip
    found = answer(done.stdout, "error")
    assert (done.returncode, found["error"]["type"]) == (1, "MissingPackage")
    assert f"the package {package} is not installed" in done.stderr.decode()
