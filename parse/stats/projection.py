"""nvtx_gpu_proj_sum and nvtx_gpu_proj_trace: ranges projected onto the GPU's timeline.

A range in which GPU operations (kernels, copies, memsets) were launched is projected to the time from the start of the
first to the end of the last, including idle time in between. Start/end ranges count where they began and ended on one
thread. Levels, children and parents are among the projected ranges: what a row's NumChild counts is in the table. Ids
are the numbers of the rows in nsys's table of NVTX events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pyprof.parse.stats.enclosing_ranges import enclosing, parents
from pyprof.parse.stats.group_statistics import Cell, by_text, largest_first, rounded, summarise
from pyprof.parse.stats.nvtx_times import STYLES
from pyprof.parse.stats.recording import Recording, Spans
from pyprof.table.columns import Ints, distinct


@dataclass(slots=True)
class _Projected:
    """The ranges with GPU operations, and their times on the GPU in ns."""

    spans: Spans  # sorted by start, an outer range before the inner ones
    start: Ints
    end: Ints
    operations: Ints  # how many were launched inside
    parent: Ints  # an index into these ranges; -1 for none
    level: Ints  # how many ranges are around it
    children: Ints  # how many ranges have it as their parent


def nvtx_gpu_proj_sum(recording: Recording, _: str = "") -> list[list[Cell]]:
    projected = _project(recording)
    spans = projected.spans
    names = by_text(spans.name)
    groups, code = distinct(names.codes, spans.startend.astype(np.int64))
    texts = [names.values[name] for name, _ in groups]
    lengths, operations, levels, children = (
        summarise(code, column)
        for column in (spans.end - spans.start, projected.operations, projected.level, projected.children)
    )
    rows: list[list[Cell]] = []
    for s in largest_first(summarise(code, projected.end - projected.start), texts):
        g = s.group
        means = [rounded(column[g].mean) for column in (operations, levels, children)]
        style = STYLES[groups[g][1]]
        head: list[Cell] = [texts[g], style, s.total, lengths[g].total, s.rows]
        rows.append([*head, *s.times(), operations[g].total, *means])
    return rows


def nvtx_gpu_proj_trace(recording: Recording, _: str = "") -> list[list[Cell]]:
    projected = _project(recording)
    spans = projected.spans
    numbers = spans.id.tolist()
    stack: list[str] = []
    for number, parent in zip(numbers, projected.parent.tolist(), strict=True):
        stack.append(f"{stack[parent] if parent >= 0 else ''}:{number}")
    parent_ids = [numbers[parent] if parent >= 0 else None for parent in projected.parent.tolist()]
    styles = [STYLES[style] for style in spans.startend.tolist()]
    times = [
        c.tolist() for c in (projected.start, projected.end - projected.start, spans.start, spans.end - spans.start)
    ]
    counts = [c.tolist() for c in (spans.pid, spans.tid, projected.operations, projected.level, projected.children)]
    rows = zip(spans.name.texts(), *times, styles, *counts, numbers, parent_ids, stack, strict=True)
    listed = [list(row) for row in rows]
    return [listed[i] for i in np.argsort(spans.id, kind="stable").tolist()]


def _project(recording: Recording) -> _Projected:
    spans = recording.spans
    spans = spans.take(~spans.startend | spans.one_thread)
    spans = spans.take(np.lexsort((-spans.end, spans.start)))
    gpu = recording.gpu
    row, span = enclosing(spans, gpu.launch)
    start, end = np.full(len(spans), np.iinfo(np.int64).max), np.full(len(spans), np.iinfo(np.int64).min)
    np.minimum.at(start, span, gpu.start[row])
    np.maximum.at(end, span, gpu.end[row])
    operations = np.bincount(span, minlength=len(spans))
    used = np.flatnonzero(operations)
    spans = spans.take(used)
    parent = parents(spans)
    children = np.bincount(parent[parent >= 0], minlength=len(spans))
    return _Projected(spans, start[used], end[used], operations[used], parent, _levels(parent), children)


def _levels(parent: Ints) -> Ints:
    """The number of ranges around each range."""
    level, above = np.zeros(len(parent), np.int64), parent.copy()
    while True:
        inside = np.flatnonzero(above >= 0)
        if not len(inside):
            return level
        level[inside] += 1
        above[inside] = parent[above[inside]]
