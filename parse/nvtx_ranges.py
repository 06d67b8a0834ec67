"""The NVTX ranges of an nsys export.

A capture has millions of ranges and a few thousand distinct texts, once the numbers that differ from call to call are
taken out. So texts are split as bytes, many at a time, their numbers go into integer columns, their data flow is looked
at and let go, and only distinct rests are decoded and classified.
"""

from __future__ import annotations

import sqlite3
from array import array
from typing import NamedTuple

import numpy as np

from pyprof.errors import SchemaError
from pyprof.parse.capture import Ranges
from pyprof.parse.database import Database
from pyprof.parse.dataflow import DataFlow
from pyprof.parse.nvtx_texts import OP_ID, Buffer, Heads, Parts, split_texts
from pyprof.parse.scope import Kind, Scope, classify
from pyprof.table import NULL, Ints, distinct

RANGES = "e.eventType IN (59, 60, 70, 71)"  # push/pop, start/end; 70 and 71 the same from NVTXT
START_END = "e.eventType IN (60, 71)"
OPEN = 1 << 62  # the end of a range that was never closed: it lasts to the end of the capture
FETCH = 1_000  # rows held as Python objects: with few of them, they stay in the processor's cache
CHUNK = 32 * FETCH  # texts that are split together

_MARK = OP_ID.decode()

Column = tuple[Ints, ...]


class Nvtx(NamedTuple):
    ranges: Ranges  # push/pop: a thread's
    spans: Ranges  # start/end: a process's, filed under the thread that started each
    scopes: list[Scope]
    tids: dict[int, int]  # globalTid -> thread number
    outs: dict[int, str]  # range -> JSON list of its outputs' shapes


def read_ranges(db: Database) -> Nvtx:
    """All push/pop and all start/end ranges, in the table's order."""
    if not db.has("NVTX_EVENTS"):
        return Nvtx(Ranges.empty(), Ranges.empty(), [], {}, {})
    db.require("NVTX_EVENTS", "start", "end", "globalTid", "eventType")
    found = _Columns()
    try:
        found.read(db)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:  # a column holds whatever was put there
        raise SchemaError(
            db.file, f"expected numbers and texts in NVTX_EVENTS, found another value ({error}); export it again"
        ) from None
    tid, start, end, domain, text, seq, op_id = found.columns()
    domain, is_span = domain >> 1, (domain & 1).astype(bool)
    end[end == NULL] = OPEN
    tids, thread = np.unique(tid, return_inverse=True)
    scope, scopes = _scopes(db, found.heads.texts, text, domain, tid >> 24)
    columns = (thread.reshape(-1).astype(np.int64), start, end, scope, seq, op_id)
    numbers, outs = {int(t): number for number, t in enumerate(tids.tolist())}, found.flow.outs
    if not is_span.any():
        return Nvtx(Ranges(*columns), Ranges.empty(), scopes, numbers, outs)
    place = np.cumsum(~is_span) - 1  # of a push/pop range among its kind
    outs = {int(place[index]): shape for index, shape in outs.items() if not is_span[index]}
    pushed, spans = (Ranges(*(column[rows] for column in columns)) for rows in (~is_span, is_span))
    return Nvtx(pushed, spans, scopes, numbers, outs)


def _query(db: Database) -> str:
    """globalTid, start, end, twice the domain plus 1 for a start/end range, and text."""
    by_id = db.has("NVTX_EVENTS", "textId") and db.has("StringIds")
    text = "coalesce(e.text, s.value)" if by_id else "e.text"
    join = " LEFT JOIN StringIds s ON s.id = e.textId" if by_id else ""
    domain = "coalesce(e.domainId, 0) * 2" if db.has("NVTX_EVENTS", "domainId") else "0"
    return (
        f'SELECT e.globalTid, e.start, coalesce(e."end", {NULL}), {domain} + ({START_END}), {text}'  # noqa: S608 (our own text)
        f" FROM NVTX_EVENTS e{join} WHERE {RANGES} AND {text} IS NOT NULL ORDER BY e.rowid"
    )


class _Columns:
    """The ranges as arrays, a chunk of rows at a time."""

    def __init__(self) -> None:
        self.heads = Heads()
        self.flow = DataFlow()
        self._chunks: list[tuple[Ints, ...]] = []

    def columns(self) -> list[Ints]:
        """globalTid, start, end, domain, head, sequence number and op id of every range."""
        none = [(np.zeros(0, np.int64),) * 7]
        return [np.concatenate(column) for column in zip(*(self._chunks or none), strict=True)]

    def read(self, db: Database) -> None:
        factory, db.connection.text_factory = db.connection.text_factory, bytes
        try:
            cursor = db.connection.execute(_query(db))
            while chunk := [rows for _ in range(CHUNK // FETCH) if (rows := _fetched(cursor))]:
                self._add(*zip(*chunk, strict=True))
        finally:
            db.connection.text_factory = factory

    def _add(
        self, tid: Column, start: Column, end: Column, domain: Column, texts: tuple[bytes, ...], lengths: Column
    ) -> None:
        numbers = [np.concatenate(column) for column in (tid, start, end, domain)]
        buffer = Buffer.of(texts, np.concatenate(lengths))
        parts = split_texts(buffer, self.heads)
        self.flow.add(self.heads.texts, numbers[0], _of_threads(parts, numbers[3], buffer), buffer)
        self._chunks.append((*numbers, parts.head, parts.seq, parts.op_id))


def _of_threads(parts: Parts, domain: Ints, buffer: Buffer) -> Parts:
    """The same with no op ids and links in start/end ranges, which make and use no tensors."""
    is_span = (domain & 1).astype(bool)
    if not is_span.any():
        return parts
    return parts._replace(op_id=np.where(is_span, NULL, parts.op_id), links=np.where(is_span, buffer.end, parts.links))


def _fetched(cursor: sqlite3.Cursor) -> tuple[Ints, Ints, Ints, Ints, bytes, Ints] | None:
    """Some rows more as columns: four of numbers, the texts joined, and their lengths."""
    rows = cursor.fetchmany(FETCH)
    if not rows:
        return None
    *numbers, texts = zip(*rows, strict=True)
    tid, start, end, domain = (np.frombuffer(array("q", column), np.int64) for column in numbers)
    return tid, start, end, domain, b"".join(texts), np.fromiter(map(len, texts), np.int64, len(texts))


def _scopes(db: Database, heads: list[bytes], text: Ints, domain: Ints, process: Ints) -> tuple[Ints, list[Scope]]:
    """Number the distinct (text, domain) pairs and classify them."""
    texts = [head.decode("utf-8", "replace") for head in heads]  # NVTX texts are whatever the program passed
    if not domain.any():  # one domain: the texts' numbers serve
        return text, [_scope(t, "") for t in texts]
    names = _domains(db)
    pairs, number = distinct(text, domain, process)
    return number, [_scope(texts[t], names.get((owner, d), "")) for t, d, owner in pairs]


def _domains(db: Database) -> dict[tuple[int, int], str]:
    """(process, domain id) -> the name of its creation row; ids are per process."""
    query = "SELECT globalTid, domainId, text FROM NVTX_EVENTS WHERE eventType = 75 ORDER BY rowid"
    return {(tid >> 24, domain): str(name) for tid, domain, name in db.rows(query) if tid is not None}


def _scope(head: str, domain: str) -> Scope:
    name, recorded, rest = head, "", ""
    if _MARK in head and not head.startswith("{"):
        name, recorded, rest = head.partition(_MARK)
    if name.startswith("nccl") or domain.startswith("NCCL"):  # sliced files may have lost the domain's name
        return Scope(Kind.COMM, name)
    sizes = rest.partition(", sizes = ")[2]
    return classify(name, bool(recorded), sizes if sizes.endswith("]") else "")  # nsys cuts very long texts
