"""Read ``.nsys-rep`` reports: nsys itself exports the report to a temporary SQLite file, which is read and removed.

The report's own format is not documented. nsys promises that any newer version exports it.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import DEVNULL, CompletedProcess, run

from pyprof.errors import InputError
from pyprof.files import scratch_folder
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.contents import Contents
from pyprof.parse.attribute.notes import CaptureNotes
from pyprof.parse.nsys import overview, reader


def read(file: Path, lean: bool = False) -> Capture:
    """Read an nsys report like its export. Raises InputError if nsys is not on the PATH or cannot export the report."""
    with _exported(file) as database:
        capture = reader.read(database, lean)
    capture.file = str(file)
    return capture


def brief(file: Path) -> tuple[CaptureNotes, Contents]:
    """The summary of an nsys report, by ``overview``. Raises as ``read`` does."""
    with _exported(file) as database:
        notes, contents = overview.brief(database)
    return replace(notes, file=str(file)), contents


@contextmanager
def _exported(file: Path) -> Iterator[Path]:
    tool = shutil.which("nsys")
    if tool is None:
        advice = "where it is installed: nsys export --type sqlite FILE, and parse that"
        raise InputError(file, f"expected nsys on the PATH to read a report, found none ({advice})")
    with scratch_folder() as folder:
        exported = Path(folder) / "net.sqlite"
        _export(tool, file, exported)
        try:
            yield exported
        except InputError as error:  # the message has the temporary file's name
            raise type(error)(file, str(error).removeprefix(f"{exported}: ")) from None


def _export(tool: str, file: Path, exported: Path) -> None:
    """Export with NVTX payloads, which have NCCL's message sizes, or without them if nsys lacks the option."""
    command = [tool, "export", "--type=sqlite", "--force-overwrite=true", f"--output={exported}", str(file.resolve())]
    try:
        done = _run([*command[:2], "--include-blobs=true", *command[2:]])
        if done.returncode:
            done = _run(command)
    except OSError as error:
        raise InputError(file, f"{tool} cannot be run: {error.strerror or error}") from None
    if done.returncode or not exported.is_file():
        output = done.stderr.strip() or done.stdout.strip() or "nothing"
        found = f"exit code {done.returncode} and: {output.splitlines()[-1][:300]}"
        raise InputError(file, f"expected nsys export to make a database, found {found}")


def _run(command: list[str]) -> CompletedProcess[str]:
    return run(command, stdin=DEVNULL, capture_output=True, text=True, errors="replace", check=False)
