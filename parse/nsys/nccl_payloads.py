"""NCCL's records in an nsys export: payloads of its NVTX ranges (message size, ranks, root, peer, operation).

A report has them. An export has them if it was made with ``nsys export --include-blobs=true`` or
``--include-json=true``. A payload is JSON text, or bytes that NVTX_PAYLOAD_SCHEMA_ENTRIES describes: the number of
payloads (8 bytes, little-endian), the schema, size and offset of each payload (8 bytes each), then the data
(nvtxPayloadData_t of NVIDIA/NVTX, nvToolsExtPayload.h; measured with nsys 2025.3 and NCCL 2.28).
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pyprof.parse.attribute.capture import Ranges
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.databases.database import Database
from pyprof.parse.formats.collective_records import collective, count, listed, of_message, record
from pyprof.parse.nsys.nvtx_sql import RangeSql, registered_text
from pyprof.parse.nsys.tables import NVTX, PAYLOAD_ENTRIES, PAYLOAD_ENUM_VALUES, PAYLOAD_ENUMS, process_of

SIZE, RANKS, RANK, COMMUNICATOR = "Message size [bytes]", "No. of ranks", "Rank", "NCCL communicator ID"
_GROUP, _GROUP_END = "ncclGroupStart", "ncclGroupEnd"
# struct's letter of each NVTX_PAYLOAD_ENTRY_TYPE_* of nvToolsExtPayload.h, for a 64-bit Linux program: the types from 1
# on, in order (char .. unsigned long long, int8 .. uint64, float, double); 22 is a size, 23 an address.
_TYPES = dict(enumerate("bBhHiIqQqQbBhHiIqQfd", 1)) | {22: "Q", 23: "Q"}
_ENUM_OF_BYTES = {1: "b", 2: "h", 4: "i", 8: "q"}


class Payload(NamedTuple):
    """The payload that NCCL attached to one of its ranges."""

    owner: int  # globalTid
    start: int  # start of the range, ns
    values: dict[str, Any]  # name of the entry -> value


class _Entry(NamedTuple):
    name: str
    offset: int
    letter: str  # struct's letter; empty if the type is not a number
    values: dict[int, str]  # value -> name, for an enumeration


def payloads(db: Database) -> list[Payload]:
    """The payloads of NCCL's ranges, in the table's order; empty if the export has no payloads."""
    sql, e = RangeSql(db), db.expressions(NVTX)
    registered, join = registered_text(db, e["json_id"])
    raw = e["payload"]
    if not db.has(PAYLOAD_ENTRIES.table) or {e["json"], registered, raw} == {"NULL"}:
        return []
    json_text = f"coalesce({e['json']}, {registered})"
    rows = db.rows(
        f'SELECT {sql.thread}, {sql.start}, {sql.domain}, {json_text}, {raw} FROM "{NVTX.table}" e{join}'  # noqa: S608 (our own text)
        f" WHERE {json_text} LIKE ? OR {json_text} LIKE ? OR {raw} IS NOT NULL ORDER BY {sql.order}",
        f'%"{SIZE}"%',
        f'%"{RANKS}"%',
    )
    schemas = _Schemas(db)
    known: dict[tuple[object, ...], dict[str, Any]] = {}
    with_values = []
    for owner, start, domain, text, data in rows:
        key = (domain, text, data)
        if key not in known:
            known[key] = _of_json(text) or schemas.of_bytes(domain, data)
        if known[key] and type(owner) is int and type(start) is int:
            with_values.append(Payload(owner, start, known[key]))
    return with_values


def missing_sizes(db: Database, messages: list[Payload]) -> list[str]:
    """A warning if NCCL recorded message sizes but the export lacks them; otherwise none."""
    if any(SIZE in payload.values for payload in messages) or not _Schemas(db).have_sizes():
        return []
    advice = "export with --include-blobs=true, or give the .nsys-rep, for bytes and bandwidth of collectives"
    return [f"NCCL's message sizes are in the report, not in this export: {advice}"]


def _of_json(text: object) -> dict[str, Any]:
    try:
        values = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


class _Schemas:
    """What the bytes of payloads mean, by (domain, schema)."""

    def __init__(self, db: Database) -> None:
        letters, values = _enums(db)
        entries: dict[tuple[object, object], dict[object, _Entry]] = {}
        # Both are numbered per process, and the tables do not say which: what two describe differently is left out.
        unclear = set()
        for domain, schema, index, kind, name, stored_offset in db.records(PAYLOAD_ENTRIES):
            offset = 0 if stored_offset is None else stored_offset
            enum = (domain, kind)
            entry = _Entry(str(name), offset, _TYPES.get(kind) or letters.get(enum, ""), values.get(enum, {}))
            first = entries.setdefault((domain, schema), {}).setdefault(index, entry)
            if first != entry or count(offset) is None:
                unclear.add((domain, schema))
        self.entries = {key: list(by_index.values()) for key, by_index in entries.items() if key not in unclear}

    def have_sizes(self) -> bool:
        """Whether one of the schemas contains a message size."""
        return any(entry.name == SIZE for entries in self.entries.values() for entry in entries)

    def of_bytes(self, domain: object, data: object) -> dict[str, Any]:
        """The first payload whose schema is known; empty if there is none or the bytes are cut."""
        if not isinstance(data, bytes) or len(data) < 8:
            return {}
        for at in range(8, min(8 + 24 * int.from_bytes(data[:8], "little"), len(data) - 23), 24):
            schema, size, offset = struct.unpack_from("<QQQ", data, at)
            entries = self.entries.get((domain, schema))
            if entries and offset + size <= len(data):
                values = {entry.name: _value(entry, data, offset, size) for entry in entries}
                return {name: value for name, value in values.items() if value is not None}
        return {}


def _value(entry: _Entry, data: bytes, offset: int, size: int) -> Any:
    if not entry.letter or entry.offset + struct.calcsize(entry.letter) > size:
        return None
    value = struct.unpack_from(f"<{entry.letter}", data, offset + entry.offset)[0]
    return entry.values.get(value, value)


def _enums(db: Database) -> tuple[dict[tuple[object, object], str], dict[tuple[object, object], dict[int, str]]]:
    """(domain, schema) of an enumeration -> struct's letter, and the names of its values."""
    if not db.has_all(PAYLOAD_ENUMS) or not db.has_all(PAYLOAD_ENUM_VALUES):
        return {}, {}
    names: dict[tuple[object, object], dict[int, str]] = {}
    for domain, schema, name, value in db.records(PAYLOAD_ENUM_VALUES):
        names.setdefault((domain, schema), {}).setdefault(0 if value is None else value, str(name))
    sizes = db.records(PAYLOAD_ENUMS)
    return {(domain, schema): _ENUM_OF_BYTES.get(size, "") for domain, schema, size in sizes}, names


def memberships(messages: list[Payload]) -> Iterator[tuple[int, object, int, int]]:
    """(process, communicator, how many ranks that has, the process's rank), from the calls that make or end one."""
    for owner, _, values in messages:
        ranks, rank = count(values.get(RANKS)), count(values.get(RANK))
        if ranks is not None and rank is not None and rank < ranks:
            yield process_of(owner), values.get(COMMUNICATOR), ranks, rank


# (process, communicator) -> (ranks, this process's rank in it); None for both where two payloads disagree
Groups = dict[tuple[int, object], tuple[int | None, int | None]]


def with_messages(messages: list[Payload], ranges: Ranges, scopes: list[Scope], tids: dict[int, int]) -> Ranges:
    """The ranges, with new scopes for NCCL's ranges that include the message; these are appended to ``scopes``."""
    with_size = [payload for payload in messages if payload.owner in tids and SIZE in payload.values]
    if not with_size:
        return ranges
    sent = {(tids[payload.owner], payload.start): payload for payload in with_size}
    groups: Groups = {}
    for process, communicator, ranks, rank in memberships(messages):
        first = groups.setdefault((process, communicator), (ranks, rank))
        groups[process, communicator] = first if first == (ranks, rank) else (None, None)
    is_nccl = np.array([*(scope.kind == Kind.COMM for scope in scopes), False])
    rows = np.flatnonzero(is_nccl[ranges.scope])
    rows = rows[np.lexsort((ranges.start[rows], ranges.thread[rows]))]
    scope, numbers = ranges.scope.copy(), dict[tuple[int, str], int]()
    columns = (rows, ranges.thread[rows], ranges.start[rows], ranges.scope[rows])
    calls: dict[int, _Group] = defaultdict(_Group)  # by thread
    for row, thread, start, number in zip(*(column.tolist() for column in columns), strict=True):
        name, payload = scopes[number].name, sent.get((thread, start))
        message = [_record(name, payload, groups)] if payload is not None and collective(name) else []
        if records := calls[thread].launched(name, message):
            text = listed(records)
            scope[row] = numbers.setdefault((number, text), len(scopes))
            if scope[row] == len(scopes):
                scopes.append(scopes[number]._replace(comm=text))
    return replace(ranges, scope=scope)


class _Group:
    """A thread's NCCL calls. Between ncclGroupStart and ncclGroupEnd nothing is launched; the latter launches all."""

    def __init__(self) -> None:
        self.depth = 0
        self.pending: list[dict[str, Any]] = []

    def launched(self, name: str, message: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages that the next call launches. ``message``: the call's message, or an empty list."""
        if name == _GROUP:
            self.depth += 1
            return []
        if name == _GROUP_END:
            self.depth = max(self.depth - 1, 0)
            if self.depth:
                return []
            message, self.pending = self.pending, []
            return message
        if self.depth:
            self.pending += message
        return message


def _record(name: str, payload: Payload, groups: Groups) -> dict[str, Any]:
    values, group = payload.values, payload.values.get(COMMUNICATOR)
    ranks, rank = groups.get((process_of(payload.owner), group), (None, None))
    op, size = collective(name), count(values.get(SIZE))
    inward, outward = (None, None) if size is None else of_message(op, size, ranks)
    reduction = values.get("Reduction operation")
    sent = {"ranks": ranks, "inward": inward, "outward": outward, "rank": rank}
    ends = {"root": count(values.get("Root")), "peer": count(values.get("Peer rank"))}
    operation = reduction if isinstance(reduction, str) else None
    return record(op, **sent, **ends, reduction=operation, group=None if group is None else str(group))
