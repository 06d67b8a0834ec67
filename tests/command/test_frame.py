"""The command pyprof: finds its subcommands, and tells what it does not know."""

import importlib
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pyprof import __version__, cli, demo
from pyprof.errors import PyprofError

NAMES = (
    "run, ncu, parse, prof, memory, ranks, stats, scrub, report, perfetto, plot, replay, plan, try, diff, trend, "
    "peaks, bench, mcp, completion, schema, demo"
)


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"pyprof {__version__}\n"


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_lists_every_command_on_standard_output(option, capsys):
    assert cli.main([option]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines() if line.startswith("  ")] == [
        "run",
        "ncu",
        "parse",
        "prof",
        "memory",
        "ranks",
        "stats",
        "scrub",
        "report",
        "perfetto",
        "plot",
        "replay",
        "plan",
        "try",
        "diff",
        "trend",
        "peaks",
        "bench",
        "mcp",
        "completion",
        "schema",
        "demo",
    ]
    assert err == ""


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (
            [],
            f"no command given (the commands are {NAMES}; pyprof --help says what each does)",
        ),
        (
            ["prase"],
            f"no command prase (the commands are {NAMES})",
        ),
        (
            ["--quiet"],
            f"no option --quiet (the commands are {NAMES})",
        ),
    ],
)
def test_bad_usage_exits_with_2_and_names_the_commands(argv, complaint, capsys):
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"{cli.USAGE}\npyprof: {complaint}\n"


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_command_has_a_main_and_a_help(command, capsys):
    main = importlib.import_module(command.module).main
    with pytest.raises(SystemExit) as done:
        main(["--help"])
    assert done.value.code == 0
    assert "usage:" in capsys.readouterr().out


def test_a_command_gets_the_other_words_and_its_exit_code_is_ours(monkeypatch):
    seen = []
    monkeypatch.setitem(sys.modules, "pyprof.parse.cli", SimpleNamespace(main=lambda argv: seen.append(argv) or 1))
    assert cli.main(["parse", "x.sqlite", "--force"]) == 1
    assert seen == [["x.sqlite", "--force"]]


def test_the_command_line_is_read_where_no_words_are_given(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["pyprof", "--version"])
    assert cli.main() == 0
    assert capsys.readouterr().out == f"pyprof {__version__}\n"


def test_the_help_imports_no_subcommand():
    code = "import sys; from pyprof.cli import main; main(['-h']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.splitlines()[-1].split() if name.partition(".")[0] == "pyprof"}
    assert loaded == {"pyprof", "pyprof._version", "pyprof.cli"}


def test_a_failed_step_of_the_demo_leaves_no_file_and_is_named(tmp_path):
    target = tmp_path / "net.dict"
    with pytest.raises(PyprofError, match=r"`pyprof parse .*missing.json > .*net.dict` exited with 1"):
        demo.run_step("parse", str(tmp_path / "missing.json"), into=target)
    assert list(tmp_path.iterdir()) == []


def test_a_step_of_the_demo_leaves_what_it_printed(tmp_path):
    demo.run_step("--version", into=tmp_path / "out")
    assert (tmp_path / "out").read_text() == f"pyprof {__version__}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_example_of_the_demo_is_there():
    assert demo.example("lenet.py").name == "lenet.py"
    with pytest.raises(FileNotFoundError, match=r"examples/nothing\.py"):
        demo.example("nothing.py")


@pytest.mark.parametrize("option", ["--help", "--version"])
@pytest.mark.parametrize("buffered", [True, False])
def test_help_ends_quietly_where_nobody_reads_on_and_in_one_line_on_a_full_disk(option, buffered, root):
    python = [sys.executable, *([] if buffered else ["-u"]), "-m", "pyprof", option]
    read, write = os.pipe()
    os.close(read)
    gone = subprocess.run(python, cwd=root, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (gone.returncode, gone.stderr) == (0, b"")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(python, cwd=root, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert done.stderr.startswith(b"pyprof: standard output: cannot be written")


@pytest.mark.parametrize(("command", "told"), [("parse", "parse.py"), ("stats", "pyprof stats")])
def test_an_interrupt_is_one_line_and_leaves_nothing(command, told, root, tmp_path):
    # a folder of its own, so that whatever is left shows; the interrupt comes when the file is opened
    code = (
        "import signal, os, sqlite3\n"
        "def connect(*args, **kwargs):\n    os.kill(os.getpid(), signal.SIGINT)\n    raise AssertionError('none')\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nsqlite3.connect = connect\n"
        f"import sys\nfrom pyprof.cli import main\nsys.exit(main({[command]!r} + sys.argv[1:]))"
    )
    file = str(root / "tests" / "golden" / "h200_lenet.sqlite.gz")
    python = [sys.executable, "-c", code, file, "-o", "net.csv"]
    done = subprocess.run(python, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", f"{told}: interrupted\n".encode())
    assert not list(tmp_path.iterdir())
