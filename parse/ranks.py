"""The rank of each process of an nsys capture, where the capture tells it.

Three things tell it, the first that does counts: the table MPI_RANKS (``nsys profile -t mpi``); a thread named
`MPI Rank 3`, as nsys names the one that called MPI_Init (seen in 2022.2); and NCCL's payload where a communicator is
made, `{"No. of ranks": 8, "Rank": 3, ..}` (by its schema in exports of 2025 and 2026, whose data was cut). A process
has a communicator for each of its groups (data, tensor, pipeline), each with ranks of its own: the largest is the
job's, unless several of that size disagree.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from pyprof.parse.database import Database

_NAME = re.compile(r"MPI Rank (\d{1,9})")
MOST = 1 << 31


def ranks(db: Database) -> dict[int, int]:
    """Process number -> rank, of the processes whose rank is told."""
    found: dict[int, int] = {}
    for told in (_mpi(db), _names(db), _nccl(db)):
        for pid, rank in told.items():
            found.setdefault(pid, rank)
    return found


def _pid(global_id: int) -> int:
    return (global_id >> 24) & 0xFFFFFF


def _agreed(told: Iterable[tuple[object, object]]) -> dict[int, int]:
    """(global id of a process or thread, its rank): the ranks of the processes that have one."""
    found: dict[int, set[int]] = {}
    for owner, rank in told:
        if isinstance(owner, int) and type(rank) is int and 0 <= rank < MOST:
            found.setdefault(_pid(owner), set()).add(rank)
    return {pid: next(iter(each)) for pid, each in found.items() if len(each) == 1}


def _mpi(db: Database) -> dict[int, int]:
    if not db.has("MPI_RANKS", "globalPid") or not db.has("MPI_RANKS", "rank"):
        return {}
    return _agreed(db.rows("SELECT globalPid, rank FROM MPI_RANKS ORDER BY rowid"))


def _names(db: Database) -> dict[int, int]:
    if not (db.has("ThreadNames", "nameId") and db.has("ThreadNames", "globalTid") and db.has("StringIds", "value")):
        return {}
    rows = db.rows(
        "SELECT t.globalTid, s.value FROM ThreadNames t JOIN StringIds s ON s.id = t.nameId"
        " WHERE s.value LIKE 'MPI Rank %' ORDER BY t.rowid"
    )
    named = ((owner, _NAME.fullmatch(name)) for owner, name in rows if isinstance(name, str))
    return _agreed((owner, int(match[1])) for owner, match in named if match)


def _nccl(db: Database) -> dict[int, int]:
    """By the payloads of ncclCommInitRank and its kin. Only those that nsys exported as JSON text are read."""
    largest: dict[int, list[tuple[int, int]]] = {}
    for owner, text in _payloads(db):
        size, rank = _communicator(text)
        if isinstance(owner, int) and 0 <= rank < size < MOST:
            largest.setdefault(owner, []).append((size, rank))
    return _agreed((owner, rank) for owner, each in largest.items() for size, rank in each if size == max(each)[0])


def _payloads(db: Database) -> list[tuple[object, object]]:
    by_id = db.has("NVTX_EVENTS", "jsonTextId") and db.has("StringIds", "value")
    if not db.has("NVTX_PAYLOAD_SCHEMA_ENTRIES") or not db.has("NVTX_EVENTS", "jsonText"):
        return []
    join, text = (
        (" LEFT JOIN StringIds s ON s.id = e.jsonTextId", "coalesce(e.jsonText, s.value)")
        if by_id
        else ("", "e.jsonText")
    )
    return db.rows(
        f"SELECT e.globalTid, {text} FROM NVTX_EVENTS e{join}"  # noqa: S608 (our own text)
        f" WHERE {text} LIKE '%\"No. of ranks\"%' ORDER BY e.rowid"
    )


def _communicator(text: object) -> tuple[int, int]:
    """(ranks, rank) of a communicator's payload; (-1, -1) of anything else."""
    try:
        told = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return -1, -1
    told = told if isinstance(told, dict) else {}
    size, rank = told.get("No. of ranks"), told.get("Rank")
    return (size, rank) if type(size) is int and type(rank) is int else (-1, -1)
