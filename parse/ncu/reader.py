"""Read what Nsight Compute measured: its tables (``--csv``, pages raw and details) and its reports (``.ncu-rep``)."""

from pathlib import Path

from pyprof.errors import InputError
from pyprof.files import open_input
from pyprof.parse.ncu.report import Builder, Report
from pyprof.parse.ncu.table_lines import Noise, records
from pyprof.parse.ncu.table_rows import fill

WANTED = "expected a table of Nsight Compute (ncu --csv --page raw) or an .ncu-rep"
REPORT_MARK = b"NVR\0"
# First bytes of files that may be mistaken for reports. A program may print text that begins like the last two.
CAPTURES = {
    b"SQLite format 3": "an SQLite database",
    b"PAR1": "a Parquet file",
    b"{": "JSON or a net.dict",
    b"[": "JSON",
}


def read(file: Path) -> Report:
    """The launches of a file and their metrics in base units. The file may be packed (.gz), and its name is free.

    Raises InputError, whose one line says what was expected, found and can be done, if the file is none of ncu's, is
    cut, has no kernels, or is a .ncu-rep and neither the package ncu-report nor ncu is installed.
    """
    with open_input(file) as source:
        if source.peek(4).startswith(REPORT_MARK):
            from pyprof.parse.ncu import binary_report

            return binary_report.read(file, source)
        head = source.peek(512)[:512]
        if not head or b"\0" in head or head.startswith(tuple(CAPTURES)[:2]):
            raise InputError(file, f"{WANTED}, found {_other(head, file)}")
        report, noise = Builder(str(file)), Noise()
        fill(records(source, str(file), noise), report)
    report.noise = noise.lines
    if not report.launches:
        raise InputError(file, f"{WANTED}, found {_other(head, file) or _instead(noise)}")
    return report.done()


def _other(head: bytes, file: Path) -> str:
    """What a file without kernels is by its first bytes; empty if they do not say."""
    if not head:
        return "an empty file"
    found = next((words for mark, words in CAPTURES.items() if head.lstrip().startswith(mark)), "")
    if found:
        return (
            f"{found}, as captures and kernel tables are: --ncu joins a report to it (prof.py --ncu FILE {file.name})"
        )
    return "a binary file" if b"\0" in head else ""


def _instead(noise: Noise) -> str:
    if noise.error:
        return f"no kernels, and ncu's error: {noise.error}"
    if noise.summary:
        return "a summary over launches (--print-summary): print it without"
    return "no kernels in it" if noise.lines else "a table without kernels: ncu profiled none"
