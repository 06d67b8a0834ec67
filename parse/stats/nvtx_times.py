"""nvtx_sum, nvtx_pushpop_sum and nvtx_startend_sum: time on the CPU inside ranges, by their text."""

from __future__ import annotations

import numpy as np

from pyprof.parse.stats.group_statistics import Cell, by_text, group_rows, time_rows
from pyprof.parse.stats.recording import Recording, Spans
from pyprof.table.columns import distinct

STYLES = ("PushPop", "StartEnd")  # indexed by Spans.startend


def nvtx_sum(recording: Recording, _: str = "") -> list[list[Cell]]:
    spans = recording.spans
    names = by_text(spans.name)
    groups, code = distinct(names.codes, spans.startend.astype(np.int64))
    texts = [names.values[name] for name, _ in groups]
    styles = [STYLES[style] for _, style in groups]
    return group_rows(code, spans.end - spans.start, texts, list(zip(styles, texts, strict=True)))


def nvtx_pushpop_sum(recording: Recording, _: str = "") -> list[list[Cell]]:
    return _times(recording.spans.take(~recording.spans.startend))


def nvtx_startend_sum(recording: Recording, _: str = "") -> list[list[Cell]]:
    return _times(recording.spans.take(recording.spans.startend))


def _times(spans: Spans) -> list[list[Cell]]:
    return time_rows(spans.name, spans.end - spans.start)
