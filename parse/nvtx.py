"""The NVTX push/pop ranges of an nsys export.

A capture has millions of ranges and a few thousand distinct texts, once the numbers that differ from call to call are
taken out. So each text is split once, as bytes, its numbers go into integer columns, its data flow is looked at and
let go, and only distinct rests are decoded and classified.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from pyprof.parse.capture import Ranges
from pyprof.parse.database import Database
from pyprof.parse.dataflow import DataFlow
from pyprof.parse.scope import Kind, Scope, classify, split
from pyprof.table import NULL, Ints

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
    source = _source(db)
    start, end, tid, domain = db.query_ints(
        f'SELECT e.start, coalesce(e."end", {NULL}), e.globalTid, {_domain(db)} {source}', 4  # noqa: S608 (our text)
    )  # fmt: skip
    end[end == NULL] = OPEN
    tids, thread = np.unique(tid, return_inverse=True)
    text, seq, op_id, heads, outs = _texts(db, source, tid)
    scope, scopes = _scopes(db, heads, text, domain, tid >> 24)
    ranges = Ranges(thread.reshape(-1).astype(np.int64), start, end, scope, seq, op_id)
    return Nvtx(ranges, scopes, {int(t): number for number, t in enumerate(tids.tolist())}, outs)


def _source(db: Database) -> str:
    by_id = db.has("NVTX_EVENTS", "textId") and db.has("StringIds")
    join = " LEFT JOIN StringIds s ON s.id = e.textId" if by_id else ""
    return f"FROM NVTX_EVENTS e{join} WHERE {PUSH_POP} AND {_text(db)} IS NOT NULL ORDER BY e.rowid"


def _text(db: Database) -> str:
    return "coalesce(e.text, s.value)" if db.has("NVTX_EVENTS", "textId") and db.has("StringIds") else "e.text"


def _domain(db: Database) -> str:
    return "coalesce(e.domainId, 0)" if db.has("NVTX_EVENTS", "domainId") else "0"


def _texts(db: Database, source: str, tid: Ints) -> tuple[Ints, Ints, Ints, list[bytes], dict[int, str]]:
    """Split every text: the number of its head (text without numbers), its sequence number and op id."""
    numbers, heads, links = array("q"), {}, []  # type: array[int], dict[bytes, int], list[bytes]
    seqs, op_ids = array("q"), array("q")
    flow = DataFlow(tid)
    cursor = db.connection.cursor()
    factory, db.connection.text_factory = db.connection.text_factory, bytes
    try:
        for (text,) in cursor.execute(f"SELECT {_text(db)} {source}"):
            head, _, link = text.partition(_LINKS)
            at = head.find(_OP_ID)
            if at < 0 or text[:1] == b"{":
                head, seq, op_id = _rare(text)
            else:
                name, _, number = head[:at].partition(_SEQ)
                number_end = head.find(b",", at + 10)
                seq = int(number) if number else NULL
                op_id = int(head[at + 10 :] if number_end < 0 else head[at + 10 : number_end])
                head = name + _OP_ID if number_end < 0 else name + _OP_ID + head[number_end:]
            numbers.append(heads.setdefault(head, len(heads)))
            seqs.append(seq)
            op_ids.append(op_id)
            links.append(link)
            if len(links) == CHUNK:
                flow.add(numbers, op_ids, links, heads)
                links.clear()
        flow.add(numbers, op_ids, links, heads)
    finally:
        db.connection.text_factory = factory
    columns = (np.frombuffer(column, np.int64).copy() for column in (numbers, seqs, op_ids))
    code, seq_column, op_column = columns
    return code, seq_column, op_column, list(heads), flow.outs


def _rare(text: bytes) -> tuple[bytes, int, int]:
    """A text without an op id (a marker, a user's range, PyTorch 1.x's `conv2d, seq = 0`) or with a comma of its own."""
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
    distinct, inverse = np.unique(np.stack([text, domain, process], axis=1), axis=0, return_inverse=True)
    scopes = [_scope(texts[t], names.get((owner, d), "")) for t, d, owner in distinct.tolist()]
    return inverse.reshape(-1).astype(np.int64), scopes


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
