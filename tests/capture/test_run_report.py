"""`pyprof run --report`: the page and the summary of the trace just collected."""

import argparse
from pathlib import Path

import pytest

pytest.importorskip("torch")

from pyprof import cli
from pyprof.capture import run as command
from pyprof.capture.run_report import default_page
from pyprof.errors import ScriptInterrupted
from tests.answered import answer

from .conftest import Domain
from .test_run import pyprof_run, script

RELU = "import sys, torch\ntorch.relu(torch.ones(2))\nprint('printed', *sys.argv[1:])\n"
NO_TORCH = "print('printed')\n"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_script_has_standard_output_and_the_report_standard_error(tmp_path: Path) -> None:
    done = pyprof_run(tmp_path, "--report", script(tmp_path, RELU), "--flag", "x")
    assert (done.returncode, done.stdout) == (0, "printed --flag x\n")
    assert names(tmp_path) == ["net.html", "net.json.gz", "script.py"]
    assert (tmp_path / "net.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "By kind of work" in done.stderr
    assert done.stderr.splitlines()[-3:] == [
        "pyprof run: wrote net.json.gz, the trace",
        "pyprof run: wrote net.html, the report: open it in a browser",
        "pyprof run: next: pyprof prof --group op,dir -w 100 net.json.gz",  # there is no advice
    ]


def test_the_summary_is_that_of_prof_and_the_next_command_works(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert command.main(["--report", script(tmp_path, RELU)]) == 0
    told = capfdbinary.readouterr().err.decode()
    assert cli.main(["prof", "--summary", "net.json.gz"]) == 0
    summary = capfdbinary.readouterr().out.decode()
    assert summary.startswith("2 CPU ops on the CPU.")  # ones and relu
    assert f"\n{summary}\n" in told
    assert cli.main(["prof", "--group", "op,dir", "-w", "100", "net.json.gz"]) == 0


@pytest.mark.parametrize(("ending", "code"), [("sys.exit(7)", 7), ("raise ValueError", 1)])
def test_a_script_that_fails_has_its_report_and_its_exit_code(tmp_path: Path, ending: str, code: int) -> None:
    assert command.main(["--report", script(tmp_path, RELU + ending)]) == code
    assert names(tmp_path) == ["net.html", "net.json.gz", "script.py"]


def test_an_interrupted_script_has_its_report(tmp_path: Path) -> None:
    with pytest.raises(ScriptInterrupted):  # of which pyprof.cli makes an end by SIGINT
        command.main(["--report", script(tmp_path, RELU + "raise KeyboardInterrupt")])
    assert names(tmp_path) == ["net.html", "net.json.gz", "script.py"]


@pytest.mark.parametrize(("ending", "code"), [("", 1), ("raise SystemExit(3)", 3)])
def test_a_script_without_an_operation_has_no_trace_and_no_report(
    tmp_path: Path, ending: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--report", script(tmp_path, NO_TORCH + ending)]) == code
    assert names(tmp_path) == ["script.py"]
    why = "net.json.gz: not written, for no operation of PyTorch ran while it was collected"
    assert capsys.readouterr().err == f"pyprof run: {'warning: ' if ending else ''}{why}\n"


def test_a_trace_without_work_names_no_command_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`pyprof prof` has nothing to say of torch.empty(), which does no work."""
    assert command.main([script(tmp_path, "import torch\ntorch.empty(3)\n")]) == 0
    assert capsys.readouterr().err == "pyprof run: wrote net.json.gz\n"
    assert cli.main(["prof", "--summary", "net.json.gz"]) == 1


def test_nothing_collected_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--report", "--capture-range", "cudaProfilerApi", script(tmp_path, RELU)]) == 1
    assert names(tmp_path) == ["script.py"]
    assert capsys.readouterr().err.endswith("not written, for the program never called start()\n")


def test_control_c_while_the_report_is_made_keeps_the_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "make_report", interrupted)
    assert command.main(["--report", script(tmp_path, RELU)]) == 130
    assert names(tmp_path) == ["net.json.gz", "script.py"]
    assert capsys.readouterr().err.splitlines()[-3:] == [
        "pyprof run: interrupted: no report was made",
        "pyprof run: wrote net.json.gz",
        "pyprof run: next: pyprof prof --summary net.json.gz",
    ]


def test_a_page_that_exists_is_kept_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.html").write_text("mine")
    assert command.main(["--report", script(tmp_path, RELU)]) == 1
    assert capsys.readouterr() == ("", "pyprof run: net.html: exists; give --force to overwrite it, or another name\n")
    assert names(tmp_path) == ["net.html", "script.py"]  # the script did not run
    assert command.main(["--report", "--force", script(tmp_path, RELU)]) == 0
    assert (tmp_path / "net.html").read_text(encoding="utf-8") != "mine"


def test_quiet_prints_nothing_but_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["-q", "--report", script(tmp_path, RELU)]) == 0
    assert capsys.readouterr() == ("printed\n", "")
    assert command.main(["-q", "--report", "--force", script(tmp_path, NO_TORCH)]) == 1
    told = capsys.readouterr().err
    assert told.startswith("pyprof run: net.json.gz: not written, for ") and told.count("\n") == 1


@pytest.mark.parametrize("asked", [True, False])
def test_json_tells_the_page(tmp_path: Path, asked: bool, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert command.main(["--json", *["--report"][: int(asked)], script(tmp_path, RELU)]) == 0
    out, err = capfdbinary.readouterr()
    found = answer(out, "run", "run")["report"]
    assert b"By kind of work" not in err
    if asked:
        assert found["output"] == {"name": "net.html", "bytes": (tmp_path / "net.html").stat().st_size}
        assert found["title"] == "net.json.gz" and found["headline"].startswith("2 CPU ops on the CPU.")
    else:
        assert found is None and names(tmp_path) == ["net.json.gz", "script.py"]


def test_beside_json_the_output_of_the_script_and_its_children_is_on_standard_error(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert command.main(["--json", script(tmp_path, f"{RELU}import os\nos.system('echo child')\n")]) == 0
    out, err = capfdbinary.readouterr()
    assert answer(out, "run", "run")["exit_code"] == 0
    assert {"printed", "child"} <= set(err.decode().splitlines())


def test_json_tells_why_there_is_no_page(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert command.main(["--json", "--report", script(tmp_path, "import torch\ntorch.empty(3)\n")]) == 1
    found = answer(capfdbinary.readouterr().out, "run", "run")
    assert (found["exit_code"], found["report"], found["output"]["name"]) == (1, None, "net.json.gz")
    assert found["warnings"][0].startswith("no report was made: ")


def test_each_rank_has_its_page_and_the_first_prints_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, options in (("0", ["--report"]), ("1", ["--report=page.html", "-o", "b.json"])):
        monkeypatch.setenv("RANK", rank)
        assert command.main([*options, script(tmp_path, RELU)]) == 0
        assert ("By kind of work" in capsys.readouterr().err) == (rank == "0")
    pages = ["net.rank0.html", "page.rank1.html"]
    assert names(tmp_path) == sorted([*pages, "net.rank0.json.gz", "b.rank1.json", "script.py"])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--report=-"], "standard output is the script's"),
        (["--report=net.json.gz"], "net.json.gz is the trace's name"),
    ],
)
def test_wrong_usage(tmp_path: Path, words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main([*words, script(tmp_path, RELU)])
    assert complaint in capsys.readouterr().err
    assert names(tmp_path) == ["script.py"]


def test_under_a_tool_only_a_trace_of_ours_has_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyprof.capture import sinks

    domain = Domain()
    monkeypatch.setattr(sinks, "_nvtx_domain", lambda: domain)
    with pytest.raises(SystemExit, match="2"):
        command.main(["--report", script(tmp_path, RELU)])
    told = capsys.readouterr().err
    assert "add -o net.json.gz" in told and "pyprof report net.sqlite" in told
    assert names(tmp_path) == ["script.py"]
    assert command.main(["--report", "-o", "net.json.gz", script(tmp_path, RELU)]) == 0
    assert names(tmp_path) == ["net.html", "net.json.gz", "script.py"]


COMMAND_LINES = [  # words, --report, the script, its arguments
    (["--report", "a.py"], "", "a.py", []),
    (["--report", "p.html", "a.py", "x"], "p.html", "a.py", ["x"]),
    (["--report=p.txt", "a.py"], "p.txt", "a.py", []),
    (["-q", "--rep", "p.htm", "-o", "t.json", "a.py"], "p.htm", "a.py", []),
    (["--report", "--steps", "3", "--warm", "2", "a.py"], "", "a.py", []),
    (["--steps=3", "--report", "-m", "train"], "", "train", []),
    (["--report", "a.py", "--report", "x.html"], "", "a.py", ["--report", "x.html"]),
    (["a.py", "--report"], None, "a.py", ["--report"]),
    (["--trace", "all", "a.py", "--report", "3"], None, "a.py", ["--report", "3"]),
]


@pytest.mark.parametrize(
    ("words", "report", "name", "args"), COMMAND_LINES, ids=[" ".join(c[0]) for c in COMMAND_LINES]
)
def test_the_word_after_report_is_the_page_if_it_ends_in_html(
    words: list[str], report: str | None, name: str, args: list[str]
) -> None:
    found: argparse.Namespace = command.build_parser().parse_args(words)
    assert (found.report, found.script, found.args) == (report, name, args)


@pytest.mark.parametrize(
    ("trace", "page"),
    [
        ("net.json.gz", "net.html"),
        ("out/net.json", "out/net.html"),
        ("my.run.json.gz", "my.run.html"),
        ("trace", "trace.html"),
    ],
)
def test_the_page_has_the_trace_s_name(trace: str, page: str) -> None:
    assert default_page(Path(trace)) == Path(page)
