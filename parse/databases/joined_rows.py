"""Thousands of rows of a query as one: their texts joined to one, and the numbers of each column to another.

SQLite returns one Python object per value. It is twice as fast to let SQLite join a column's numbers to one text, which
numpy reads.
"""

import sqlite3
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from pyprof.table.columns import Ints

CHUNK = 32_768  # rows joined into one text at a time; reading is slower with fewer or more rows
FIRST, LAST = -(1 << 63), (1 << 63) - 1  # row numbers
JoinedRows = tuple[int, bytes, list[Ints]]  # the number of rows, the joined text, the columns of numbers


def joined(connection: sqlite3.Connection, query: str, most: int, table: str, key: str) -> Iterator[JoinedRows]:
    """The results of the query of ``Database.chunks``, each of at most ``most`` rows; fewer where texts are too long.

    ``key``: SQLite's name for the numbers of the table's rows; if empty, they have none, and one result has all rows.
    The query reads the rows between two numbers, which is faster than a limit to the rows. Where numbers are dense,
    they are as far apart as rows are wanted; elsewhere, the number of the last wanted row is looked up first.
    Raises ValueError if a value is not an integer.
    """
    if not key:
        count, _, texts, *columns = _row_of_bytes(connection, query, most)
        if count:
            yield count, texts or b"", [integers(column, count) for column in columns]
        return
    last, greatest, dense = FIRST, FIRST, False
    while last < LAST:
        until = min(last + most, LAST) if dense else _place_of(connection, table, key, last, most)
        try:
            count, now, texts, *columns = _row_of_bytes(connection, query, last, until)
        except sqlite3.DataError:  # a text longer than SQLite's limit
            if most == 1:
                raise
            most = max(1, most // 32)
            continue
        if count:
            _check_order(table, last, now)
            greatest = now
            yield count, texts or b"", [integers(column, count) for column in columns]
        last, dense = until, 2 * count >= most
    _place_of(connection, table, key, greatest, 1)  # in a damaged file, it may be a smaller one


def _place_of(connection: sqlite3.Connection, table: str, key: str, after: int, rows: int) -> int:
    """The row number of the last of so many rows of a table after a row number; ``LAST`` if it has fewer rows."""
    source = f'SELECT {key} FROM "{table}" NOT INDEXED'  # noqa: S608 (our own text)
    query = f"{source} WHERE {key} > ? ORDER BY {key} LIMIT 1 OFFSET ?"
    found = connection.execute(query, (after, rows - 1)).fetchone()
    if found is None:
        return LAST
    _check_order(table, after, found[0])
    return int(found[0])


def _check_order(table: str, before: int, number: int) -> None:
    if number <= before:
        raise sqlite3.DatabaseError(f"the rows of {table} are not in the order of their numbers")


def _row_of_bytes(connection: sqlite3.Connection, query: str, *values: int) -> Any:
    """The row of a query, its texts as they are in the file."""
    factory, connection.text_factory = connection.text_factory, bytes
    try:
        return connection.execute(query, values).fetchone()
    finally:
        connection.text_factory = factory


def integers(text: bytes | None, count: int) -> Ints:
    """Parse numbers separated by commas. Raises ValueError if their number is not ``count``."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # numpy warns thus about anything that is not a number
        try:
            numbers: Ints = np.fromstring(text or b"", np.int64, sep=",")  # no text: no value is known
        except DeprecationWarning:
            numbers = np.zeros(0, np.int64)
    if len(numbers) != count:
        raise ValueError("expected whole numbers, found another value")
    return numbers
