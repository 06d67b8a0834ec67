"""The SQL of NVTX ranges: their text, their domain, which rows (``e``) are ranges, and which are read if not all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pyprof.parse.attribute.capture import OPEN
from pyprof.parse.attribute.scope import ENGINE, STEP_TEXTS
from pyprof.parse.databases.database import Database
from pyprof.parse.databases.whole_numbers import LEFT_OUT
from pyprof.parse.nsys.tables import NVTX, STRINGS, process_sql
from pyprof.table.columns import Ints

PUSH_POP, START_END = (59, 70), (60, 71)  # NVTX_EVENTS.eventType; 70 and 71 are the same from NVTXT
DOMAIN_NAME = 75  # the event that creates and names a domain
MOST_DOMAIN = 1 << 61  # its double still fits 64 bits
MOST_THREADS = 10_000  # that a condition lists: SQLite takes a million characters
PROBES = 64  # rows checked to find out whether many of the ranges are on threads that launch nothing


class RangeSql:
    """Expressions over the rows (``e``) of one export's NVTX table, for the columns that it has."""

    def __init__(self, db: Database) -> None:
        e = db.expressions(NVTX)
        registered, self.join = registered_text(db, e["text_id"])
        self.rows = f'"{NVTX.table}" e{self.join}'  # the table as ``e``, joined with the registered texts
        key = db.key(NVTX.table)
        self.order = f"e.{key}" if key else "NULL"  # a view, or a table without row numbers: its own order
        self.start, self.end, self.thread = e["start_ns"], e["end_ns"], e["thread"]
        self.domain = f"coalesce({e['domain']}, 0)"  # 0: the default domain
        self.text = f"coalesce({e['text']}, {registered})"
        is_checked = NVTX.table in db.wrong  # a first attempt at reading the table has found values of wrong types
        is_possible = f"{self.domain} BETWEEN {-MOST_DOMAIN} AND {MOST_DOMAIN}"
        if is_checked:
            self.domain = f"CASE WHEN {is_possible} THEN {self.domain} ELSE 0 END"
        event, text_id = e["event_type"], e["text_id"]
        self.is_range = f"{event} IN {(*PUSH_POP, *START_END)}"
        self.is_timed = f"{self.is_range} AND {self.start} IS NOT NULL AND {self.thread} IS NOT NULL"
        if is_checked and self.end != "NULL":  # an end of a wrong type is not that of a range that was never closed
            self.is_timed += f' AND (e."{NVTX.column("end_ns")}" IS NULL OR {self.end} IS NOT NULL)'
        self.is_whole = f"{self.is_timed} AND {self.text} IS NOT NULL"
        # 2 * domain, + 1 for start/end ranges; NULL if the type of the event or of the domain is wrong.
        is_start_end = " ".join(f"WHEN {type_} THEN {type_ in START_END:d}" for type_ in (*PUSH_POP, *START_END))
        shifted = f"{self.domain} * 2 + CASE {event} {is_start_end} END"
        self.domain_and_style = shifted if is_checked else f"CASE WHEN {is_possible} THEN {shifted} END"
        # Whether a row is no whole range because of a wrong type; rarely evaluated
        is_named = f"{self.text} IS NOT NULL OR typeof({text_id}) IN ('integer', 'null')"
        self.is_odd = f"CASE WHEN {self.is_range} THEN NOT ({is_named}) ELSE typeof({event}) <> 'integer' END"
        self.is_odd = "0" if is_checked else self.is_odd


def registered_text(db: Database, number: str) -> tuple[str, str]:
    """The SQL for a number's registered text, and the SQL of its join; NULL if the file has no such texts."""
    if number == "NULL" or not db.has_all(STRINGS):
        return "NULL", ""
    id_, text = (f's."{STRINGS.column(name)}"' for name in ("id", "text"))
    return text, f' LEFT JOIN "{STRINGS.table}" s ON {id_} = {number}'


def check_types(db: Database) -> None:
    """Note the rows with values of wrong types (``Database.wrong``), as ``nvtx_ranges.read_ranges`` does."""
    e = db.expressions(NVTX)
    odd = " OR ".join(f"typeof({e[name]}) NOT IN ('integer', 'null')" for name in NVTX.numbers)
    if db.rows(f'SELECT 1 FROM "{NVTX.table}" e WHERE {odd} LIMIT 1'):  # noqa: S608 (our own text)
        db.note_wrong(NVTX)


def left_out(db: Database) -> list[str]:
    """The warning about rows with values of wrong types, and how many ranges are left out because of them."""
    found = db.wrong_types(only=[NVTX.table])
    if not found:
        return []
    sql = RangeSql(db)
    query = f"SELECT count(*) FROM {sql.rows} WHERE {sql.is_range} AND NOT ({sql.is_timed})"  # noqa: S608 (our own text)
    lost = int(db.rows(query)[0][0])
    return [f"{found[0]}; {LEFT_OUT.format(lost)}" if lost else found[0]]


def count_ranges(db: Database) -> int:
    """The approximate number of ranges, found without counting them if rows are numbered."""
    if not db.has(NVTX.table):
        return 0
    key = db.key(NVTX.table)
    count = f"coalesce(max({key}), 0)" if key else "count(*)"
    return int(db.rows(f'SELECT {count} FROM "{NVTX.table}"')[0][0])  # noqa: S608 (our own text)


def domain_names(db: Database) -> dict[tuple[int, int], str]:
    """(globalTid without its thread, domain) -> the domain's name: domains are numbered per process."""
    if not db.has(NVTX.table, NVTX.column("domain")):
        return {}
    sql = RangeSql(db)
    domain, event = (db.expressions(NVTX)[name] for name in ("domain", "event_type"))
    found = db.rows(
        f"SELECT {sql.thread} >> 24, {domain}, coalesce({sql.text}, '') FROM {sql.rows}"  # noqa: S608 (our own text)
        f" WHERE {event} = ? AND typeof({sql.thread}) = 'integer' AND typeof({domain}) = 'integer'"
        f" ORDER BY {sql.order}",
        DOMAIN_NAME,  # which a sliced file may have lost
    )
    return {(process, domain): str(name) for process, domain, name in found}


def last_time(db: Database) -> int:
    """The last time in the NVTX table, in ns. A range that was never closed is assumed to last until then."""
    sql = RangeSql(db)
    latest = f"coalesce(max(max({sql.start}), max(coalesce({sql.end}, {sql.start}))), 0)"
    return int(db.query_ints(f'SELECT {latest} FROM "{NVTX.table}" e', 1)[0][0])  # noqa: S608 (our own text)


def around(db: Database, times: Ints) -> str:
    """Ranges that are open at one of these times, and ranges that mark a step."""
    sql = RangeSql(db)
    _temporary(db, "pyprof_times", times.tolist())  # for one scan of the ranges: there is no index on time
    meets = f"number BETWEEN {sql.start} AND coalesce({sql.end}, {OPEN})"
    return f"(EXISTS (SELECT 1 FROM pyprof_times WHERE {meets}) OR {_marks(sql.text)})"  # noqa: S608 (our own text)


def of_launches(db: Database, launching: Sequence[int]) -> str:
    """Ranges on which a launch can depend: all ranges of launching threads (globalTids), and ranges that mark a step.

    Also all ranges of a thread that has a range needed for launches on other threads: a forward op of their backward
    pass, a backward node, or an op that names the op that made its input. An idle thread has no such ranges.
    """
    sql = RangeSql(db)
    idle = f"{sql.thread} NOT IN ({_listed(launching)})"
    if len(launching) > MOST_THREADS or not _some_idle(db, idle):
        return "1"
    text = sql.text
    node = " OR ".join(f"instr({text}, '{part}')" for part in ("Backward", "Grad", "GraphRoot"))
    needed = db.rows(
        f"SELECT DISTINCT {sql.thread} FROM {sql.rows}"  # noqa: S608 (our own text)
        f" WHERE {idle} AND {sql.is_range} AND (instr({text}, ', seq = ') OR ({text} NOT GLOB 'aten::*' AND ({node}))"
        f" OR (instr({text}, ', op_id = ') AND {text} GLOB '*([1-9]*')) AND typeof({sql.thread}) = 'integer'"
    )
    read = sorted({*launching, *(thread for (thread,) in needed)})
    if len(read) > MOST_THREADS:
        return "1"
    return f"({sql.thread} IN ({_listed(read)}) OR {_marks(text)})"


def _listed(numbers: Iterable[int]) -> str:
    """Numbers as SQL, as in ``IN (1, 2)``."""
    return ", ".join(map(str, map(int, numbers)))


def _some_idle(db: Database, idle: str) -> bool:
    """Whether one of a few rows, evenly spread over the table, belongs to an idle thread."""
    key, last = db.key(NVTX.table), count_ranges(db)
    if not key:
        return False
    query = f'SELECT 1 FROM "{NVTX.table}" e WHERE e.{key} = ? AND {idle}'  # noqa: S608 (our own text)
    return any(db.rows(query, last * part // PROBES) for part in range(1, PROBES + 1))


def last_nodes(db: Database, updates: Ints, since: int) -> tuple[Ints, Ints]:
    """Process and start of autograd's last node between each two of ``updates``, if it began after ``since``."""
    sql = RangeSql(db)
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
    """Ranges that may mark a step or end one."""
    literal = [begin.replace("[", "[[]") for begin in STEP_TEXTS]
    marks = " OR ".join(f"{text} GLOB '{begin}*'" for begin in literal)
    first = "".join(sorted({begin[0] for begin in STEP_TEXTS}))  # one comparison instead of three for nearly all
    return f"({text} GLOB '[{first}]*' AND ({marks}))"


def _temporary(db: Database, table: str, numbers: Iterable[int]) -> None:
    """Fill a temporary table with numbers."""
    db.connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} (number INTEGER PRIMARY KEY)")
    db.connection.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?)", ((number,) for number in numbers))  # noqa: S608
