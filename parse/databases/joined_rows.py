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
JoinedRows = tuple[int, bytes, list[bytes | None]]  # the number of rows, the joined text, the joined numbers


def joined(connection: sqlite3.Connection, query: str, most: int, table: str, divisible: bool) -> Iterator[JoinedRows]:
    """The results of the query of ``Database.chunks``, each of at most ``most`` rows; fewer where texts are too long.

    Not ``divisible``: the table's rows have no numbers, and one result has all of them.
    """
    last = -(1 << 63)
    while True:
        try:
            count, now, texts, *columns = _row_of_bytes(connection, query, last, most)
        except sqlite3.DataError:  # a text longer than SQLite's limit
            if most == 1 or not divisible:
                raise
            most = max(1, most // 32)
            continue
        if not count:
            return
        if now <= last:
            raise sqlite3.DatabaseError(f"the rows of {table} are not in the order of their numbers")
        last = now
        yield count, texts or b"", columns


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
