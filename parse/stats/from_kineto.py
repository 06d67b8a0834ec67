"""A torch.profiler trace as a recording. Its ranges are the ops and the user's annotations, in the default domain."""

from functools import cached_property
from pathlib import Path

import numpy as np

from pyprof.errors import InputError
from pyprof.parse.kineto import gpu as kineto_gpu
from pyprof.parse.kineto.event_types import WANTED, Event
from pyprof.parse.kineto.events import Clock, Threads, durations, sort
from pyprof.parse.kineto.json_text import load
from pyprof.parse.kineto.ranges import trace_ranges
from pyprof.parse.kineto.reader import changed, instead
from pyprof.parse.kineto.wrong_fields import wrong_fields
from pyprof.parse.stats.from_capture import gpu_rows
from pyprof.parse.stats.recording import Calls, Gpu, Recording, Spans
from pyprof.table.columns import Coded, Ints


class KinetoRecording(Recording):
    """The events of a trace. Raises InputError if the trace is not torch's."""

    def __init__(self, file: Path) -> None:
        self._trace = load(file)
        self._events = sort(self._trace.events)
        if not self._events.known:
            raise InputError(file, f"{WANTED}, found {instead(self._events, self._trace.events)}")
        self._clock, self._threads = Clock.of(self._events), Threads()

    @property
    def warnings(self) -> list[str]:
        return [*self._trace.warnings, *changed(self._events), *wrong_fields(self._trace.wrong)]

    @cached_property
    def api(self) -> Calls:
        return Calls(*self._times(self._events.calls), Coded.of(event.name for event in self._events.calls))

    @cached_property
    def spans(self) -> Spans:
        events = [*self._events.annotations, *self._events.ops]
        return Spans.pushed(*self._times(events), Coded.of(f":{event.name}" for event in events))

    def _times(self, events: list[Event]) -> tuple[Ints, Ints, Ints, Ints]:
        start, number = self._clock.times(events), self._threads.of(events)
        owners = np.array(self._threads.pairs, np.int64).reshape(-1, 2)
        return start, start + durations(events), owners[number, 0], owners[number, 1]

    @cached_property
    def gpu(self) -> Gpu:
        ranges = trace_ranges(self._events, self._clock, self._threads)
        rows = kineto_gpu.gpu_rows(self._events, self._clock, self._threads, self._trace, ranges)
        return gpu_rows(rows.columns, rows.rows)
