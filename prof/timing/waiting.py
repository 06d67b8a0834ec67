"""Why a GPU waits: what the host did in each gap, how long launches were queued, and where the CPU waited for the GPU.

A gap belongs to the row that ends it. Its time is split by what the host did meanwhile:

* ``data``: it was in a DataLoader's ``__next__`` (the column ``batches``); in a capture without any such call, it had
  not yet called a copy that brings a batch (``input_data``). Copies before the device's first kernel load the model
  instead, unless they are in a marked step;
* ``copy``: its thread was in the call of a copy that blocks (its memory is not pinned), of the row itself or of the
  thread's launch before it;
* ``sync``: it had waited for the preceding operation, a copy to the host, and was about to launch again. What is longer
  than launching takes is not due to the wait, but to what the program did with the value;
* ``launch``: it had not launched the row, in a gap that is no longer than launching takes;
* ``host``: likewise, in a longer gap: Python did something else, the process had no work, or the launch itself took
  that long, as the first one of a kernel does, which loads its code;
* ``queued``: the row was launched: the GPU needs 1 to 2 µs between kernels, or it waited for another stream or for
  memory.

The gap's cause is the one with most of its time.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.timing.blocking_copies import BlockingCopies, blocking_copies, call_places
from pyprof.prof.timing.gpus import TO_DEVICE, TO_HOST, devices_of_rows, ends, launched_at, named_rows
from pyprof.prof.timing.input_data import input_data
from pyprof.prof.timing.timeline import alone
from pyprof.prof.work.annotate import sum_known
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct, kept_with_table
from pyprof.table.losses import losses

CAUSES = ("launch", "sync", "data", "copy", "host", "queued")
WORDS = {  # of one gap
    "launch": "late launch",
    "sync": "launch after a wait for a copy to the host",
    "data": "late input data",
    "copy": "copy from or to pageable memory",
    "host": "pause of 0.2 ms or longer between launches or within one",
    "queued": "launched work that had not started yet",
    "": "no launch is known",
}
# A longer gap is not caused by launching: a PyTorch op takes 5 to 50 µs on the CPU, up to 100 µs with a profiler.
DENSE_NS = 200_000
_FIRST = ("sync", "data", "copy", "launch", "host", "queued")  # of causes with as much of a gap


@dataclass(frozen=True, slots=True)
class Waiting:
    """One value per row. NULL or an empty cause means unknown: the row has no launch or no time."""

    queue_ns: Ints  # from the end of the launch call to the start on the GPU; 0: started during the call
    idle_ns: Ints  # the gap before the row, when nothing ran on its GPU; 0 for the GPU's first row; NULL if incomplete
    cause: Coded  # of most of the gap; empty if there is no gap
    parts: Ints  # the gap by cause, ns: a row for each row of the table, a column for each of ``CAUSES``
    since: Ints  # when the gap begins; NULL where ``idle_ns`` is


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """A place in the program where the CPU waits for the GPU."""

    op: Annotated[str, doc("what the user called, such as Tensor.item")]
    trace: Annotated[str, doc("the innermost line of the user's code; empty: none is outside of installed packages")]
    rows: Annotated[int, doc("how often")]
    waited_ns: Annotated[int, doc("time that the CPU waited, from its call until the copy was done")]
    idle_ns: Annotated[int, doc("time that the GPU was idle after it")]
    library: Annotated[str, doc("the line of an installed package that the line leads to; empty: none")] = ""


@dataclass(frozen=True, slots=True)
class Waits:
    """Sums over a capture."""

    causes: Annotated[
        tuple[tuple[str, int, int], ...], doc("cause of idle time, number of gaps, ns; the longest first")
    ]
    queued_ns: Annotated[int, doc("median time of a launch in the queue; 0 where no launch is known")]
    launches: Annotated[int, doc("number of launches of that median")]
    syncs: Annotated[tuple[SyncPoint, ...], doc("places in the program where the CPU waits for the GPU")]
    blocking_copies: Annotated[tuple[BlockingCopies, ...], doc("places in the program where copies hold the CPU")]
    pageable_rows: Annotated[int, doc("copies from or to pageable memory, as the capture says")]
    pageable_ns: Annotated[int, doc("their time")]
    pageable_bytes: Annotated[int | None, doc("what they moved; null if no size is known")]


def waits(table: Table) -> Waits:
    """The sums of ``waiting``, and the copies from or to pageable memory."""
    of_rows = waiting(table)
    causes = [
        (name, int((part > 0).sum()), int(part.sum()))
        for name, part in zip(CAUSES, of_rows.parts.T, strict=True)
        if part.any()
    ]
    queued = of_rows.queue_ns[(of_rows.queue_ns != NULL) & table.coded("kind").among("kernel")]
    pageable = named_rows(table, "Pageable") & table.coded("kind").among("memcpy")
    return Waits(
        causes=tuple(sorted(causes, key=lambda cause: -cause[2])),
        queued_ns=int(np.median(queued)) if len(queued) else 0,
        launches=len(queued),
        syncs=tuple(sync_points(table, of_rows)),
        blocking_copies=tuple(blocking_copies(table)),
        pageable_rows=int(pageable.sum()),
        pageable_ns=int(table.ints("kDuration")[pageable].sum()),
        pageable_bytes=sum_known(table.ints("bytes")[pageable]),
    )


@kept_with_table
def waiting(table: Table) -> Waiting:
    """The gaps of every GPU and their causes. Rows of CPU ops have none."""
    start, end, api = table.ints("start"), ends(table), table.ints("apiStart")
    known = (api != NULL) & (start != NULL) & (table.ints("apiDuration") != NULL)
    called = np.where(known, api + np.where(known, table.ints("apiDuration"), 0), NULL)
    queue = np.where(known, np.maximum(start - called, 0), NULL)
    idle, began = np.full(len(table), NULL, np.int64), np.full(len(table), NULL, np.int64)
    parts = np.zeros((len(table), len(CAUSES)), np.int64)
    if losses(table):  # something that is not on record may have run in the gaps
        return Waiting(queue, idle, _longest(parts), parts, began)
    to_host, copies = _copies(table)
    launched, before_it, loads = launched_at(table), _launches_before(table), loader_calls(table)
    batch = input_data(table) & ~np.isin(table.ints("pid"), list(loads))
    computes, in_step = table.coded("kind").among("kernel", "graph"), table.ints("markStart") != NULL
    for rows in _lanes(table):
        last, reach = _last_ended(end[rows])
        since = np.append(_step_begin(table, rows[0], start), reach[:-1])
        idle[rows], began[rows] = np.maximum(start[rows] - since, 0), since
        after_copy = np.append(False, to_host[rows[last[:-1]]])
        begun = np.append(False, np.logical_or.accumulate(computes[rows])[:-1]) | in_step[rows]
        parts[rows] = _split(
            _Gaps(rows, since, idle[rows], *(np.where(known[rows], at[rows], since) for at in (api, launched))),
            in_loader=_in_loader(loads, table.ints("pid")[rows], since, start[rows]),
            own_copy=_in_calls(table, copies & known, called, rows, rows, since),
            copy_before=_in_calls(table, copies & known, called, before_it[rows], rows, since),
            after_copy=after_copy,
            batch=batch[rows] & begun,
        )
        parts[rows[~known[rows]]] = 0
    return Waiting(queue, idle, _longest(parts), parts, began)


class _Gaps(NamedTuple):
    """The gaps of one GPU: the row that ends each, when it begins, its length, when the row was called and launched."""

    rows: Ints
    since: Ints
    idle: Ints
    called: Ints
    launched: Ints


def _split(gaps: _Gaps, in_loader: Ints, own_copy: Ints, copy_before: Ints, after_copy: Bools, batch: Bools) -> Ints:
    """The gaps by cause. ``in_loader``, ``own_copy``, ``copy_before``: for how long of each gap the host was in these
    calls; ``after_copy``: gaps after a copy to the host; ``batch``: gaps that a batch ends.
    """
    found = dict.fromkeys(CAUSES, np.zeros(len(gaps.rows), np.int64))
    short = gaps.idle < DENSE_NS
    late = np.clip(gaps.launched - gaps.since, 0, gaps.idle)
    late = np.where(short & (late > 0), gaps.idle, late)  # what follows the call of such a launch is its latency
    found["data"] = np.minimum(in_loader, gaps.idle)
    late = np.maximum(late - found["data"], 0)
    rest = np.maximum(gaps.idle - found["data"] - late, 0)
    of_late = np.minimum(copy_before + np.maximum(own_copy - rest, 0), late)
    of_rest = np.minimum(own_copy, rest)
    found["copy"], late, rest = of_late + of_rest, late - of_late, rest - of_rest
    found["sync"] = np.where(after_copy, np.minimum(late, DENSE_NS), 0)
    late = late - found["sync"]
    own = np.where(batch, np.minimum(late, np.clip(gaps.called - gaps.since, 0, None)), 0)  # a long call is the host's
    found["data"], late = found["data"] + own, late - own
    found["launch"], found["host"], found["queued"] = np.where(short, late, 0), np.where(short, 0, late), rest
    return np.stack([found[cause] for cause in CAUSES], 1)


def _longest(parts: Ints) -> Coded:
    """The cause with most of each gap; of equal ones the first in ``_FIRST``."""
    order = [CAUSES.index(cause) for cause in _FIRST]
    best = np.array(order)[parts[:, order].argmax(1)] if len(parts) else np.zeros(0, np.int64)
    return Coded(np.where(parts.any(1), best, -1).astype(np.int32), list(CAUSES))


def _step_begin(table: Table, row: int, start: Ints) -> int:
    """When the gap before a GPU's first row begins: with its step, if that was marked earlier; else with the row."""
    begin = int(table.ints("stepStart")[row])
    return begin if NULL < begin < start[row] else int(start[row])


@kept_with_table
def loader_calls(table: Table) -> dict[int, tuple[Ints, Ints, Bools]]:
    """By process, the calls for a DataLoader's next batch: starts, ends, and whether worker processes made it."""
    found = dict[int, list[list[int]]]()
    for row, calls in loader_calls_of_rows(table):
        found.setdefault(int(table.ints("pid")[row]), []).extend(calls)
    every = {pid: np.array(sorted(calls, key=lambda call: call[1]), np.int64) for pid, calls in found.items()}
    return {pid: (calls[:, 1], np.maximum(calls[:, 2], calls[:, 1]), calls[:, 0] > 0) for pid, calls in every.items()}


def loader_calls_of_rows(table: Table) -> Iterator[tuple[int, list[list[int]]]]:
    """The rows with calls for a DataLoader's next batch, and these calls: workers, begin and end of each."""
    column = table.coded("batches")
    for row in np.flatnonzero(column.codes >= 0).tolist():
        lists = json.loads(column.values[column.codes[row]])
        every = lists if isinstance(lists, list) else []
        calls = [call for call in every if isinstance(call, list) and [type(n) for n in call] == [int] * 3]
        if calls:
            yield row, calls


def _in_loader(loads: dict[int, tuple[Ints, Ints, Bools]], pid: Ints, since: Ints, until: Ints) -> Ints:
    """For how long of each gap its process was in a DataLoader's call."""
    found = np.zeros(len(pid), np.int64)
    until = np.maximum(until, since)
    for process, (begin, end, _) in loads.items():
        mine = pid == process
        found[mine] = until[mine] - since[mine] - alone(since[mine], until[mine], begin, end)
    return found


def _last_ended(end: Ints) -> tuple[Ints, Ints]:
    """For rows in order of start time: among the rows up to each, which one ended last, and when."""
    reach = np.maximum.accumulate(end)
    return np.maximum.accumulate(np.where(end == reach, np.arange(len(end)), 0)), reach


def _lanes(table: Table) -> list[Ints]:
    """For each GPU, its rows that have a time, in order of start."""
    start = table.ints("start")
    on_gpu = ~table.coded("kind").among("cpu") & (start != NULL)
    keys, group = devices_of_rows(table)
    lanes = [np.flatnonzero(on_gpu & (group == number)) for number in range(len(keys))]
    return [rows[np.argsort(start[rows], kind="stable")] for rows in lanes if len(rows)]


def _copies(table: Table) -> tuple[Bools, Bools]:
    """Masks of the copies to the host, and of the copies between host and device not recorded as pinned."""
    copy = table.coded("kind").among("memcpy")
    unpinned = copy & named_rows(table, *TO_HOST, *TO_DEVICE) & ~named_rows(table, "Pinned")
    return copy & named_rows(table, *TO_HOST), unpinned


def _launches_before(table: Table) -> Ints:
    """For each row, the one that its thread launched before it; -1: none."""
    thread = distinct(table.ints("rank"), table.ints("pid"), table.ints("tid"))[1]
    order = np.lexsort((table.ints("apiStart"), thread))
    found = np.full(len(order), -1, np.int64)
    found[order[1:]] = np.where(thread[order[1:]] == thread[order[:-1]], order[:-1], -1)
    return found


def _in_calls(table: Table, chosen: Bools, called: Ints, calls: Ints, rows: Ints, since: Ints) -> Ints:
    """For how long of the gap before each row the call of another row lasts, if that one is chosen; -1: no call.

    ``called``: when each row's call ended; ``since``: when the gaps begin.
    """
    start, api = table.ints("start"), table.ints("apiStart")
    overlap = np.minimum(called[calls], start[rows]) - np.maximum(api[calls], since)
    return np.where((calls >= 0) & chosen[calls], np.maximum(overlap, 0), 0)


def sync_points(table: Table, of_rows: Waiting) -> list[SyncPoint]:
    """The places where the CPU waited for copies to the host, longest first. NVTX and Kineto record no other waits."""
    to_host, _ = _copies(table)
    start, end, api = table.ints("start"), ends(table), table.ints("apiStart")
    after = _after(table, of_rows)
    rows = np.flatnonzero(to_host & (api != NULL) & (start != NULL) & (after >= 0))
    places, group = call_places(table, rows)
    waited, idle = (np.bincount(group, weights=w, minlength=len(places)) for w in ((end - api)[rows], after[rows]))
    count = np.bincount(group, minlength=len(places))
    points = [
        SyncPoint(op, place.line, int(count[i]), int(waited[i]), int(idle[i]), place.library)
        for i, (op, place) in enumerate(places)
    ]
    return sorted(points, key=lambda point: (-point.waited_ns, point.trace, point.op))


def _after(table: Table, of_rows: Waiting) -> Ints:
    """For each row, the idle time that it causes; -1 if the next was launched before its end: the CPU did not wait."""
    after = np.full(len(table), -1, np.int64)
    sync = of_rows.parts[:, CAUSES.index("sync")]
    end, api = ends(table), table.ints("apiStart")
    for rows in _lanes(table):
        last, _ = _last_ended(end[rows])
        at = rows[1:]
        waited = (sync[at] > 0) | ((api[at] != NULL) & (api[at] >= end[rows[:-1]]))
        np.maximum.at(after, rows[last[:-1]], np.where(waited, sync[at], -1))
    return after
