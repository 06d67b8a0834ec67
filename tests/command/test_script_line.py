"""Options of a command that stand behind the script: they are the script's, and the user is told."""

import argparse
from pathlib import Path

import pytest

from pyprof.capture import run
from pyprof.command.script_line import misplaced, tell_misplaced
from pyprof.variants import cli as variants


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain.py").write_text("print('no options')\nwarmup = 3  # --warmup-steps, my--warmup\n")
    (tmp_path / "named.py").write_text("parser.add_argument('-o', '--warmup', type=int)\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "package" / "train.py").write_text('parser.add_argument("--steps")\n')
    monkeypatch.chdir(tmp_path)


LINES = [
    ("plain.py --lr 0.1", None),
    ("plain.py --warmup 2", ("--warmup", "pyprof run --warmup 2 plain.py")),
    ("--steps 3 plain.py a --warmup=2 -q", ("--warmup and -q", "pyprof run --warmup=2 -q plain.py")),
    ("plain.py --help", None),  # every script with a parser has this one
    ("plain.py -- --warmup 2", None),
    ("-- plain.py --warmup 2", None),
    ("named.py --warmup 2 -o x", None),
    ("named.py --steps 2", ("--steps", "pyprof run --steps 2 named.py")),
    ("-m package.train --steps 2", None),
    ("-m package.train --warmup 2", ("--warmup", "pyprof run --warmup 2 -m package.train")),
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line for line, _ in LINES])
def test_an_option_behind_the_script_is_told_once(
    line: str, expected: "tuple[str, str] | None", capsys: pytest.CaptureFixture[str]
) -> None:
    parser = run.build_parser()
    options = parser.parse_args(line.split())
    warnings = tell_misplaced(parser, options)
    if expected is None:
        assert (warnings, capsys.readouterr().err) == ([], "")
        return
    found, right = expected
    script = right.split()[-1]
    (warning,) = warnings
    assert warning == (
        f"{script} gets {found}, which its text does not name: "
        f"an option of pyprof run stands before the script ({right})"
    )
    assert capsys.readouterr().err == f"pyprof run: warning: {warning}\n"


@pytest.mark.parametrize("name", ["quiet", "json"])
def test_nothing_is_printed_for_quiet_and_json(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--{name}", "plain.py", "--warmup", "2"]
    parser = run.build_parser()
    assert len(tell_misplaced(parser, parser.parse_args(words))) == 1
    assert capsys.readouterr().err == ""


def test_the_first_rank_alone_prints(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    words = ["plain.py", "--warmup", "2"]
    parser = run.build_parser()
    tell_misplaced(parser, parser.parse_args(words))
    assert capsys.readouterr().err == ""


def test_a_missing_script_s_text_names_nothing() -> None:
    assert len(misplaced(run.build_parser(), "missing.py", ["--steps", "2"], ["--", "python"])) == 1


TRIED = [
    ("a.py --with amp --lr 0.1", ([("amp",)], 10, ["--lr", "0.1"])),
    ("--warm 2 a.py --with=amp --plan x", ([("amp",)], 2, ["x"])),  # an abbreviated option has its value, too
    ("-m a.py --with amp --warmup 3", ([("amp",)], 10, ["--warmup", "3"])),
    ("a.py --plan --capture a.json --with tf32 --json", ([("tf32",)], 10, ["--json"])),
    ("a.py --lr 0.1 --with amp", (None, 10, ["--lr", "0.1", "--with", "amp"])),
    ("-- a.py --with amp", (None, 10, ["--with", "amp"])),
]


@pytest.mark.parametrize(("line", "expected"), TRIED, ids=[line for line, _ in TRIED])
def test_try_takes_its_choice_directly_behind_the_script(line: str, expected: tuple[object, ...]) -> None:
    parser = variants.build_parser()
    found: argparse.Namespace = parser.parse_args(line.split())
    assert (found.script, found.first, found.warmup, found.args) == ("a.py", *expected)


def test_a_separator_behind_the_script_is_the_script_s() -> None:
    """As with python: `python a.py -- b` gives the script both words."""
    parser = run.build_parser()
    assert parser.parse_args(["a.py", "--", "b"]).args == ["--", "b"]
    assert parser.parse_args(["--", "a.py", "--", "b"]).args == ["--", "b"]
