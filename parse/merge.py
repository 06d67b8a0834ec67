"""Tables of several files that are to become one: the ranks of a job, or parts of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pyprof.parse.contents import Held, known_numbers
from pyprof.table.columns import NULL, Table

APART = 1_000_000_000  # added to a process number that a file before has too; Linux has fewer than 2**22


def apart(tables: Sequence[Table]) -> list[Table]:
    """The tables with the numbers of calls, processes and ranks kept apart, ready for ``Table.concat``.

    A correlation id or op number means something within its process and file only, and two machines may number their
    processes alike: a process number that an earlier file has becomes itself plus a billion (two billion in the third).
    A rank is the file's own, else the file's place, from 0; a file of several processes that names no rank keeps none.
    """
    if len(tables) == 1:
        return list(tables)
    numbers = _numbers([(known_numbers(table.ints("pid")), known_numbers(table.ints("rank"))) for table in tables])
    room = 0
    found: list[Table] = []
    for table, (pids, rank) in zip(tables, numbers, strict=True):
        op_id, pid = table.ints("opId"), table.ints("pid")
        columns = dict(table.columns)
        columns["opId"] = np.where(op_id != NULL, op_id + room, NULL)
        moved = np.array([old for old, new in pids.items() if old != new], np.int64)
        columns["pid"] = np.where(np.isin(pid, moved), pid + len(found) * APART, pid)
        if rank is not None:
            columns["rank"] = np.full(len(table), rank, np.int64)
        room += int(op_id.max(initial=-1)) + 1
        found.append(Table(len(table), columns))
    return found


def apart_held(held: Sequence[Held]) -> list[Held]:
    """The same of figures."""
    numbers = _numbers([(each.pids, each.ranks) for each in held])
    return [
        replace(
            each,
            pids=sorted(pids.values()),
            ranks=each.ranks if rank is None else [rank],
            devices=[
                span if span.pid is None else span._replace(pid=pids.get(span.pid, span.pid)) for span in each.devices
            ],
        )
        for each, (pids, rank) in zip(held, numbers, strict=True)
    ]


def _numbers(files: Sequence[tuple[list[int], list[int]]]) -> list[tuple[dict[int, int], int | None]]:
    """Of each file, given its processes and ranks: what each process number becomes, and the rank that it is given."""
    told = {rank for _, ranks in files for rank in ranks}
    seen: set[int] = set()
    found: list[tuple[dict[int, int], int | None]] = []
    for number, (pids, ranks) in enumerate(files):
        become = {pid: pid + number * APART if pid in seen else pid for pid in pids}
        given = number if len(files) > 1 and not ranks and len(pids) == 1 and number not in told else None
        seen.update(become.values())
        found.append((become, given))
    return found
