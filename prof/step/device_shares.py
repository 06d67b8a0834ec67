"""What a step's time is spent on, per device: the GPU's work, communication alone, idle time by what the host did."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pyprof.prof.step.step_times import StepTimes, Window
from pyprof.prof.timing.gpus import devices_of_rows, ends
from pyprof.prof.timing.timeline import alone
from pyprof.prof.timing.waiting import CAUSES, loader_calls, waiting
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.kinds import NCCL, kinds
from pyprof.table.columns import NULL, Floats, Ints, Table
from pyprof.table.intervals import covered, united

# What a step's time is spent on, and the causes of gaps (prof/timing/waiting.py) that count as each.
OF_GAPS = {
    "data": ("data",),
    "sync": ("sync", "copy"),
    "host": ("host", "launch"),
    "latency": ("queued",),
}
SHARES = ("gpu", "communication", *OF_GAPS, "unknown")


def shares_of_devices(table: Table, annotation: Annotation, times: StepTimes) -> dict[int, Floats]:
    """By device, the time of its whole steps, ns, one value for each of ``SHARES``. They add up to the steps' time."""
    found, communication = {}, kinds(table, annotation).among(NCCL)
    for number, rows, windows in _devices(table, times):
        found[number] = np.zeros(len(SHARES))
        stretches = united(*(np.array(times) for times in zip(*((w.begin, w.end) for w in windows), strict=True)))
        for begin, until in zip(*(times.tolist() for times in stretches), strict=True):
            found[number] += _of_stretch(table, rows, communication[rows], begin, until)
    return found


def _devices(table: Table, times: StepTimes) -> Iterator[tuple[int, Ints, list[Window]]]:
    """Each device, its operations in order of start, and its steps that count."""
    owner, start = devices_of_rows(table)[1], table.ints("start")
    works = ~table.coded("kind").among("cpu") & (start != NULL)
    for number in sorted({window.owner for window in times.counted}):
        rows = np.flatnonzero(works & (owner == number))
        windows = [window for window in times.counted if window.owner == number]
        yield number, rows[np.argsort(start[rows], kind="stable")], windows


def _of_stretch(table: Table, rows: Ints, communication: np.ndarray, begin: int, until: int) -> Floats:
    """The shares of a stretch of steps on one device, whose rows are given in order of start."""
    start, end = table.ints("start")[rows], ends(table)[rows]
    inside = (end > begin) & (start < until)
    clipped = np.maximum(start, begin), np.minimum(end, until)
    busy = covered(*(each[inside] for each in clipped))
    compute = covered(*(each[inside & ~communication] for each in clipped))
    found = dict.fromkeys(SHARES, 0.0) | {"gpu": float(compute), "communication": float(busy - compute)}
    gaps = waiting(table)
    since = gaps.since[rows]
    overlap = np.minimum(start, until) - np.maximum(since, begin)
    part = np.where((since != NULL) & (gaps.idle_ns[rows] > 0), np.maximum(overlap, 0), 0)
    part = part / np.maximum(gaps.idle_ns[rows], 1)
    parts = _with_short_waits(table, rows, gaps.parts[rows])
    for name, causes in OF_GAPS.items():
        columns = [CAUSES.index(cause) for cause in causes]
        found[name] = float((parts[:, columns].sum(1) * part).sum())
    edges = [(begin, until)]  # before its device's first row and after its last one, no row tells the gap
    if len(rows):
        first = int(since[0] if since[0] != NULL else start[0])
        edges = [(begin, min(first, until)), (max(int(end.max()), begin), until)]
    for earlier, later in edges:
        in_loader = _in_loader(table, rows, earlier, later) if later > earlier else 0.0
        found["data"] += in_loader
        found["host"] += max(later - earlier, 0) - in_loader
    found["unknown"] = max(until - begin - sum(found.values()), 0.0)
    return np.array([found[name] for name in SHARES])


def _with_short_waits(table: Table, rows: Ints, parts: Ints) -> Ints:
    """The gaps before a device's rows by cause, where what a launch after a copy to the host is later than the host
    waited for the copy is the host's: without the wait, it would be earlier by no more. ``rows``: in order of start.
    """
    api, end = table.ints("apiStart")[rows], ends(table)[rows]
    last = np.maximum.accumulate(np.where(end == np.maximum.accumulate(end), np.arange(len(rows)), 0))
    sync, host = CAUSES.index("sync"), CAUSES.index("host")
    waited = np.where(api[last] == NULL, parts[:, sync].max(initial=0), np.maximum(end - api, 0)[last])
    own, found = np.zeros_like(parts[:, sync]), parts.copy()
    own[1:] = np.maximum(parts[1:, sync] - waited[:-1], 0)  # each gap follows the row before
    found[:, sync] -= own
    found[:, host] += own
    return found


def _in_loader(table: Table, rows: Ints, begin: int, until: int) -> float:
    """For how long of this time a process of these rows was in a DataLoader's call."""
    pids = set(table.ints("pid")[rows].tolist())
    calls = [call for pid, call in loader_calls(table).items() if not pids or pid in pids]
    if not calls:
        return 0.0
    from_, to = (np.concatenate([call[place] for call in calls]) for place in (0, 1))
    return float(until - begin - alone(np.array([begin]), np.array([until]), from_, to)[0])


def lead_ns(table: Table, times: StepTimes) -> float:
    """The mean time, ns, from a step's beginning to its first operation, where its device is idle when it begins."""
    start, end, found = table.ints("start"), ends(table), []
    for _, rows, windows in _devices(table, times):
        reach = np.maximum.accumulate(end[rows])
        for window in windows:
            place = int(np.searchsorted(reach, window.begin, "right"))  # the first that ends afterwards
            first = int(start[rows[place]]) if place < len(rows) else window.end
            found.append(max(min(first, window.end) - window.begin, 0))
    return float(np.mean(found)) if found else 0.0
