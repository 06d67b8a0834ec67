"""The rank of each process of an nsys capture, where the capture tells it.

Three things tell it, the first that does counts: the table MPI_RANKS (``nsys profile -t mpi``); a thread named
`MPI Rank 3`, as nsys names the one that called MPI_Init (seen in 2022.2); and NCCL's payload where a communicator is
made, `{"No. of ranks": 8, "Rank": 3, ..}`, in exports that have payloads (nccl.py). A process has a communicator for
each of its groups (data, tensor, pipeline), each with ranks of its own: the largest is the job's, unless several of
that size disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyprof.parse.formats.database import Database
from pyprof.parse.nsys.nccl_payloads import Payload, joined

_NAME = re.compile(r"MPI Rank (\d{1,9})")
MOST = 1 << 31


def ranks(db: Database, payloads: list[Payload]) -> dict[int, int]:
    """Process number -> rank, of the processes whose rank is told; ``payloads`` are NCCL's."""
    found: dict[int, int] = {}
    for told in (_mpi(db), _names(db), _nccl(payloads)):
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


def _nccl(told: list[Payload]) -> dict[int, int]:
    """By the payloads of ncclCommInitRank and its kin."""
    largest: dict[int, int] = {}
    for process, _, size, _ in (found := joined(told)):
        largest[process] = max(size, largest.get(process, 0))
    return _agreed((process << 24, rank) for process, _, size, rank in found if size == largest[process] < MOST)
