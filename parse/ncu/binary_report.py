"""Read ``.ncu-rep`` reports, whose format is not documented, through NVIDIA's own tools.

The package ncu-report reads them without a GPU and is asked first; else an installed ncu prints the report as a table.
The package is a compiled reader of undocumented data, so it works in a process of its own (``report_process.py``):
what a broken report does to it, and what it prints, ends there.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from io import BufferedReader
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from typing import BinaryIO, cast

import msgspec

from pyprof.errors import InputError
from pyprof.files import GZIP, scratch_folder
from pyprof.parse.ncu.report import KEPT, NAN, Builder, Launch, Range, Report
from pyprof.parse.ncu.table_lines import Noise, records
from pyprof.parse.ncu.table_rows import fill
from pyprof.parse.ncu.units import base_unit

PACKAGE = "ncu_report"
READER = Path(__file__).with_name("report_process.py")
NEEDED = "the package ncu-report (pip install ncu-report) or ncu on the PATH"
PRINTED = ("--csv", "--page", "raw", "--print-units", "base")


class Action(msgspec.Struct):
    """One line of ``report_process.py``: a launch, its NVTX ranges and its metrics."""

    names: list[str]
    ranges: list[tuple[str, str, bool]]
    metrics: dict[str, tuple[str, float | str | None]]


def read(file: Path, source: BufferedReader) -> Report:
    """The report in a file, which ``source`` has unpacked. Raises InputError if no tool is there or it cannot read."""
    package, tool = find_spec(PACKAGE), shutil.which("ncu")
    if package is None and tool is None:
        raise InputError(file, f"expected {NEEDED} to read a report, found neither; or export it: ncu --import "
                               f"{file.name} {' '.join(PRINTED)} > report.csv")  # fmt: skip
    report = Builder(str(file))
    with _unpacked(file, source) as path:
        if package is not None:
            with _output([sys.executable, str(READER), str(path)], file, PACKAGE) as lines:
                _add_actions(lines, report)
        else:
            with _output([str(tool), "--import", str(path), *PRINTED], file, "ncu") as lines:
                fill(records(cast(BufferedReader, lines), str(file), Noise()), report)
    if not report.launches:
        raise InputError(file, "expected a report with kernels, found none: it is empty, cut or broken; copy it again")
    return report.done()


@contextmanager
def _unpacked(file: Path, source: BufferedReader) -> Iterator[Path]:
    """The file itself, or a temporary copy if it is packed: the tools look at the name's end."""
    with file.open("rb") as packed:
        is_packed = packed.read(len(GZIP)) == GZIP
    if file.name.endswith(".ncu-rep") and not is_packed:
        yield file.resolve()
        return
    with scratch_folder() as folder:
        copy = Path(folder) / "report.ncu-rep"
        with copy.open("wb") as out:
            shutil.copyfileobj(source, out)
        yield copy


@contextmanager
def _output(command: list[str], file: Path, tool: str) -> Iterator[BinaryIO]:
    """What a tool prints. Raises InputError if it fails or complains, with its last words."""
    with tempfile.TemporaryFile() as errors:
        try:
            child = Popen(command, stdin=DEVNULL, stdout=PIPE, stderr=errors)
        except OSError as error:
            raise InputError(file, f"{command[0]} cannot be run: {error.strerror or error}") from None
        with child:
            try:
                yield cast(BinaryIO, child.stdout)
                child.wait()
            except BaseException:
                child.kill()
                raise
        errors.seek(0)
        words = errors.read(1 << 16).decode("utf-8", "replace").strip()
        if child.returncode or (words and tool == PACKAGE):  # the package leaves out what it cannot read, and says so
            last = words.splitlines()[-1][:200] if words else "nothing"
            found = f"that {tool} ends with code {child.returncode} and says: {last}"
            raise InputError(file, f"expected a whole report, found {found}; copy the file again")


def _add_actions(lines: BinaryIO, report: Builder) -> None:
    decode = msgspec.json.Decoder(Action).decode
    for number, line in enumerate(lines):
        action = decode(line)
        bare, demangled, mangled = action.names
        names = tuple(dict.fromkeys(name for name in (demangled, bare, mangled) if name))
        opened = tuple(Range(text, domain, nested) for text, domain, nested in action.ranges)
        row = report.row(Launch(number, demangled or bare or mangled, names, ranges=opened))
        for name, (unit, value) in action.metrics.items():
            if isinstance(value, str):
                if name in KEPT:
                    report.texts[row][name] = value
                continue
            factor, base = base_unit(unit)
            report.put(row, name, NAN if value is None else value * factor, base)
