"""nvtx_kern_sum: the kernels launched inside each range; one in several enclosing ranges counts in every one."""

from __future__ import annotations

import numpy as np

from pyprof.parse.stats.grouped import Cell, by_text, largest_first, summarise
from pyprof.parse.stats.holding import holders
from pyprof.parse.stats.kernels import named
from pyprof.parse.stats.nvtx_times import STYLES
from pyprof.parse.stats.recording import KERNEL, Recording
from pyprof.table import Ints, distinct


def nvtx_kern_sum(recording: Recording, variant: str = "") -> list[list[Cell]]:
    gpu, spans = recording.gpu.of(KERNEL), recording.spans
    row, span = holders(spans, gpu.launch)
    ranges, kernels = by_text(spans.name), by_text(named(gpu, variant))
    keys = (ranges.codes[span], spans.startend[span].astype(np.int64), spans.pid[span], spans.tid[span])
    groups, code = distinct(*keys, kernels.codes[row])
    instances = _instances(code, span, len(groups))
    texts = [f"{ranges.values[r]} {kernels.values[k]}" for r, *_, k in groups]
    rows: list[list[Cell]] = []
    for s in largest_first(summarise(code, (gpu.end - gpu.start)[row]), texts):
        name, style, pid, tid, kernel = groups[s.group]
        head: list[Cell] = [ranges.values[name], STYLES[style], pid, tid, instances[s.group]]
        rows.append([*head, s.rows, s.total, *s.times(), kernels.values[kernel]])
    return rows


def _instances(group: Ints, span: Ints, groups: int) -> list[int]:
    """How many different ranges are in each group."""
    pairs, _ = distinct(group, span)
    counts: list[int] = np.bincount(np.array([g for g, _ in pairs], np.int64), minlength=groups).tolist()
    return counts
