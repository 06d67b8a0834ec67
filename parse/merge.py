"""Merge the tables of several files, such as the ranks of a job or the parts of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from pyprof.parse.attribute.contents import Contents, known_numbers
from pyprof.table.columns import NULL, HostTable, Ints, MemoryTable, Table

APART = 1_000_000_000  # added to a process number that an earlier file has too; Linux numbers are below 2**22


def apart(tables: Sequence[Table]) -> list[Table]:
    """The tables with call, process and rank numbers made unique, ready for ``Table.concat``.

    A correlation id or op number is unique only within its process and file, and two machines may use the same process
    numbers. So a process number that an earlier file has is raised by a billion (in a third file, by two billion).
    The rank is taken from the file, or else is the file's position, from 0. A file of several processes that names no
    rank gets none; one that names no process, such as a memory snapshot, counts as one process.
    """
    if len(tables) == 1:
        return list(tables)
    numbers = _numbers_of(tables)
    room = 0
    moved_apart: list[Table] = []
    for table, (pids, rank) in zip(tables, numbers, strict=True):
        op_id, pid = table.ints("opId"), table.ints("pid")
        columns = dict(table.columns)
        columns["opId"] = np.where(op_id != NULL, op_id + room, NULL)
        columns["pid"] = _new_pids(pid, pids)
        if rank is not None:
            columns["rank"] = np.full(len(table), rank, np.int64)
        room += int(op_id.max(initial=-1)) + 1
        samples = [
            replace(gpu, pid=pids.get(gpu.pid, gpu.pid), rank=gpu.rank if rank is None else rank)
            for gpu in table.samples
        ]
        moved_apart.append(Table(len(table), columns, samples, table.measured, table.cpu))
    return moved_apart


class Tables(Protocol):
    """What has been read of a file: ``Parsed``, or a container."""

    @property
    def table(self) -> Table: ...
    @property
    def memory(self) -> MemoryTable | None: ...
    @property
    def host(self) -> HostTable | None: ...


def memory_apart(files: Sequence[Tables]) -> MemoryTable | None:
    """The memory tables of all files as one, with process and rank numbers as ``apart`` gives them to the kernels.

    None if no file has memory events.
    """
    parts: list[MemoryTable] = []
    for parsed, (pids, rank) in zip(files, _numbers_of([parsed.table for parsed in files]), strict=True):
        memory = parsed.memory
        if memory is None:
            continue
        peer, before = memory.ints("peer"), sum(map(len, parts))
        memory = memory.with_column("peer", np.where(peer == NULL, NULL, peer + before))
        memory = memory.with_column("pid", _new_pids(memory.ints("pid"), pids))
        if rank is not None:
            memory = memory.with_column("rank", np.full(len(memory), rank, np.int64))
        parts.append(memory)
    return MemoryTable.concat(parts) if parts else None


def host_apart(files: Sequence[Tables]) -> HostTable | None:
    """The host calls of all files as one table, numbered as ``memory_apart`` does it; None if no file has any."""
    parts: list[HostTable] = []
    for parsed, (pids, rank) in zip(files, _numbers_of([parsed.table for parsed in files]), strict=True):
        host = parsed.host
        if host is None:
            continue
        before = sum(map(len, parts))
        for key in ("record", "after"):
            rows = host.ints(key)
            host = host.with_column(key, np.where(rows == NULL, NULL, rows + before))
        host = host.with_column("pid", _new_pids(host.ints("pid"), pids))
        if rank is not None:
            host = host.with_column("rank", np.full(len(host), rank, np.int64))
        parts.append(host)
    return _in_order(HostTable.concat(parts)) if parts else None


def _in_order(host: HostTable) -> HostTable:
    """The rows in order of process, thread and start, and the rows that they name renumbered."""
    order = np.lexsort((host.ints("start"), host.ints("tid"), host.ints("pid")))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    for key in ("record", "after"):
        rows = host.ints(key)
        host = host.with_column(key, np.where(rows == NULL, NULL, place[np.maximum(rows, 0)]))
    return host.take(order)


def _new_pids(pid: Ints, numbers: Mapping[int, int]) -> Ints:
    found = pid.copy()
    for old, new in numbers.items():
        if old != new:
            found[pid == old] = new
    return found


def contents_apart(files: Sequence[Contents]) -> list[Contents]:
    """The files' figures with process and rank numbers made unique in the same way as by ``apart``."""
    numbers = _numbers([(file.pids, file.ranks) for file in files])
    return [
        replace(
            file,
            pids=sorted(pids.values()),
            ranks=file.ranks if rank is None else [rank],
            devices=[
                span if span.pid is None else replace(span, pid=pids.get(span.pid, span.pid)) for span in file.devices
            ],
        )
        for file, (pids, rank) in zip(files, numbers, strict=True)
    ]


def _numbers_of(tables: Sequence[Table]) -> list[tuple[dict[int, int], int | None]]:
    return _numbers([(known_numbers(table.ints("pid")), known_numbers(table.ints("rank"))) for table in tables])


def _numbers(files: Sequence[tuple[list[int], list[int]]]) -> list[tuple[dict[int, int], int | None]]:
    """For each file's processes and ranks: the new number of each process, and the rank to give to the file, if any."""
    recorded_ranks = {rank for _, ranks in files for rank in ranks}
    seen: set[int] = set()
    numbers: list[tuple[dict[int, int], int | None]] = []
    for place, (pids, ranks) in enumerate(files):
        new_pids = {pid: pid + place * APART if pid in seen else pid for pid in pids}
        one_rank = len(files) > 1 and not ranks and len(pids) <= 1 and place not in recorded_ranks
        seen.update(new_pids.values())
        numbers.append((new_pids, place if one_rank else None))
    return numbers
