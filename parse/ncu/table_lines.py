"""The lines of ncu's CSV -> the fields of its tables, with everything between them left out.

ncu's log (``==PROF== ...``) and the profiled program's own output stand before the table and, where both share one
stream, between its rows. A file may hold several tables: logs appended to each other, one per process or per pass.
"""

import re
from collections.abc import Iterator
from io import BufferedReader
from typing import NamedTuple

from pyprof.errors import InputError
from pyprof.parse.ncu.row_layout import Layout

LONGEST = 1 << 24  # bytes of a line, and of a record over several lines; 1,500 columns and 50 long ranges need 0.2 MB
# The first two columns of every table by ncu; tables that people have cut may lack the process.
HEADER = re.compile(r'"?\bID"?([,;\t])"?Process ID\b|^"?ID"?([,;\t]).*"?Kernel Name"?')
LOG = "=="
SUMMARY = '"Invocations"'


class Record(NamedTuple):
    """One line of a table. A header begins a table, and all records until the next one belong to it."""

    line: int  # its number in the file, from 1
    fields: list[str]
    is_header: bool


class Noise:
    """What stands between the records: how many lines, and the last error that ncu reported."""

    def __init__(self) -> None:
        self.lines = 0
        self.error = ""
        self.summary = False

    def add(self, line: str) -> None:
        """Count a line that is not of a table."""
        self.lines += bool(line.strip())
        if line.startswith("==ERROR=="):
            self.error = line.removeprefix("==ERROR==").strip()[:200]
        self.summary = self.summary or SUMMARY in line


def records(source: BufferedReader, file: str, noise: Noise) -> Iterator[Record]:
    """Yield the headers and rows of all tables. Raises InputError if a row is cut, naming its line."""
    layout: Layout | None = None
    is_first = False  # of the table's records
    lines = _lines(source, file)
    for number, line in lines:
        is_row = layout is not None and layout.begins(line)
        header = HEADER.search(line) if not is_row and "ID" in line else None
        if header:
            layout = Layout(line[header.start() :], header[1] or header[2], file, number)
            yield Record(number, layout.names, True)
            is_first = True
        elif layout is not None and (is_row or (is_first and layout.begins_units(line))):
            yield Record(number, layout.fields(_whole(line, lines, layout, file, number), number), False)
            is_first = False
        elif layout is not None and line.startswith('"') and not source.peek(1):
            raise _cut(file, line, number)  # its first cell is not whole
        else:
            noise.add(line)


def _lines(source: BufferedReader, file: str) -> Iterator[tuple[int, str]]:
    number = 0
    while line := source.readline(LONGEST):
        number += 1
        if len(line) == LONGEST:
            raise InputError(file, f"expected lines of at most {LONGEST >> 20} MiB, found a longer one", number)
        yield number, line.decode("utf-8", "replace").rstrip("\r\n")


def _whole(line: str, more: Iterator[tuple[int, str]], layout: Layout, file: str, number: int) -> str:
    """A record with the lines that its quoted texts go on for."""
    while not layout.is_whole(line):
        _, following = next(more, (0, None))
        if following is None or layout.begins(following) or following.startswith(LOG) or len(line) > LONGEST:
            raise _cut(file, line, number)
        line = f"{line}\n{following}"
    return line


def _cut(file: str, line: str, number: int) -> InputError:
    return InputError(file, f"expected a whole row, found {line[:40]!r} cut off; export the report again", number)
