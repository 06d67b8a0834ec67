"""An nvprof database as a recording: one process, times since 1970, markers (see ``parse/formats/nvprof.py``)."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from pyprof.parse.attribute.capture import OPEN
from pyprof.parse.formats import cupti, nvprof
from pyprof.parse.formats.database import Database
from pyprof.parse.stats.recording import Calls, Gpu, Recording, Spans
from pyprof.table.columns import Coded


class NvprofRecording(Recording):
    """The events of an open database."""

    def __init__(self, db: Database) -> None:
        self.db = db

    @cached_property
    def _api(self) -> cupti.Calls:
        return nvprof.read_calls(self.db)

    @cached_property
    def api(self) -> Calls:
        return Calls(*self._api[:5])

    @cached_property
    def gpu(self) -> Gpu:
        data, _ = nvprof.read_operations(self.db)
        call = nvprof.find_calls(self._api, data["corr"])
        return Gpu.of_activity(data, nvprof.operation_names(self.db, data), self.api.at(call))

    @cached_property
    def spans(self) -> Spans:
        markers = nvprof.read_markers(self.db)
        if not markers:
            return Spans.none()
        pid, tid, start, end = np.array([marker[:4] for marker in markers], np.int64).T
        closed = end[end != OPEN]
        end = np.where(end == OPEN, max(start.max(), closed.max(initial=0)), end)  # an open one lasts to the last time
        return Spans.pushed(start, end, pid, tid, Coded.of(f":{marker.text}" for marker in markers))
