"""A profiler's database that was exported as a folder of Parquet files, one per table (nsys: ``--type parquetdir``).

The files have the names and columns of the database's tables. So the tables that are read are copied into a temporary
SQLite database, which every reader of the database then reads: each column is described once, as ``Source``. nsys's
unsigned numbers of 64 bits become signed ones with the same bits, as in its SQLite export.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyprof.errors import InputError
from pyprof.parse.databases.database import Database, Source, database
from pyprof.parse.databases.guarded_connection import Guard
from pyprof.table.parquet import check_size

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".parquet"
ROWS = 65_536  # copied at a time
_STORED = (int, float, str, bytes, type(None))  # the types of values that SQLite has
BYTES = frozenset({"binaryData"})  # bytes, though nsys 2025.3 gives the column the type of texts


@contextmanager
def opened(file: Path, sources: Sequence[Source]) -> Iterator[Database]:
    """The database in a file, or in a folder of Parquet files, of which only the columns of ``sources`` are read.

    Raises InputError if a file is damaged.
    """
    if not file.is_dir():
        with database(file) as db:
            yield db
        return
    connection = sqlite3.connect("")  # a temporary file, which SQLite itself removes
    try:
        for table in dict.fromkeys(source.table for source in sources):
            columns = [column for source in sources if source.table == table for _, column in source.columns]
            if (part := file / f"{table}{SUFFIX}").is_file():
                _copy(part, table, list(dict.fromkeys(columns)), connection)
        pages, page = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        guard = Guard(pages * page)
        connection.text_factory = guard.text
        yield Database(file, connection, guard)
    except sqlite3.Error as error:  # a value of a type that no database has
        raise InputError(file, f"expected the tables of an nsys export, found an error: {error}") from None
    finally:
        connection.close()


def _copy(part: Path, table: str, wanted: list[str], connection: sqlite3.Connection) -> None:
    """Copy a file's wanted columns into a new table. Table and column names are PyProf's own (``Source``)."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(part) as source:
            check_size(source.metadata, part)
            columns = [column for column in wanted if column in source.schema_arrow.names]
            if twice := [column for column in columns if source.schema_arrow.names.count(column) > 1]:
                raise InputError(part, f"expected each column once, found {twice[0]} twice (export it again)")
            if not columns:
                return
            names = ", ".join(f'"{column}"' for column in columns)
            connection.execute(f'CREATE TABLE "{table}" ({names})')
            insert = f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})'  # noqa: S608 (our own text)
            for batch in source.iter_batches(ROWS, columns=columns):
                values = [_values(column, batch.column(column)) for column in columns]
                connection.executemany(insert, zip(*values, strict=True))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # also of names that are no UTF-8
        found = f"expected a table of nsys export --type parquetdir, found {str(error).splitlines()[0][:200]}"
        raise InputError(part, f"{found} (export it again)") from None


def _values(name: str, column: "pa.Array") -> list[Any]:
    """A column's values as SQLite has them; bytes that are no UTF-8 are replaced."""
    import pyarrow as pa

    if pa.types.is_uint64(column.type):  # ids of threads use bit 63; SQLite's integers are signed
        column = column.view(pa.int64())
    if name in BYTES:
        return _bytes(column)
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:  # programs may pass any bytes as NVTX text
        return [None if text is None else text.decode("utf-8", "replace") for text in _bytes(column)]
    return [value if isinstance(value, _STORED) else str(value) for value in values]  # any other is of a wrong type


def _bytes(column: "pa.Array") -> list[bytes | None]:
    import pyarrow as pa

    values: list[bytes | None] = column.cast(pa.large_binary()).to_pylist()
    return values
