"""The records of ncu's raw and details pages -> the rows of a report.

The raw page has a column per metric, and their units in a row below the header. The details page has a row per metric
(``Metric Name``, ``Metric Unit``, ``Metric Value``), as has the raw page of the oldest versions.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, cast

from pyprof.errors import InputError
from pyprof.parse.ncu.details_labels import LABELS
from pyprof.parse.ncu.range_cells import PUSHED, STARTED, ranges
from pyprof.parse.ncu.report import KEPT, Builder, Launch, Range, Size
from pyprof.parse.ncu.table_lines import Record
from pyprof.parse.ncu.units import base_unit, decimal_mark, number


class Metric(NamedTuple):
    """A metric as a table names it, resolved: Nsight Compute's name, and the factor to the base unit."""

    name: str
    factor: float
    unit: str


Cell = tuple[Metric, str]  # the metric and its value as printed


class Row(NamedTuple):
    """One row: all metrics of a launch on a raw page, one of them on a details page."""

    launch: Launch
    cells: list[Cell]
    is_whole: bool


UNDECIDED = 200_000  # cells that wait for one that shows the decimal mark; then it is a point
METRIC = re.compile(r"\w+__[\w:.]+|group:\w+|\w+:\w+__[\w.]+")
WITH_UNIT = re.compile(r"(\S+)\s+[\[(]([^\])]*)[\])]")  # a header that someone has merged with the units
WITH_LABEL = re.compile(r".*\((\w+__[\w.]+)\)")  # --print-metric-name label-name
LAUNCH = {
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Device", "CC",
    "Block Size", "Grid Size", "Block", "Grid", "Device Name",
}  # fmt: skip
LONG = ("Metric Name", "Metric Value")


def fill(records: Iterable[Record], report: Builder) -> None:
    """Put all tables' rows into the report. Raises InputError if a row has fewer fields than its header."""
    rows = _rows(records, report.file)
    waiting, mark = _first_rows(rows)
    for row in chain(waiting, rows):
        _put(row, report, mark)


def _first_rows(rows: Iterator[Row]) -> tuple[list[Row], str]:
    """The rows up to the first cell that shows the decimal mark, and the mark.

    Metrics with a unit are numbers; others may be lists ("1,3"), and are asked last.
    """
    waiting: list[Row] = []
    count = 0
    for row in rows:
        waiting.append(row)
        count += len(row.cells)
        mark = decimal_mark(text for metric, text in row.cells if metric.unit)
        if mark or count > UNDECIDED:
            return waiting, mark or "."
    return waiting, decimal_mark(text for row in waiting for _, text in row.cells) or "."


def _put(row: Row, report: Builder, mark: str) -> None:
    known = len(report.launches)
    index = report.row(row.launch)
    report.merged += index < known and (row.is_whole or index < known - 1)
    for metric, text in row.cells:
        value = number(text, mark)
        if value is not None:
            report.put(index, metric.name, value * metric.factor, metric.unit)
        elif metric.name in KEPT:
            report.texts[index].setdefault(metric.name, text)
        else:
            report.unread += number(text, "," if mark == "." else ".") is not None


@lru_cache(maxsize=1 << 14)
def _metric(name: str, unit: str, section: str = "") -> Metric:
    """A column of a raw page, or a label in a section of a details page."""
    factor, base = base_unit(unit)
    with_label = WITH_LABEL.fullmatch(name)
    if with_label:
        name = with_label[1]
    elif section and not METRIC.fullmatch(name):
        name = LABELS.get((name, base), f"{section}: {name}")
    return Metric(name, factor, base)


def _rows(records: Iterable[Record], file: str) -> Iterator[Row]:
    columns: Columns | None = None
    for record in records:
        if record.is_header:
            columns = Columns(record, file)
        elif columns is not None:
            yield from columns.read(record)


class Columns:
    """Where the fields of one table stand."""

    def __init__(self, header: Record, file: str) -> None:
        self.file = file
        self.names = [name.strip() for name in header.fields]
        self.at = {name: index for index, name in enumerate(self.names)}
        self.pushed = next((index for index, name in enumerate(self.names) if PUSHED in name), None)
        self.started = next((index for index, name in enumerate(self.names) if STARTED in name), None)
        if "Kernel Name" not in self.at:
            found = ", ".join(self.names[:8])
            raise InputError(
                file, f"expected a column Kernel Name, found {found} (export with --page raw)", header.line
            )
        self.is_long = all(name in self.at for name in LONG)
        self.fewest = self.at["Metric Value"] + 1 if self.is_long else len(self.names)
        ranges_at = (self.pushed, self.started)
        self.metrics = [
            (index, _metric(*_with_unit(name)))
            for index, name in enumerate(self.names)
            if name and name not in LAUNCH and index not in ranges_at and not self.is_long
        ]

    def read(self, record: Record) -> Iterator[Row]:
        """The row of a record; none of a rule's or of the units', which are kept for the rows that follow."""
        fields, line = record.fields, record.line
        if len(fields) < self.fewest:
            wanted = f"{self.fewest:,} fields as in the header"
            raise InputError(self.file, f"expected {wanted}, found {len(fields):,}: cut off; export it again", line)
        if not fields[0].strip():
            self.metrics = [
                (index, _metric(metric.name, fields[index].strip()) if fields[index].strip() else metric)
                for index, metric in self.metrics
            ]
        elif not self.is_long:
            yield Row(self._launch(fields, line), [(metric, fields[index]) for index, metric in self.metrics], True)
        elif label := self._text(fields, "Metric Name"):
            metric = _metric(label, self._text(fields, "Metric Unit"), self._text(fields, "Section Name") or "Details")
            yield Row(self._launch(fields, line), [(metric, self._text(fields, "Metric Value"))], False)

    def _text(self, fields: Sequence[str], name: str) -> str:
        index = self.at.get(name)
        return fields[index].strip() if index is not None else ""

    def _launch(self, fields: Sequence[str], line: int) -> Launch:
        def text(name: str) -> str:
            return self._text(fields, name)

        ident = _whole(text("ID"))
        if ident is None:
            raise InputError(self.file, f"expected the kernel's number, found {text('ID')[:40]!r}", line)
        opened = ranges(*(fields[at] if at is not None else "" for at in (self.pushed, self.started)))
        name = _without_range(text("Kernel Name"), opened)
        return Launch(
            ident,
            name,
            (name,),
            _whole(text("Process ID")),
            text("Process Name"),
            text("Host Name"),
            _whole(text("Context")),
            _whole(text("Stream")),
            _whole(text("Device")),
            text("Device Name"),
            text("CC"),
            _size(text("Grid Size") or text("Grid")),
            _size(text("Block Size") or text("Block")),
            opened,
        )


def _without_range(name: str, opened: Sequence[Range]) -> str:
    """The kernel's name without the range that --print-nvtx-rename puts before it."""
    return next((name[len(each.text) + 1 :] for each in opened if name.startswith(f"{each.text}/")), name)


def _with_unit(name: str) -> tuple[str, str]:
    match = WITH_UNIT.fullmatch(name)
    return (match[1], match[2]) if match else (name, "")


@lru_cache(maxsize=1 << 14)
def _whole(text: str) -> int | None:
    digits = re.sub(r"[\s.,']", "", text)
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


@lru_cache(maxsize=1 << 14)
def _size(text: str) -> Size | None:
    """Three sizes: "(384, 1, 1)", "384x1x1".

    >>> _size("(2, 66, 1)"), _size("(16,384, 1, 1)"), _size("")
    ((2, 66, 1), (16384, 1, 1), None)
    """
    inner = text.strip("() ")
    for between in (r"\s*[,;x]\s*", r"[,;]\s+"):
        parts = [_whole(part) for part in re.split(between, inner)]
        if len(parts) == 3 and None not in parts:
            return cast(Size, tuple(parts))
    return None
