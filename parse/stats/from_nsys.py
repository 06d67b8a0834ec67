"""An nsys SQLite export as a recording. Columns are detected, never versions (see ``parse/nsys/reader.py``)."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from pyprof.parse.formats.cupti import name_operations
from pyprof.parse.formats.database import Database
from pyprof.parse.formats.key_join import lookup
from pyprof.parse.formats.possible_times import settle
from pyprof.parse.nsys.nvtx_ranges import range_text
from pyprof.parse.nsys.reader import API, KERNEL, MEMCPY, MEMSET
from pyprof.parse.stats.recording import Calls, Gpu, Recording, Spans, one_after_another
from pyprof.table.columns import NULL, Coded, Ints, distinct

OS = "OSRT_API"
NVTX = "NVTX_EVENTS"
RANGES = "e.eventType IN (59, 60, 70, 71)"  # push/pop, start/end; 70 and 71 the same from NVTXT
STARTEND = (60, 71)
OS_CLASS = 27

_NUMBERS = ("start", "end", "bytes", "deviceId", "globalPid", "correlationId", "copyKind")
_TEXTS = ("demangledName", "shortName", "mangledName")
_SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")


class NsysRecording(Recording):
    """The events of an open export."""

    def __init__(self, db: Database) -> None:
        self.db = db

    @cached_property
    def api(self) -> Calls:
        return _calls(self.db, API, "eventClass IN (0, 1)")  # 67 is backtraces, which repeat the calls

    @cached_property
    def os(self) -> Calls:
        return _calls(self.db, OS, f"eventClass = {OS_CLASS}")

    @cached_property
    def spans(self) -> Spans:
        return _spans(self.db) if self.db.has(NVTX) else Spans.none()

    @cached_property
    def gpu(self) -> Gpu:
        data = one_after_another(
            _gpu_table(self.db, kind, table) for kind, table in enumerate((KERNEL, MEMCPY, MEMSET))
        )
        api = self.api
        call = lookup(api.pid, self._correlations, self._pids(data["globalPid"]), data["correlationId"])
        return Gpu.of_activity(data, self._names(data), api.at(call))

    @cached_property
    def _correlations(self) -> Ints:
        where = "eventClass IN (0, 1)" if self.db.has(API, "eventClass") else ""
        return self.db.ints(API, "correlationId", where=where)[0]

    def _pids(self, global_pid: Ints) -> Ints:
        """Hand-made subsets lack globalPid: right only where one process was captured."""
        if np.any(global_pid != NULL):
            return np.where(global_pid == NULL, NULL, (global_pid >> 24) & 0xFFFFFF)
        pids = np.unique(self.api.pid)
        return np.full(len(global_pid), pids[0] if len(pids) == 1 else NULL, np.int64)

    def _names(self, data: dict[str, Ints]) -> list[Coded]:
        """Demangled, short and mangled; without a mangled one the demangled, as nsys does."""
        missing = data["mangledName"] == NULL
        data["mangledName"] = np.where(missing, data["demangledName"], data["mangledName"])
        strings = self.db.strings(np.concatenate([data[key] for key in _TEXTS]))
        names = [_coded(data[key], strings) for key in _TEXTS]
        for number, kind in enumerate(("memcpy", "memset"), 1):
            name_operations(names, data["kind"] == number, kind, data["copyKind"])
        return names


def _gpu_table(db: Database, kind: int, table: str) -> dict[str, Ints]:
    db.require(table, "start", "end", "correlationId")
    keys = (*_NUMBERS, *_TEXTS, *_SIZES)
    data = dict(zip(keys, db.ints(table, *keys), strict=True))
    data["start"], data["end"], _ = settle(data["start"], data["end"])
    data["kind"] = np.full(len(data["start"]), kind, np.int64)
    return data


def _calls(db: Database, table: str, where: str) -> Calls:
    db.require(table, "start", "end", "globalTid", "nameId")
    where = where if db.has(table, "eventClass") else ""
    start, end, thread, name = db.ints(table, "start", "end", "globalTid", "nameId", where=where)
    return Calls(start, end, _pid(thread), _tid(thread), _coded(name, db.strings(name)))


def _coded(ids: Ints, strings: dict[int, str]) -> Coded:
    used, codes = distinct(ids)
    return Coded(codes.astype(np.int32), [strings.get(id_, "") for (id_,) in used])


def _pid(thread: Ints) -> Ints:
    return (thread >> 24) & 0xFFFFFF


def _tid(thread: Ints) -> Ints:
    return thread & 0xFFFFFF


def _spans(db: Database) -> Spans:
    db.require(NVTX, "start", "end", "globalTid", "eventType")
    columns = ("start", '"end"', "globalTid", _or(db, "endGlobalTid"), "eventType", _or(db, "domainId", 0), "rowid")
    listed = ", ".join(f"coalesce(e.{c}, {NULL})" if not c.lstrip("-").isdigit() else c for c in columns)
    query = f"SELECT {listed} FROM {NVTX} e WHERE {RANGES} ORDER BY e.rowid"  # noqa: S608 (our own text)
    start, end, thread, end_thread, kind, domain, number = db.query_ints(query, len(columns))
    pid = _pid(thread)
    return Spans(
        start=start,
        end=np.where(end == NULL, _last_time(db), end),
        pid=pid,
        tid=_tid(thread),
        name=_range_names(db, pid, domain),
        startend=np.isin(kind, STARTEND),
        one_thread=end_thread == NULL,  # nsys names the thread that ended a range only where it is another
        id=number,
    )


def _or(db: Database, column: str, default: int = NULL) -> str:
    """The column, or a constant where this schema lacks it."""
    return column if db.has(NVTX, column) else str(default)


def _last_time(db: Database) -> int:
    """The last timestamp of the NVTX table: until then an open range lasted."""
    query = f'SELECT coalesce(max(max(start), max(coalesce("end", start))), 0) FROM {NVTX}'  # noqa: S608 (our own text)
    return int(db.query_ints(query, 1)[0][0])


def _range_names(db: Database, pid: Ints, domain: Ints) -> Coded:
    """`domain:text` of every range; the default domain has no name."""
    text, join = range_text(db)
    seen: dict[str, int] = {}
    query = f"SELECT coalesce({text}, '') FROM {NVTX} e{join} WHERE {RANGES} ORDER BY e.rowid"  # noqa: S608
    cursor = db.connection.execute(query)
    code = np.fromiter((seen.setdefault(str(row[0]), len(seen)) for row in cursor), np.int64)
    texts, domains = list(seen), _domains(db)
    pairs, codes = distinct(pid, domain, code)
    return Coded(codes.astype(np.int32), [f"{_domain(domains, p, d)}:{texts[c]}" for p, d, c in pairs])


def _domain(names: dict[tuple[int, int], str], pid: int, domain: int) -> str:
    """Sliced files may have lost the row that names a domain."""
    default = f"domain {domain}" if domain not in (0, NULL) else ""
    return names.get((pid, domain), default)


def _domains(db: Database) -> dict[tuple[int, int], str]:
    """(process, domain id) -> the name of its creation row; ids are per process."""
    if not db.has(NVTX, "domainId"):
        return {}
    text, join = range_text(db)
    rows = db.rows(
        f"SELECT e.globalTid, e.domainId, coalesce({text}, '') FROM {NVTX} e{join}"  # noqa: S608 (our own text)
        " WHERE e.eventType = 75 AND typeof(e.globalTid) = 'integer' AND typeof(e.domainId) = 'integer'"
        " ORDER BY e.rowid"
    )
    return {((thread >> 24) & 0xFFFFFF, domain): str(name) for thread, domain, name in rows}
