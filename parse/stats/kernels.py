"""cuda_gpu_kern_sum, cuda_gpu_kern_gb_sum and cuda_gpu_sum: time on the GPU by the operation's name."""

from __future__ import annotations

import numpy as np

from pyprof.parse.stats.group_statistics import Cell, by_text, group_rows, time_rows
from pyprof.parse.stats.recording import KERNEL, Gpu, Recording
from pyprof.table.columns import Coded, distinct


def named(gpu: Gpu, variant: str) -> Coded:
    """The names by which a report's variant groups."""
    return {"": gpu.name, "base": gpu.base, "mangled": gpu.mangled}[variant]


def cuda_gpu_kern_sum(recording: Recording, variant: str = "") -> list[list[Cell]]:
    gpu = recording.gpu.of(KERNEL)
    return time_rows(named(gpu, variant), gpu.end - gpu.start)


def cuda_gpu_kern_gb_sum(recording: Recording, variant: str = "") -> list[list[Cell]]:
    gpu = recording.gpu.of(KERNEL)
    names, grids, blocks = by_text(named(gpu, variant)), by_text(gpu.grid), by_text(gpu.block)
    groups, code = distinct(names.codes, grids.codes, blocks.codes)
    texts = [(names.values[n], _xyz(grids.values[g]), _xyz(blocks.values[b])) for n, g, b in groups]
    cells = [(grid, block, name) for name, grid, block in texts]
    return group_rows(code, gpu.end - gpu.start, [" ".join(text) for text in texts], cells)


def _xyz(size: str) -> str:
    """`[4, 1, 1]` in columns of four characters, as nsys writes it.

    >>> _xyz("[4, 1, 1]")
    '   4    1    1'
    """
    return " ".join(f"{number:>4}" for number in size.strip("[]").split(", ")) if size else ""


def cuda_gpu_sum(recording: Recording, variant: str = "") -> list[list[Cell]]:
    gpu = recording.gpu
    names = by_text(named(gpu, variant))
    groups, code = distinct(names.codes, (gpu.kind != KERNEL).astype(np.int64))
    texts = [names.values[name] for name, _ in groups]
    categories = ["MEMORY_OPER" if is_memory else "CUDA_KERNEL" for _, is_memory in groups]
    return group_rows(code, gpu.end - gpu.start, texts, list(zip(categories, texts, strict=True)))
