"""Merge the tables of several files, such as the ranks of a job or the parts of a run."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pyprof.parse.attribute.contents import Contents, known_numbers
from pyprof.table.columns import NULL, Table

APART = 1_000_000_000  # added to a process number that an earlier file has too; Linux numbers are below 2**22


def apart(tables: Sequence[Table]) -> list[Table]:
    """The tables with call, process and rank numbers made unique, ready for ``Table.concat``.

    A correlation id or op number is unique only within its process and file, and two machines may use the same process
    numbers. So a process number that an earlier file has is raised by a billion (in a third file, by two billion).
    The rank is taken from the file, or else is the file's position, from 0. A file of several processes that names no
    rank gets none.
    """
    if len(tables) == 1:
        return list(tables)
    numbers = _numbers([(known_numbers(table.ints("pid")), known_numbers(table.ints("rank"))) for table in tables])
    room = 0
    moved_apart: list[Table] = []
    for table, (pids, rank) in zip(tables, numbers, strict=True):
        op_id, pid = table.ints("opId"), table.ints("pid")
        columns = dict(table.columns)
        columns["opId"] = np.where(op_id != NULL, op_id + room, NULL)
        repeated = np.array([old for old, new in pids.items() if old != new], np.int64)
        columns["pid"] = np.where(np.isin(pid, repeated), pid + len(moved_apart) * APART, pid)
        if rank is not None:
            columns["rank"] = np.full(len(table), rank, np.int64)
        room += int(op_id.max(initial=-1)) + 1
        samples = [
            replace(gpu, pid=pids.get(gpu.pid, gpu.pid), rank=gpu.rank if rank is None else rank)
            for gpu in table.samples
        ]
        moved_apart.append(Table(len(table), columns, samples))
    return moved_apart


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


def _numbers(files: Sequence[tuple[list[int], list[int]]]) -> list[tuple[dict[int, int], int | None]]:
    """For each file's processes and ranks: the new number of each process, and the rank to give to the file, if any."""
    recorded_ranks = {rank for _, ranks in files for rank in ranks}
    seen: set[int] = set()
    numbers: list[tuple[dict[int, int], int | None]] = []
    for place, (pids, ranks) in enumerate(files):
        new_pids = {pid: pid + place * APART if pid in seen else pid for pid in pids}
        one_rank = len(files) > 1 and not ranks and len(pids) == 1 and place not in recorded_ranks
        seen.update(new_pids.values())
        numbers.append((new_pids, place if one_rank else None))
    return numbers
