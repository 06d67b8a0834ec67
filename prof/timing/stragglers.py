"""How long ranks wait for each other in collectives, for tables that hold all ranks of a group.

In a collective from all ranks to all ranks, the kernels end at the same time: when the slowest rank has arrived and all
data has been sent. So a rank's waiting time is its kernel's duration minus the shortest kernel's of this collective.
Only durations are needed, so the machines' clocks need not agree. Kernels are matched by order: all ranks call the
collectives of a communicator in the same order (NCCL requires it), so the n-th collectives of all ranks belong together
if the captures hold the same sequence. If they don't, nothing is reported.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.timing.collectives import working_rows
from pyprof.prof.work.annotate import Annotation, annotate
from pyprof.prof.work.collective_records import Message, messages
from pyprof.prof.work.kinds import NCCL, kinds
from pyprof.table.columns import NULL, Ints, Table

# Only collectives from all ranks to all ranks end together. If one rank sends or receives everything, others may end
# earlier.
SYMMETRIC = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
_BY_NAME = re.compile(r"All_?Reduce|All_?Gather|Reduce_?Scatter", re.IGNORECASE)  # for kernels without a record


@dataclass(frozen=True, slots=True)
class Last:
    """How often a rank was the last to arrive, and how long others waited for it."""

    rank: Annotated[int, doc("number of the rank, or of the process where the table has no ranks")]
    times: Annotated[int, doc("how often it was the last")]
    ns: Annotated[int, doc("time that others waited for it, the longest wait each time")]


@dataclass(frozen=True, slots=True)
class RankWaits:
    """How much of the collectives' time was waiting; 0 and empty if the table does not hold all ranks."""

    collectives: Annotated[int, doc("calls that all ranks make, matched")] = 0
    ns: Annotated[int, doc("time of all ranks' kernels in them")] = 0
    wait_ns: Annotated[int, doc("of that, the wait until the last rank had come")] = 0
    by: Annotated[str, doc("what the ranks below are: rank or process")] = "rank"
    last: Annotated[tuple[Last, ...], doc("ranks, the most waited for first")] = ()


class Stragglers(NamedTuple):
    wait: Ints  # time in ns that each row waited for other ranks; NULL: unknown
    waiting: RankWaits


def stragglers(table: Table, annotation: Annotation) -> Stragglers:
    """Which ranks wait for which. The result is empty for a table that has the rows of only one rank."""
    wait = np.full(len(table), NULL, np.int64)
    duration = table.ints("kDuration")
    waited_for: Counter[int] = Counter()
    times: Counter[int] = Counter()
    count = 0
    for ranks, rows in matched_collectives(table, annotation):
        ns = duration[rows]
        wait[rows] = ns - ns.min(axis=1, keepdims=True)
        for column, longest in zip(ns.argmin(axis=1).tolist(), wait[rows].max(axis=1).tolist(), strict=True):
            times[ranks[column]] += 1
            waited_for[ranks[column]] += longest
        count += len(rows)
    known = wait != NULL
    most_first = sorted(waited_for.items(), key=lambda item: (-item[1], item[0]))
    last = tuple(Last(rank, times[rank], ns) for rank, ns in most_first)
    by = "rank" if _has_ranks(table) else "process"
    return Stragglers(wait, RankWaits(count, int(duration[known].sum()), int(wait[known].sum()), by, last))


def meetings(table: Table, annotation: Annotation | None = None) -> list[Ints]:
    """The rows of each collective of which the table has the kernels of all ranks.

    ``annotation``: the table's; None: it is made if there are several ranks.
    """
    if len(np.unique(table.ints("pid"))) < 2:
        return []
    known = annotation or annotate(table)
    return [rows for _, matched in matched_collectives(table, known) for rows in matched]


def matched_collectives(table: Table, annotation: Annotation) -> list[tuple[list[int], Ints]]:
    """The collectives of each communicator whose ranks are all in the table and ran the same sequence.

    Per communicator: its ranks and their rows, as an array with one line per collective and one column per rank.
    Without records, kernels are matched by name if all processes run the same sequence of names.
    """
    process = table.ints("rank" if _has_ranks(table) else "pid")
    calls = [call for call in symmetric_collectives(table, annotation) if process[call.row] != NULL]
    sequences_of: dict[tuple[str, int], dict[int, list[tuple[str, int]]]] = {}
    for call in calls:
        by_rank = sequences_of.setdefault((call.group, call.ranks), {})
        by_rank.setdefault(int(process[call.row]), []).append((call.op, call.row))
    processes = len({int(process[call.row]) for call in calls})
    matched = []
    for (_, ranks), by_rank in sequences_of.items():
        sequences = {tuple(op for op, _ in sequence) for sequence in by_rank.values()}
        complete = len(by_rank) > 1 and len(by_rank) == (ranks or processes)
        if complete and len(sequences) == 1:
            members = sorted(by_rank)
            matched.append((members, np.array([[row for _, row in by_rank[r]] for r in members], np.int64).T))
    return matched


class SymmetricCall(NamedTuple):
    """A kernel of a collective from all ranks to all ranks."""

    row: int
    group: str  # the communicator; empty for kernels without a record
    ranks: int  # how many it has; 0: unknown
    op: str  # several that one kernel performs are joined by +; the kernel's name where there is no record


def symmetric_collectives(table: Table, annotation: Annotation) -> list[SymmetricCall]:
    """The kernels of these collectives in order of start, by their record or, without one, by their name."""
    comm, names = table.coded("comm"), table.coded("kShortName")
    by_name = kinds(table, annotation).among(NCCL) & (comm.codes < 0)
    rows = np.union1d(working_rows(table, annotation), np.flatnonzero(by_name))
    rows = rows[table.coded("kind").among("kernel")[rows]]
    recorded = [_key(messages(text)) for text in comm.values]
    named = [("", 0, name) if _BY_NAME.search(name) else None for name in names.values]
    calls = []
    for row in rows[np.argsort(table.ints("start")[rows], kind="stable")].tolist():
        key = recorded[comm.codes[row]] if comm.codes[row] >= 0 else named[names.codes[row]]
        if key is not None:
            calls.append(SymmetricCall(row, *key))
    return calls


def _has_ranks(table: Table) -> bool:
    return bool((table.ints("rank") != NULL).any())


def _key(record: tuple[Message, ...]) -> tuple[str, int, str] | None:
    """(communicator, ranks, ops) of a kernel's collectives; None unless all are symmetric and of one communicator."""
    groups = {message.group for message in record}
    if len(groups) != 1 or any(message.op not in SYMMETRIC for message in record):
        return None
    return groups.pop(), record[0].ranks, "+".join(message.op for message in record)
