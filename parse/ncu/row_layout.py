"""How the rows of one of ncu's tables are split into fields.

They are CSV, but for the cells of NVTX ranges: ncu 2025.3 doubles the quotation marks that it puts around a range and
not those within its text. pyprof's markers are JSON, full of them. So where a table has such cells, a row is split at
what comes after the kernel's name, whose form is known: ``"1","7","(8, 8, 1)","(784, 1, 1)","0","9.0"``.
"""

import csv
import re

from pyprof.errors import InputError
from pyprof.parse.ncu.range_cells import PUSHED, STARTED

NUMBER, TRIPLE = r'"\d*"', r'"\([\d.,  ]*\)"'
FORMS = {"Context": NUMBER, "Stream": NUMBER, "Device": NUMBER, "CC": r'"[\d.]*"', "Block Size": TRIPLE,
         "Grid Size": TRIPLE, "Block": TRIPLE, "Grid": TRIPLE}  # fmt: skip
NAME = "Kernel Name"
BETWEEN = '","'
# Between two cells: the first is empty or ends with its last range's quotation marks, the second is empty or begins
# with a range's number.
SECOND_CELL = re.compile(r'(?:^|"" ?|")","(?=\s*\d+[:\s]\s*""|\s*$)')


class Layout:
    """The columns of one table, and how its rows begin, end and are split."""

    def __init__(self, header: str, delimiter: str, file: str, line: int) -> None:
        self.file, self.delimiter = file, delimiter
        self.names = [name.strip() for name in self._split(header, line)]
        mark = re.escape(delimiter)
        is_quoted = header.startswith('"')
        # What a row begins with: the kernel's id, and then a field. An unquoted row has the process id, too.
        begins = rf'"\d[\d., ]*"{mark}"' if is_quoted else rf"\d+{mark}(?:\d+{mark}|[^\d{mark}])"
        self._begins = re.compile(begins)
        self._after_name = self._launch_pattern() if is_quoted and delimiter == "," else None

    def _launch_pattern(self) -> re.Pattern[str] | None:
        """What follows the kernel's name; None if the table has no cells of ranges before that."""
        at = self.names.index(NAME) if NAME in self.names else 0
        if not any(PUSHED in name or STARTED in name for name in self.names[:at]):
            return None
        forms = []
        for name in self.names[at + 1 :]:
            if name not in FORMS:
                break
            forms.append(FORMS[name])
        return re.compile(",".join(forms)) if forms else None

    def begins(self, line: str) -> bool:
        """Whether a line begins with a row."""
        return self._begins.match(line) is not None

    def begins_units(self, line: str) -> bool:
        """Whether a line is the row of units below a raw page's header, which has no id."""
        return line.startswith((f'""{self.delimiter}', self.delimiter))

    def is_whole(self, record: str) -> bool:
        """Whether no quoted text of the record goes on in the next line."""
        if self._after_name is None or not self.begins(record):
            return record.count('"') % 2 == 0
        found = self._after_name.search(record)
        return found is not None and record.count('"', found.start()) % 2 == 0

    def fields(self, record: str, line: int) -> list[str]:
        """The fields of a whole record. Raises InputError if it is no CSV."""
        found = self._after_name.search(record) if self._after_name and self.begins(record) else None
        if found is None:
            return self._split(record, line)
        before, between, name = record[: found.start()].removesuffix('",').rpartition(BETWEEN)
        count = self.names.index(NAME)
        ranges = [index for index, column in enumerate(self.names[:count]) if PUSHED in column or STARTED in column]
        leading = before.split(BETWEEN, ranges[0])
        if not between or ranges != list(range(count - len(ranges), count)) or len(leading) <= ranges[0]:
            return self._split(record, line)
        cells = [leading.pop()]
        if len(ranges) == 2:
            cells = _two_cells(cells[0])
        return [leading[0].removeprefix('"'), *leading[1:], *cells, name.replace('""', '"'),
                *self._split(record[found.start() :], line)]  # fmt: skip

    def _split(self, record: str, line: int) -> list[str]:
        try:
            return next(csv.reader([record], delimiter=self.delimiter), [])
        except csv.Error as error:
            found = f"{record[:40]!r} ({error})"
            raise InputError(self.file, f"expected a row of a CSV table, found {found}", line) from None


def _two_cells(text: str) -> list[str]:
    """The cells of pushed and of started ranges, which stand side by side."""
    if text.endswith(BETWEEN):  # no ranges were started, the usual case
        return [text[: -len(BETWEEN)], ""]
    found = list(SECOND_CELL.finditer(text))
    if not found:
        before, _, after = text.rpartition(BETWEEN)
        return [before, after]
    return [text[: found[-1].end() - len(BETWEEN)], text[found[-1].end() :]]
