"""nvtx_sum, nvtx_pushpop_sum and nvtx_startend_sum: time on the CPU inside ranges, by their text."""

from __future__ import annotations

import numpy as np

from pyprof.parse.stats.grouped import Cell, by_text, largest_first, shares, summarise, time_rows
from pyprof.parse.stats.recording import Recording, Spans
from pyprof.table.columns import distinct

STYLES = ("PushPop", "StartEnd")  # by Spans.startend


def nvtx_sum(recording: Recording, _: str = "") -> list[list[Cell]]:
    spans = recording.spans
    names = by_text(spans.name)
    groups, code = distinct(names.codes, spans.startend.astype(np.int64))
    texts = [names.values[name] for name, _ in groups]
    found = largest_first(summarise(code, spans.end - spans.start), texts)
    return [
        [share, s.total, s.rows, *s.times(), STYLES[groups[s.group][1]], texts[s.group]]
        for s, share in zip(found, shares(found), strict=True)
    ]


def nvtx_pushpop_sum(recording: Recording, _: str = "") -> list[list[Cell]]:
    return _times(recording.spans.take(~recording.spans.startend))


def nvtx_startend_sum(recording: Recording, _: str = "") -> list[list[Cell]]:
    return _times(recording.spans.take(recording.spans.startend))


def _times(spans: Spans) -> list[list[Cell]]:
    return time_rows(spans.name, spans.end - spans.start)
