"""The files that fuzzing found, under every command: they end within 20 s and 1 GiB, with one line if refused."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import GOLDEN, ROOT

DATA = os.environ.get("PYPROF_DATA", "")
SECONDS, KIB = 20, 1 << 20  # processor time, and 1 GiB
COMMANDS = (
    "parse FILE -o OUT.dict", "parse FILE -o OUT.pyprof", "parse FILE --summary", "parse FILE --json", "prof FILE",
    "prof FILE --summary", "prof FILE --advise", "prof FILE --csv", "prof FILE --json", "prof FILE --explain 1",
    "stats FILE",
    "report FILE -o OUT.html", "perfetto FILE -o OUT.pftrace", "plot timeline FILE -o OUT.png", "diff FILE FILE",
)  # fmt: skip
# Runs the commands that it is told, each in a child of its own: to start Python for each would take most of the time.
MEASURED = """
import ast, os, signal, sys
import numpy, pyprof.cli, pyprof.parse.read, pyprof.prof.load
for line in sys.stdin:
    words, errors = ast.literal_eval(line)
    child = os.fork()
    if not child:
        signal.alarm(300)  # ends one that hangs
        code = 70
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
            code = pyprof.cli.main(words)
        except SystemExit as stop:
            code = stop.code
        finally:  # after an error, too: its traceback is printed, and the loop is the parent's alone
            if code == 70:
                import traceback; traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    print(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss, flush=True)
"""


@pytest.fixture(scope="module")
def measured():
    """The process that runs commands: a line of words and a file for their errors in, code, s and KiB out."""
    words = [sys.executable, "-c", MEASURED]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        yield process
        process.stdin.close()


FILES = sorted((Path(DATA) / "round2" / "hostile").glob("*.gz")) if DATA else []


@pytest.mark.skipif(not DATA, reason="PYPROF_DATA does not name the folder of captures")
@pytest.mark.parametrize("command", [*COMMANDS, "memory FILE --json"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_hostile_file_ends(file, command, measured, tmp_path, tmp_path_factory):
    if file.name.endswith(".parquet.gz"):  # Parquet is read as it is
        plain = tmp_path_factory.mktemp("plain") / file.stem
        plain.write_bytes(gzip.decompress(file.read_bytes()))
        file = plain
    words = [{"FILE": str(file)}.get(word, word.replace("OUT", str(tmp_path / "out"))) for word in command.split()]
    errors = tmp_path_factory.mktemp("errors") / "err"
    print([words, str(errors)], file=measured.stdin, flush=True)
    code, seconds, memory = measured.stdout.readline().split()
    stderr = errors.read_text("utf-8")
    assert float(seconds) < SECONDS
    assert int(memory) < KIB
    assert "Traceback" not in stderr
    assert code in "01"
    if code == "1":
        assert stderr.count("\n") == 1, stderr
        assert not list(tmp_path.iterdir())


FULL = (  # a file system without room, as far as a process can tell: no file of its own exceeds 64 KiB
    "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536));"
    " from pyprof.cli import main; sys.exit(main(sys.argv[1:]))"
)
LENET = GOLDEN / "h200_lenet_init.sqlite.gz"


@pytest.mark.parametrize("command", ["parse FILE --summary", "prof FILE", "stats FILE", "report FILE -o OUT.html"])
def test_a_full_temporary_folder_is_one_line(command, tmp_path):
    words = [{"FILE": str(LENET)}.get(word, word.replace("OUT", str(tmp_path / "out"))) for word in command.split()]
    done = subprocess.run([sys.executable, "-c", FULL, *words, "-q"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{LENET}: cannot be unpacked to a temporary file: File too large (set TMPDIR" in done.stderr
    assert done.stderr.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_name_that_is_not_utf8_is_a_name(command, tmp_path):
    name = os.fsencode(tmp_path) + b"/net\xff\xfe.json.gz"
    Path(os.fsdecode(name)).write_bytes((GOLDEN / "h200_lenet_fp32.json.gz").read_bytes())
    words = [
        {"FILE": name}.get(word, os.fsencode(word.replace("OUT", str(tmp_path / "out")))) for word in command.split()
    ]
    done = subprocess.run([sys.executable, "-m", "pyprof", *words], capture_output=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
