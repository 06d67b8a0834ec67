"""A profiler's SQLite database, opened read-only; a damaged or wrong file gives an error message of one line.

Its tables are described once, as ``Source``: what PyProf calls their columns, and what the profiler calls them. Every
SELECT is made of such descriptions, which are PyProf's own text: nothing that a file contains becomes SQL.
"""

import gzip
import shutil
import sqlite3
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pyprof.errors import InputError, SchemaError
from pyprof.table.columns import NULL, Ints

HEADER = b"SQLite format 3\0"
CHUNK = 32_768  # rows joined into one text at a time; reading is slower with fewer or more rows
_NONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Source:
    """A table and the columns that are read, as pairs of pyprof's name and the profiler's name."""

    table: str
    columns: tuple[tuple[str, str], ...]
    required: tuple[str, ...] = ()  # pyprof's names of the columns without which the table cannot be used
    order: tuple[str, ...] = ()  # pyprof's names of the columns that sort the rows; empty: the table's own order
    only: tuple[str, tuple[int, ...]] | None = None  # an optional column; only rows with these values are read

    @property
    def names(self) -> tuple[str, ...]:
        """pyprof's names of the columns."""
        return tuple(name for name, _ in self.columns)

    def column(self, name: str) -> str:
        """The profiler's name of a column."""
        return dict(self.columns)[name]


def named(text: str) -> tuple[tuple[str, str], ...]:
    """Columns as pairs of names, from a text: pyprof's name, and the profiler's name if it is different.

    >>> named("start_ns=start, device")
    (('start_ns', 'start'), ('device', 'device'))
    """
    pairs = (pair.partition("=") for pair in text.split(", "))
    return tuple((name, column or name) for name, _, column in pairs)


class Database:
    """Read-only access by table and column name. An absent table has no rows: profilers create tables when needed."""

    def __init__(self, file: Path, connection: sqlite3.Connection) -> None:
        self.file = file
        self.connection = connection
        query = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
        kinds: dict[str, str] = dict(connection.execute(query).fetchall())
        self._views = {name for name, kind in kinds.items() if kind == "view"}
        self.columns: dict[str, frozenset[str]] = {
            name: frozenset(row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,)))
            for name in kinds
        }

    def has(self, table: str, column: str = "") -> bool:
        return table in self.columns and (not column or column in self.columns[table])

    def require(self, table: str, *columns: str) -> None:
        """Raise ``SchemaError`` if an existing table lacks one of these required columns."""
        for column in columns:
            if self.has(table) and not self.has(table, column):
                found = f"table {table} has no column {column} (export it again with a newer profiler)"
                raise SchemaError(self.file, found)

    def check(self, source: Source) -> None:
        """Raise ``SchemaError`` if the source's table exists but lacks a required column."""
        self.require(source.table, *map(source.column, source.required))

    def read(self, source: Source, *names: str) -> dict[str, Ints]:
        """Read integer columns of a source, all or only ``names``, in the table's own order.

        A column that the table lacks is ``NULL``; an absent table has no rows. Raises SchemaError if a required column
        is missing or a value is not an integer.
        """
        self.check(source)
        wanted = names or source.names
        columns = self.ints(source.table, *map(source.column, wanted), where=self._counted(source))
        return dict(zip(wanted, columns, strict=True))

    def records(self, source: Source, *names: str) -> list[tuple[Any, ...]]:
        """The rows as Python values of any type, None for an absent column; none without table or required columns."""
        if not self.has_all(source):
            return []
        listed = ", ".join(self.expressions(source, names).values())
        order = ", ".join(self.expressions(source, source.order).values()) if source.order else self.key(source.table)
        return self.rows(f'SELECT {listed} FROM "{source.table}" e ORDER BY {order or "NULL"}')  # noqa: S608 (our own text)

    def has_all(self, source: Source) -> bool:
        """Whether the table exists and has all required columns."""
        return self.has(source.table) and all(self.has(source.table, source.column(name)) for name in source.required)

    def expressions(self, source: Source, names: Sequence[str] = ()) -> dict[str, str]:
        """The SQL expressions of the columns of a row ``e``, all or only ``names``; NULL for a missing column."""
        columns = {name: source.column(name) for name in names or source.names}
        return {name: f'e."{column}"' if self.has(source.table, column) else "NULL" for name, column in columns.items()}

    def _counted(self, source: Source) -> str:
        """The SQL condition of the rows of a source that count."""
        name, values = source.only or ("", ())
        column = source.column(name) if name else ""
        return f'"{column}" IN ({", ".join(map(str, values))})' if name and self.has(source.table, column) else "1"

    def ints(self, table: str, *columns: str, where: str = "1") -> list[Ints]:
        """Integer columns as arrays, in the table's own order: sorting arrays is faster than sorting in SQL."""
        if not self.has(table):
            return [_NONE for _ in columns]
        present = [column for column in columns if self.has(table, column)]
        counted = "" if present else f'SELECT count(*) FROM "{table}" WHERE {where}'  # noqa: S608 (our own text)
        arrays = dict(zip(present, self._ints(table, present, where), strict=True)) if present else {}
        rows = len(arrays[present[0]]) if present else int(self.rows(counted)[0][0])
        return [arrays[column] if column in arrays else np.full(rows, NULL, np.int64) for column in columns]

    def _ints(self, table: str, columns: Sequence[str], where: str) -> list[Ints]:
        numbers = [f'coalesce("{column}", {NULL})' for column in columns]
        try:
            chunks = [chunk for chunk, _ in self.chunks(numbers, table, where=where)]
        except ValueError:  # a value is not an integer
            query = f'SELECT {", ".join(numbers)} FROM "{table}" WHERE {where}'  # noqa: S608 (our own text)
            return self.query_ints(query, len(columns))
        return [np.concatenate(parts) for parts in zip(*chunks, strict=True)] if chunks else [_NONE for _ in columns]

    def key(self, table: str) -> str:
        """SQLite's name for the row number that is not also a column's name; empty if rows have no numbers."""
        taken = {column.lower() for column in self.columns.get(table, ())}
        name = next((name for name in ("rowid", "_rowid_", "oid") if name not in taken), "")
        if not name or table not in self.columns or table in self._views:
            return ""
        try:
            self.connection.execute(f'SELECT {name} FROM "{table}" LIMIT 0')  # noqa: S608 (our own text)
        except sqlite3.OperationalError:  # a table WITHOUT ROWID
            return ""
        return name

    def chunks(
        self, numbers: Sequence[str], table: str, join: str = "", where: str = "1", text: str = "NULL"
    ) -> Iterator[tuple[list[Ints], bytes | str | None]]:
        """Integer expressions over a table's rows (``e``) as arrays, and the joined values of a text expression.

        SQLite returns one Python object per value. It is twice as fast to let SQLite join a column's numbers to one
        text, which numpy reads. Each item has up to ``CHUNK`` rows, in the table's order. The expressions come from
        pyprof, not from the file, and are never NULL. Raises ValueError if a value is not an integer.
        """
        inner = ", ".join(f"{number} AS n{place}" for place, number in enumerate(numbers))
        outer = ", ".join(f"group_concat(n{place})" for place in range(len(numbers)))
        key, last = self.key(table), -(1 << 63)
        source = f'"{table}" AS e NOT INDEXED' if key else f'"{table}" AS e'  # rows come in order of row numbers
        some = f"e.{key} > ? AND ({where}) ORDER BY e.{key} LIMIT {CHUNK}" if key else f"0 > ? AND ({where})"
        query = (
            f"SELECT count(*), max(k), group_concat(t, ''), {outer} FROM"  # noqa: S608 (our own text)
            f" (SELECT {f'e.{key}' if key else 0} AS k, {text} AS t, {inner} FROM {source}{join} WHERE {some})"
        )
        while True:
            count, last, joined, *columns = self.connection.execute(query, (last,)).fetchone()
            if not count:
                return
            yield [_integers(column, count) for column in columns], joined

    def query_ints(self, query: str, width: int) -> list[Ints]:
        """The integer columns of a query written by pyprof, as views of one array."""
        try:
            flat = np.fromiter(chain.from_iterable(self.connection.execute(query)), np.int64).reshape(-1, width)
        except (TypeError, ValueError, OverflowError) as error:  # an SQLite column may contain values of any type
            raise SchemaError(self.file, f"expected whole numbers, found another value ({error})") from None
        return list(flat.T)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(query, values).fetchall()

    def texts(self, source: Source, wanted: Ints | None = None) -> dict[int, str]:
        """Texts by number (columns `id`, `text`), all or the ``wanted``; NULL becomes empty, any other value a text."""
        if not self.has(source.table):
            return {}
        self.check(source)
        key, text = source.column("id"), source.column("text")
        query = f'SELECT "{key}", CAST("{text}" AS TEXT) FROM "{source.table}" ORDER BY "{key}"'  # noqa: S608
        numbers = None if wanted is None else set(np.unique(wanted).tolist())
        return {id_: value or "" for id_, value in self.connection.execute(query) if numbers is None or id_ in numbers}


def _integers(text: bytes | str, count: int) -> Ints:
    """Parse numbers separated by commas. Raises ValueError if their number is not ``count``."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # numpy warns thus about anything that is not a number
        try:
            numbers: Ints = np.fromstring(text, np.int64, sep=",")
        except DeprecationWarning:
            numbers = _NONE
    if len(numbers) != count:
        raise ValueError("expected whole numbers, found another value")
    return numbers


@contextmanager
def unpacked(file: Path) -> Iterator[Path]:
    """The file itself, or an uncompressed temporary copy of a gzip file, whatever its suffix."""
    with file.open("rb") as source:
        if source.read(2) != b"\x1f\x8b":
            yield file
            return
    with tempfile.TemporaryDirectory(prefix="pyprof-") as folder:  # Windows lets nobody open a file that is open
        plain = Path(folder) / "unpacked"
        try:
            with gzip.open(file) as packed, plain.open("wb") as copy:
                shutil.copyfileobj(packed, copy, 1 << 20)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(file, f"expected a whole gzip file, found {error} (copy or compress it again)") from None
        yield plain


@contextmanager
def database(file: Path) -> Iterator[Database]:
    """Open a profiler's database; SQLite's own errors become an ``InputError`` of one line."""
    with unpacked(file) as plain:
        connection = sqlite3.connect(f"{plain.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        # programs may pass any bytes as NVTX text: seen in files of 2025
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            yield Database(file, connection)
        except sqlite3.DatabaseError as error:
            found = f"expected a whole SQLite database, found an error: {error} (export it again)"
            raise InputError(file, found) from None
        finally:
            connection.close()
