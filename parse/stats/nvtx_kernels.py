"""nvtx_kern_sum: the kernels launched inside each range; a kernel in nested ranges counts in each of them.

Kernels launched outside all ranges come first, without a range. Rows are sorted by range, style, process and thread,
and only then by total time.
"""

from __future__ import annotations

import numpy as np

from pyprof.parse.stats.enclosing_ranges import enclosing
from pyprof.parse.stats.group_statistics import Cell, by_text, summarise
from pyprof.parse.stats.kernels import named
from pyprof.parse.stats.nvtx_times import STYLES
from pyprof.parse.stats.recording import KERNEL, Recording
from pyprof.table.columns import NULL, Ints, distinct

Group = tuple[int, ...]  # range, style, process, thread, kernel
OUTSIDE = -1  # stands for the missing range and its style


def nvtx_kern_sum(recording: Recording, variant: str = "") -> list[list[Cell]]:
    gpu, spans = recording.gpu.of(KERNEL), recording.spans
    if not len(spans):
        return []
    spans = spans.take(~spans.startend | spans.one_thread)
    row, span = enclosing(spans, gpu.launch)
    outside = np.setdiff1d(np.arange(len(gpu)), row)
    row, span = np.concatenate([row, outside]), np.concatenate([span, np.full(len(outside), OUTSIDE)])
    ranges, kernels = by_text(spans.name), by_text(named(gpu, variant))
    inside = span >= 0
    name, style = (
        np.append(column.astype(np.int64), OUTSIDE)[np.where(inside, span, len(spans))]
        for column in (ranges.codes, spans.startend)
    )
    groups, code = distinct(name, style, gpu.launch.pid[row], gpu.launch.tid[row], kernels.codes[row])
    instances = _instances(code[inside], span[inside], len(groups))
    summaries = summarise(code, (gpu.end - gpu.start)[row])

    def place(group: Group, total: int) -> tuple[object, ...]:
        name, style, pid, tid, kernel = group
        return (ranges.values[name] if name >= 0 else "", style, pid, tid, -total, kernels.values[kernel])

    rows: list[list[Cell]] = []
    for s in sorted(summaries, key=lambda s: place(groups[s.group], s.total)):
        name_, style_, pid, tid, kernel = groups[s.group]
        head: list[Cell] = [None, None] if name_ == OUTSIDE else [ranges.values[name_], STYLES[style_]]
        owner: list[Cell] = [None if number == NULL else number for number in (pid, tid)]
        rows.append([*head, *owner, instances[s.group], s.rows, s.total, *s.times(), kernels.values[kernel]])
    return rows


def _instances(group: Ints, span: Ints, groups: int) -> list[int]:
    """The number of different ranges in each group."""
    pairs, _ = distinct(group, span)
    counts: list[int] = np.bincount(np.array([g for g, _ in pairs], np.int64), minlength=groups).tolist()
    return counts
