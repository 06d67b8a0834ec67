"""A profiler's SQLite database, opened read-only; a damaged or wrong file gives an error message of one line.

Its tables are described once, as ``Source``: what PyProf calls their columns, and what the profiler calls them. Every
SELECT is made of such descriptions, which are PyProf's own text: nothing that a file contains becomes SQL.
"""

import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from pyprof.errors import InputError, SchemaError
from pyprof.parse.databases import joined_rows
from pyprof.parse.databases.guarded_connection import Guard
from pyprof.parse.databases.joined_rows import JoinedRows, joined
from pyprof.parse.databases.read_ahead import read_ahead
from pyprof.parse.databases.unpacked_file import unpacked
from pyprof.parse.databases.whole_numbers import WHOLE, without_others
from pyprof.table.columns import NULL, Ints, folded

HEADER = b"SQLite format 3\0"
SPARE = 16  # connections for threads to a file that is unpacked
AHEAD, AHEAD_BYTES = 3, 8 << 20  # chunks read ahead by a thread, in files of at least so many bytes
Found = TypeVar("Found")
_NONE: Ints = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Source:
    """A table and the columns that are read, as pairs of pyprof's name and the profiler's name."""

    table: str
    columns: tuple[tuple[str, str], ...]
    required: tuple[str, ...] = ()  # pyprof's names of the columns without which the table cannot be used
    order: tuple[str, ...] = ()  # pyprof's names of the columns that sort the rows; empty: the table's own order
    only: tuple[str, tuple[int, ...]] | None = None  # an optional column; only rows with these values are read
    numbers: tuple[str, ...] = ()  # pyprof's names of the columns of whole numbers, for tables with others, too

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

    def __init__(
        self,
        file: Path,
        connection: sqlite3.Connection,
        guard: Guard,
        connect: Callable[[], sqlite3.Connection | None] = lambda: None,
    ) -> None:
        """``connect`` opens the same file once more, for a thread that reads ahead; None: that is not possible."""
        self.file = file
        self.connection = connection
        self._connect = connect
        self._guard = guard
        self.wrong: dict[str, dict[str, Ints]] = {}  # table -> column -> the rows whose value is not a whole number
        # A virtual table has no page; it runs code of a module on whatever the file contains. No profiler makes one.
        found = self.rows(
            "SELECT name, type, sql FROM sqlite_master"
            " WHERE (type = 'view' OR (type = 'table' AND rootpage > 0)) AND typeof(name) = 'text' ORDER BY name"
        )
        self._views = {name: str(sql) for name, kind, sql in found if kind == "view"}
        guard.check_views(self._views)
        self.columns: dict[str, frozenset[str]] = {name: self._columns_of(name) for name, _, _ in found}

    def _columns_of(self, name: str) -> frozenset[str]:
        """The columns of a table or view; none of a view that calls a refused function, as some of rocprofv3's do."""
        try:
            return frozenset(column for (column,) in self.execute("SELECT name FROM pragma_table_info(?)", name))
        except sqlite3.OperationalError:
            if self._guard.broken or name not in self._views:
                raise
            return frozenset()

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

        A column that the table lacks is ``NULL``, and so is a value that is not an integer (see ``wrong_types``); an
        absent table has no rows. Raises SchemaError if a required column is missing.
        """
        self.check(source)
        wanted = names or source.names
        columns = self.ints(source.table, *map(source.column, wanted), where=self._counted(source))
        return dict(zip(wanted, columns, strict=True))

    def records(self, source: Source, *names: str) -> list[tuple[Any, ...]]:
        """The rows as Python values, None for an absent column; none without table or required columns.

        The columns in ``source.numbers`` have whole numbers or None; all others have values of any type.
        """
        if not self.has_all(source):
            return []
        wanted = names or source.names
        listed = ", ".join(self.expressions(source, wanted).values())
        order = ", ".join(self.expressions(source, source.order).values()) if source.order else self.key(source.table)
        rows = self.rows(f'SELECT {listed} FROM "{source.table}" e ORDER BY {order or "NULL"}')  # noqa: S608 (our own text)
        for place, name in enumerate(wanted):
            if name in source.numbers:
                rows, odd = without_others(rows, place)
                self.note(source.table, source.column(name), odd)
        return rows

    def has_all(self, source: Source) -> bool:
        """Whether the table exists and has all required columns."""
        return self.has(source.table) and all(self.has(source.table, source.column(name)) for name in source.required)

    def expressions(self, source: Source, names: Sequence[str] = ()) -> dict[str, str]:
        """The SQL expressions of the columns of a row ``e``, all or only ``names``; NULL for a missing column.

        Where ``wrong`` has rows of a column, only its whole numbers are not NULL.
        """
        columns = {name: source.column(name) for name in names or source.names}
        return {name: self._expression(source.table, column) for name, column in columns.items()}

    def _expression(self, table: str, column: str) -> str:
        value = f'e."{column}"' if self.has(table, column) else "NULL"
        return WHOLE.format(value) if column in self.wrong.get(table, {}) else value

    def _counted(self, source: Source) -> str:
        """The SQL condition of the rows of a source that count. Notes the rows of which this is unknown."""
        name, values = source.only or ("", ())
        column = source.column(name) if name else ""
        if not name or not self.has(source.table, column):
            return "1"
        condition = f'"{column}" IN ({", ".join(map(str, values))})'
        unknown = f"CASE WHEN {condition} THEN 0 ELSE typeof(\"{column}\") <> 'integer' END"
        query = f'SELECT count(*) FROM "{source.table}" WHERE {unknown}'  # noqa: S608 (our own text)
        self.note(source.table, column, -1 - np.arange(self.rows(query)[0][0]))  # rows that are not read: no numbers
        return condition

    def ints(self, table: str, *columns: str, where: str = "1") -> list[Ints]:
        """Integer columns as arrays, in the table's own order: sorting arrays is faster than sorting in SQL."""
        if not self.has(table):
            return [_NONE for _ in columns]
        present = [column for column in columns if self.has(table, column)]
        counted = "" if present else f'SELECT count(*) FROM "{table}" WHERE {where}'  # noqa: S608 (our own text)
        arrays = dict(zip(present, self._ints(table, present, where), strict=True)) if present else {}
        rows = len(arrays[present[0]]) if present else int(self.rows(counted)[0][0])
        return [arrays[column] if column in arrays else np.broadcast_to(np.int64(NULL), rows) for column in columns]

    def _ints(self, table: str, columns: Sequence[str], where: str) -> list[Ints]:
        numbers = [f'coalesce("{column}", {NULL})' for column in columns]
        grown = [array("q") for _ in columns]  # in place: chunks joined at the end would leave holes in the memory
        try:
            for chunk, _ in self.chunks(numbers, table, where=where):
                for column, part in zip(grown, chunk, strict=True):
                    column.frombytes(part.tobytes())
        except ValueError:
            return self._mixed_ints(table, columns, where)
        return [folded(np.frombuffer(column, np.int64)) if column else _NONE for column in grown]

    def _mixed_ints(self, table: str, columns: Sequence[str], where: str) -> list[Ints]:
        """Columns with values that are not whole numbers, which become ``NULL`` and are noted in ``wrong``."""
        pairs = (f"coalesce({WHOLE}, {NULL}), {{0}} IS NOT NULL AND {WHOLE} IS NULL".format(f'"{c}"') for c in columns)
        query = f'SELECT {", ".join(pairs)} FROM "{table}" WHERE {where}'  # noqa: S608 (our own text)
        found = self.query_ints(query, 2 * len(columns))
        for column, is_odd in zip(columns, found[1::2], strict=True):
            self.note(table, column, np.flatnonzero(is_odd))
        return found[::2]

    def note_wrong(self, source: Source) -> None:
        """Note in ``wrong``, which then has the table, the rows whose ``source.numbers`` have other values."""
        self.wrong.setdefault(source.table, {})
        columns = [column for column in map(source.column, source.numbers) if self.has(source.table, column)]
        self._mixed_ints(source.table, columns, "1")

    def note(self, table: str, column: str, rows: Ints) -> None:
        """Note in ``wrong`` the rows of a column with values of a wrong type, if there are any."""
        if len(rows):
            self.wrong.setdefault(table, {})[column] = rows

    def wrong_types(self, but: Sequence[str] = (), only: Sequence[str] = ()) -> list[str]:
        """Warnings about values of a wrong type that were read, in all tables except ``but``, or ``only`` in some."""
        words = "rows of {} have values that are not whole numbers, which are unknown ({})"
        return [
            f"{len(np.unique(np.concatenate([*columns.values()]))):,} {words.format(table, ', '.join(columns))}"
            for table, columns in self.wrong.items()
            if columns and table not in but and (not only or table in only)
        ]

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
        self,
        numbers: Sequence[str],
        table: str,
        join: str = "",
        where: str = "1",
        text: str = "NULL",
        temporary: bool = False,
    ) -> Iterator[tuple[list[Ints], bytes]]:
        """Integer expressions over a table's rows (``e``) as arrays, and the joined values of a text expression.

        SQLite returns one Python object per value. It is twice as fast to let SQLite join a column's numbers to one
        text, which numpy reads. Each item has up to ``CHUNK`` rows, in the table's order. The expressions come from
        pyprof, not from the file, and are never NULL. ``temporary``: they name temporary tables of this connection.
        Raises ValueError if a value is not an integer.
        """
        key = self.key(table)
        if key:
            # Rows come in order of row numbers.
            found, values, row_text, last = f'"{table}" AS e NOT INDEXED', numbers, text, f"max(e.{key})"
            found = f"{found}{join} WHERE e.{key} > ? AND e.{key} <= ? AND ({where})"
        else:
            values, row_text, last = [f"n{place}" for place in range(len(numbers))], "t", "NULL"
            inner = ", ".join(f"{number} AS {name}" for number, name in zip(numbers, values, strict=True))
            found = f'(SELECT {text} AS t, {inner} FROM "{table}" AS e{join} WHERE {where} LIMIT ?)'  # noqa: S608
        columns_of = ", ".join(f"group_concat({value})" for value in values)
        query = f"SELECT count(*), {last}, group_concat({row_text}, ''), {columns_of} FROM {found}"  # noqa: S608
        rows, most = 0, joined_rows.CHUNK if key else self._guard.most_rows + 1
        for count, texts, columns in self._texts_of_chunks(query, most, table, key, own=temporary):
            rows += count
            self._guard.count_rows(rows)
            self._guard.count_text(len(texts))
            yield columns, texts

    def _texts_of_chunks(self, query: str, most: int, table: str, key: str, own: bool) -> Iterator[JoinedRows]:
        """The results of the query of ``chunks``; in a large file, a thread with its own connection reads them ahead.

        No connection is shared. SQLite locks a connection while a statement runs on it, and while Python ends another;
        the first may wait for Python's lock to call a limit's check, and the second holds it.
        """
        another = None if own else self._another()
        if another is None:
            yield from joined(self.connection, query, most, table, key)
            return

        def of_thread() -> Iterator[JoinedRows]:
            with closing(another) as connection:
                yield from joined(connection, query, most, table, key)

        with closing(read_ahead(of_thread, AHEAD)) as found:
            yield from found

    @contextmanager
    def beside(self, read: Callable[["Database"], Found]) -> Iterator[Callable[[], Found]]:
        """Read something in another thread while the block reads on; gives a function that returns what it found.

        The thread has a connection of its own; see ``_texts_of_chunks``. A small file is read by the block's thread.
        """
        another = self._another()
        if another is None:
            yield lambda: read(self)
            return

        def of_thread() -> tuple[Found, "Database"]:
            with closing(another) as connection:
                database = Database(self.file, connection, self._guard, self._connect)
                return read(database), database

        def result() -> Found:
            found, database = running.result()
            self.wrong.update(database.wrong)
            return found

        with ThreadPoolExecutor(1) as pool, self._guard.leaving():
            running = pool.submit(of_thread)
            yield result

    def _another(self) -> sqlite3.Connection | None:
        """A connection for a thread that reads ahead; None in a small file."""
        return None if self._guard.size < AHEAD_BYTES else self._connect()

    def query_ints(self, query: str, width: int) -> list[Ints]:
        """The integer columns of a query written by pyprof, as views of one array."""
        try:
            flat = np.fromiter(chain.from_iterable(self.execute(query)), np.int64).reshape(-1, width)
        except (TypeError, ValueError, OverflowError) as error:  # an SQLite column may contain values of any type
            raise SchemaError(self.file, f"expected whole numbers, found another value ({error})") from None
        return list(flat.T)

    def execute(self, query: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, which are no more than a table of this file can have."""
        cursor, most = self.connection.execute(query, values), self._guard.most_rows
        return chain(islice(cursor, most), self._beyond(cursor, most))

    def _beyond(self, cursor: sqlite3.Cursor, most: int) -> Iterator[tuple[Any, ...]]:
        """No rows; raises sqlite3.DataError if there is one more than ``most``."""
        for row in cursor:
            self._guard.count_rows(most + 1)
            yield row

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self.execute(query, *values))

    def texts(self, source: Source, wanted: Ints | None = None) -> dict[int, str]:
        """Texts by number (columns `id`, `text`), all or the ``wanted``; NULL becomes empty, any other value a text."""
        if not self.has(source.table):
            return {}
        self.check(source)
        key, text = source.column("id"), source.column("text")
        query = f'SELECT "{key}", CAST("{text}" AS TEXT) FROM "{source.table}" ORDER BY "{key}"'  # noqa: S608
        numbers = None if wanted is None else set(wanted.tolist())
        rows = self.rows(query)
        odd = [number for number, (id_, _) in enumerate(rows) if type(id_) is not int and id_ is not None]
        self.note(source.table, key, np.array(odd, np.int64))
        return {id_: value or "" for id_, value in rows if numbers is None or id_ in numbers}


@contextmanager
def database(file: Path) -> Iterator[Database]:
    """Open a profiler's database. SQLite's own errors, and queries without an end, become an ``InputError``."""
    with unpacked(file) as (plain, forget):
        guard = Guard(plain.stat().st_size)
        connection = guard.connect(plain)
        # A copy loses its name, and cannot be opened again.
        spare = [guard.connect(plain) for _ in range(SPARE)] if plain != file and guard.size >= AHEAD_BYTES else []
        forget()
        try:
            yield Database(file, connection, guard, partial(_one_of, spare) if spare else partial(guard.connect, plain))
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # some of SQLite's messages quote the file's bytes
            damage = f"an error: {' '.join(str(error).split())}"
            found = guard.broken or ("names that are not UTF-8" if isinstance(error, UnicodeDecodeError) else damage)
            raise InputError(file, f"expected a whole SQLite database, found {found} (export it again)") from None
        finally:
            for each in (connection, *spare):
                each.close()


def _one_of(spare: list[sqlite3.Connection]) -> sqlite3.Connection | None:
    try:
        return spare.pop()
    except IndexError:
        return None
