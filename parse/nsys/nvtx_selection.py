"""Which NVTX ranges are read where not all are needed: SQL conditions over the rows (``e``) of the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pyprof.parse.attribute.capture import OPEN
from pyprof.parse.attribute.scope import ENGINE, STEP_TEXTS
from pyprof.parse.formats.database import Database
from pyprof.parse.nsys.nvtx_sql import RangeSql, count_ranges
from pyprof.parse.nsys.tables import NVTX, process_sql
from pyprof.table.columns import Ints

PROBES = 64  # rows that show whether a large part of the ranges is of threads that launch nothing


def around(db: Database, times: Ints) -> str:
    """Ranges that are open at one of these times, and ranges that mark a step.

    The times go into a temporary table, for one scan of the ranges: there is no index on time.
    """
    sql = RangeSql.of(db)
    _temporary(db, "pyprof_times", times.tolist())
    end = f"coalesce({sql.end}, {OPEN})"
    return (
        f"(EXISTS (SELECT 1 FROM pyprof_times WHERE number BETWEEN {sql.start} AND {end})"  # noqa: S608 (our own text)
        f" OR {_marks(sql.text)})"
    )


def of_launches(db: Database, launching: Sequence[int]) -> str:
    """Ranges that a launch can depend on: all of threads (globalTids) that launch, and those that mark a step.

    Further all ranges of a thread with a range that matters to launches on other threads: a forward op of their
    backward pass, a backward node, or an op that says which op made its input. An idle thread has none of these.
    """
    sql = RangeSql.of(db)
    _temporary(db, "pyprof_launching", launching)
    idle = f"{sql.thread} NOT IN (SELECT number FROM pyprof_launching)"  # noqa: S608 (our own text)
    if not _some_idle(db, idle):
        return "1"
    text = sql.text
    node = " OR ".join(f"instr({text}, '{part}')" for part in ("Backward", "Grad", "GraphRoot"))
    db.connection.execute(
        f"INSERT OR IGNORE INTO pyprof_launching SELECT DISTINCT {sql.thread} FROM {sql.rows}"  # noqa: S608 (our own text)
        f" WHERE {idle} AND {sql.is_range} AND (instr({text}, ', seq = ') OR ({text} NOT GLOB 'aten::*' AND ({node}))"
        f" OR (instr({text}, ', op_id = ') AND {text} GLOB '*([1-9]*'))"
    )
    return f"(NOT ({idle}) OR {_marks(text)})"


def _some_idle(db: Database, idle: str) -> bool:
    """Whether one of a few rows, evenly spread over the table, is of an idle thread."""
    key, last = db.key(NVTX.table), count_ranges(db)
    if not key:
        return False
    query = f'SELECT 1 FROM "{NVTX.table}" e WHERE e.{key} = ? AND {idle}'  # noqa: S608 (our own text)
    return any(db.rows(query, last * part // PROBES) for part in range(1, PROBES + 1))


def last_nodes(db: Database, updates: Ints, since: int) -> tuple[Ints, Ints]:
    """Process and start of autograd's last node between each two of ``updates``, if it began after ``since``."""
    sql = RangeSql.of(db)
    text, start, thread = sql.text, sql.start, sql.thread
    _temporary(db, "pyprof_updates", updates.tolist())
    node = f"{text} GLOB '*Backward*, seq = *' OR {text} GLOB '*AccumulateGrad*'"
    found = db.rows(
        f"SELECT {process_sql(thread)}, max({start}) FROM {sql.rows} WHERE {sql.is_range}"  # noqa: S608 (our own text)
        f" AND typeof({start}) = 'integer' AND typeof({thread}) = 'integer' AND {start} >= ?"
        f" AND ({text} GLOB '{ENGINE}*' OR ({text} NOT GLOB 'aten::*' AND ({node})))"
        f" GROUP BY 1, (SELECT number FROM pyprof_updates WHERE number > {start} ORDER BY number LIMIT 1) ORDER BY 2",
        since,
    )
    pid, start_ns = np.array(found, np.int64).reshape(-1, 2).T
    return pid, start_ns


def _marks(text: str) -> str:
    """Ranges that may mark a training step or end one."""
    marks = " OR ".join(f"{text} GLOB '{begin}*'" for begin in STEP_TEXTS)
    first = "".join(sorted({begin[0] for begin in STEP_TEXTS}))  # one comparison instead of three for nearly all
    return f"({text} GLOB '[{first}]*' AND ({marks}))"


def _temporary(db: Database, table: str, numbers: Iterable[int]) -> None:
    """Fill a temporary table with numbers."""
    db.connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} (number INTEGER PRIMARY KEY)")
    db.connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?)", ((number,) for number in numbers))  # noqa: S608
