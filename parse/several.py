"""Tables of several files that are to become one: the ranks of a job, or parts of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyprof.table import NULL, Ints, Table

APART = 1_000_000_000  # added to a process number that a file before has too; Linux has fewer than 2**22


def apart(tables: Sequence[Table]) -> list[Table]:
    """The tables with the numbers of calls, processes and ranks kept apart, ready for ``Table.concat``.

    A correlation id or op number means something within its process and file only, and two machines may number their
    processes alike: a process number that an earlier file has becomes itself plus a billion (two billion in the third).
    A rank is the file's own, else the file's place, from 0; a file of several processes that names no rank keeps none.
    """
    if len(tables) == 1:
        return list(tables)
    told = {rank for table in tables for rank in _known(table.ints("rank"))}
    seen: set[int] = set()
    room = 0
    found = []
    for number, table in enumerate(tables):
        op_id = table.ints("opId")
        columns = dict(table.columns)
        columns["opId"] = np.where(op_id != NULL, op_id + room, NULL)
        columns["pid"] = _process(table.ints("pid"), seen, number)
        if not _known(table.ints("rank")) and len(_known(table.ints("pid"))) == 1 and number not in told:
            columns["rank"] = np.full(len(table), number, np.int64)
        room += int(op_id.max(initial=-1)) + 1
        seen.update(_known(table.ints("pid")))
        found.append(Table(len(table), columns))
    return found


def _process(pid: Ints, seen: set[int], number: int) -> Ints:
    taken = np.array(sorted(seen), np.int64)
    return np.where(np.isin(pid, taken) & (pid != NULL), pid + number * APART, pid)


def _known(values: Ints) -> list[int]:
    found: list[int] = np.unique(values[values != NULL]).tolist()
    return found
