"""The frame of every command: its options, its exit code, and where its lines and errors are printed."""

import argparse
import importlib
from pathlib import Path

import pytest

from pyprof import __version__, cli
from pyprof.command.argument_types import file_name, number, parsed, whole_number
from pyprof.command.frame import Done, check_standard_output, run_command
from pyprof.command.parser import Parser, add_common, add_json
from pyprof.errors import InputError, UsageError
from tests.answered import strict, valid

WRITERS = {
    "scrub",
    "run",
    "ncu",
    "parse",
    "prof",
    "memory",
    "stats",
    "report",
    "perfetto",
    "plot",
    "diff",
    "peaks",
    "bench",
    "replay",
}


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_command_has_the_common_options(command, capsys):
    module = importlib.import_module(command.module)
    options = set(module.build_parser()._option_string_actions)
    assert {"-h", "--help", "-q", "--quiet", "--version", "--json"} <= options
    assert ("--force" in options) == (command.name in WRITERS)
    with pytest.raises(SystemExit) as stop:
        module.main(["--version"])
    assert (stop.value.code, capsys.readouterr().out) == (0, f"pyprof {__version__}\n")


def build_parser() -> Parser:
    parser = Parser(prog="pyprof diff")
    parser.add_argument("files", nargs="*")
    parser.add_argument("-o", "--output")
    add_json(parser)
    add_common(parser, writes="file")
    return parser


def run(work, *argv):
    return run_command("pyprof diff", build_parser, work, argv, inputs=("files",))


def raising(error):
    def work(args):
        raise error

    return work


def test_lines_go_to_standard_error_and_the_code_is_the_commands(capsys):
    assert run(lambda args: Done(["one", "two\x1b"], 3)) == 3
    assert capsys.readouterr() == ("", "pyprof diff: one\npyprof diff: two?\n")


@pytest.mark.parametrize("option", ["-q", "--quiet", "--json"])
def test_no_lines_where_nobody_reads_them(option, capsys):
    assert run(lambda args: Done(["one"], 3), option) == 3
    assert capsys.readouterr() == ("", "")


def test_bad_input_exits_with_1_and_names_the_files(capfd):
    assert run(raising(InputError("a", "cut")), "a", "-") == 1
    assert capfd.readouterr() == ("", "pyprof diff: a: cut\n")
    assert run(raising(InputError("a", "cut")), "--json", "a", "-") == 1
    found = valid(strict(capfd.readouterr().out.encode()), "diff")
    assert found["error"]["message"] == "a: cut"
    assert [file["name"] for file in found["input"]] == ["a", "-"]


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_wrong_usage_that_the_work_finds_exits_with_2(option, capfd):
    with pytest.raises(SystemExit) as stop:
        run(raising(UsageError("too many")), *option)
    out, err = capfd.readouterr()
    assert stop.value.code == 2 and err.endswith("pyprof diff: error: too many\n")
    assert not out if not option else strict(out.encode())["error"]["exit_code"] == 2


def test_an_interrupt_exits_with_130(capsys):
    assert run(raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "pyprof diff: interrupted\n"


def test_a_package_that_is_missing_while_the_parser_is_built(capsys):
    def build():
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")

    assert run_command("pyprof stats", build, lambda args: Done(), ["x"]) == 1
    assert capsys.readouterr().err.startswith("pyprof stats: the package numpy is not installed")


def test_two_things_on_standard_output():
    with pytest.raises(UsageError, match="give the page another name"):
        check_standard_output(build_parser().parse_args(["--json", "-o", "-"]), "page")
    check_standard_output(build_parser().parse_args(["--json", "-o", "x"]), "page")
    check_standard_output(build_parser().parse_args(["-o", "-"]), "page")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (whole_number(), "7", 7),
        (whole_number(0), "0", 0),
        (number(1, 2, "inches"), "1.5", 1.5),
        (file_name((".png",)), "X.PNG", "X.PNG"),
        (file_name((".png",)), "-", "-"),
        (file_name((".png",)), "/dev/null", "/dev/null"),
        (parsed(int), "12", 12),
    ],
)
def test_what_an_option_takes(kind, text, value):
    assert kind(text) == value


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (whole_number(), "0", "expected a number from 1 on, found '0'"),
        (whole_number(), "-1", "found '-1'"),
        (whole_number(digits=2), "100", "found '100'"),
        (whole_number(), "\u0663", "expected a number"),  # an Arabic digit
        (whole_number(0, what="a rank"), "x", "expected a rank, found 'x'"),
        (number(1, 2, "inches"), "nan", "expected inches, 1 to 2, found 'nan'"),
        (number(1, 2, "inches"), "3", "found '3'"),
        (file_name((".png", ".svg")), "x.txt", "expected a name that ends in .png, .svg, found 'x.txt'"),
        (file_name((".png",), standard=False), "-", "found '-'"),
        (parsed(int), "x", "invalid literal"),
    ],
)
def test_what_an_option_refuses(kind, text, message):
    with pytest.raises(argparse.ArgumentTypeError) as error:
        kind(text)
    assert message in str(error.value)


def test_an_error_of_the_file_system_is_one_line(capsys):
    name = "a" * 300 + ".html"  # longer than any file system allows
    assert run(lambda _: Path(name).stat(), "x") == 1
    assert capsys.readouterr().err == f"pyprof diff: {name}: File name too long\n"


def test_too_little_memory_is_one_line(capsys):
    def work(_):
        raise MemoryError

    assert run(work, "x") == 1
    assert capsys.readouterr().err == "pyprof diff: there is not enough memory for this file\n"


READS = ("parse", "prof", "stats", "report", "perfetto", "diff")


@pytest.mark.parametrize(
    "command", [command for command in cli.COMMANDS if command.name in READS], ids=lambda c: c.name
)
def test_a_name_of_300_letters_is_one_line(command, capsys):
    name = "a" * 300
    assert importlib.import_module(command.module).main([name] * (2 if command.name == "diff" else 1)) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"{name}: " in err
    assert err.endswith("File name too long\n")
