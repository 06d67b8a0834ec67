"""A command that is killed, at any moment: nothing of it stays, and what was there before stays as it was."""

import gzip
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.paths import GOLDEN, ROOT

CAPTURE = GOLDEN / "h200_lenet_init.sqlite.gz"
COMMANDS = ("parse FILE -o OUT.dict", "parse FILE -o OUT.pyprof", "report FILE -o OUT.html", "scrub FILE -o OUT.sqlite",
            "prof FILE -o OUT.csv --csv", "perfetto FILE -o OUT.pftrace")  # fmt: skip
NAMED = ("connect", "link", "unlink", "replace", "rename", "mkdir", "chmod", "scandir")
OLD = b"an output of an earlier run\n"
# These tests may run under nohup, which their processes would inherit.
UNIGNORED = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
# Calls functions of the operating system's as ever, and sends a signal to its own process at the call of that number.
STRUCK = """
import builtins, os, signal, sys
moment, number, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
from pyprof.cli import main
calls = 0
def struck(function):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == moment:
            print(function.__name__, file=sys.stderr, flush=True)
            os.kill(os.getpid(), number)
        return function(*args, **kwargs)
    return call
for name in ("open", "link", "replace", "unlink", "mkdir", "rename", "fchmod", "chmod", "scandir"):
    setattr(os, name, struck(getattr(os, name)))
import sqlite3, zlib
sqlite3.connect, zlib.decompressobj = struck(sqlite3.connect), struck(zlib.decompressobj)
code = main(words)
print(calls, file=sys.stderr)
sys.exit(code)
"""


class Place:
    """A folder with an old output, and a temporary folder of its own."""

    def __init__(self, folder: Path, command: str) -> None:
        self.out, self.temporary = folder / "out", folder / "tmp"
        self.out.mkdir(), self.temporary.mkdir()
        self.words = [{"FILE": str(CAPTURE)}.get(word, word) for word in command.split()]
        self.words = [str(self.out / word) if word.startswith("OUT.") else word for word in self.words]
        self.target = next(Path(word) for word in self.words if word.startswith(str(self.out)))
        if self.target.suffix == ".pyprof":
            self.target.mkdir()
            (self.target / "meta.json").write_bytes(OLD)
        else:
            self.target.write_bytes(OLD)
        self.environment = {**os.environ, "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT)}

    def left(self) -> list[str]:
        """What lies in the folders beside the output."""
        return [*os.listdir(self.temporary), *(name for name in os.listdir(self.out) if name != self.target.name)]

    def is_old(self) -> bool:
        kept = self.target / "meta.json" if self.target.is_dir() else self.target
        return kept.read_bytes() == OLD


def strike(place: Place, moment: int, number: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", UNIGNORED + STRUCK, str(moment), str(number), *place.words, "--force", "-q"]
    return subprocess.run(words, capture_output=True, text=True, env=place.environment)


_calls: dict[str, int] = {}


def calls_of(command: str, folder: Path) -> int:
    """How many of these calls the command makes, which ends well."""
    if command not in _calls:
        (folder / "whole").mkdir()
        place = Place(folder / "whole", command)
        done = strike(place, 0, signal.SIGTERM)
        assert done.returncode == 0, done.stderr
        assert place.left() == [] and not place.is_old()
        _calls[command] = int(done.stderr.split()[-1])
    return _calls[command]


@pytest.mark.parametrize(
    ("command", "number"),
    [
        *((command, number) for command in COMMANDS for number in (signal.SIGTERM, signal.SIGKILL)),
        (COMMANDS[0], signal.SIGINT), (COMMANDS[1], signal.SIGINT), (COMMANDS[0], signal.SIGHUP),
    ],
)  # fmt: skip
def test_a_killed_command_leaves_nothing(command, number, tmp_path):
    """The signal comes at two of the command's calls of the system: one in the middle, and the last."""
    calls = calls_of(command, tmp_path)
    for moment in sorted({max(1, calls // 2), calls}):
        (tmp_path / str(moment)).mkdir()
        place = Place(tmp_path / str(moment), command)
        done = strike(place, moment, number)
        assert "Traceback" not in done.stderr
        if number == signal.SIGINT:
            assert done.returncode in (0, 130), (moment, done.stderr)
        else:
            assert done.returncode == -number, (moment, done.stderr)
        # What SQLite opens, and what replaces a file or folder, has a name of its own for some microseconds.
        named = number == signal.SIGKILL and done.stderr.split()[0] in NAMED
        assert len(place.left()) <= named, (moment, calls, done.stderr, place.left())
        assert done.returncode == 0 or place.target.exists() or place.target.suffix == ".pyprof"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name)
@pytest.mark.parametrize("share", [0.4, 0.8])
def test_a_command_that_is_killed_by_the_clock_leaves_nothing(number, share, tmp_path):
    place = Place(tmp_path, COMMANDS[0])
    words = [sys.executable, "-m", "pyprof", *place.words, "--force", "-q"]
    began = time.monotonic()
    subprocess.run(words, env=place.environment, check=True)
    took, whole = time.monotonic() - began, place.target.read_bytes()
    place.target.write_bytes(OLD)
    with subprocess.Popen(words, env=place.environment) as process:
        time.sleep(share * took)
        process.send_signal(number)
        code = process.wait(60)
    assert place.left() == []
    assert code in (0, -number)
    assert place.target.read_bytes() in ((whole,) if code == 0 else (OLD, whole))  # it may be killed on its way out


IN_SQLITE = """
import os, signal, sys
from pyprof.cli import main
from pyprof.parse.databases.guarded_connection import Guard
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
allow = Guard._allow
def struck(self, *args):
    os.kill(os.getpid(), int(sys.argv[1]))
    return allow(self, *args)
Guard._allow = struck
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT], ids=lambda n: n.name)
def test_a_signal_in_a_function_that_sqlite_calls_is_no_damaged_file(number, tmp_path):
    """SQLite takes the exception for a refusal: "access to sqlite_master.name is prohibited"."""
    place = Place(tmp_path, COMMANDS[0])
    words = [sys.executable, "-c", UNIGNORED + IN_SQLITE, str(int(number)), *place.words, "--force"]
    done = subprocess.run(words, capture_output=True, text=True, env=place.environment)
    if number == signal.SIGINT:
        assert (done.returncode, done.stderr) == (130, "parse.py: interrupted\n")
    else:
        assert (done.returncode, done.stderr) == (-number, "")
    assert place.left() == [] and place.is_old()


# Interrupts its own process when the second part of a table is read by a thread, and says how many are read in all.
IN_THREAD = """
import atexit, os, signal, sys
from pyprof.cli import main
from pyprof.parse.nsys import nvtx_ranges
signal.signal(signal.SIGINT, signal.default_int_handler)
split, parts = nvtx_ranges.split_texts, []
def struck(*args):
    parts.append(0)
    if len(parts) == 2:
        os.kill(os.getpid(), signal.SIGINT)
    return split(*args)
nvtx_ranges.split_texts = struck
atexit.register(lambda: print(len(parts)))
sys.exit(main(sys.argv[1:]))
"""


def test_an_interrupt_ends_what_other_threads_read(tmp_path):
    """A thread reads the ranges: 798,720 of them, in 25 parts, which takes seconds."""
    place, large = Place(tmp_path, COMMANDS[0]), tmp_path / "large.sqlite"
    large.write_bytes(gzip.decompress((GOLDEN / "h200_gpt2_step.sqlite.gz").read_bytes()))
    with closing(sqlite3.connect(large, isolation_level=None)) as connection:
        for _ in range(7):
            connection.execute("INSERT INTO NVTX_EVENTS SELECT * FROM NVTX_EVENTS")
    words = [sys.executable, "-c", IN_THREAD, "parse", str(large), "-o", str(place.target), "--force", "-q"]
    done = subprocess.run(words, capture_output=True, text=True, env=place.environment)
    assert (done.returncode, done.stderr) == (130, "parse.py: interrupted\n")
    assert 2 <= int(done.stdout) < 13  # it ended long before all parts were read
    assert place.left() == [] and place.is_old()


def test_nohup_stays_in_force(tmp_path):
    place = Place(tmp_path, COMMANDS[0])
    ignoring = f"import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n{STRUCK}"
    words = [sys.executable, "-c", ignoring, "3", str(int(signal.SIGHUP)), *place.words, "--force", "-q"]
    assert subprocess.run(words, capture_output=True, env=place.environment).returncode == 0
    assert not place.is_old()
