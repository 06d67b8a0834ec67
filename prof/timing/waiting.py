"""Why a GPU waits: the cause of each gap, how long launches were queued, and where the CPU waited for the GPU.

A gap belongs to the row that ends it. Its cause is one of these:

* ``sync``: the CPU waited for the preceding operation (a copy to the host) and launched the row only afterwards;
* ``data``: the row brings a batch (``input_data``) and had not been launched: no batch was ready. Copies before the
  device's first kernel load the model instead;
* ``copy``: the thread was for half of the gap or longer in the call of a copy that blocks (its memory is not pinned),
  of the row itself or of the thread's launch before it;
* ``launch``: the row had not been launched, but was soon after: launching is slower than the GPU;
* ``host``: the same, but for longer than a launch takes: Python did something else, the process had no work, or the
  launch itself took that long, as the first one of a kernel does, which loads its code;
* ``queued``: the row was launched before the gap began, or in the first half of a long gap: the GPU needs 1 to 2 µs
  between kernels, or it waited for another stream or for memory.
"""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.timing.blocking_copies import BlockingCopies, blocking_copies, call_places
from pyprof.prof.timing.gpus import TO_DEVICE, TO_HOST, devices_of_rows, ends, launched_at, named_rows
from pyprof.prof.timing.input_data import input_data
from pyprof.prof.work.annotate import sum_known
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct
from pyprof.table.losses import losses

_TEXTS = {  # cause: what the gaps of a capture are due to, and the same of one gap
    "launch": ("late launches", "late launch"),
    "sync": ("launches after a wait for a copy to the host", "launch after a wait for a copy to the host"),
    "data": ("late input data", "late input data"),
    "copy": ("copies from or to pageable memory", "copy from or to pageable memory"),
    "host": (
        "pauses of 0.2 ms or longer between launches or within one",
        "pause of 0.2 ms or longer between launches or within one",
    ),
    "queued": ("launched work that had not started yet", "launched work that had not started yet"),
}
CAUSES = tuple(_TEXTS)
NOUNS = {cause: noun for cause, (noun, _) in _TEXTS.items()}
WORDS = {cause: words for cause, (_, words) in _TEXTS.items()} | {"": "no launch is known"}
# A longer gap is not caused by launching: a PyTorch op takes 5 to 50 µs on the CPU, up to 100 µs with a profiler.
DENSE_NS = 200_000


@dataclass(frozen=True, slots=True)
class Waiting:
    """One value per row. NULL or an empty cause means unknown: the row has no launch or no time."""

    queue_ns: Ints  # from the end of the launch call to the start on the GPU; 0: started during the call
    idle_ns: Ints  # the gap before the row, when nothing ran on its GPU; 0 for the GPU's first row; NULL if incomplete
    cause: Coded  # of the gap; empty if there is no gap


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
    masks = [(name, of_rows.cause.codes == code) for code, name in enumerate(CAUSES)]
    causes = [(name, int(rows.sum()), int(of_rows.idle_ns[rows].sum())) for name, rows in masks if rows.any()]
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


def waiting(table: Table) -> Waiting:
    """The gaps of every GPU and their causes. Rows of CPU ops have none."""
    start, end, api = table.ints("start"), ends(table), table.ints("apiStart")
    known = (api != NULL) & (start != NULL) & (table.ints("apiDuration") != NULL)
    called = np.where(known, api + np.where(known, table.ints("apiDuration"), 0), NULL)
    queue = np.where(known, np.maximum(start - called, 0), NULL)
    idle = np.full(len(table), NULL, np.int64)
    cause = np.full(len(table), -1, np.int32)
    if losses(table):  # something that is not on record may have run in the gaps
        return Waiting(queue, idle, Coded(cause, list(CAUSES)))
    to_host, copies = _copies(table)
    launched, data, launched_before = launched_at(table), input_data(table), _launches_before(table)
    computes = table.coded("kind").among("kernel", "graph")
    for rows in _lanes(table):
        last, reach = _last_ended(end[rows])
        at, before, since = rows[1:], rows[last[:-1]], reach[:-1]
        idle[rows[0]] = 0
        idle[at] = np.maximum(start[at] - since, 0)
        launched_late = (idle[at] < DENSE_NS) | (2 * (launched[at] - since) >= idle[at])
        late = known[at] & (launched[at] > since) & launched_late
        inside = _in_copies(table, copies & known, called, at, launched_before[at], since)
        begun = np.logical_or.accumulate(computes[rows])[1:]
        tests = {  # the first that holds, in the order of the module's text
            "sync": late & to_host[before],
            "data": late & data[at] & begun,
            "copy": known[at] & (2 * inside >= idle[at]),
            "launch": late & (idle[at] < DENSE_NS),
            "host": late,
            "queued": known[at],
        }
        codes = np.select(list(tests.values()), [CAUSES.index(name) for name in tests], -1)
        cause[at] = np.where(idle[at] > 0, codes, -1)
    return Waiting(queue, idle, Coded(cause, list(CAUSES)))


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


def _in_copies(table: Table, copies: Bools, called: Ints, rows: Ints, before: Ints, since: Ints) -> Ints:
    """For how long of the gap before each row its thread was in calls of ``copies``: the row's, or its launch before.

    ``called``: when each row's call ended; ``since``: when the gaps begin.
    """
    start, api = table.ints("start"), table.ints("apiStart")

    def within(calls: Ints) -> Ints:
        overlap = np.minimum(called[calls], start[rows]) - np.maximum(api[calls], since)
        return np.where(copies[calls], np.maximum(overlap, 0), 0)

    time: Ints = within(rows) + np.where(before >= 0, within(before), 0)
    return time


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
    sync = of_rows.cause.codes == CAUSES.index("sync")
    end, api = ends(table), table.ints("apiStart")
    for rows in _lanes(table):
        last, _ = _last_ended(end[rows])
        at = rows[1:]
        waited = sync[at] | ((api[at] != NULL) & (api[at] >= end[rows[:-1]]))
        np.maximum.at(after, rows[last[:-1]], np.where(waited, of_rows.idle_ns[at], -1))
    return after
