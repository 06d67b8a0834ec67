"""cuda_kern_exec_sum: the time from API call to kernel end, by thread, GPU, called function and kernel."""

from __future__ import annotations

import numpy as np

from pyprof.parse.stats.calls import function_names
from pyprof.parse.stats.group_statistics import Cell, Summary, by_text, rounded, summarise
from pyprof.parse.stats.kernels import named
from pyprof.parse.stats.recording import KERNEL, Recording
from pyprof.table.columns import NULL, distinct


def cuda_kern_exec_sum(recording: Recording, variant: str = "") -> list[list[Cell]]:
    """Four times in ns: A of the API call, K of the kernel, Q of the wait in the queue, T of all.

    Q is from the call's end to the kernel's start, and counts only where the kernel starts later. T is from the call's
    start to the later end of both. Rows are sorted by the mean of T, descending.
    """
    gpu = recording.gpu.of(KERNEL)
    gpu = gpu.take(np.flatnonzero(gpu.launch.start != NULL))
    call = gpu.launch
    kernels, apis = by_text(named(gpu, variant)), by_text(function_names(call))
    groups, code = distinct(call.pid, call.tid, gpu.device, apis.codes, kernels.codes)
    queued = gpu.start - call.end
    late = queued > 0
    total = summarise(code, np.maximum(call.end, gpu.end) - call.start)
    api, kernel = summarise(code, call.end - call.start), summarise(code, gpu.end - gpu.start)
    queue = {s.group: s for s in summarise(code[late], queued[late])}
    rows: list[list[Cell]] = []
    texts = [f"{kernels.values[k]} {apis.values[a]}" for *_, a, k in groups]
    for s in sorted(total, key=lambda s: (-s.mean, texts[s.group])):
        *where, a, k = groups[s.group]
        waits = _queue(queue.get(s.group))
        spread = [*s.times(), *api[s.group].times(), *waits[1:], *kernel[s.group].times()]
        owner: list[Cell] = [None if number == NULL else number for number in where]
        rows.append([*owner, s.rows, waits[0], *spread, apis.values[a], kernels.values[k]])
    return rows


def _queue(summary: Summary | None) -> list[Cell]:
    """How many kernels waited, and their statistics; where none did, all but the deviation are empty, as in nsys."""
    return [summary.rows, *summary.times()] if summary else [0, None, None, None, None, rounded(0.0)]
