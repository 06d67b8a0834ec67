"""When each marked step begins and ends on its GPU.

A mark is made on the host, and the GPU does what the host launches later, often much later. So a step begins on the
GPU when a CUDA event recorded at the mark would be reached: at the mark, or when the work launched before it is done,
if that is later. Only work of the device's main stream counts, the one whose kernels take most time, because copies on
another stream may run through several steps. A capture that begins while the GPU has a queue does not have that work:
where the stream's first operation waits long after its launch although nothing on record runs, the work before is done
when that operation starts.

A step ends where the next one begins: what comes between its last operation and the next mark, idle time included, is
its own. A step that no mark follows ends with its own range, or with its last operation, if that is later. So the
steps of a device follow one another without overlap.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pyprof.table.columns import NULL, Data, Ints, coded_of, distinct, greatest, ints_of, least

# Launching takes 5 to 50 µs, so an operation that waits longer after its launch waits for other work.
QUEUED_NS = 100_000


class StepTimes(NamedTuple):
    """Per row, ns: when its step begins and ends on its device; NULL: no mark says."""

    start: Ints
    end: Ints


def step_times(columns: Mapping[str, Data]) -> StepTimes:
    """The times of the steps, from step, markStart, markEnd, pid, device, stream, kind, start, kDuration and the times
    of the launch."""
    rows = len(columns["step"])
    keys = ("step", "markStart", "markEnd", "pid", "device", "stream", "start", "kDuration")
    step, mark, until, pid, device, stream, start, duration = (ints_of(columns, key, rows) for key in keys)
    found = StepTimes(np.full(rows, NULL, np.int64), np.full(rows, NULL, np.int64))
    marked = (step != NULL) & ((mark != NULL) | (until != NULL))
    if not marked.any():
        return found
    end = start + np.maximum(duration, 0)
    kernel = ~coded_of(columns, "kind", rows).among("memcpy", "memset")
    devices, owner = distinct(pid, device)
    launched = _launched(columns, rows)
    for number in range(len(devices)):
        mine = np.flatnonzero((owner == number) & (start != NULL))
        mine = mine[np.argsort(start[mine], kind="stable")]
        if not marked[mine].any():
            continue
        main = _main_stream(stream[mine], np.where(kernel[mine], duration[mine], 0))
        of_steps = _Steps(step[mine], mark[mine], until[mine], start[mine], end[mine], main)
        of_steps.wait_for_unrecorded(step[mine], launched[mine], start[mine], end[mine], main)
        inside = mine[marked[mine]]
        place = np.searchsorted(of_steps.numbers, step[inside])
        begins, ends = of_steps.times()
        found.start[inside], found.end[inside] = begins[place], ends[place]
    return found


def _launched(columns: Mapping[str, Data], rows: int) -> Ints:
    """When the call that launched each row returned; NULL: unknown."""
    start, duration = (ints_of(columns, key, rows) for key in ("apiStart", "apiDuration"))
    known = (start != NULL) & (duration != NULL)
    return np.where(known, np.where(known, start, 0) + np.where(known, duration, 0), NULL)


def _main_stream(stream: Ints, ns: Ints) -> Ints:
    """The positions of the rows on the stream with most of this time."""
    streams, place = np.unique(stream, return_inverse=True)
    sums = np.bincount(place, weights=np.maximum(ns, 0), minlength=len(streams))
    return np.flatnonzero(place == int(sums.argmax()))


class _Steps:
    """The steps of one device, from its rows in order of start; ``numbers`` ascend."""

    def __init__(self, step: Ints, mark: Ints, until: Ints, start: Ints, end: Ints, main: Ints) -> None:
        inside = np.flatnonzero((step != NULL) & ((mark != NULL) | (until != NULL)))
        self.numbers, group = np.unique(step[inside], return_inverse=True)
        count = len(self.numbers)
        self.first, self.last = least(start[inside], group, count), greatest(end[inside], group, count)
        self.mark, self.until = least(mark[inside], group, count), greatest(until[inside], group, count)
        self.done = np.full(count, NULL, np.int64)  # when the main stream is done with what came before
        reach = np.maximum.accumulate(end[main])
        numbers, at = np.unique(step[main], return_index=True)  # each step's first row on the main stream
        preceded = np.isin(numbers, self.numbers) & (at > 0)
        self.done[np.searchsorted(self.numbers, numbers[preceded])] = reach[at[preceded] - 1]

    def wait_for_unrecorded(self, step: Ints, launched: Ints, start: Ints, end: Ints, main: Ints) -> None:
        """Let the first step begin with the main stream's first row, if that waited for work that is not on record."""
        first = int(main[0])
        number = int(np.searchsorted(self.numbers, step[first]))
        is_first = number < len(self.numbers) and self.numbers[number] == step[first]
        if not is_first or launched[first] == NULL or start[first] - launched[first] <= QUEUED_NS:
            return
        since, until = int(launched[first]), int(start[first])
        ran = np.clip(np.minimum(end, until) - np.maximum(start, since), 0, None).sum()
        if 2 * int(ran) < until - since:
            self.done[number] = until

    def times(self) -> StepTimes:
        """One value per step."""
        from_ = np.where(self.mark == NULL, self.first, self.mark)  # step 0 has no mark and begins with its work
        order = np.argsort(from_, kind="stable")
        begin = np.where(self.mark == NULL, from_, np.maximum(from_, self.done))
        begin[order] = np.maximum.accumulate(begin[order])
        end = np.maximum(self.until, self.last)
        before, after = order[:-1], order[1:]
        follows = self.until[before] >= from_[after]
        end[before] = np.where(follows, begin[after], np.minimum(end[before], begin[after]))
        return StepTimes(begin, np.maximum(end, begin))
