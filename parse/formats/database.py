"""A profiler's SQLite database, opened so that nothing in it can harm and a wrong file is told in one line."""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import tempfile
import warnings
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from pyprof.errors import InputError, SchemaError
from pyprof.table.columns import NULL, Ints

HEADER = b"SQLite format 3\0"
CHUNK = 32_768  # rows that are joined together: with fewer or more, reading takes longer
_NONE: Ints = np.zeros(0, np.int64)


class Database:
    """Read-only access by table and column name. An absent table has no rows: profilers create tables lazily."""

    def __init__(self, file: Path, connection: sqlite3.Connection) -> None:
        self.file = file
        self.connection = connection
        listed = connection.execute(
            "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
        )
        kinds: dict[str, str] = dict(listed.fetchall())
        self._views = {name for name, kind in kinds.items() if kind == "view"}
        self.columns: dict[str, frozenset[str]] = {
            name: frozenset(row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (name,)))
            for name in kinds
        }

    def has(self, table: str, column: str = "") -> bool:
        return table in self.columns and (not column or column in self.columns[table])

    def require(self, table: str, *columns: str) -> None:
        """Raise ``SchemaError`` where a table that is there lacks a column that nothing can replace."""
        for column in columns:
            if self.has(table) and not self.has(table, column):
                raise SchemaError(self.file, f"table {table} has no column {column} (export again with a newer nsys)")

    def select(self, table: str, *columns: str, where: str = "", default: int = NULL) -> str:
        """The text of a SELECT of integer columns; one that the table lacks, and NULL, become ``default``.

        Names come from our own code, never from the file.
        """
        wanted = [f'coalesce("{c}", {default})' if self.has(table, c) else str(default) for c in columns]
        return f'SELECT {", ".join(wanted)} FROM "{table}"' + (f" WHERE {where}" if where else "")  # noqa: S608

    def ints(self, table: str, *columns: str, where: str = "") -> list[Ints]:
        """Integer columns as arrays, in the table's own order: whoever needs an order sorts the arrays."""
        if not self.has(table):
            return [np.zeros(0, np.int64) for _ in columns]
        here = [column for column in columns if self.has(table, column)] or list(columns[:1])
        found = dict(zip(here, self._ints(table, here, where), strict=True))
        rows = len(found[here[0]])
        return [found[column] if column in found else np.full(rows, NULL, np.int64) for column in columns]

    def _ints(self, table: str, columns: Sequence[str], where: str) -> list[Ints]:
        numbers = [f'coalesce("{column}", {NULL})' for column in columns]
        try:
            found = [part for part, _ in self.chunks(numbers, table, where=where or "1")]
        except ValueError:  # another value than an integer
            return self.query_ints(self.select(table, *columns, where=where), len(columns))
        return [np.concatenate(parts) for parts in zip(*found, strict=True)] if found else [_NONE for _ in columns]

    def key(self, table: str) -> str:
        """SQLite's name for the number of a table's rows, one that no column has taken; empty where rows have none."""
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
        """Expressions over a table (``e`` is a row of it) as arrays of integers, and one text's values joined.

        SQLite hands rows over as one Python object a value. A column whose numbers it joins to one text, which numpy
        reads, takes half of the time. Some rows at a time come, in the table's order. The expressions are our own, and
        never NULL. Raises ValueError where a value is no integer.
        """
        inner = ", ".join(f"{number} AS n{place}" for place, number in enumerate(numbers))
        outer = ", ".join(f"group_concat(n{place})" for place in range(len(numbers)))
        key, last = self.key(table), -(1 << 63)
        source = f'"{table}" AS e NOT INDEXED' if key else f'"{table}" AS e'  # the order is that of the row numbers
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
        """The integer columns of a query of our own, each a view of what was read."""
        try:
            flat = np.fromiter(chain.from_iterable(self.connection.execute(query)), np.int64).reshape(-1, width)
        except (TypeError, ValueError, OverflowError) as error:  # a column holds whatever was put there
            raise SchemaError(self.file, f"expected whole numbers, found another value ({error})") from None
        return list(flat.T)

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.connection.execute(query, values).fetchall()

    def strings(self, ids: Ints) -> dict[int, str]:
        """The texts of StringIds, fetched once a distinct id."""
        return self.texts("StringIds", "id", set(np.unique(ids).tolist()))

    def texts(self, table: str, key: str, wanted: set[int] | None = None) -> dict[int, str]:
        """A table of texts by number; what is NULL is empty, and what is no text is told as one.

        ``wanted``: only these numbers.
        """
        if not self.has(table):
            return {}
        self.require(table, key, "value")
        found = self.connection.execute(f'SELECT "{key}", CAST(value AS TEXT) FROM "{table}" ORDER BY "{key}"')  # noqa: S608
        return {id_: value or "" for id_, value in found if wanted is None or id_ in wanted}


def _integers(text: bytes | str, count: int) -> Ints:
    """So many numbers with commas between them."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # how numpy says that it met something else
        try:
            found: Ints = np.fromstring(text, np.int64, sep=",")
        except DeprecationWarning:
            found = _NONE
    if len(found) != count:
        raise ValueError("expected whole numbers, found another value")
    return found


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")  # NVTX texts are whatever the program passed: seen in files of 2025


@contextmanager
def unpacked(file: Path) -> Iterator[Path]:
    """The file itself, or a temporary copy without gzip's packing, whatever the suffix."""
    with file.open("rb") as source:
        if source.read(2) != b"\x1f\x8b":
            yield file
            return
    with tempfile.NamedTemporaryFile(prefix="pyprof-", suffix=".sqlite") as copy:
        try:
            with gzip.open(file) as packed:
                shutil.copyfileobj(packed, copy, 1 << 20)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise InputError(file, f"expected a whole gzip file, found {error} (copy or compress it again)") from None
        copy.flush()
        yield Path(copy.name)


@contextmanager
def database(file: Path) -> Iterator[Database]:
    """Open a profiler's database; SQLite's own errors become an ``InputError`` of one line."""
    with unpacked(file) as plain:
        connection = sqlite3.connect(f"{plain.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        connection.text_factory = _decode
        try:
            yield Database(file, connection)
        except sqlite3.DatabaseError as error:
            raise InputError(
                file, f"expected a whole SQLite database, found an error: {error} (export it again)"
            ) from None
        finally:
            connection.close()
