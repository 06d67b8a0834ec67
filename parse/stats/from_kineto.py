"""A torch.profiler trace as a recording. Its ranges are the ops and the user's annotations, in the default domain."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import cast

import numpy as np

from pyprof.errors import InputError
from pyprof.parse import kineto_gpu, kineto_ranges
from pyprof.parse.cupti import COPIES
from pyprof.parse.kineto_events import Clock, Threads, durations, sort
from pyprof.parse.kineto_json import load
from pyprof.parse.kineto_schema import WANTED, Event
from pyprof.parse.stats.recording import KERNEL, MEMCPY, MEMSET, Calls, Gpu, Recording, Spans
from pyprof.table import NULL, Coded, Ints

KINDS = {"kernel": KERNEL, "memcpy": MEMCPY, "memset": MEMSET}
# Memcpy HtoD (Pinned -> Device), as libkineto writes it; nsys's words for the same.
_COPY = re.compile(r"Memcpy (\w)to(\w)\b")
_ENDS = {"H": "Host", "D": "Device", "A": "Array", "P": "Peer"}


class KinetoRecording(Recording):
    """The events of a trace. Raises InputError where it is none of torch's."""

    def __init__(self, file: Path) -> None:
        self._trace = load(file)
        self._events = sort(self._trace.events)
        if not self._events.known:
            raise InputError(file, f"{WANTED}, found a trace whose categories are not torch's")
        self._clock, self._threads = Clock.of(self._events), Threads()

    @cached_property
    def api(self) -> Calls:
        start, end, pid, tid = self._times(self._events.calls)
        return Calls(start, end, pid, tid, Coded.of(event.name for event in self._events.calls))

    @cached_property
    def spans(self) -> Spans:
        events = [*self._events.annotations, *self._events.ops]
        start, end, pid, tid = self._times(events)
        pushed = np.zeros(len(events), np.bool_)
        names = Coded.of(f":{event.name}" for event in events)
        return Spans(start, end, pid, tid, names, startend=pushed, one_thread=~pushed)

    def _times(self, events: list[Event]) -> tuple[Ints, Ints, Ints, Ints]:
        start, number = self._clock.times(events), self._threads.of(events)
        owners = np.array(self._threads.pairs, np.int64).reshape(-1, 2)
        return start, start + durations(events), owners[number, 0], owners[number, 1]

    @cached_property
    def gpu(self) -> Gpu:
        found = kineto_ranges.ranges(self._events, self._clock, self._threads)
        rows = kineto_gpu.rows(self._events, self._clock, self._threads, self._trace, found)
        kinds = cast(Coded, rows.columns["kind"])
        names = [_as_nsys(cast(Coded, rows.columns[key])) for key in ("kLongName", "kShortName")]
        start = cast(Ints, rows.columns["start"])
        numbers = {key: cast(Ints, rows.columns.get(key)) for key in ("kDuration", "bytes", "device")}
        return Gpu(
            kind=np.array([*(KINDS[kind] for kind in kinds.values), NULL], np.int64)[kinds.codes],
            start=start,
            end=start + numbers["kDuration"],
            bytes=numbers["bytes"],
            device=numbers["device"],
            name=names[0],
            base=names[1],
            mangled=names[0],  # a trace has no mangled names: demangled ones stand in, as in nsys
            grid=cast(Coded, rows.columns["grid"]),
            block=cast(Coded, rows.columns["block"]),
            launch=_launches(rows),
        )


def _launches(rows: kineto_gpu.Rows) -> Calls:
    if "apiStart" not in rows.columns:
        return Calls.none().at(np.full(rows.rows, -1, np.int64))
    start, length, pid, tid = (cast(Ints, rows.columns[key]) for key in ("apiStart", "apiDuration", "pid", "tid"))
    end = np.where(start == NULL, NULL, start + np.where(start == NULL, 0, length))
    return Calls(start, end, pid, tid, cast(Coded, rows.columns["api"]))


def _as_nsys(names: Coded) -> Coded:
    return Coded(names.codes, [copy_name(name) for name in names.values])


def copy_name(name: str) -> str:
    """A copy's or memset's name in nsys's words, any other unchanged.

    >>> copy_name("Memcpy HtoD (Pinned -> Device)"), copy_name("Memset (Device)"), copy_name("gemm")
    ('[CUDA memcpy Host-to-Device]', '[CUDA memset]', 'gemm')
    """
    if name.startswith("Memset"):
        return "[CUDA memset]"
    match = _COPY.match(name)
    words = "-to-".join(_ENDS.get(letter, "") for letter in match.groups()) if match else ""
    return f"[CUDA memcpy {words}]" if words in COPIES.values() else name
