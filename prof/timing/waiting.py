"""Why a GPU waits: what each gap was for, how long launches stood in the queue, where the CPU waited for the GPU.

A gap belongs to the row that ends it. Its cause:

* ``sync``: the CPU had waited for the operation before (a copy to the host), and launched only then;
* ``data``: the row is of the phase "data", and the CPU had not launched it: no batch was ready;
* ``copy``: until then, or after the gap began, the CPU stood in a copy's call (from pageable memory it waits);
* ``launch``: the CPU had not launched the row, and did soon: launching is slower than the GPU;
* ``host``: the same, for longer than a launch takes: Python did something else, or the process had no work;
* ``queued``: the row was launched before the gap began: the GPU's own 1 to 2 µs between kernels, or a wait for
  another stream.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct
from pyprof.table.json_lists import first_text

__all__ = ["CAUSES", "WORDS", "SyncPoint", "Waiting", "Waits", "sync_points", "waiting", "waits"]

CAUSES = ("launch", "sync", "data", "copy", "host", "queued")
WORDS = {  # how a reader is told
    "launch": "the CPU was launching",
    "sync": "the CPU had waited for the GPU",
    "data": "no batch was ready",
    "copy": "the CPU stood in a copy",
    "host": "the CPU did something else",
    "queued": "between operations",
    "": "no launch is known",
}
DENSE_NS = 200_000  # a gap that is longer is no launch: an op of PyTorch's takes the CPU 5 to 50 µs, profiled up to 100


@dataclass(frozen=True, slots=True)
class Waiting:
    """A value a row. NULL, or no cause: unknown (no launch, no time)."""

    queue_ns: Ints  # from the end of the launching call to the start on the GPU; 0: it started while the call still ran
    idle_ns: Ints  # before it, nothing ran on its GPU; the first row of a GPU has none
    cause: Coded  # of that; empty where there is no gap


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """A place in the program where the CPU waits for the GPU."""

    op: Annotated[str, doc("what the user called, such as Tensor.item")]
    trace: Annotated[str, doc("the innermost line of the user's code")]
    rows: Annotated[int, doc("how often")]
    waited_ns: Annotated[int, doc("time that the CPU waited, from its call until the copy was done")]
    idle_ns: Annotated[int, doc("time that the GPU was idle after it")]


@dataclass(frozen=True, slots=True)
class Waits:
    """A capture's waiting, summed."""

    causes: Annotated[
        tuple[tuple[str, int, int], ...], doc("cause of idle time, number of gaps, ns; the longest first")
    ]
    queued_ns: Annotated[int, doc("median time of a launch in the queue; 0 where no launch is known")]
    launches: Annotated[int, doc("number of launches of that median")]
    syncs: Annotated[tuple[SyncPoint, ...], doc("places in the program where the CPU waits for the GPU")]
    pageable_rows: Annotated[int, doc("copies from or to pageable memory, as the capture says")]
    pageable_ns: Annotated[int, doc("their time")]
    pageable_bytes: Annotated[int, doc("what they moved")]


def waits(table: Table) -> Waits:
    """``waiting``'s sums, and the copies from or to pageable memory."""
    found = waiting(table)
    sums = [(name, found.cause.codes == code) for code, name in enumerate(CAUSES)]
    causes = [(name, int(rows.sum()), int(found.idle_ns[rows].sum())) for name, rows in sums if rows.any()]
    queued = found.queue_ns[(found.queue_ns != NULL) & table.coded("kind").among("kernel")]
    names, size = table.coded("kShortName"), table.ints("bytes")
    pageable = np.array([*("Pageable" in name for name in names.values), False])[names.codes]
    pageable &= table.coded("kind").among("memcpy")
    return Waits(
        causes=tuple(sorted(causes, key=lambda cause: -cause[2])),
        queued_ns=int(np.median(queued)) if len(queued) else 0,
        launches=len(queued),
        syncs=tuple(sync_points(table, found)),
        pageable_rows=int(pageable.sum()),
        pageable_ns=int(table.ints("kDuration")[pageable].sum()),
        pageable_bytes=int(size[pageable & (size != NULL)].sum()),
    )


def waiting(table: Table) -> Waiting:
    """The gaps of every GPU and their causes. Rows of CPU ops have none."""
    start, api = table.ints("start"), table.ints("apiStart")
    took = np.maximum(table.ints("kDuration"), 0)
    known = (api != NULL) & (start != NULL) & (table.ints("apiDuration") != NULL)
    called = np.where(known, api + np.where(known, table.ints("apiDuration"), 0), NULL)
    queue = np.where(known, np.maximum(start - called, 0), NULL)
    idle = np.full(len(table), NULL, np.int64)
    cause = np.full(len(table), -1, np.int32)
    to_host, copies = _copies(table)
    data = table.coded("phase").among("data")
    for rows in _lanes(table):
        begin, end = start[rows], start[rows] + took[rows]
        reach = np.maximum.accumulate(end)
        last = np.maximum.accumulate(np.where(end == reach, np.arange(len(rows)), 0))  # the row that ended last
        idle[rows[0]] = 0
        idle[rows[1:]] = np.maximum(begin[1:] - reach[:-1], 0)
        at, before, since = rows[1:], rows[last[:-1]], reach[:-1]
        late = known[at] & (api[at] > since)
        inside = _in_copy(table, copies & known, called, at, since)
        tests = (  # the first that holds, in the order of the module's text
            late & to_host[before],
            late & data[at],
            known[at] & inside,
            late & (idle[at] < DENSE_NS),
            late,
            known[at],
        )
        names = ("sync", "data", "copy", "launch", "host", "queued")
        codes = np.select(tests, [CAUSES.index(name) for name in names], -1)
        cause[at] = np.where(idle[at] > 0, codes, -1)
    return Waiting(queue, idle, Coded(cause, list(CAUSES)))


def _lanes(table: Table) -> list[Ints]:
    """The rows of each GPU that have a time, by their start."""
    start = table.ints("start")
    on_gpu = ~table.coded("kind").among("cpu") & (start != NULL)
    keys, group = distinct(table.ints("pid"), table.ints("device"))
    found = [np.flatnonzero(on_gpu & (group == number)) for number in range(len(keys))]
    return [rows[np.argsort(start[rows], kind="stable")] for rows in found if len(rows)]


def _copies(table: Table) -> tuple[Bools, Bools]:
    """Copies to the host, and those between host and device that the capture does not call pinned."""
    names = table.coded("kShortName")
    copy = table.coded("kind").among("memcpy")
    to_host, either = (
        np.array([*(any(word in name for word in words) for name in names.values), False])[names.codes]
        for words in (("DtoH", "Device-to-Host"), ("DtoH", "HtoD", "Device-to-Host", "Host-to-Device"))
    )
    pinned = np.array([*("Pinned" in name for name in names.values), False])[names.codes]
    return copy & to_host, copy & either & ~pinned


def _in_copy(table: Table, copies: Bools, called: Ints, rows: Ints, since: Ints) -> Bools:
    """Is each row such a copy, or was its thread's launch before it one, whose call lasted into the gap?"""
    order = np.lexsort((table.ints("apiStart"), table.ints("tid"), table.ints("pid")))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    before = order[np.maximum(place[rows] - 1, 0)]
    same = (place[rows] > 0) & (table.ints("tid")[before] == table.ints("tid")[rows])
    found: Bools = copies[rows] | (same & copies[before] & (called[before] > since))
    return found


def sync_points(table: Table, found: Waiting) -> list[SyncPoint]:
    """Places whose copies to the host the CPU waited for, the longest wait first; NVTX and Kineto record no others."""
    to_host, _ = _copies(table)
    start, api = table.ints("start"), table.ints("apiStart")
    end = start + np.maximum(table.ints("kDuration"), 0)
    after = _after(table, found)
    rows = np.flatnonzero(to_host & (api != NULL) & (start != NULL) & (after >= 0))
    keys, group = distinct(*(table.coded(key).codes[rows] for key in ("op", "aten", "trace")))
    waited, idle = (np.bincount(group, weights=w, minlength=len(keys)) for w in ((end - api)[rows], after[rows]))
    count = np.bincount(group, minlength=len(keys))
    points = [
        SyncPoint(_op(table, op, aten), _innermost(table, trace), int(count[i]), int(waited[i]), int(idle[i]))
        for i, (op, aten, trace) in enumerate(keys)
    ]
    return sorted(points, key=lambda point: (-point.waited_ns, point.trace, point.op))


def _after(table: Table, found: Waiting) -> Ints:
    """For each row, the idle time after it for which it is the cause; -1 where what follows was launched before it
    ended, and the CPU had not waited."""
    after = np.full(len(table), -1, np.int64)
    sync = found.cause.codes == CAUSES.index("sync")
    took = np.maximum(table.ints("kDuration"), 0)
    for rows in _lanes(table):
        end = table.ints("start")[rows] + took[rows]
        api = table.ints("apiStart")[rows]
        reach = np.maximum.accumulate(end)
        last = np.maximum.accumulate(np.where(end == reach, np.arange(len(rows)), 0))[:-1]
        waited = sync[rows[1:]] | ((api[1:] != NULL) & (api[1:] >= end[:-1]))
        np.maximum.at(after, rows[last], np.where(waited, found.idle_ns[rows[1:]], -1))
    return after


def _op(table: Table, op: int, aten: int) -> str:
    if op >= 0:
        return first_text(table.coded("op").values[op])
    return table.coded("aten").values[aten] if aten >= 0 else ""


def _innermost(table: Table, trace: int) -> str:
    lines = json.loads(table.coded("trace").values[trace]) if trace >= 0 else []
    return str(lines[-1]) if isinstance(lines, list) and lines else ""
