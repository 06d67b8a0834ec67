"""The captures of the smaller formats, which have few ranges, so that their texts are read one by one."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pyprof.parse.attribute.capture import OPEN, HostCalls, Ranges
from pyprof.parse.attribute.reasons import NO_CALL, SHARED_CORRELATION
from pyprof.parse.attribute.scope import Scope, classify, split
from pyprof.parse.formats.cupti import Calls, launch_columns
from pyprof.parse.formats.lost_records import Joined, lost_records
from pyprof.parse.formats.shape_text import as_sizes
from pyprof.parse.formats.shared_launches import shared_launches
from pyprof.table.columns import NULL, Data, Ints, coded_of, distinct, value_at

Threads = dict[tuple[int, int], int]  # (process, thread) -> its number


class TextRange(NamedTuple):
    """A range or a call of a thread; readers of some formats leave out ranges without numbers."""

    pid: Any  # int; None if unknown
    tid: Any
    start: Any  # ns
    end: Any
    text: str


def ranges_of(ranges: Sequence[TextRange], threads: Threads, origin: int) -> tuple[Ranges, list[Scope]]:
    """The ranges as columns, and their scopes. New threads are added to ``threads``; ``origin`` becomes time 0."""
    scopes: dict[tuple[str, bool, str], int] = {}
    known: dict[str, tuple[int, int, int]] = {}  # text -> scope, sequence number, op id
    rows = []
    for pid, tid, start, end, text in ranges:
        if text not in known:
            name, seq, op_id, sizes = split(text)
            key = name, seq is not None or op_id is not None, as_sizes(sizes) if sizes else ""
            scope = scopes.setdefault(key, len(scopes))
            known[text] = scope, NULL if seq is None else seq, NULL if op_id is None else op_id
        rows.append((threads.setdefault((pid, tid), len(threads)), start - origin, end - origin, *known[text]))
    return Ranges(*np.array(rows, np.int64).reshape(-1, 6).T.copy()), [classify(*key) for key in scopes]


def capture_fields(
    columns: dict[str, Data], call: Ints, calls: Calls, markers: Sequence[TextRange], origin: int
) -> dict[str, Any]:
    """The fields of a ``Capture`` with these ranges and columns. ``call``: per row, its call's index, -1 for none."""
    shared = shared_launches(call, coded_of(columns, "kind", len(call)).among("kernel"), calls.name)
    call = np.where(shared, -1, call)
    threads: Threads = {}
    ranges, scopes = ranges_of(markers, threads, origin)
    owners, row = distinct(calls.pid, calls.tid)
    numbers = np.array([threads.setdefault((pid, tid), len(threads)) for pid, tid in owners], np.int64)
    of_calls = launch_columns(call, calls, origin)
    joined = Joined(calls, call, {**columns, **of_calls}, lambda: int(calls.start.max(initial=NULL)))
    uncalled = (call < 0) & (np.asarray(columns["start"]) + origin > calls.start.min(initial=OPEN))
    return {
        "threads": list(threads),
        "scopes": scopes,
        "ranges": ranges,
        "rows": len(call),
        "columns": {**columns, **of_calls},
        "launch_thread": value_at(numbers[row], call, -1),
        "launch_time": of_calls["apiStart"],
        "calls": HostCalls(numbers[row], calls.start - origin, calls.end - origin, calls.name, calls.corr),
        "reason": [NO_CALL, SHARED_CORRELATION],
        "reason_code": np.where(call >= 0, -1, shared.astype(np.int64)),
        # launches seem to have no kernel where their kernels have the id of another launch
        "losses": [] if shared.any() else lost_records(joined, uncalled, ""),
    }
