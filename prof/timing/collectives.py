"""What collectives send: bytes on the wire, algorithm and bus bandwidth, from the records that the capture has.

nccl-tests' definitions (PERFORMANCE.md); n ranks, S bytes of the full buffer, all ranks' parts where each has one::

    algorithm bandwidth = S / time          bus bandwidth = algorithm bandwidth * factor(op, n)

The bus bandwidth is what a rank must at least send, over the time: it compares with a link's speed whatever the
number of ranks. A collective's time ends when the slowest rank has come, so that a rank's own rate is a least one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.calls import call_numbers
from pyprof.prof.work.collective_records import messages, size_of, wire_of
from pyprof.prof.work.shares import split
from pyprof.table.columns import NULL, Coded, Floats, Ints, Table, distinct


@dataclass(frozen=True, slots=True)
class Traffic:
    """Of each row, aligned with the table; several kernels of a call share its messages by duration."""

    op: Coded  # the collective; several, each once, joined by +
    ranks: Ints  # NULL: unknown, or several numbers
    wire: Ints  # bytes that this rank must send; NULL: unknown
    algbw: Floats  # GB/s; NaN: unknown
    busbw: Floats


def traffic(table: Table, annotation: Annotation) -> Traffic:
    """What each row sends. Rows without a collective have nothing known."""
    comm, duration = table.coded("comm"), table.ints("kDuration")
    each = [messages(text) for text in comm.values]
    ops = ["+".join(dict.fromkeys(m.op for m in found)) for found in each]
    size, wire, ranks = (np.full(len(table), NULL, np.int64) for _ in range(3))
    rows = working_rows(table, annotation)
    calls = call_numbers(table)
    order = rows[np.lexsort((comm.codes[rows], calls[rows]))]
    same = (np.diff(calls[order]) == 0) & (np.diff(comm.codes[order]) == 0)
    for members in np.split(order, np.flatnonzero(~same) + 1):
        if not len(members):
            continue
        found = each[comm.codes[members[0]]]
        ns = duration[members].tolist()
        for column, amount in ((size, size_of(found)), (wire, wire_of(found))):
            if not math.isnan(amount):
                column[members] = split(round(amount), ns)
        numbers = {m.ranks for m in found} - {0}
        ranks[members] = numbers.pop() if len(numbers) == 1 else NULL
    name = [""] * len(table)
    for row in rows.tolist():
        name[row] = ops[comm.codes[row]]
    return Traffic(Coded.of(name), ranks, wire, _rate(size, duration), _rate(wire, duration))


def working_rows(table: Table, annotation: Annotation) -> Ints:
    """The rows that do a collective which is on record: not the copies and fills that prepare it."""
    comm = table.coded("comm")
    told = np.array([*(bool(messages(text)) for text in comm.values), False])[comm.codes]
    works = np.array([role != "aux" for role in annotation.role.texts()], bool)
    return np.flatnonzero(told & works)


def _rate(amount: Ints, ns: Ints) -> Floats:
    known = (amount != NULL) & (ns > 0)
    found: Floats = np.divide(amount, ns, out=np.full(len(ns), np.nan), where=known)
    return found


@dataclass(frozen=True, slots=True)
class Collective:
    """All rows of a collective among as many ranks."""

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
    """Each kind of collective that is on record, the longest first; ``wait``: what ``stragglers`` says of each row."""
    sent, ns = traffic(table, annotation), table.ints("kDuration")
    moving = ns - np.where(wait == NULL, 0, wait)
    keys, number = distinct(sent.op.codes.astype(np.int64), sent.ranks)
    found = []
    for i, (op, ranks) in enumerate(keys):
        if op >= 0:
            rows = number == i
            told = rows & (sent.wire != NULL)
            found.append(
                Collective(sent.op.values[op], None if ranks == NULL else ranks, int(rows.sum()), int(ns[rows].sum()),
                           int(sent.wire[told].sum()), int(moving[told].sum()), bool((wait[told] != NULL).any()))
            )  # fmt: skip
    return tuple(sorted(found, key=lambda each: -each.ns))
