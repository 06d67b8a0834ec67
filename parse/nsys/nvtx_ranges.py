"""The NVTX ranges of an nsys export.

A capture may have millions of ranges, but without the numbers that differ from call to call there are only a few
thousand distinct texts. So texts are split as bytes, many at a time: their numbers become integer columns, the links
between ops give the shapes of outputs (``dataflow``), and only the distinct remaining texts ("heads") are decoded and
classified.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.errors import SchemaError
from pyprof.parse.attribute.capture import OPEN, Ranges
from pyprof.parse.attribute.nesting import SORTS, in_order, lasting
from pyprof.parse.attribute.scope import Kind, Scope, classify
from pyprof.parse.databases.database import Database
from pyprof.parse.formats.shape_text import as_sizes
from pyprof.parse.nsys import nvtx_sql
from pyprof.parse.nsys.dataflow import DataFlow
from pyprof.parse.nsys.nvtx_sql import RangeSql, count_ranges, domain_names
from pyprof.parse.nsys.nvtx_texts import LINKS, OP_ID, Buffer, Heads, Parts, split_one, split_texts
from pyprof.parse.nsys.tables import NVTX
from pyprof.table.columns import NULL, Ints, distinct

FEW = 30_000  # for fewer texts, splitting one by one takes less time than importing pyarrow

_COLUMNS = "iqqiqq"  # the types of the columns of Ranges: 4 or 8 bytes
_MARK = OP_ID.decode()


class Nvtx(NamedTuple):
    """The content of the NVTX table."""

    ranges: Ranges  # push/pop ranges, which belong to a thread
    spans: Ranges  # start/end ranges, which belong to a process; `thread` is the thread that started the range
    scopes: list[Scope]
    tids: dict[int, int]  # globalTid -> thread number
    outs: dict[int, str]  # range -> JSON list of its outputs' shapes


def read_ranges(
    db: Database, around: Ints | None = None, tids: dict[int, int] | None = None, launching: Sequence[int] | None = None
) -> Nvtx:
    """All push/pop and all start/end ranges, in the table's order.

    ``around``: times in ns; read only ranges that are open at one of them, on any thread, and ranges that mark a step.
    ``tids``: globalTid -> thread number; new threads are added to it. ``launching``: the globalTids of threads that
    launch; for other threads, read only the ranges on which a launch can depend, and no op ids. Raises SchemaError if
    the table lacks a column or has an unexpected value.
    """
    numbers = tids if tids is not None else {}
    if not db.has(NVTX.table):
        return Nvtx(Ranges.empty(), Ranges.empty(), [], numbers, {})
    db.check(NVTX)
    try:
        ranges = _read(db, around, numbers, launching)
    except ValueError:  # columns may contain values of any type
        db.note_wrong(NVTX)
        try:
            ranges = _read(db, around, numbers, launching)
        except ValueError as error:
            found = f"expected numbers and texts in NVTX_EVENTS, found another value ({error}); export it again"
            raise SchemaError(db.file, found) from None
    push_pop, start_end = ranges.columns(ranges.push_pop), ranges.columns(ranges.start_end)
    return Nvtx(push_pop, start_end, ranges.scopes(), ranges.tids, ranges.flow.outs)


def sort_ranges(nvtx: Nvtx) -> Nvtx:
    """The same with the push/pop ranges, in place, in the order of ``nest``, which then needs no copy of them."""
    ranges = nvtx.ranges
    for sort in SORTS:
        of_nest = ranges.thread, ranges.start, lasting(ranges.start, ranges.end)
        if in_order(*of_nest):
            break
        order = sort(*of_nest)
        del of_nest  # so that each column is replaced and not kept beside its copy
        for name in ("thread", "start", "end", "scope", "seq", "op_id"):
            column = getattr(ranges, name)
            setattr(ranges, name, column[order] if any(column.strides) else column)
        ranges.number = order if ranges.number is None else ranges.number[order]
    if ranges.number is None or not nvtx.outs:
        return nvtx
    place = np.empty(len(ranges), np.int32)
    place[ranges.number] = np.arange(len(ranges), dtype=np.int32)
    made = np.fromiter(nvtx.outs, np.int64, len(nvtx.outs))
    return nvtx._replace(outs=dict(zip(place[made].tolist(), nvtx.outs.values(), strict=True)))


def _read(db: Database, around: Ints | None, tids: dict[int, int], launching: Sequence[int] | None) -> _Reader:
    """As ``read_ranges``. Raises ValueError if a value is of a wrong type and not noted in ``db.wrong``."""
    one_by_one = around is not None or count_ranges(db) < FEW
    ranges = _Reader(tids, one_by_one, _COLUMNS if launching is None else _COLUMNS[:-1])
    conditions = [] if around is None else [nvtx_sql.around(db, around)]
    conditions += [] if launching is None else [nvtx_sql.of_launches(db, launching)]
    ranges.read(db, " AND ".join(conditions) or "1", temporary=around is not None)
    return ranges


def distinct_scopes(db: Database) -> Iterator[Scope]:
    """The scopes of all ranges, once per distinct text, domain and process."""
    sql = RangeSql(db)
    query = f"SELECT DISTINCT {sql.text}, {sql.domain}, {sql.thread} >> 24 FROM {sql.rows} WHERE {sql.is_whole}"  # noqa: S608
    names = domain_names(db)
    for text, domain, process in db.execute(query):
        head, _, _ = split_one(str(text).encode("utf-8", "replace").partition(LINKS)[0])
        yield _scope(head.decode(), names.get((process, domain), "") if domain else "")


class _Reader:
    """Reads the ranges, a chunk of rows at a time, into columns that grow in place."""

    def __init__(self, tids: dict[int, int], one_by_one: bool, kinds: str) -> None:
        self.one_by_one = one_by_one  # split texts in a loop, without pyarrow
        self.heads = Heads()
        self.flow = DataFlow()
        self.tids = tids
        self.push_pop, self.start_end = ([array(kind) for kind in kinds] for _ in range(2))
        self._in_domains: dict[tuple[int, ...], int] = {}  # (head, domain, process) of ranges in a named domain
        self._domain_names: dict[tuple[int, int], str] = {}

    def read(self, db: Database, condition: str, temporary: bool) -> None:
        """Read the ranges that meet an SQL condition. ``temporary``: it names temporary tables."""
        sql = RangeSql(db)
        end, length = f"coalesce({sql.end}, {NULL})", f"length(CAST({sql.text} AS BLOB))"
        numbers = (sql.thread, sql.start, end, sql.domain_and_style, length)
        condition = f"CASE WHEN {sql.is_whole} THEN {condition} ELSE {sql.is_odd} END"
        for columns, texts in db.chunks(numbers, NVTX.table, sql.join, condition, sql.text, temporary):
            is_first = not self._in_domains
            self._add(columns, texts)
            if is_first and self._in_domains:  # looked up here, since another thread may be reading the next ranges
                self._domain_names = domain_names(db)

    def _add(self, columns: list[Ints], texts: bytes) -> None:
        """Add ranges. Columns: globalTid, start, end, 2 * domain (+ 1 for start/end ranges), length of the text."""
        tids, starts, ends, domains, lengths = columns
        if lengths.sum() != len(texts):
            raise ValueError("texts of another encoding than UTF-8")
        buffer = Buffer.of([texts], lengths)
        parts = split_texts(buffer, self.heads, self.one_by_one)
        scope = self._scope_codes(parts.head, domains >> 1, tids >> 24)
        ends[ends == NULL] = OPEN
        ranges = (self._threads(tids), starts, ends, scope, parts.seq, parts.op_id)
        is_push_pop = (domains & 1) == 0
        numbers = len(self.push_pop[0]) + np.cumsum(is_push_pop) - 1
        self.flow.add(self.heads.texts, tids, _with_tensors(parts, is_push_pop, buffer), buffer, numbers)
        for grown, rows in ((self.push_pop, is_push_pop), (self.start_end, ~is_push_pop)):
            chosen = slice(None) if rows.all() else rows
            for column, values in zip(grown, ranges, strict=False):
                column.frombytes(values[chosen].astype(column.typecode, copy=False).tobytes())

    def _threads(self, tids: Ints) -> Ints:
        """The thread number of each globalTid, computed once per run of rows of the same thread."""
        begins = np.flatnonzero(np.append(True, tids[1:] != tids[:-1]))
        numbers = [self.tids.setdefault(tid, len(self.tids)) for tid in tids[begins].tolist()]
        return np.repeat(np.array(numbers, np.int64), np.diff(begins, append=len(tids)))

    def _scope_codes(self, head: Ints, domain: Ints, process: Ints) -> Ints:
        """Per range: the head's number, or in named domains -1, -2, ... per distinct (head, domain, process)."""
        rows = np.flatnonzero(domain)
        if not len(rows):
            return head
        keys, number = distinct(head[rows], domain[rows], process[rows])
        codes, known = head.copy(), [self._in_domains.setdefault(key, len(self._in_domains)) for key in keys]
        codes[rows] = -1 - np.array(known, np.int64)[number]
        return codes

    def columns(self, grown: list[array[int]]) -> Ranges:
        """The columns read so far, as arrays. Scopes of ranges in named domains are numbered after the heads."""
        columns = [np.frombuffer(column, column.typecode) for column in grown if column]
        if not columns:
            return Ranges.empty()
        unread = np.broadcast_to(np.int64(NULL), len(columns[0]))
        ranges = Ranges(*columns, *[unread] * (len(_COLUMNS) - len(columns)))
        if self._in_domains:
            ranges.scope = np.where(ranges.scope < 0, len(self.heads.texts) - 1 - ranges.scope, ranges.scope)
        return ranges

    def scopes(self) -> list[Scope]:
        """The scopes of the heads, then those of ranges in named domains."""
        texts = [head.decode("utf-8", "replace") for head in self.heads.texts]  # programs may pass any bytes
        names = self._domain_names
        in_domains = ((texts[head], names.get((process, domain), "")) for head, domain, process in self._in_domains)
        return [_scope(text, "") for text in texts] + [_scope(*of_domain) for of_domain in in_domains]


def _with_tensors(parts: Parts, is_push_pop: NDArray[np.bool_], buffer: Buffer) -> Parts:
    """The parts without op ids and links for start/end ranges, since these neither make nor use tensors."""
    if is_push_pop.all():
        return parts
    op_id, links = np.where(is_push_pop, parts.op_id, NULL), np.where(is_push_pop, parts.links, buffer.end)
    return parts._replace(op_id=op_id, links=links)


def scope_of_text(text: str) -> tuple[Scope, int]:
    """The scope and the sequence number (NULL: none) of a range's whole text."""
    head, seq, _ = split_one(text.encode("utf-8", "replace").partition(LINKS)[0])
    return _scope(head.decode(), ""), seq


def _scope(head: str, domain: str) -> Scope:
    """The scope of a head; ``domain`` is the name of its NVTX domain."""
    recorded = _MARK in head and not head.startswith("{")
    name, _, rest = head.partition(_MARK) if recorded else (head, "", "")
    if name.startswith("nccl") or domain.startswith("NCCL"):  # sliced files may have lost the domain's name
        return Scope(Kind.COMM, name)
    sizes = rest.partition(", sizes = ")[2] if recorded else ""
    return classify(name, recorded, as_sizes(sizes) if sizes else "")  # nsys cuts very long texts
