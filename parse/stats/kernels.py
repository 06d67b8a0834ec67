"""cuda_gpu_kern_sum, cuda_gpu_kern_gb_sum and cuda_gpu_sum: time on the GPU by the operation's name."""

from __future__ import annotations

import numpy as np

from pyprof.parse.stats.grouped import Cell, by_text, largest_first, shares, summarise, time_rows
from pyprof.parse.stats.recording import KERNEL, Gpu, Recording
from pyprof.table.columns import Coded, distinct


def named(gpu: Gpu, variant: str) -> Coded:
    """The names that a report's variant groups by."""
    return {"": gpu.name, "base": gpu.base, "mangled": gpu.mangled}[variant]


def cuda_gpu_kern_sum(recording: Recording, variant: str = "") -> list[list[Cell]]:
    gpu = recording.gpu.of(KERNEL)
    return time_rows(named(gpu, variant), gpu.end - gpu.start)


def cuda_gpu_kern_gb_sum(recording: Recording, variant: str = "") -> list[list[Cell]]:
    gpu = recording.gpu.of(KERNEL)
    names, grids, blocks = by_text(named(gpu, variant)), by_text(gpu.grid), by_text(gpu.block)
    groups, code = distinct(names.codes, grids.codes, blocks.codes)
    texts = [(names.values[n], _xyz(grids.values[g]), _xyz(blocks.values[b])) for n, g, b in groups]
    found = largest_first(summarise(code, gpu.end - gpu.start), [" ".join(text) for text in texts])
    return [
        [share, s.total, s.rows, *s.times(), texts[s.group][1], texts[s.group][2], texts[s.group][0]]
        for s, share in zip(found, shares(found), strict=True)
    ]


def _xyz(size: str) -> str:
    """`[4, 1, 1]` in columns of four, as nsys writes it.

    >>> _xyz("[4, 1, 1]")
    '   4    1    1'
    """
    return " ".join(f"{number:>4}" for number in size.strip("[]").split(", ")) if size else ""


def cuda_gpu_sum(recording: Recording, variant: str = "") -> list[list[Cell]]:
    gpu = recording.gpu
    names = by_text(named(gpu, variant))
    groups, code = distinct(names.codes, (gpu.kind != KERNEL).astype(np.int64))
    texts = [names.values[name] for name, _ in groups]
    category = ["MEMORY_OPER" if copies else "CUDA_KERNEL" for _, copies in groups]
    found = largest_first(summarise(code, gpu.end - gpu.start), texts)
    return [
        [share, s.total, s.rows, *s.times(), category[s.group], texts[s.group]]
        for s, share in zip(found, shares(found), strict=True)
    ]
