"""The NVTX push/pop ranges of an nsys export.

A capture has millions of ranges and a few thousand distinct texts, once the numbers that differ from call to call are
taken out. So each text is split once, as bytes, its numbers go into integer columns, its data flow is looked at and
let go, and only distinct rests are decoded and classified.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from pyprof.errors import SchemaError
from pyprof.parse.capture import Ranges
from pyprof.parse.database import Database
from pyprof.parse.dataflow import DataFlow
from pyprof.parse.scope import Kind, Scope, classify, split
from pyprof.table import NULL, Ints, distinct

PUSH_POP = "e.eventType IN (59, 70)"  # 70: the same, from NVTXT
OPEN = 1 << 62  # the end of a range that was never closed: it lasts to the end of the capture
CHUNK = 50_000  # texts whose data flow is held at a time

# torch/csrc/profiler/util.cpp (getNvtxStr): name, seq = N, op_id = N, sizes = [[..], ..], input_op_ids = [(N,N), ..]
_SEQ, _OP_ID, _SIZES, _LINKS = b", seq = ", b", op_id = ", b", sizes = ", b", input_op_ids = "


class Nvtx(NamedTuple):
    ranges: Ranges
    scopes: list[Scope]
    tids: dict[int, int]  # globalTid -> thread number
    outs: dict[int, str]  # range -> JSON list of its outputs' shapes


def read_ranges(db: Database) -> Nvtx:
    """All push/pop ranges, in the table's order."""
    if not db.has("NVTX_EVENTS"):
        return Nvtx(Ranges.empty(), [], {}, {})
    db.require("NVTX_EVENTS", "start", "end", "globalTid", "eventType")
    found = _Texts()
    try:
        found.read(db)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:  # a column holds whatever was put there
        raise SchemaError(
            db.file, f"expected numbers and texts in NVTX_EVENTS, found another value ({error}); export it again"
        ) from None
    tid, start, end, domain, text, seq, op_id = found.columns()
    end[end == NULL] = OPEN
    tids, thread = np.unique(tid, return_inverse=True)
    scope, scopes = _scopes(db, list(found.heads), text, domain, tid >> 24)
    ranges = Ranges(thread.reshape(-1).astype(np.int64), start, end, scope, seq, op_id)
    return Nvtx(ranges, scopes, {int(t): number for number, t in enumerate(tids.tolist())}, found.flow.outs)


def _query(db: Database) -> str:
    by_id = db.has("NVTX_EVENTS", "textId") and db.has("StringIds")
    text = "coalesce(e.text, s.value)" if by_id else "e.text"
    join = " LEFT JOIN StringIds s ON s.id = e.textId" if by_id else ""
    domain = "coalesce(e.domainId, 0)" if db.has("NVTX_EVENTS", "domainId") else "0"
    return (
        f'SELECT e.globalTid, e.start, coalesce(e."end", {NULL}), {domain}, {text}'  # noqa: S608 (our own text)
        f" FROM NVTX_EVENTS e{join} WHERE {PUSH_POP} AND {text} IS NOT NULL ORDER BY e.rowid"
    )


class _Texts:
    """Splits every range's text: the number of its head (the text without numbers), sequence number and op id.

    One loop over millions of rows: it appends to arrays and calls nothing of ours but for rare texts.
    """

    def __init__(self) -> None:
        self.heads: dict[bytes, int] = {}
        self.flow = DataFlow()
        self._columns = [array("q") for _ in range(7)]  # thread, start, end, domain, head, sequence number, op id

    def columns(self) -> list[Ints]:
        return [np.frombuffer(column, np.int64).copy() for column in self._columns]

    def read(self, db: Database) -> None:
        factory, db.connection.text_factory = db.connection.text_factory, bytes
        try:
            cursor = db.connection.execute(_query(db))
            while rows := cursor.fetchmany(CHUNK):
                self._add(rows)
        finally:
            db.connection.text_factory = factory

    def _add(self, rows: list[tuple[int, int, int, int, bytes]]) -> None:
        heads = self.heads
        number_of = heads.setdefault
        first = len(self._columns[0])
        add_tid, add_start, add_end, add_domain, add_head, add_seq, add_op_id = (c.append for c in self._columns)
        links: list[bytes] = []
        for row_tid, start, end, domain, text in rows:
            head, _, link = text.partition(_LINKS)
            at = head.find(_OP_ID)
            if at < 0 or text[:1] == b"{":
                head, seq, number_of_op = _rare(text)
            else:
                try:
                    name, _, number = head[:at].partition(_SEQ)
                    comma = head.find(b",", at + 10)
                    seq = int(number) if number else NULL
                    if comma < 0:
                        number_of_op, head = int(head[at + 10 :]), name + _OP_ID
                    else:
                        number_of_op, head = int(head[at + 10 : comma]), name + _OP_ID + head[comma:]
                except ValueError:  # a user's own text with such words
                    head, seq, number_of_op = _rare(text)
            add_tid(row_tid)
            add_start(start)
            add_end(end)
            add_domain(domain)
            add_head(number_of(head, len(heads)))
            add_seq(seq)
            add_op_id(number_of_op)
            links.append(link)
        tid, code, op_id = (np.array(self._columns[i][first:], np.int64) for i in (0, 4, 6))
        self.flow.add(list(heads), tid, code, op_id, links)


def _rare(text: bytes) -> tuple[bytes, int, int]:
    """A text without an op id (a marker, a user's range, PyTorch 1.x's `conv2d, seq = 0`) or with its own comma."""
    name, seq, op_id, sizes = split(text.decode("utf-8", "replace"))
    mark = _OP_ID.decode() if seq is not None or op_id is not None else ""
    head = f"{name}{mark}" + (f", sizes = {sizes}" if sizes else "")
    return head.encode(), NULL if seq is None else seq, NULL if op_id is None else op_id


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
    mark = _OP_ID.decode()
    name, recorded, rest = head.partition(mark) if not head.startswith("{") else (head, "", "")
    if domain.startswith("NCCL") or name.startswith("nccl"):  # sliced files may have lost the domain's name
        return Scope(Kind.COMM, name)
    sizes = rest.partition(_SIZES.decode())[2]
    return classify(name, bool(recorded), sizes if sizes.endswith("]") else "")  # nsys cuts very long texts
