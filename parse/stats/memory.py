"""cuda_gpu_mem_time_sum and cuda_gpu_mem_size_sum: copies and memsets by time and by bytes."""

from __future__ import annotations

import numpy as np

from pyprof.parse.stats.group_statistics import THOUSANDTH, Cell, by_text, largest_first, rounded, summarise, time_rows
from pyprof.parse.stats.recording import MEMCPY, MEMSET, Recording
from pyprof.table.columns import NULL

MB = 1e6  # bytes: nsys's MB is decimal


def cuda_gpu_mem_time_sum(recording: Recording, _: str = "") -> list[list[Cell]]:
    gpu = recording.gpu.of(MEMCPY, MEMSET)
    return time_rows(gpu.name, gpu.end - gpu.start)


def cuda_gpu_mem_size_sum(recording: Recording, _: str = "") -> list[list[Cell]]:
    """Operations of unknown size are left out: an unknown size is not zero."""
    gpu = recording.gpu.of(MEMCPY, MEMSET)
    gpu = gpu.take(np.flatnonzero(gpu.bytes != NULL))
    names = by_text(gpu.name)
    summaries = largest_first(summarise(names.codes.astype(np.int64), gpu.bytes), names.values)
    return [
        [_mb(s.total), s.rows, *map(_mb, (s.mean, s.median, s.low, s.high, s.deviation)), names.values[s.group]]
        for s in summaries
    ]


def _mb(size: float) -> Cell:
    return rounded(size / MB, THOUSANDTH)
