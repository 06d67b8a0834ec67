"""NCCL's own records in an nsys export: the payloads of its NVTX ranges (message size, ranks, root, peer, operation).

A report holds them; an export does where nsys was told to (``nsys export --include-blobs=true`` or
``--include-json=true``). A payload is JSON text, or bytes that NVTX_PAYLOAD_SCHEMA_ENTRIES describes: how many
payloads (8 bytes, little-endian), for each its schema, size and offset (8 bytes each), then the data (nvtxPayloadData_t
of NVIDIA/NVTX, nvToolsExtPayload.h; measured with nsys 2025.3 and NCCL 2.28).
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pyprof.parse.attribute.capture import Ranges
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.formats.collective_records import collective, count, listed, of_message, record
from pyprof.parse.formats.database import Database

SIZE, RANKS, RANK, COMMUNICATOR = "Message size [bytes]", "No. of ranks", "Rank", "NCCL communicator ID"
_GROUP, _GROUP_END = "ncclGroupStart", "ncclGroupEnd"
# NVTX_PAYLOAD_ENTRY_TYPE_* of nvToolsExtPayload.h, for a 64-bit Linux program -> struct's letter.
_TYPES = {
    1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "q", 8: "Q", 9: "q", 10: "Q", 11: "b", 12: "B", 13: "h", 14: "H",
    15: "i", 16: "I", 17: "q", 18: "Q", 19: "f", 20: "d", 22: "Q", 23: "Q",
}  # fmt: skip
_ENUM_OF_BYTES = {1: "b", 2: "h", 4: "i", 8: "q"}


class Payload(NamedTuple):
    owner: int  # globalTid
    start: int  # of its range, ns
    told: dict[str, Any]  # by the entries' names


class _Entry(NamedTuple):
    name: str
    offset: int
    letter: str  # struct's; empty for a type that is no number
    values: dict[int, str]  # an enumeration's names


def payloads(db: Database) -> list[Payload]:
    """Those of NCCL's ranges, in the table's order; none where the export has none."""
    schemas = _Schemas(db)
    by_id = db.has("NVTX_EVENTS", "jsonTextId") and db.has("StringIds", "value")
    texts = ["e.jsonText"] if db.has("NVTX_EVENTS", "jsonText") else []
    texts += ["s.value"] if by_id else []
    raw = "e.binaryData" if db.has("NVTX_EVENTS", "binaryData") else "NULL"
    if not db.has("NVTX_PAYLOAD_SCHEMA_ENTRIES") or not (texts or raw != "NULL"):
        return []
    join = " LEFT JOIN StringIds s ON s.id = e.jsonTextId" if by_id else ""
    told = f"coalesce({', '.join([*texts, 'NULL', 'NULL'])})"
    domain = "coalesce(e.domainId, 0)" if db.has("NVTX_EVENTS", "domainId") else "0"
    rows = db.rows(
        f"SELECT e.globalTid, e.start, {domain}, {told}, {raw} FROM NVTX_EVENTS e{join}"  # noqa: S608 (our own text)
        f" WHERE {told} LIKE '%\"{SIZE}\"%' OR {told} LIKE '%\"{RANKS}\"%' OR {raw} IS NOT NULL ORDER BY e.rowid"
    )
    known: dict[tuple[object, ...], dict[str, Any]] = {}
    found = []
    for owner, start, number, words, data in rows:
        key = (number, words, data)
        if key not in known:
            known[key] = _of_json(words) or schemas.of_bytes(number, data)
        if known[key] and type(owner) is int and type(start) is int:
            found.append(Payload(owner, start, known[key]))
    return found


def missing_sizes(db: Database, told: list[Payload]) -> str:
    """A warning where NCCL recorded its messages and the export has none of them; empty elsewhere."""
    if any(SIZE in payload.told for payload in told) or not _Schemas(db).tells_sizes():
        return ""
    return (
        "NCCL's message sizes are in the report, not in this export: export with --include-blobs=true, or give the"
        " .nsys-rep, for bytes and bandwidth of collectives"
    )


def _of_json(words: object) -> dict[str, Any]:
    try:
        told = json.loads(words) if isinstance(words, str) else None
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


class _Schemas:
    """What the payloads' bytes mean, by (domain, schema).

    Ids are a process's own, which the tables leave out: one that two processes describe differently means nothing.
    """

    def __init__(self, db: Database) -> None:
        self.entries: dict[tuple[object, object], list[_Entry]] = {}
        table = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
        if not all(db.has(table, column) for column in ("domainId", "schemaId", "idx", "type", "name", "offset")):
            return
        letters, values = _enums(db)
        found: dict[tuple[object, object], dict[object, _Entry]] = {}
        unclear = set()
        for domain, schema, idx, kind, name, offset in db.rows(
            f"SELECT domainId, schemaId, idx, type, name, coalesce(offset, 0) FROM {table} ORDER BY rowid"  # noqa: S608
        ):
            enum = (domain, kind)
            entry = _Entry(str(name), offset, _TYPES.get(kind) or letters.get(enum, ""), values.get(enum, {}))
            if found.setdefault((domain, schema), {}).setdefault(idx, entry) != entry or count(offset) is None:
                unclear.add((domain, schema))
        self.entries = {key: list(each.values()) for key, each in found.items() if key not in unclear}

    def tells_sizes(self) -> bool:
        return any(entry.name == SIZE for entries in self.entries.values() for entry in entries)

    def of_bytes(self, domain: object, data: object) -> dict[str, Any]:
        """The first payload that is described; empty where none is, or the bytes are cut."""
        if not isinstance(data, bytes) or len(data) < 8:
            return {}
        for at in range(8, min(8 + 24 * int.from_bytes(data[:8], "little"), len(data) - 23), 24):
            schema, size, offset = struct.unpack_from("<QQQ", data, at)
            entries = self.entries.get((domain, schema))
            if entries and offset + size <= len(data):
                return {e.name: value for e in entries if (value := _value(e, data, offset, size)) is not None}
        return {}


def _value(entry: _Entry, data: bytes, offset: int, size: int) -> Any:
    if not entry.letter or entry.offset + struct.calcsize(entry.letter) > size:
        return None
    value = struct.unpack_from(f"<{entry.letter}", data, offset + entry.offset)[0]
    return entry.values.get(value, value)


def _enums(db: Database) -> tuple[dict[tuple[object, object], str], dict[tuple[object, object], dict[int, str]]]:
    """(domain, schema) of an enumeration -> struct's letter, and the names of its values."""
    if not db.has("NVTX_PAYLOAD_ENUMS", "size") or not db.has("NVTX_PAYLOAD_ENUM_ENTRIES", "value"):
        return {}, {}
    values: dict[tuple[object, object], dict[int, str]] = {}
    for domain, schema, name, value in db.rows(
        "SELECT domainId, schemaId, name, coalesce(value, 0) FROM NVTX_PAYLOAD_ENUM_ENTRIES ORDER BY rowid"
    ):
        values.setdefault((domain, schema), {}).setdefault(value, str(name))
    sizes = db.rows("SELECT domainId, schemaId, size FROM NVTX_PAYLOAD_ENUMS ORDER BY rowid")
    return {(domain, schema): _ENUM_OF_BYTES.get(size, "") for domain, schema, size in sizes}, values


class Joined(NamedTuple):
    process: int
    communicator: object
    ranks: int
    rank: int


def joined(told: list[Payload]) -> list[Joined]:
    """The communicators that processes are in, from where each is made or ended."""
    found = []
    for owner, _, values in told:
        ranks, rank = count(values.get(RANKS)), count(values.get(RANK))
        if ranks is not None and rank is not None and rank < ranks:
            found.append(Joined((owner >> 24) & 0xFFFFFF, values.get(COMMUNICATOR), ranks, rank))
    return found


def _communicators(told: list[Payload]) -> dict[tuple[int, object], tuple[int | None, int | None]]:
    """(process, communicator) -> (ranks, this process's rank in it); None for both where two payloads disagree."""
    found: dict[tuple[int, object], tuple[int | None, int | None]] = {}
    for process, communicator, ranks, rank in joined(told):
        known = found.setdefault((process, communicator), (ranks, rank))
        found[process, communicator] = known if known == (ranks, rank) else (None, None)
    return found


def with_messages(told: list[Payload], ranges: Ranges, scopes: list[Scope], tids: dict[int, int]) -> Ranges:
    """The ranges, NCCL's with a scope that says what was sent: appended to ``scopes``, once a distinct one.

    What is called between ncclGroupStart and the ncclGroupEnd that closes it is launched by the latter.
    """
    if not any(SIZE in payload.told for payload in told):
        return ranges
    groups = _communicators(told)
    sent = {
        (tids[payload.owner], payload.start): payload
        for payload in told
        if payload.owner in tids and SIZE in payload.told
    }
    named = np.array([*(s.kind == Kind.COMM for s in scopes), False])
    rows = np.flatnonzero(named[ranges.scope])
    rows = rows[np.lexsort((ranges.start[rows], ranges.thread[rows]))]
    scope, numbers = ranges.scope.copy(), dict[tuple[int, str], int]()
    depth, pending, thread = 0, list[dict[str, Any]](), -1
    for row, owner, start, number in zip(
        rows.tolist(), *(column[rows].tolist() for column in (ranges.thread, ranges.start, ranges.scope)), strict=True
    ):
        if owner != thread:
            depth, pending, thread = 0, [], owner
        name, said = scopes[number].name, []
        if name == _GROUP:
            depth += 1
        elif name == _GROUP_END:
            depth = max(depth - 1, 0)
            if not depth:
                said, pending = pending, []
        elif (payload := sent.get((owner, start))) is not None:
            said = [_record(name, payload, groups)] if collective(name) else []
            pending += said if depth else []
        if said:
            words = listed(said)
            scope[row] = numbers.setdefault((number, words), len(scopes))
            if scope[row] == len(scopes):
                scopes.append(scopes[number]._replace(comm=words))
    return replace(ranges, scope=scope)


def _record(
    name: str, payload: Payload, groups: dict[tuple[int, object], tuple[int | None, int | None]]
) -> dict[str, Any]:
    told, group = payload.told, payload.told.get(COMMUNICATOR)
    ranks, rank = groups.get(((payload.owner >> 24) & 0xFFFFFF, group), (None, None))
    op, size = collective(name), count(told.get(SIZE))
    inward, outward = (None, None) if size is None else of_message(op, size, ranks)
    return record(op, ranks=ranks, inward=inward, outward=outward, rank=rank, root=count(told.get("Root")),
                  peer=count(told.get("Peer rank")), reduction=_word(told.get("Reduction operation")),
                  group=None if group is None else str(group))  # fmt: skip


def _word(value: object) -> str | None:
    return value if isinstance(value, str) else None
