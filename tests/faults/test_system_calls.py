"""Each call of the operating system fails once: one line and exit 1, or the whole output; never a part of one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.test_signals import COMMANDS, OLD, Place
from tests.paths import GOLDEN

SMALL = GOLDEN / "h200_lenet_fp32.json.gz"
DATABASE = GOLDEN / "h200_lenet_init.sqlite.gz"
# Every function of Python that asks the operating system for something fails at its call with that number.
FAILING = """
import os, sys
wanted, error, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
import pyprof.cli
from pyprof.cli import main
import io, tempfile
tempfile.gettempdir()  # leaves a file of its own behind if it cannot remove it
calls = 0
def failing(function):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls == wanted:
            raise OSError(error, os.strerror(error))
        return function(*args, **kwargs)
    return call
for name in NAMES:
    setattr(os, name, failing(getattr(os, name)))
class FileIO(io.FileIO):
    read, readinto = failing(io.FileIO.read), failing(io.FileIO.readinto)
    readall, write = failing(io.FileIO.readall), failing(io.FileIO.write)
io.FileIO = FileIO
try:
    code = main(words)
finally:
    sys.stderr.write(f"\\ncalls {calls}\\n")
sys.exit(code)
"""
NAMES = (
    "open",
    "link",
    "replace",
    "unlink",
    "mkdir",
    "rename",
    "fchmod",
    "chmod",
    "stat",
    "lstat",
    "scandir",
    "listdir",
)
ENOSPC, EIO, EACCES = 28, 5, 13


def run(place: Place, file: Path, wanted: int, error: int) -> tuple[int, str, int]:
    words = [str(file) if word.endswith("lenet_init.sqlite.gz") else word for word in place.words]
    code = FAILING.replace("NAMES", repr(NAMES), 1)
    done = subprocess.run(
        [sys.executable, "-c", code, str(wanted), str(error), *words, "--force", "-q"],
        capture_output=True, text=True, env=place.environment,
    )  # fmt: skip
    said, _, calls = done.stderr.rpartition("\ncalls ")
    return done.returncode, said, int(calls or 0)


@pytest.mark.parametrize("file", [SMALL, DATABASE], ids=["json", "sqlite"])
@pytest.mark.parametrize("command", [COMMANDS[0], COMMANDS[1], COMMANDS[3]])
def test_each_call_may_fail(command, file, tmp_path):
    (tmp_path / "whole").mkdir()
    code, said, calls = run(Place(tmp_path / "whole", command), file, 0, EIO)
    assert code == 0, said
    step = max(1, calls // 5)
    for wanted in sorted({*range(1, calls + 1, step), calls}):
        (tmp_path / str(wanted)).mkdir()
        place = Place(tmp_path / str(wanted), command)
        code, said, _ = run(place, file, wanted, (ENOSPC, EIO, EACCES)[wanted % 3])
        assert "Traceback" not in said, (wanted, said)
        assert code in (0, 1), (wanted, said)
        assert place.left() == [], (wanted, said)
        if code == 1:
            assert said.count("\n") == 1, said
            assert place.is_old(), (wanted, said)
        else:
            assert not place.is_old()


STRACE = shutil.which("strace")
INJECTED = ("openat", "read", "pread64", "write", "pwrite64", "lseek", "fstat", "newfstatat", "linkat", "unlink",
            "rename", "fchmod", "ftruncate", "mmap", "close", "getdents64", "fcntl", "ioctl")  # fmt: skip


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize("call", INJECTED)
def test_each_call_below_python_may_fail(call, tmp_path):
    """strace makes the kernel's calls on the capture and on the temporary and the output's folder fail."""
    place = Place(tmp_path, COMMANDS[0])
    words = [str(DATABASE) if word.endswith("lenet_init.sqlite.gz") else word for word in place.words]
    base = [
        str(STRACE),
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-P",
        str(DATABASE),
        "-P",
        str(place.out),
        "-P",
        str(place.temporary),
    ]
    probe = subprocess.run([*base, "true"], capture_output=True)
    if probe.returncode:
        pytest.skip("strace may not trace here")
    for when in ("1", "2", "3+"):
        run_ = [
            *base,
            "-e",
            f"inject={call}:error=EIO:when={when}",
            sys.executable,
            "-m",
            "pyprof",
            *words,
            "--force",
            "-q",
        ]
        done = subprocess.run(run_, capture_output=True, text=True, env=place.environment, timeout=120)
        assert "Traceback" not in done.stderr, (when, done.stderr)
        assert done.returncode in (0, 1), (when, done.stderr)
        assert place.left() == [], when
        assert place.is_old() == (done.returncode == 1), (when, done.stderr)
        place.target.write_bytes(OLD)
