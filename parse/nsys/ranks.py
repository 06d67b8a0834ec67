"""The rank of each process of an nsys capture, where the capture says it.

Three things say it, and the first that does counts: the table MPI_RANKS (``nsys profile -t mpi``); a thread named
`MPI Rank 3`, as nsys names the one that called MPI_Init (seen in 2022.2); and NCCL's payload where a communicator is
made, `{"No. of ranks": 8, "Rank": 3, ..}`, in exports that have payloads (``nccl_payloads``). A process has a
communicator for each of its groups (data, tensor, pipeline), and a rank in each: the largest group is the job, unless
several groups of that size disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pyprof.parse.formats.database import Database
from pyprof.parse.nsys.nccl_payloads import Payload, memberships
from pyprof.parse.nsys.tables import MPI_RANKS, STRINGS, THREAD_NAMES, process_of

_NAME = re.compile(r"MPI Rank (\d{1,9})")
MOST = 1 << 31


def ranks(db: Database, payloads: list[Payload]) -> dict[int, int]:
    """Process number -> rank, of the processes whose rank is known; ``payloads`` are NCCL's."""
    return {**_of_nccl(payloads), **_of_thread_names(db), **_agreed(db.records(MPI_RANKS, "process", "rank"))}


def _agreed(claims: Iterable[tuple[object, ...]]) -> dict[int, int]:
    """Process number -> rank, from (global id of a process or thread, rank); without processes that have several."""
    ranks_of: dict[int, set[int]] = {}
    for owner, rank in claims:
        if isinstance(owner, int) and type(rank) is int and 0 <= rank < MOST:
            ranks_of.setdefault(process_of(owner), set()).add(rank)
    return {pid: next(iter(ranks)) for pid, ranks in ranks_of.items() if len(ranks) == 1}


def _of_thread_names(db: Database) -> dict[int, int]:
    threads = db.records(THREAD_NAMES, "thread", "name")
    names = db.texts(STRINGS) if threads else {}
    matches = ((thread, _NAME.fullmatch(names.get(name, ""))) for thread, name in threads)
    return _agreed((thread, int(match[1])) for thread, match in matches if match)


def _of_nccl(payloads: list[Payload]) -> dict[int, int]:
    """By the payloads of ncclCommInitRank and similar calls."""
    joined = memberships(payloads)
    largest: dict[int, int] = {}
    for process, _, size, _ in joined:
        largest[process] = max(size, largest.get(process, 0))
    return _agreed((process << 24, rank) for process, _, size, rank in joined if size == largest[process] < MOST)
