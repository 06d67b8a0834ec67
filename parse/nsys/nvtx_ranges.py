"""The NVTX ranges of an nsys export.

A capture has millions of ranges and a few thousand distinct texts, once the numbers that differ from call to call are
taken out. So texts are split as bytes, many at a time, their numbers go into integer columns, their data flow is looked
at and let go, and only distinct rests are decoded and classified.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.errors import SchemaError
from pyprof.parse.attribute.capture import Ranges
from pyprof.parse.attribute.scope import ENGINE, STEP_TEXTS, Kind, Scope, classify
from pyprof.parse.formats.database import Database
from pyprof.parse.formats.shape_text import as_sizes
from pyprof.parse.nsys.dataflow import DataFlow
from pyprof.parse.nsys.nvtx_texts import LINKS, OP_ID, Buffer, Heads, Parts, split_one, split_texts
from pyprof.table.columns import NULL, Ints, distinct

RANGES = "e.eventType IN (59, 60, 70, 71)"  # push/pop, start/end; 70 and 71 the same from NVTXT
START_END = "e.eventType IN (60, 71)"
OPEN = 1 << 62  # the end of a range that was never closed: it lasts to the end of the capture
PROBES = 64  # rows that tell whether a large part of the ranges is of threads that launch nothing
ALONE = 30_000  # texts: to split fewer one by one takes less time than importing pyarrow

_MARK = OP_ID.decode()


class Nvtx(NamedTuple):
    ranges: Ranges  # push/pop: a thread's
    spans: Ranges  # start/end: a process's, filed under the thread that started each
    scopes: list[Scope]
    tids: dict[int, int]  # globalTid -> thread number
    outs: dict[int, str]  # range -> JSON list of its outputs' shapes


def count_ranges(db: Database) -> int:
    """About how many ranges there are, without counting them where rows are numbered."""
    if not db.has("NVTX_EVENTS"):
        return 0
    key = db.key("NVTX_EVENTS")
    return int(db.rows(f"SELECT {f'coalesce(max({key}), 0)' if key else 'count(*)'} FROM NVTX_EVENTS")[0][0])  # noqa: S608


def read_ranges(
    db: Database,
    around: Ints | None = None,
    tids: dict[int, int] | None = None,
    launching: Sequence[int] | None = None,
) -> Nvtx:
    """All push/pop and all start/end ranges, in the table's order.

    ``around``: only those that are open at one of these times, on any thread, and those that mark a step. ``tids``:
    globalTid -> thread number, as far as they have numbers already. ``launching``: the globalTids whose ranges can be
    around a launch; of other threads only those ranges that a launch can depend on.
    """
    if not db.has("NVTX_EVENTS"):
        return Nvtx(Ranges.empty(), Ranges.empty(), [], tids if tids is not None else {}, {})
    db.require("NVTX_EVENTS", "start", "end", "globalTid", "eventType")
    found = _Reader(tids if tids is not None else {}, around is not None or count_ranges(db) < ALONE)
    try:
        wanted = [] if around is None else [_around(db, around)]
        wanted += [] if launching is None else [_of_launches(db, launching)]
        found.read(db, " AND ".join(wanted) or "1")
    except (TypeError, ValueError, OverflowError, AttributeError) as error:  # a column holds whatever was put there
        raise SchemaError(
            db.file, f"expected numbers and texts in NVTX_EVENTS, found another value ({error}); export it again"
        ) from None
    return Nvtx(found.ranges(found.pushed), found.ranges(found.spans), found.scopes(db), found.tids, found.flow.outs)


def range_text(db: Database) -> tuple[str, str]:
    """The SQL of a row's text, and the join that it needs: registered strings are in StringIds."""
    by_id = db.has("NVTX_EVENTS", "textId") and db.has("StringIds", "id") and db.has("StringIds", "value")
    told = [*(["e.text"] if db.has("NVTX_EVENTS", "text") else []), *(["s.value"] if by_id else [])]
    text = f"coalesce({', '.join(told)})" if len(told) > 1 else told[0] if told else "NULL"
    return text, " LEFT JOIN StringIds s ON s.id = e.textId" if by_id else ""


def _around(db: Database, times: Ints) -> str:
    """The condition of ranges around these times or that mark a step: for one scan, as no index on time is there."""
    text, _ = range_text(db)
    db.connection.execute("CREATE TEMP TABLE IF NOT EXISTS pyprof_times (time INTEGER PRIMARY KEY)")
    db.connection.executemany("INSERT OR IGNORE INTO pyprof_times VALUES (?)", ((time,) for time in times.tolist()))
    around = f'EXISTS (SELECT 1 FROM pyprof_times WHERE time BETWEEN e.start AND coalesce(e."end", {OPEN}))'  # noqa: S608
    return f"{around} OR {_marks(text)}"


def _marks(text: str) -> str:
    """The condition of ranges that may mark a training step or end one."""
    marks = " OR ".join(f"{text} GLOB '{begin}*'" for begin in STEP_TEXTS)
    first = "".join(sorted({begin[0] for begin in STEP_TEXTS}))  # one comparison instead of three for nearly all
    return f"({text} GLOB '[{first}]*' AND ({marks}))"


def _of_launches(db: Database, launching: Sequence[int]) -> str:
    """The condition of ranges that a launch can depend on: all of a thread that launches, and marks of steps anywhere.

    And all of a thread with a range that matters to launches on others: a forward op of their backward, a backward
    node, or an op that says which op made its input. An idle thread has none of these.
    """
    text, join = range_text(db)
    key, last = db.key("NVTX_EVENTS"), count_ranges(db)
    run, run_each = db.connection.execute, db.connection.executemany
    run("CREATE TEMP TABLE IF NOT EXISTS pyprof_told (tid INTEGER PRIMARY KEY)")
    run_each("INSERT OR IGNORE INTO pyprof_told VALUES (?)", ((tid,) for tid in launching))
    idle = "e.globalTid NOT IN (SELECT tid FROM pyprof_told)"
    probes = ((last * part // PROBES,) for part in range(1, PROBES + 1))
    one = f"SELECT 1 FROM NVTX_EVENTS e WHERE e.{key} = ? AND {idle}"  # noqa: S608 (our own text)
    if not key or not any(run(one, probe).fetchone() for probe in probes):
        return "1"  # hardly any range is of other threads
    node = " OR ".join(f"instr({text}, '{part}')" for part in ("Backward", "Grad", "GraphRoot"))
    run(
        f"INSERT OR IGNORE INTO pyprof_told SELECT DISTINCT e.globalTid FROM NVTX_EVENTS e{join}"  # noqa: S608 (our own text)
        f" WHERE {idle} AND {RANGES} AND (instr({text}, ', seq = ') OR ({text} NOT GLOB 'aten::*' AND ({node}))"
        f" OR (instr({text}, ', op_id = ') AND {text} GLOB '*([1-9]*'))"
    )
    return f"(NOT ({idle}) OR {_marks(text)})"


def last_nodes(db: Database, updates: Ints, since: int) -> tuple[Ints, Ints]:
    """Process and start of autograd's last node between each two of ``updates``, if it began after ``since``."""
    text, join = range_text(db)
    db.connection.execute("CREATE TEMP TABLE IF NOT EXISTS pyprof_updates (time INTEGER PRIMARY KEY)")
    db.connection.executemany("INSERT OR IGNORE INTO pyprof_updates VALUES (?)", ((at,) for at in updates.tolist()))
    node = f"{text} GLOB '*Backward*, seq = *' OR {text} GLOB '*AccumulateGrad*'"
    found = db.rows(
        f"SELECT (e.globalTid >> 24) & 16777215, max(e.start) FROM NVTX_EVENTS e{join} WHERE {RANGES}"  # noqa: S608 (our own text)
        " AND typeof(e.start) = 'integer' AND typeof(e.globalTid) = 'integer' AND e.start >= ?"
        f" AND ({text} GLOB '{ENGINE}*' OR ({text} NOT GLOB 'aten::*' AND ({node})))"
        " GROUP BY 1, (SELECT time FROM pyprof_updates WHERE time > e.start ORDER BY time LIMIT 1) ORDER BY 2",
        since,
    )
    pid, start = np.array(found, np.int64).reshape(-1, 2).T
    return pid, start


def distinct_scopes(db: Database) -> Iterator[Scope]:
    """The scopes of all ranges, as they come."""
    text, join = range_text(db)
    domain = "coalesce(e.domainId, 0)" if db.has("NVTX_EVENTS", "domainId") else "0"
    query = (
        f"SELECT DISTINCT {text}, {domain}, e.globalTid >> 24 FROM NVTX_EVENTS e{join}"  # noqa: S608 (our own text)
        f" WHERE {RANGES} AND {text} IS NOT NULL AND e.start IS NOT NULL AND e.globalTid IS NOT NULL"
    )
    names = _domains(db)
    for told, number, process in db.connection.execute(query):
        head, _, _ = split_one(str(told).encode("utf-8", "replace").partition(LINKS)[0])
        yield _scope(head.decode(), names.get((process, number), "") if number else "")


class _Reader:
    """Reads the ranges, a chunk of rows at a time, into columns that grow in place."""

    def __init__(self, tids: dict[int, int], alone: bool) -> None:
        self.alone = alone
        self.heads = Heads()
        self.flow = DataFlow()
        self.tids = tids
        self.pushed, self.spans = ([array("q") for _ in range(6)] for _ in range(2))  # the columns of Ranges
        self._named: dict[tuple[int, ...], int] = {}  # (head, domain, process) of ranges in a domain of its own

    def read(self, db: Database, where: str) -> None:
        """Read the ranges of a condition."""
        text, join = range_text(db)
        domain = "coalesce(e.domainId, 0) * 2" if db.has("NVTX_EVENTS", "domainId") else "0"
        numbers = ("e.globalTid", "e.start", f'coalesce(e."end", {NULL})', f"{domain} + ({START_END})",
                   f"length(CAST({text} AS BLOB))")  # fmt: skip
        here = f"{RANGES} AND {text} IS NOT NULL AND e.start IS NOT NULL AND e.globalTid IS NOT NULL AND ({where})"
        factory, db.connection.text_factory = db.connection.text_factory, bytes
        try:
            for columns, texts in db.chunks(numbers, "NVTX_EVENTS", join, here, text):
                assert isinstance(texts, bytes)
                self._add(columns, texts)
        finally:
            db.connection.text_factory = factory

    def _add(self, columns: list[Ints], texts: bytes) -> None:
        """Take the next ranges: globalTid, start, end, twice the domain plus 1 for start/end ranges, length of text."""
        tids, starts, ends, domains, lengths = columns
        if lengths.sum() != len(texts):
            raise ValueError("texts of another encoding than UTF-8")
        buffer = Buffer.of([texts], lengths)
        parts = split_texts(buffer, self.heads, self.alone)
        scope = self._scope_codes(parts.head, domains >> 1, tids >> 24)
        ends[ends == NULL] = OPEN
        made = (self._threads(tids), starts, ends, scope, parts.seq, parts.op_id)
        pushed = (domains & 1) == 0
        numbers = len(self.pushed[0]) + np.cumsum(pushed) - 1
        self.flow.add(self.heads.texts, tids, _of_threads(parts, pushed, buffer), buffer, numbers)
        for kept, rows in ((self.pushed, pushed), (self.spans, ~pushed)):
            for column, values in zip(kept, made, strict=True):
                column.frombytes(values[rows].tobytes())

    def _threads(self, tids: Ints) -> Ints:
        """The number of each globalTid's thread, by the runs of rows of one thread."""
        begins = np.flatnonzero(np.append(True, tids[1:] != tids[:-1]))
        numbers = [self.tids.setdefault(tid, len(self.tids)) for tid in tids[begins].tolist()]
        return np.repeat(np.array(numbers, np.int64), np.diff(begins, append=len(tids)))

    def _scope_codes(self, head: Ints, domain: Ints, process: Ints) -> Ints:
        """The head's number; in domains of their own -1 for the first (head, domain, process), -2 for the next, .."""
        rows = np.flatnonzero(domain)
        if not len(rows):
            return head
        keys, number = distinct(head[rows], domain[rows], process[rows])
        codes, known = head.copy(), [self._named.setdefault(key, len(self._named)) for key in keys]
        codes[rows] = -1 - np.array(known, np.int64)[number]
        return codes

    def ranges(self, columns: list[array[int]]) -> Ranges:
        """The columns as arrays; those in domains of their own have the scopes behind the heads'."""
        thread, start, end, scope, seq, op_id = (
            np.frombuffer(column, np.int64) if column else np.zeros(0, np.int64) for column in columns
        )
        if self._named:
            scope = np.where(scope < 0, len(self.heads.texts) - 1 - scope, scope)
        return Ranges(thread, start, end, scope, seq, op_id)

    def scopes(self, db: Database) -> list[Scope]:
        """The heads', and those of ranges in domains of their own."""
        texts = [head.decode("utf-8", "replace") for head in self.heads.texts]  # whatever the program passed
        names = _domains(db) if self._named else {}
        named = [_scope(texts[head], names.get((process, domain), "")) for head, domain, process in self._named]
        return [_scope(text, "") for text in texts] + named


def _of_threads(parts: Parts, pushed: NDArray[np.bool_], buffer: Buffer) -> Parts:
    """The same with no op ids and links in start/end ranges, which make and use no tensors."""
    if pushed.all():
        return parts
    return parts._replace(op_id=np.where(pushed, parts.op_id, NULL), links=np.where(pushed, parts.links, buffer.end))


def _domains(db: Database) -> dict[tuple[int, int], str]:
    """(process, domain id) -> the name of its creation row; ids are per process."""
    text, join = range_text(db)
    query = f"SELECT e.globalTid, e.domainId, {text} FROM NVTX_EVENTS e{join} WHERE e.eventType = 75 ORDER BY e.rowid"  # noqa: S608
    return {(tid >> 24, domain): str(name) for tid, domain, name in db.rows(query) if tid is not None}


def _scope(head: str, domain: str) -> Scope:
    recorded = _MARK in head and not head.startswith("{")
    name, _, rest = head.partition(_MARK) if recorded else (head, "", "")
    if name.startswith("nccl") or domain.startswith("NCCL"):  # sliced files may have lost the domain's name
        return Scope(Kind.COMM, name)
    sizes = rest.partition(", sizes = ")[2] if recorded else ""
    return classify(name, recorded, as_sizes(sizes) if sizes else "")  # nsys cuts very long texts
