"""What commands say beside their data: never in it, and never a terminal's own signs."""

import shutil
import subprocess
import sys

import pytest

CAPTURE = "h200_lenet.sqlite.gz"
COMMANDS = {
    "diff": ["diff", CAPTURE, CAPTURE, "--fail-if", "kernels > -1", "--strict"],
    "perfetto": ["perfetto", CAPTURE, "-o", "out.perfetto-trace"],
    "report": ["report", CAPTURE, "-o", "out.html"],
    "prof": ["prof", CAPTURE],
}


@pytest.fixture
def folder(tmp_path, root):
    shutil.copy(root / "tests" / "golden" / CAPTURE, tmp_path / CAPTURE)
    return tmp_path


def run(folder, words, closed=False):
    command = [sys.executable, "-m", "pyprof", *words]
    if closed:
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    return subprocess.run(command, cwd=folder, capture_output=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_with_standard_error_closed_standard_output_is_data_only(folder, command):
    words = COMMANDS[command]
    told = run(folder, words)
    (folder / "out.perfetto-trace").unlink(missing_ok=True)
    (folder / "out.html").unlink(missing_ok=True)
    silent = run(folder, words, closed=True)
    assert told.stderr and (silent.returncode, silent.stdout) == (told.returncode, told.stdout)
    assert told.returncode == (3 if command == "diff" else 0)


def test_a_file_s_name_cannot_drive_the_terminal(folder):
    name = "net\x1b[31m.sqlite.gz"
    shutil.copy(folder / CAPTURE, folder / name)
    assert b"\x1b" not in run(folder, ["diff", name, name, "--fail-if", "kernels > -1", "--strict"]).stderr
    assert b"\x1b" not in run(folder, ["perfetto", name, "-o", "out\x1b[1m.perfetto-trace"]).stderr
