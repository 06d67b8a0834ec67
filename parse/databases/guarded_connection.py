"""A connection to a database that a stranger may have made: it reads, and it ends.

SQLite's advice for such files (https://sqlite.org/security.html) is followed: the schema is not trusted, cells are
checked, and an authorizer refuses what views of profilers do not need. Work and memory are limited by the file's size,
because a view may never end, and the pages of a damaged table may lead back to themselves.
"""

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

STEPS = 20_000_000  # instructions of SQLite's virtual machine, which take less than a second
# 28 real captures of 2019 to 2026 needed at most 1.6 for each byte, also where their rows were repeated 100 times.
STEPS_PER_BYTE = 64
STEPS_PER_CHECK = 200_000  # some ms; each check waits for Python's lock, which another thread may hold
# Processor time of the thread, because one instruction can work on a long text: reading takes 0.1 to 0.3 s for 1 MB.
SECONDS, SECONDS_PER_BYTE = 10.0, 4e-6
# A row takes at least 6 bytes: two of its page's index, its length, its number, and a record of two bytes.
BYTES_PER_ROW = 6
# Texts: a name may be stored once and read with every row that has it.
TEXT_BYTES, TEXT_BYTES_PER_BYTE = 64 << 20, 64
LONGEST_TEXT = 64 << 20  # bytes of one value, where Python has Connection.setlimit (3.11)
MOST_VIEWS, MOST_PARTS = 1_000, 10_000  # views in a file, and SELECTs in a view once the views in it are put in place
# Functions that make large values from small ones. No view of rocprofv3 needs them.
GROWING = frozenset("zeroblob randomblob printf format hex replace load_extension".split())
WORDS = re.compile(r"\w+")


class Guard:
    """The limits of one file. ``broken`` says which one was passed; empty if none was."""

    def __init__(self, size: int) -> None:
        self.size = size  # bytes of the file
        self.most_rows = size // BYTES_PER_ROW  # of a table
        self.broken = ""
        self._is_left = False  # nobody waits for what is read
        self._steps_left = STEPS + STEPS_PER_BYTE * size
        self._text_left = TEXT_BYTES + TEXT_BYTES_PER_BYTE * size

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """If an error leaves the block, such as that of ^C, end what other threads read, within a part of a second."""
        try:
            yield
        except BaseException:
            self._is_left = True
            raise

    def connect(self, plain: Path) -> sqlite3.Connection:
        """Open the database, for one thread at a time. Only its first bytes are read."""
        connection = sqlite3.connect(
            f"{plain.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False
        )
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        if hasattr(connection, "setlimit"):
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        until = time.thread_time() + SECONDS + SECONDS_PER_BYTE * self.size
        connection.set_progress_handler(partial(self._check, until), STEPS_PER_CHECK)
        connection.set_authorizer(self._allow)
        connection.text_factory = self.text
        return connection

    def text(self, data: bytes) -> str:
        """A text of the file. Programs may pass any bytes as NVTX text: seen in files of 2025."""
        self.count_text(len(data))
        return data.decode("utf-8", "replace")

    def count_text(self, size: int) -> None:
        """Count bytes of texts that were read. Raises sqlite3.DataError beyond the limit."""
        self._text_left -= size
        if self._text_left < 0:
            self.broken = f"far more text than its {self.size:,} bytes hold"
            raise sqlite3.DataError(self.broken)

    def count_rows(self, rows: int) -> None:
        """Raise sqlite3.DataError if a table has more rows than the file's bytes can hold; another error if left."""
        if self._is_left:
            raise sqlite3.OperationalError("interrupted")
        if rows > self.most_rows:
            self.broken = f"a table of more than {self.most_rows:,} rows, which its {self.size:,} bytes cannot hold"
            raise sqlite3.DataError(self.broken)

    def check_views(self, sql: dict[str, str]) -> None:
        """Raise sqlite3.DataError if a view's SELECT would be huge: views may double each other. ``sql``: by name.

        SQLite puts the SELECT of each view in place of its name before it runs anything, without a limit.
        """
        names = {name.lower(): WORDS.findall(text.lower()) for name, text in sql.items()}
        parts = dict.fromkeys(names, 1)
        for _ in range(len(names)):
            # A view that is named within itself is refused by SQLite; the sum then grows until the limit.
            grown = {
                name: 1 + sum(parts[word] for word in words[1:] if word in parts and word != name)
                for name, words in names.items()
            }
            if len(names) > MOST_VIEWS or max(grown.values()) > MOST_PARTS:
                self.broken = "views within views that do not end"
                raise sqlite3.DataError(self.broken)
            if grown == parts:
                return
            parts = grown

    def _check(self, until: float) -> bool:
        """Called by SQLite between its instructions; true stops the query. ``until``: by the thread's own clock."""
        self._steps_left -= STEPS_PER_CHECK
        if self._steps_left < 0 or time.thread_time() > until:
            self.broken = f"tables or views that do not end, or need far more work than its {self.size:,} bytes"
        return bool(self.broken) or self._is_left

    def _allow(self, action: int, first: str | None, second: str | None, schema: str | None, view: str | None) -> int:
        """Called by SQLite for each part of a query. What is not refused are pyprof's own queries, and views."""
        if action == sqlite3.SQLITE_RECURSIVE:
            self.broken = f"a view that repeats itself{f' ({view})' if view else ''}"
        elif action == sqlite3.SQLITE_FUNCTION and view is not None and (second or "").lower() in GROWING:
            self.broken = f"a view that calls {second}() ({view})"
        else:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY
