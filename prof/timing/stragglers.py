"""Ranks that wait for each other in collectives, where a table holds all ranks of a group.

The kernels of a collective from all to all end together, when the slowest rank has come and all has been sent: what
one takes longer than the shortest of its collective, it waited. Durations alone tell it, whatever clocks the ranks'
machines have. Which kernels are one collective's: a communicator's are called in the same order by all of its ranks
(NCCL demands it), so the n-th of one is the n-th of each, as long as the captures hold the same sequence; else nothing
is said.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.kernels.transfers import is_collective
from pyprof.prof.timing.collectives import working_rows
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.collective_records import Message, messages
from pyprof.table.columns import NULL, Bools, Ints, Table

# From all to all: only these end together. Where one rank sends or gets all, the others may be done before.
SYMMETRIC = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
_BY_NAME = re.compile(r"All_?Reduce|All_?Gather|Reduce_?Scatter", re.IGNORECASE)  # of kernels without a record


@dataclass(frozen=True, slots=True)
class Last:
    """How often a rank was the last to come."""

    rank: Annotated[int, doc("number of the rank, or of the process where the table has no ranks")]
    times: Annotated[int, doc("how often it was the last")]
    ns: Annotated[int, doc("time that others waited for it, the longest wait each time")]


@dataclass(frozen=True, slots=True)
class Waiting:
    """How much of the collectives was waiting. All are 0 and empty where the table does not have all ranks."""

    collectives: Annotated[int, doc("calls that all ranks make, matched")] = 0
    ns: Annotated[int, doc("time of all ranks' kernels in them")] = 0
    wait_ns: Annotated[int, doc("of that, the wait until the last rank had come")] = 0
    by: Annotated[str, doc("what the ranks below are: rank or process")] = "rank"
    last: Annotated[tuple[Last, ...], doc("ranks, the most waited for first")] = ()


class Stragglers(NamedTuple):
    wait: Ints  # ns that each row waited for other ranks; NULL: not known
    waiting: Waiting


def stragglers(table: Table, annotation: Annotation) -> Stragglers:
    """Who waits for whom. Of a table with one rank's rows nothing is known."""
    wait = np.full(len(table), NULL, np.int64)
    duration = table.ints("kDuration")
    held: Counter[int] = Counter()
    times: Counter[int] = Counter()
    count = 0
    for ranks, rows in _matched(table, annotation):
        ns = duration[rows]
        wait[rows] = ns - ns.min(axis=1, keepdims=True)
        for column, longest in zip(ns.argmin(axis=1).tolist(), (ns.max(axis=1) - ns.min(axis=1)).tolist(), strict=True):
            times[ranks[column]] += 1
            held[ranks[column]] += longest
        count += len(rows)
    known = wait != NULL
    last = [Last(rank, times[rank], ns) for rank, ns in sorted(held.items(), key=lambda item: (-item[1], item[0]))]
    by = "rank" if bool((table.ints("rank") != NULL).any()) else "process"
    total, waited = int(duration[known].sum()), int(wait[known].sum())
    return Stragglers(wait, Waiting(count, total, waited, by, tuple(last)))


def _matched(table: Table, annotation: Annotation) -> list[tuple[list[int], Ints]]:
    """For each communicator whose ranks are all here, in the same sequence: its ranks, and a row of their rows for each
    collective. Without records, by the kernels' names, where all processes run the same sequence of them."""
    kinds = np.array(table.coded("kind").texts(), object)
    names = table.coded("kShortName")
    nccl = np.array([*map(is_collective, names.values), False])[names.codes]
    rows = np.union1d(working_rows(table, annotation), np.flatnonzero(nccl & ~_told(table)))
    who = _processes(table)
    rows = rows[(who[rows] != NULL) & (kinds[rows] == "kernel")]
    if len(np.unique(who[rows])) < 2:
        return []
    comm = table.coded("comm")
    recorded = [_key(messages(text)) for text in comm.values]
    by_name = [("", 0, name) if _BY_NAME.search(name) else None for name in names.values]
    sequences: dict[tuple[str, int], dict[int, list[tuple[str, int]]]] = {}
    for row in rows[np.argsort(table.ints("start")[rows], kind="stable")].tolist():
        key = recorded[comm.codes[row]] if comm.codes[row] >= 0 else by_name[names.codes[row]]
        if key is not None:
            group, ranks, op = key
            sequences.setdefault((group, ranks), {}).setdefault(int(who[row]), []).append((op, row))
    found = []
    for (_, ranks), by_rank in sequences.items():
        ops = {tuple(op for op, _ in sequence) for sequence in by_rank.values()}
        if len(by_rank) > 1 and len(by_rank) == (ranks or len(np.unique(who[rows]))) and len(ops) == 1:
            members = sorted(by_rank)
            found.append((members, np.array([[row for _, row in by_rank[r]] for r in members], np.int64).T))
    return found


def _processes(table: Table) -> Ints:
    """The rank of each row; where no row has one, its process."""
    rank = table.ints("rank")
    return rank if bool((rank != NULL).any()) else table.ints("pid")


def _told(table: Table) -> Bools:
    told: Bools = table.coded("comm").codes >= 0
    return told


def _key(found: tuple[Message, ...]) -> tuple[str, int, str] | None:
    """(communicator, ranks, ops) of what a kernel does; None where it is not from all to all of one communicator."""
    groups = {m.group for m in found}
    if len(groups) != 1 or any(m.op not in SYMMETRIC for m in found):
        return None
    return groups.pop(), found[0].ranks, "+".join(m.op for m in found)
