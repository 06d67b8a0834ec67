"""The traffic of collectives: bytes sent, algorithm and bus bandwidth, from the collective records in the capture.

The definitions are those of nccl-tests (PERFORMANCE.md), for n ranks and S bytes of the full buffer. If each rank has
one part of the buffer, S includes the parts of all ranks::

    algorithm bandwidth = S / time          bus bandwidth = algorithm bandwidth * factor(op, n)

The bus bandwidth is the minimum that a rank must send, divided by the time. It can be compared with a link's speed for
any number of ranks. A collective ends when the slowest rank has sent its part, so one rank's rate is a lower bound.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.calls import call_numbers
from pyprof.prof.work.collective_records import messages, size_of, wire_of
from pyprof.prof.work.shares import split
from pyprof.table.columns import NULL, Coded, Floats, Ints, Table, distinct, known


@dataclass(frozen=True, slots=True)
class Traffic:
    """One value per row of the table. If a call has several kernels, its bytes are divided among them by duration."""

    op: Coded  # the collective's name; several names are joined by +
    ranks: Ints  # number of ranks; NULL: unknown, or not the same for all collectives of the row
    wire: Ints  # bytes that this rank must send; NULL: unknown
    algbw: Floats  # GB/s; NaN: unknown
    busbw: Floats


def traffic(table: Table, annotation: Annotation) -> Traffic:
    """The traffic of each row; unknown for rows without a collective."""
    comm, duration = table.coded("comm"), table.ints("kDuration")
    records = [messages(text) for text in comm.values]
    size, wire, ranks = (np.full(len(table), NULL, np.int64) for _ in range(3))
    rows = working_rows(table, annotation)
    for members in _calls(table, rows):
        record = records[comm.codes[members[0]]]
        ns = duration[members].tolist()
        for column, amount in ((size, size_of(record)), (wire, wire_of(record))):
            if not math.isnan(amount):
                column[members] = split(round(amount), ns)
        numbers = {message.ranks for message in record} - {0}
        ranks[members] = numbers.pop() if len(numbers) == 1 else NULL
    ops = Coded.of("+".join(dict.fromkeys(message.op for message in record)) for record in records)
    codes = np.full(len(table), -1, np.int32)
    codes[rows] = ops.codes[comm.codes[rows]]
    return Traffic(Coded(codes, ops.values), ranks, wire, _rate(size, duration), _rate(wire, duration))


def _calls(table: Table, rows: Ints) -> list[Ints]:
    """Group these rows by the op call that launched them and by its record."""
    calls, codes = call_numbers(table), table.coded("comm").codes
    order = rows[np.lexsort((codes[rows], calls[rows]))]
    same = (np.diff(calls[order]) == 0) & (np.diff(codes[order]) == 0)
    return [members for members in np.split(order, np.flatnonzero(~same) + 1) if len(members)]


def working_rows(table: Table, annotation: Annotation) -> Ints:
    """The rows that perform a recorded collective, without the copies and fills that prepare it."""
    return np.flatnonzero(table.coded("comm").where(messages) & ~annotation.role.among("aux"))


def _rate(amount: Ints, ns: Ints) -> Floats:
    return amount / np.where((amount != NULL) & (ns > 0), ns, np.nan)


@dataclass(frozen=True, slots=True)
class Collective:
    """All rows of one kind of collective among the same number of ranks."""

    op: Annotated[
        str, doc("all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather, scatter, send or recv")
    ]
    ranks: Annotated[int | None, doc("number of ranks that take part; null where it is not known")]
    rows: Annotated[int, doc("number of kernels")]
    ns: Annotated[int, doc("their time")]
    wire: Annotated[int, doc("bytes that this rank must send, of the rows whose message is on record")]
    moving_ns: Annotated[int, doc("time of those rows, without the wait for other ranks where that is known")]
    waits_known: Annotated[bool, doc("whether that wait is known of some rows")]


def collectives(table: Table, annotation: Annotation, wait: Ints) -> tuple[Collective, ...]:
    """Each kind of recorded collective, longest time first. ``wait``: the waiting time per row, from ``stragglers``."""
    sent, ns = traffic(table, annotation), table.ints("kDuration")
    moving = ns - np.where(wait == NULL, 0, wait)
    keys, number = distinct(sent.op.codes.astype(np.int64), sent.ranks)
    kinds = []
    for i, (op, ranks) in enumerate(keys):
        if op < 0:
            continue
        rows = number == i
        sized = rows & (sent.wire != NULL)
        kinds.append(
            Collective(
                op=sent.op.values[op],
                ranks=known(ranks),
                rows=int(rows.sum()),
                ns=int(ns[rows].sum()),
                wire=int(sent.wire[sized].sum()),
                moving_ns=int(moving[sized].sum()),
                waits_known=bool((wait[sized] != NULL).any()),
            )
        )
    return tuple(sorted(kinds, key=lambda kind: -kind.ns))
