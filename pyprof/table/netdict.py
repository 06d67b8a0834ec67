"""net.dict: the kernel table as text, with one Python dictionary per line, as PyProf wrote it.

A line that pyprof writes has the keys of ``KERNELS`` in order. It is a Python literal and, except for tuples and None,
JSON: strings are written as in JSON, grid and block as ``(1, 2, 3)``, and unknown values as None. A top-level key and
its value are separated by ``": "`` with a blank; lists and dicts inside a value have no blanks. So ``, "grid": `` can
occur only at the key: inside a string its quotes would be escaped, and inside a list or dict the blanks would be
missing. Therefore the reader can cut a line at its keys and parse each distinct text once.

Any other line (PyProf's own, a script's ``print(row)``, JSON lines) is parsed with ``ast.literal_eval`` or JSON, which
is slower. Each cut text must parse as one complete value, so a line that was cut wrongly is also parsed this way.
"""

import json
import re
from collections.abc import Callable, Sequence
from io import BufferedReader
from itertools import islice
from math import isfinite
from typing import Any, BinaryIO

import msgspec
import numpy as np

from pyprof.errors import InputError, SchemaError
from pyprof.table.columns import NULL, Coded, Data, Ragged, Table
from pyprof.table.gather import EMPTY_IS_NONE, WrongValue, gatherer, literal, short
from pyprof.table.schema import COLUMN, KERNELS, REQUIRED, Column
from pyprof.text import clean

CHUNK = 4096  # rows processed at a time, about 10 MB of text
HEAD = 4096
LONGEST = 4 << 20  # longest line in bytes for the slow parser, which takes 100 times as much memory
FIRST_KEY = re.compile(rb"""\s*\{\s*(["'])(?P<key>\w{1,60})\1\s*:""")
ADVICE = "make net.dict with parse.py"


def write_netdict(table: Table, out: BinaryIO) -> None:
    """Write the table in UTF-8, with one line per row."""
    fields = [_field(column, table) for column in KERNELS]
    for begin in range(0, len(table), CHUNK):
        end = min(begin + CHUNK, len(table))
        rows = zip(*(field(begin, end) for field in fields), strict=True)
        text = "}\n{".join(map(", ".join, rows))
        out.write(f"{{{text}}}\n".encode())


def read_netdict(source: BufferedReader, name: str) -> Table:
    """The table in a net.dict, written by pyprof or PyProf. ``name``: the file's name in error messages."""
    _check_head(source.peek(HEAD)[:HEAD], name)
    reader = _Reader(name)
    while lines := list(islice(source, CHUNK)):
        reader.read(lines)
    return reader.table()


# Writing

Field = Callable[[int, int], "Sequence[str]"]  # (first row, end row) -> one text per row: '"kDuration": 1536'


def _field(column: Column, table: Table) -> Field:
    key = f'"{column.key}": '
    data = table.columns[column.key]
    flat = data.codes if isinstance(data, Coded) else data
    if isinstance(flat, np.ndarray) and len(flat) and np.all(flat == flat[0]):  # most captures have blank columns
        (text,) = _field_of(column, key, data)(0, 1)
        return lambda begin, end: [text] * (end - begin)
    return _field_of(column, key, data)


def _field_of(column: Column, key: str, data: Data) -> Field:
    if isinstance(data, Coded):
        return _coded_field(column, key, data)
    if isinstance(data, Ragged):
        return lambda begin, end: [f"{key}{row}" for row in data.between(begin, end).lists()]
    none = f"{key}None"
    if column.kind == "float":
        return lambda begin, end: [f"{key}{v}" if isfinite(v) else none for v in data[begin:end].tolist()]
    return lambda begin, end: [f"{key}{v}" if v != NULL else none for v in data[begin:end].tolist()]


def _coded_field(column: Column, key: str, data: Coded) -> Field:
    """A field of a text column. Each distinct text's literal is made once, when its first row is written."""
    made: dict[int, str] = {-1: key + _coded_literal(column, "")}
    values = data.values

    def field(begin: int, end: int) -> Sequence[str]:
        codes = data.codes[begin:end].tolist()
        for code in set(codes).difference(made):
            made[code] = key + _coded_literal(column, values[code])
        return list(map(made.__getitem__, codes))

    return field


def _coded_literal(column: Column, text: str) -> str:
    """A text column's value as it is written in a line."""
    if column.kind == "text":
        return json_string(text)
    if not text:
        return "[]" if column.key in EMPTY_IS_NONE else "None"
    try:
        value = json.loads(text)
        return str(tuple(value)) if column.kind == "triple" else _literal(value)
    except (ValueError, TypeError, RecursionError):
        raise SchemaError(f"column {column.key}", f"expected JSON, found {short(text)}; report this") from None


def json_string(text: str) -> str:
    """A string literal that is valid in both JSON and Python: double quotes, UTF-8, no lone surrogates."""
    return msgspec.json.encode(clean(text)).decode()


def _literal(value: Any) -> str:
    """A JSON value as a Python literal, without blanks."""
    try:
        text = msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):  # a lone surrogate, or an integer beyond 64 bits
        return _literal_by_hand(value)
    if "null" in text or "true" in text or "false" in text:
        return _literal_by_hand(value)
    return text


def _literal_by_hand(value: Any) -> str:
    if isinstance(value, str):
        return json_string(value)
    if isinstance(value, list):
        return f"[{','.join(map(_literal_by_hand, value))}]"
    if isinstance(value, dict):
        items = (f"{json_string(key)}:{_literal_by_hand(item)}" for key, item in value.items())
        return f"{{{','.join(items)}}}"
    if isinstance(value, float) and not isfinite(value):  # Python has no literal for it
        return "None"
    return repr(value)


# Reading


Cut = Callable[[bytes], "list[bytes] | None"]  # a line -> its values' texts in the order of the keys, or None


def _check_head(head: bytes, name: str) -> None:
    """Raise if a net.dict cannot begin with these bytes. This check comes before a line of gigabytes could be read."""
    if not head.strip():
        found = "only blanks" if head else "an empty file"
        raise InputError(name, f"expected a net.dict, found {found}; {ADVICE}")
    match = FIRST_KEY.match(head)
    if match and match["key"].decode() in COLUMN:
        return
    if match:
        found = f"a dictionary whose first key is {match['key'].decode()!r}"
        trace = b"traceEvents" in head or match["key"] == b"schemaVersion"
        advice = "this is a torch.profiler trace: run parse.py on it first" if trace else ADVICE
    elif head.startswith(b"SQLite format 3"):
        found, advice = "an SQLite database", "run parse.py on it first"
    else:
        found = "a binary file" if b"\0" in head[:512] else f"text that starts {head[:30].decode('utf-8', 'replace')!r}"
        advice = ADVICE
    raise InputError(name, f"expected a net.dict, one Python dictionary a line, found {found}; {advice}")


class _Reader:
    """Reads a net.dict into columns, a few thousand lines at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.columns = {column.key: gatherer(column) for column in KERNELS}
        self.keys: list[str] = []  # the keys of the first row
        self.cut: Cut | None = None
        self.lines = self.rows = 0

    def table(self) -> Table:
        return Table(self.rows, {key: column.data() for key, column in self.columns.items()})

    def read(self, lines: list[bytes]) -> None:
        if not self.lines:
            self.keys = [str(key) for key in self._row(lines[0], 1)]
            self.cut = _cutter(self.keys)
        parts, count = self._cut(lines), len(lines)
        if parts is None:
            rows = [(i, self._row(line, i)) for i, line in enumerate(lines, self.lines + 1) if line.strip()]
            parts, count = self._parts(rows), len(rows)
        self.rows += count
        self.lines += len(lines)
        for column, part in zip(self.columns.values(), parts, strict=True):
            column.parts.append(part)

    def _cut(self, lines: list[bytes]) -> list[Any] | None:
        """The columns of lines in the form that ``write_netdict`` writes; None if any line has another form."""
        rows = list(map(self.cut, lines)) if self.cut else [None]
        if None in rows:
            return None
        texts = dict(zip(self.keys, zip(*rows, strict=True), strict=True))
        none = [None] * len(lines)
        try:
            return [c.parse(texts[key]) if key in texts else c.check(none) for key, c in self.columns.items()]
        except (ValueError, RecursionError):  # the slow parser reports the position, or finds no error
            return None

    def _parts(self, rows: list[tuple[int, dict[str, Any]]]) -> list[Any]:
        """The columns of lines that were parsed as dictionaries."""
        try:
            return [column.check([row.get(key) for _, row in rows]) for key, column in self.columns.items()]
        except WrongValue:
            for number, row in rows:  # parse again, row by row, to find the line of the error
                self._check(number, row)
            raise

    def _check(self, number: int, row: dict[str, Any]) -> None:
        try:
            for key, column in self.columns.items():
                column.check([row.get(key)])
        except WrongValue as error:
            raise SchemaError(self.name, f"{error}; {ADVICE}", number) from None

    def _row(self, line: bytes, number: int) -> dict[str, Any]:
        """Parse one line with the slow parser."""
        if len(line) > LONGEST:
            wanted = f"expected a row of at most {LONGEST:,} bytes"
            raise InputError(self.name, f"{wanted}, found {len(line):,}; {ADVICE}", number)
        try:
            row = literal(line)
        except ValueError as error:
            cut = "" if line.endswith(b"\n") else "the file ends in the middle of a row: "
            advice = "copy or make the file again" if cut else ADVICE
            raise InputError(self.name, f"{cut}expected a Python dictionary, found {error}; {advice}", number) from None
        if not isinstance(row, dict):
            raise InputError(self.name, f"expected a Python dictionary, found {short(row)}; {ADVICE}", number)
        for key in REQUIRED:
            if row.get(key) is None:
                raise SchemaError(self.name, f"expected a row of the kernel table, found no {key!r}; {ADVICE}", number)
        return row


def _cutter(keys: list[str]) -> Cut | None:
    """A function that cuts lines of ``write_netdict`` at their keys; None for unusual keys."""
    if not all(re.fullmatch(r"\w+", key, re.ASCII) for key in keys):
        return None
    start = f'{{"{keys[0]}": '.encode()
    others = [key.encode() for key in keys[1:]]
    split = re.compile(b', "(' + b"|".join(others) + b')": ').split
    skip = len(start)

    def cut(line: bytes) -> list[bytes] | None:
        end = -2 if line.endswith(b"}\n") else -1 if line.endswith(b"}") else 0
        if not end or not line.startswith(start):
            return None
        parts = split(line[skip:end])
        return parts[0::2] if parts[1::2] == others else None

    return cut
