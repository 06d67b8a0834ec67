"""GPU operations as slices with prof.py's columns as arguments, the flows between them, and the counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.perfetto.tracks import Arg
from pyprof.prof.table.columns import COLUMN
from pyprof.prof.table.limit_columns import with_limits
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Bools, Floats, Ints, Table

__all__ = ["ARGUMENTS", "arguments", "forward_of", "load"]

# What the slice itself tells (its name, start and duration) is left out.
ARGUMENTS = (
    "idx",
    "op",
    "mod",
    "layer",
    "trace",
    "dir",
    "phase",
    "step",
    "params",
    "args",
    "flops",
    "bytes",
    "ai",
    "tflops",
    "gbps",
    "sol",
    "sol_ns",
    "bound",
    "unit",
    "tc",
    "tcprec",
    "dtype",
    "advice",
    "role",
    "family",
    "aten",
    "seq",
    "occ",
    "occ_limit",
    "waves",
    "tail",
    "grid",
    "block",
    "longname",
    "reason",
    "device",
    "stream",
    "tid",
    "pid",
    "rank",
)


def arguments(
    names: Sequence[str], table: Table, annotation: Annotation, peaks: Peaks | None
) -> tuple[list[Arg], list[str]]:
    """The columns of every row, and what the limits among them rest on."""
    columns, notes = with_limits([COLUMN[name] for name in names], table, annotation, peaks)
    return [Arg(column.name, column.get(table, annotation)) for column in columns], notes


def forward_of(table: Table, annotation: Annotation) -> Ints:
    """Of the first row of each backward op: the row of its forward op that did the arithmetic; -1 for all others.

    A forward op is known by its process, name and sequence number. Of the numbers around a launch the greatest is the
    innermost op's, and so its own: composite ops show the number that the next node gets. Of several such ops (a graph
    is replayed) it is the last before.
    """
    found = np.full(len(table), -1, np.int64)
    start = table.ints("start")
    order = np.argsort(np.where(start == NULL, np.iinfo(np.int64).max, start), kind="stable")
    numbers = [
        (*own, *others)
        for own, others in zip(table.ragged("seqId").lists(), table.ragged("altSeqId").lists(), strict=True)
    ]
    keys: list[NDArray[Any]] = [table.ints("rank"), table.ints("pid"), table.coded("op").codes]
    owner: list[tuple[int, ...]] = list(zip(*(column.tolist() for column in keys), strict=True))
    replay = np.where(table.ints("graphNode") == NULL, 0, table.ints("corr"))
    call = list(zip(table.ints("opId").tolist(), replay.tolist(), strict=True))
    direction, role = table.coded("dir").texts(), annotation.role.texts()
    exact: dict[tuple[object, int], int] = {}
    around: dict[tuple[object, int], int] = {}
    done: set[object] = set()
    for row in order.tolist():
        if not numbers[row] or owner[row][2] < 0:
            continue
        if direction[row] == "fprop":
            key = (owner[row], max(numbers[row]))
            if role[row] != "aux" or key not in exact:
                exact[key] = row
            around.update(((owner[row], number), row) for number in numbers[row])
        elif direction[row] == "bprop" and (mine := (owner[row], numbers[row][0], call[row])) not in done:
            done.add(mine)
            found[row] = exact.get(mine[:2], around.get(mine[:2], -1))
    return found


def load(start: Ints, end: Ints, value: Floats) -> tuple[Ints, Floats]:
    """The sum of the values of the intervals that are open, from each time on at which it changes.

    Exact where at most one is open: a sum of differences would leave a rest behind.

    >>> times, values = load(np.array([0, 5]), np.array([10, 8]), np.array([1.5, 2.0]))
    >>> times.tolist(), values.tolist()
    ([0, 5, 8, 10], [1.5, 3.5, 1.5, 0.0])
    """
    kept = (end > start) & ~np.isnan(value)
    start, end, value = start[kept], end[kept], value[kept]
    if not len(start):
        return start, value
    owner = np.arange(len(start))
    times = np.concatenate([end, start])
    order = np.argsort(times, kind="stable")
    sign = np.concatenate([np.full(len(end), -1), np.ones(len(start), np.int64)])[order]
    change = np.concatenate([-value, value])[order]
    number = np.concatenate([-owner, owner])[order]
    count, total, which = np.cumsum(sign), np.cumsum(change), np.cumsum(number)  # of one open interval, its number
    one: Bools = count == 1
    total = np.where(one, value[np.where(one, which, 0)], np.where(count == 0, 0.0, total))
    times = times[order]
    last = np.append(times[1:] != times[:-1], True)
    times, total = times[last], total[last]
    moved = np.append(True, total[1:] != total[:-1])
    return times[moved], total[moved]
