"""Damage to SQLite databases: their cells, columns, types, tables, views, triggers, schema and pages."""

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz import damage_bytes, values

Tables = dict[str, list[str]]  # columns by table
TYPES = ("INTEGER", "TEXT", "REAL", "BLOB", "NUMERIC", "", "INTEGER NOT NULL", "TEXT COLLATE NOCASE", "INT PRIMARY KEY",
         "VARCHAR(3)", "DATE")  # fmt: skip
VIEWS = (
    "SELECT * FROM ({old})", "SELECT * FROM {old} UNION ALL SELECT * FROM {old}", "SELECT a.* FROM {old} a, {old} b",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS {column} FROM n",
    "SELECT * FROM {old} WHERE {column} > (SELECT avg({column}) FROM {old})", "SELECT * FROM {old} WHERE 0",
    "SELECT *, randomblob(100000000) AS start FROM {old}", "SELECT group_concat({column}) AS {column} FROM {old}",
    "SELECT * FROM nowhere", "SELECT * FROM {table}", "SELECT zeroblob(1000000000) AS {column}",
)  # fmt: skip
MORE = (
    "CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END", "CREATE INDEX i ON {table} ({column})",
    "CREATE UNIQUE INDEX i ON {table} ({column})", "CREATE INDEX i ON {table} (abs({column}))",
    "CREATE TABLE more AS SELECT * FROM {table}", "CREATE VIRTUAL TABLE v USING fts5(a)", "PRAGMA user_version=77",
    "CREATE TABLE w (a PRIMARY KEY, b) WITHOUT ROWID", "CREATE TABLE g (a, b AS (a + 1))", "PRAGMA encoding='UTF-16'",
    "CREATE TABLE sqlite_stat1x (a)", "PRAGMA application_id=-1", "CREATE TABLE CUPTI_ACTIVITY_KIND_JIT (start, end)",
    "CREATE TABLE META_DATA_EXPORT (name, value)", "CREATE TABLE StringTable (_id_, value)",
)  # fmt: skip


def damaged(content: bytes, random: Random, scratch: Path) -> bytes:
    """The database's bytes after changes. ``scratch``: a file to make them in."""
    if random.random() < 0.7:
        scratch.write_bytes(content)
        try:
            # A change of the schema may make the rest impossible: the file is then what was written so far.
            with (
                suppress(sqlite3.Error, UnicodeDecodeError),
                closing(sqlite3.connect(scratch, isolation_level=None)) as db,
            ):
                _changed(db, random)
            content = scratch.read_bytes()
        finally:
            scratch.unlink()
        if random.random() < 0.85:
            return content
    return _pages(content, random) if random.random() < 0.5 else damage_bytes.damaged(content, random)


def _changed(db: sqlite3.Connection, random: Random) -> None:
    db.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA writable_schema=ON; BEGIN")
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        tables = _tables(db)
        if tables:
            with suppress(sqlite3.Error, OverflowError, UnicodeDecodeError):  # not every change fits every database
                random.choice(CHANGES)(db, tables, random)
    db.execute("COMMIT")


def _tables(db: sqlite3.Connection) -> Tables:
    with suppress(sqlite3.Error, UnicodeDecodeError):
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {name: found for name in names if (found := [r[1] for r in db.execute(f'PRAGMA table_info("{name}")')])}
    return {}


def _one(tables: Tables, random: Random) -> tuple[str, str]:
    table = random.choice(list(tables))
    return f'"{table}"', f'"{random.choice(tables[table])}"'


def _cell(db: sqlite3.Connection, tables: Tables, random: Random) -> None:
    table, column = _one(tables, random)
    found = db.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
    if found:
        row, old = random.choice(found)
        db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (_value(random, old), row))


def _value(random: Random, old: Any) -> Any:
    new = values.value(random, None if isinstance(old, bytes) else old, large=False)
    if isinstance(new, str) and random.random() < 0.15:
        return new.encode("utf-8", "replace") + b"\xff\0"
    return new if isinstance(new, int | float | str | None) else str(new)


def _column(db: sqlite3.Connection, tables: Tables, random: Random) -> None:
    """Every row of a column."""
    table, column = _one(tables, random)
    form = random.choice(("?", f"-{column}", f"{column} * 1000003", f"{column} + ?", f"CAST({column} AS TEXT)", "rowid",
                          f"CAST({column} AS BLOB)", f"{column} / 0.0", f"{column} || ?",
                          "rowid % 3", "NULL"))  # fmt: skip
    db.execute(f"UPDATE {table} SET {column} = {form}", (_value(random, None),) * form.count("?"))


def _drop_column(db: sqlite3.Connection, tables: Tables, random: Random) -> None:
    table, column = _one(tables, random)
    db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")


def _rename_column(db: sqlite3.Connection, tables: Tables, random: Random) -> None:
    table, column = _one(tables, random)
    name = random.choice((_one(tables, random)[1].strip('"'), "x", "START", values.text(random)))
    db.execute(f'ALTER TABLE {table} RENAME COLUMN {column} TO "{name}"')


def _retype(db: sqlite3.Connection, tables: Tables, random: Random) -> None:
    name = random.choice(list(tables))
    columns = ", ".join(f'"{column}" {random.choice(TYPES)}' for column in tables[name])
    db.execute(f'ALTER TABLE "{name}" RENAME TO old')
    db.execute(f'CREATE TABLE "{name}" ({columns})')
    db.execute(f'INSERT OR IGNORE INTO "{name}" SELECT * FROM old')
    db.execute("DROP TABLE old")


def _drop(db: sqlite3.Connection, tables: Tables, random: Random) -> None:
    table, _ = _one(tables, random)
    db.execute(random.choice((f"DROP TABLE {table}", f"DELETE FROM {table}", f"ALTER TABLE {table} RENAME TO gone")))


def _swap(db: sqlite3.Connection, tables: Tables, random: Random) -> None:
    """Two tables change their names."""
    one, other = _one(tables, random)[0], _one(tables, random)[0]
    for old, new in ((one, '"swapping"'), (other, one), ('"swapping"', other)):
        db.execute(f"ALTER TABLE {old} RENAME TO {new}")


def _repeat(db: sqlite3.Connection, tables: Tables, random: Random) -> None:
    table, _ = _one(tables, random)
    (rows,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()
    if rows < 2000:
        db.execute(f"INSERT INTO {table} SELECT * FROM {table} LIMIT {random.choice((1, 1000))}")


def _view(db: sqlite3.Connection, tables: Tables, random: Random) -> None:
    table, column = _one(tables, random)
    db.execute(f'ALTER TABLE {table} RENAME TO "behind"')
    db.execute(f"CREATE VIEW {table} AS {random.choice(VIEWS)}".format(old='"behind"', table=table, column=column))


def _more(db: sqlite3.Connection, tables: Tables, random: Random) -> None:
    table, column = _one(tables, random)
    db.execute(random.choice(MORE).format(table=table, column=column))


def _schema(db: sqlite3.Connection, tables: Tables, random: Random) -> None:
    """The text that makes a table, or the page that it begins on, is another one."""
    table = random.choice(list(tables))
    (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    if random.random() < 0.5:
        db.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (values.text(random, sql), table))
    else:
        page = random.choice((0, 1, 2, 3, 10**6, -1))
        db.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (page, table))


Change = Callable[[sqlite3.Connection, Tables, Random], None]
CHANGES: tuple[Change, ...] = (_cell,) * 8 + (_column,) * 4 + (
    _drop_column, _rename_column, _retype, _drop, _swap, _repeat, _view, _more, _schema)  # fmt: skip


def _pages(content: bytes, random: Random) -> bytes:
    """Pages change places, are lost or point elsewhere."""
    size = int.from_bytes(content[16:18], "big")
    size = 65536 if size == 1 else size if size >= 512 else 4096
    pages = [content[i : i + size] for i in range(0, len(content), size)]
    one, other = random.randrange(len(pages)), random.randrange(len(pages))
    how = random.randrange(6)
    if how == 0:
        pages[one], pages[other] = pages[other], pages[one]
    elif how == 1:
        pages[one] = pages[other]
    elif how == 2:
        pages[one] = bytes(size)
    elif how == 3:
        del pages[one]
    elif how == 4:  # a page's header: its kind, its cells and where they begin
        header = random.randrange(min(12, len(pages[one])))
        page = bytearray(pages[one])
        page[header] = random.choice((0, 2, 5, 10, 13, 255, random.randrange(256)))
        pages[one] = bytes(page)
    else:  # the database's header: page size, versions, text encoding, ...
        head = bytearray(pages[0])
        head[random.randrange(16, 100)] = random.randrange(256)
        pages[0] = bytes(head)
    return b"".join(pages)
