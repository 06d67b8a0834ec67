"""What torch.distributed told its collectives to do, as a trace says: on `record_param_comms`, and on NCCL's kernels.

Collectives that are called inside torch.distributed's coalescing (DDP's buckets, batch_isend_irecv) launch nothing: one
kernel does them all where it ends, in the range `nccl:coalesced`, which says nothing of them.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from pyprof.parse.attribute.capture import Ranges
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.formats.collective_records import collective, count, listed, of_elements, record
from pyprof.parse.kineto.event_types import Args
from pyprof.table.columns import Ints

COALESCED = "nccl:coalesced"


def message(a: Args) -> str:
    """What an event says that a collective was told: the text of ``Scope.comm``; empty for other events."""
    op = collective(a.collective) if isinstance(a.collective, str) else ""
    if not op:
        return ""
    inward, outward = of_elements(op, count(a.elements_in), count(a.elements_out), a.element)
    group = a.group if isinstance(a.group, str) and a.group else None
    peer = {"send": a.receiver, "recv": a.sender}.get(op)
    return listed([record(op, ranks=count(a.ranks), inward=inward, outward=outward, peer=count(peer), group=group)])


def with_coalesced(ranges: Ranges, scopes: list[Scope], thread: Ints, time: Ints) -> Ranges:
    """The ranges, those of coalesced collectives with a scope that lists them: appended to ``scopes``, once a distinct
    one. ``thread`` and ``time``: of the GPU operations' launches.
    """
    ends = np.array([*(s.kind == Kind.COMM and s.name == COALESCED for s in scopes), False])
    told = np.array([*(bool(s.comm) for s in scopes), False])
    if not ends.any():
        return ranges
    rows = np.flatnonzero(ends[ranges.scope] | told[ranges.scope])
    rows = rows[np.lexsort((ranges.start[rows], ranges.thread[rows]))]
    launches = _launches(ranges, rows, thread, time)
    scope, numbers = ranges.scope.copy(), dict[tuple[int, str], int]()
    pending, owner = list[str](), -1
    for row, on, number, launched in zip(
        rows.tolist(), ranges.thread[rows].tolist(), ranges.scope[rows].tolist(), launches.tolist(), strict=True
    ):
        if on != owner:
            pending, owner = [], on
        if not ends[number]:
            pending = [] if launched else [*pending, scopes[number].comm]
            continue
        if pending:
            words = listed([item for text in pending for item in json.loads(text)])
            scope[row] = numbers.setdefault((number, words), len(scopes))
            if scope[row] == len(scopes):
                scopes.append(scopes[number]._replace(comm=words))
        pending = []
    return replace(ranges, scope=scope)


def _launches(ranges: Ranges, rows: Ints, thread: Ints, time: Ints) -> Ints:
    """How many launches each of some ranges holds."""
    order = np.lexsort((time, thread))
    thread, time = thread[order], time[order]
    found = np.zeros(len(rows), np.int64)
    for on in np.unique(ranges.thread[rows]).tolist():
        mine, times = np.flatnonzero(ranges.thread[rows] == on), time[thread == on]
        begin, end = ranges.start[rows[mine]], ranges.end[rows[mine]]
        found[mine] = np.searchsorted(times, end, "right") - np.searchsorted(times, begin, "left")
    return found
