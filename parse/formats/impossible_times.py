"""Whether a capture's times can be true, and whether the host waits for GPU work that is not on record.

Each test is of what no GPU does: a stream runs its operations one after the other, an operation takes time, and a host
that waits for the GPU waits for operations. Where a capture says otherwise, its idle and busy times would be false.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from pyprof.table.columns import NULL, Bools, Ints, distinct
from pyprof.table.intervals import covered
from pyprof.table.losses import WRONG_TIMES as AGAIN
from pyprof.table.losses import Loss

if TYPE_CHECKING:
    from pyprof.parse.formats.lost_records import Joined

# A kernel that is launched programmatically (PDL) begins up to some 10 µs before the one before it ends.
LAUNCHED_EARLY_NS = 100_000
COVERED = 3  # operations of a stream that run, start to end, while another one of the stream is said to run
# Kineto of 2021 rounds to whole µs, so that two operations of a stream may begin together and take 0.
TOGETHER = 3
LONGEST_NS = 86_400_000_000_000  # a day: no profiler records so long without any operation
# Waiting takes 5 to 50 µs beyond the end of the work. A thread that the system runs late may wait for a few ms more.
WAITED_NS, WAITED = 1_000_000, 0.2  # in all, and as a share of the time from the first operation to the last
_WAIT = re.compile(r"(?:cuda|cu|hip)(?:Device|Ctx|Stream|Event)Synchronize")
UNRECORDED = (
    "record all of the GPU's work: each node of CUDA graphs (nsys: --cuda-graph-trace=node; the bodies of conditional "
    "nodes are not recorded), and all processes that use this GPU"
)


def impossible_times(joined: Joined) -> Iterator[Loss]:
    """What cannot be true of the times of a capture's operations."""
    start, duration = joined.ints("start"), joined.ints("kDuration")
    timed = (start != NULL) & (duration != NULL)
    if not timed.any():
        return
    order = np.flatnonzero(timed)
    order = order[np.argsort(start[order], kind="stable")]
    jump = int(np.diff(start[order]).max(initial=0))
    if jump > LONGEST_NS:
        days = f"{jump / LONGEST_NS:,.0f} days"
        yield Loss(f"{days} pass between two GPU operations, so some of their times are wrong", AGAIN)
    streams = _of_streams(joined, order)
    if together := _without_time(streams, start, duration):
        yield Loss(f"{together:,} GPU operations of a stream begin together and take no time", AGAIN)
    if longest := _over_others(streams, start, duration):
        ms, others = longest[0] / 1e6, longest[1]
        yield Loss(
            f"an operation of {ms:,.4g} ms lasts over the next {others:,} of its stream, which run one after the other",
            AGAIN,
        )


def _of_streams(joined: Joined, order: Ints) -> list[Ints]:
    """The operations of each stream, in order of start, but for CUDA graphs, whose branches run side by side."""
    node = joined.ints("graphNode")
    order = order[(node[order] == NULL) & joined.coded("kind").among("kernel", "")[order]]
    keys = (joined.ints(key)[order] for key in ("pid", "device", "stream"))
    number = distinct(*keys)[1]
    by_stream = np.argsort(number, kind="stable")
    return np.split(order[by_stream], np.flatnonzero(np.diff(number[by_stream])) + 1)


def _without_time(streams: list[Ints], start: Ints, duration: Ints) -> int:
    """The most operations of a stream that begin at one moment and take no time; 0 if two at most do."""
    found = 0
    for rows in streams:
        none = rows[duration[rows] == 0]
        _, counts = np.unique(start[none], return_counts=True)
        found = max(found, int(counts.max(initial=0)))
    return found if found >= TOGETHER else 0


def _over_others(streams: list[Ints], start: Ints, duration: Ints) -> tuple[int, int] | None:
    """The duration of the operation that lasts over most of its stream's next ones, and their number."""
    best: tuple[int, int] | None = None
    for rows in streams:
        end = start[rows] + np.maximum(duration[rows], 0)
        over = np.searchsorted(start[rows], end - LAUNCHED_EARLY_NS) - np.arange(len(rows)) - 1
        place = int(over.argmax()) if len(rows) else 0
        if len(rows) and over[place] >= COVERED and (best is None or over[place] > best[1]):
            best = int(duration[rows[place]]), int(over[place])
    return best


def waits_for_nothing(joined: Joined) -> Iterator[Loss]:
    """The host's waits for the GPU, between its first operation and its last, while no operation is on record."""
    start, duration = joined.ints("start"), np.maximum(joined.ints("kDuration"), 0)
    timed = start != NULL
    calls = joined.calls
    waits: Bools = calls.name.where(_WAIT.match)
    if not waits.any() or not timed.any():
        return
    first, last = int(start[timed].min()), int((start + duration)[timed].max())
    begin = np.maximum(calls.start[waits], first)
    end = np.minimum(calls.end[waits], last)
    inside = end > begin
    begin, end = begin[inside], end[inside]
    busy = covered(start[timed], (start + duration)[timed])
    both = covered(np.append(start[timed], begin), np.append((start + duration)[timed], end))
    idle = both - busy
    if idle > WAITED_NS and idle > WAITED * (last - first):
        waited = f"{idle / 1e6:,.4g} of {(last - first) / 1e6:,.4g} ms"
        yield Loss(
            f"for {waited} the host waits for the GPU while no operation is on record, so that the GPU runs something "
            "that the capture lacks",
            UNRECORDED,
        )
