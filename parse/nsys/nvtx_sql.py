"""The SQL of NVTX ranges: their text, their domain, and which rows of the table are ranges."""

from __future__ import annotations

from dataclasses import dataclass

from pyprof.parse.formats.database import Database
from pyprof.parse.nsys.tables import NVTX, STRINGS

PUSH_POP, START_END = (59, 70), (60, 71)  # NVTX_EVENTS.eventType; 70 and 71 are the same from NVTXT
DOMAIN_NAME = 75  # the event that creates and names a domain


@dataclass(frozen=True, slots=True)
class RangeSql:
    """Expressions over the rows (``e``) of one export's NVTX table, for the columns that it has."""

    start: str
    end: str
    thread: str
    domain: str  # 0: the default domain
    text: str
    rows: str  # the table as ``e``, joined with the registered texts
    join: str
    is_range: str  # push/pop or start/end
    is_start_end: str
    is_whole: str  # a range whose start, thread and text are known

    @classmethod
    def of(cls, db: Database) -> RangeSql:
        e = db.expressions(NVTX)
        registered, join = registered_text(db, e["text_id"])
        text = f"coalesce({e['text']}, {registered})"
        is_range = f"{e['event_type']} IN {(*PUSH_POP, *START_END)}"
        return cls(
            start=e["start_ns"],
            end=e["end_ns"],
            thread=e["thread"],
            domain=f"coalesce({e['domain']}, 0)",
            text=text,
            rows=f'"{NVTX.table}" e{join}',
            join=join,
            is_range=is_range,
            is_start_end=f"{e['event_type']} IN {START_END}",
            is_whole=f"{is_range} AND {text} IS NOT NULL AND {e['start_ns']} IS NOT NULL AND {e['thread']} IS NOT NULL",
        )


def registered_text(db: Database, number: str) -> tuple[str, str]:
    """The SQL of the registered text of a number, and of the join that it needs; NULL where the file has none."""
    if number == "NULL" or not db.has_all(STRINGS):
        return "NULL", ""
    id_, text = (f's."{STRINGS.column(name)}"' for name in ("id", "text"))
    return text, f' LEFT JOIN "{STRINGS.table}" s ON {id_} = {number}'


def count_ranges(db: Database) -> int:
    """About how many ranges there are, without counting them where rows are numbered."""
    if not db.has(NVTX.table):
        return 0
    key = db.key(NVTX.table)
    count = f"coalesce(max({key}), 0)" if key else "count(*)"
    return int(db.rows(f'SELECT {count} FROM "{NVTX.table}"')[0][0])  # noqa: S608 (our own text)


def domain_names(db: Database) -> dict[tuple[int, int], str]:
    """(globalTid without its thread, domain) -> the domain's name: domains are numbered per process.

    A name is that of the domain's creation event, which a sliced file may have lost.
    """
    if not db.has(NVTX.table, NVTX.column("domain")):
        return {}
    sql = RangeSql.of(db)
    domain, event = (db.expressions(NVTX)[name] for name in ("domain", "event_type"))
    found = db.rows(
        f"SELECT {sql.thread} >> 24, {domain}, coalesce({sql.text}, '') FROM {sql.rows}"  # noqa: S608 (our own text)
        f" WHERE {event} = ? AND typeof({sql.thread}) = 'integer' AND typeof({domain}) = 'integer' ORDER BY e.rowid",
        DOMAIN_NAME,
    )
    return {(process, domain): str(name) for process, domain, name in found}


def last_time(db: Database) -> int:
    """The last time in the NVTX table, in ns: a range that was never closed is taken to last until then."""
    sql = RangeSql.of(db)
    latest = f"coalesce(max(max({sql.start}), max(coalesce({sql.end}, {sql.start}))), 0)"
    return int(db.query_ints(f'SELECT {latest} FROM "{NVTX.table}" e', 1)[0][0])  # noqa: S608 (our own text)
