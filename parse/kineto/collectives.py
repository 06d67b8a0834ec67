"""The messages of torch.distributed's collectives. A trace records them on `record_param_comms` and on NCCL's kernels.

Collectives that are called inside torch.distributed's coalescing (DDP's buckets, batch_isend_irecv) launch nothing. At
the end of the coalescing, one kernel performs all of them, in the range `nccl:coalesced`, which does not list them.
"""

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
    """The message of a collective's event, as text of ``Scope.comm``; empty for other events."""
    op = collective(a.collective) if isinstance(a.collective, str) else ""
    if not op:
        return ""
    inward, outward = of_elements(op, count(a.elements_in), count(a.elements_out), a.element)
    group = a.group if isinstance(a.group, str) and a.group else None
    peer = {"send": a.receiver, "recv": a.sender}.get(op)
    return listed([record(op, ranks=count(a.ranks), inward=inward, outward=outward, peer=count(peer), group=group)])


def with_coalesced(ranges: Ranges, scopes: list[Scope], thread: Ints, time: Ints) -> Ranges:
    """The ranges, with new scopes for coalesced collectives that list the collectives.

    The new scopes are appended to ``scopes``, once per distinct list. ``thread`` and ``time``: the threads and times of
    the GPU operations' launches.
    """
    is_end = np.array([*(s.kind == Kind.COMM and s.name == COALESCED for s in scopes), False])
    is_collective = np.array([*(bool(s.comm) for s in scopes), False])
    if not is_end.any():
        return ranges
    rows = np.flatnonzero(is_end[ranges.scope] | is_collective[ranges.scope])
    rows = rows[np.lexsort((ranges.start[rows], ranges.thread[rows]))]
    launches = _launches(ranges, rows, thread, time).tolist()
    scope, codes = ranges.scope.copy(), dict[tuple[int, str], int]()
    pending, pending_thread = list[str](), -1  # the messages of collectives that launched nothing yet
    for row, launched in zip(rows.tolist(), launches, strict=True):
        code = int(ranges.scope[row])
        if ranges.thread[row] != pending_thread:
            pending, pending_thread = [], int(ranges.thread[row])
        if not is_end[code]:
            pending = [] if launched else [*pending, scopes[code].comm]
            continue
        if pending:
            messages = listed([item for text in pending for item in json.loads(text)])
            scope[row] = codes.setdefault((code, messages), len(scopes))
            if scope[row] == len(scopes):
                scopes.append(scopes[code]._replace(comm=messages))
        pending = []
    return replace(ranges, scope=scope)


def _launches(ranges: Ranges, rows: Ints, thread: Ints, time: Ints) -> Ints:
    """The number of launches in each of the ranges ``rows``."""
    begin, end, on_thread = ranges.start[rows], ranges.end[rows], ranges.thread[rows]
    # One number for each pair of thread and time, in their order.
    times, rank = np.unique(np.concatenate([time, begin, end]), return_inverse=True)
    key = np.concatenate([thread, on_thread, on_thread]) * len(times) + rank.reshape(-1)
    launched, first, last = np.sort(key[: len(time)]), *key[len(time) :].reshape(2, -1)
    return np.searchsorted(launched, last, "right") - np.searchsorted(launched, first, "left")
