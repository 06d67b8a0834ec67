"""How well a run used its GPUs: one record a device.

GPU utilisation, estimated SM efficiency and estimated achieved occupancy are what PyTorch's tensorboard plugin calls so
(kineto, tb_plugin: gpu_metrics_parser.py, range_utils.py), taken over the span from a device's first operation to its
last, or a window that the caller gives (the plugin: its profiler steps).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc, nan_doc
from pyprof.prof.limits.roofline import Roofline
from pyprof.prof.ops.model import MATRIX
from pyprof.prof.work.annotate import Annotation
from pyprof.table.columns import NULL, Bools, Coded, Floats, Ints, Table, distinct

__all__ = ["Usage", "covered", "usage"]


@dataclass(frozen=True, slots=True)
class Usage:
    """A device's run. Times in ns, shares in %; NaN where unknown."""

    rank: Annotated[int | None, doc("rank in the distributed job")]
    pid: Annotated[int | None, doc("process")]
    ordinal: Annotated[int | None, doc("the device, as its process numbers it")]
    name: Annotated[str, doc("the device's name")]
    operations: Annotated[int, doc("number of kernels, copies and memsets")]
    span_ns: Annotated[int, doc("from its first operation to its last")]
    busy_ns: Annotated[int, doc("time with at least one operation: kernel, copy, memset, graph")]
    kernel_ns: Annotated[int, doc("time with at least one kernel or graph")]
    sm_efficiency: Annotated[float, nan_doc("%, mean over the span of min(1, blocks of the running kernels / SMs)")]
    occupancy: Annotated[float, nan_doc("%, mean of the kernels' estimated achieved occupancy, by their durations")]
    flop: Annotated[int, doc("FLOPs of the rows that have a count")]
    matrix_flop: Annotated[int, doc("FLOPs of the matrix products among them")]
    nbytes: Annotated[int, doc("bytes of the rows that have a count")]
    uncounted_ns: Annotated[int, doc("time of the rows without a count")]
    unit: Annotated[str, doc("the unit that did most of the matrix products' FLOPs")]
    peak_flop_per_s: Annotated[float, nan_doc("of that unit, dense")]

    @property
    def utilisation(self) -> float:
        """GPU utilisation, %: time with a kernel on the GPU, of the span."""
        return 100 * self.kernel_ns / self.span_ns if self.span_ns else math.nan

    @property
    def busy(self) -> float:
        """%: time with any operation on the GPU, of the span."""
        return 100 * self.busy_ns / self.span_ns if self.span_ns else math.nan

    @property
    def tflops(self) -> float:
        """TFLOP/s over the span, idle time included."""
        return self.flop / self.span_ns / 1e3 if self.span_ns else math.nan

    @property
    def gbps(self) -> float:
        """GB/s over the span, idle time included."""
        return self.nbytes / self.span_ns if self.span_ns else math.nan

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, %: FLOPs of matrix products / span / the dense peak of ``unit``.

        FLOPs are those that ran: recomputed products (activation checkpointing) count, as in "hardware FLOPs".
        """
        if not self.span_ns:
            return math.nan
        return 100 * self.matrix_flop / (self.span_ns * 1e-9) / self.peak_flop_per_s


def usage(table: Table, annotation: Annotation, found: Roofline, window: tuple[int, int] | None = None) -> list[Usage]:
    """One record a (rank, process, device) with GPU operations, in that order."""
    on_gpu = np.array([*(value != "cpu" for value in table.coded("kind").values), True])[table.coded("kind").codes]
    keys, group = distinct(table.ints("rank"), table.ints("pid"), table.ints("device"))
    result = []
    for number, (rank, pid, ordinal) in enumerate(keys):
        rows = np.flatnonzero((group == number) & on_gpu & (table.ints("start") != NULL))
        if len(rows):
            owner = (_known(rank), _known(pid), _known(ordinal))
            result.append(_usage(owner, rows, table, annotation, found, window))
    return result


def _known(value: int) -> int | None:
    return None if value == NULL else value


def _usage(
    owner: tuple[int | None, int | None, int | None],
    rows: Ints,
    table: Table,
    annotation: Annotation,
    found: Roofline,
    window: tuple[int, int] | None,
) -> Usage:
    start = table.ints("start")[rows]
    end = start + np.maximum(table.ints("kDuration")[rows], 0)
    low, high = window or (int(start.min()), int(end.max()))
    start, end = np.clip(start, low, high), np.clip(end, low, high)
    inside = end > start
    rows, start, end = rows[inside], start[inside], end[inside]
    kinds = np.array(table.coded("kind").texts("kernel"), object)[rows]
    kernel = np.isin(kinds, ("kernel", "graph"))
    flops, nbytes = annotation.flops[rows], annotation.bytes[rows]
    matrix = _is_matrix(annotation.family)[rows]
    unit, peak = _dominant(found, rows[matrix & (flops > 0)], annotation)
    return Usage(
        rank=owner[0],
        pid=owner[1],
        ordinal=owner[2],
        name=_name(found, rows),
        operations=len(rows),
        span_ns=high - low,
        busy_ns=covered(start, end),
        kernel_ns=covered(start[kernel], end[kernel]),
        sm_efficiency=_efficiency(start, end, np.where(kernel, found.geometry.blocks_per_sm[rows], np.nan), high - low),
        occupancy=_mean(found.geometry.achieved[rows], (end - start).astype(np.float64)),
        flop=int(flops[flops != NULL].sum()),
        matrix_flop=int(flops[matrix & (flops != NULL)].sum()),
        nbytes=int(nbytes[nbytes != NULL].sum()),
        uncounted_ns=int((end - start)[flops == NULL].sum()),
        unit=unit,
        peak_flop_per_s=peak,
    )


def _name(found: Roofline, rows: Ints) -> str:
    known = found.device[rows]
    known = known[known >= 0]
    return found.devices[int(known[0])].name if len(known) else ""


def _is_matrix(family: Coded) -> Bools:
    return np.array([*(value in MATRIX for value in family.values), False])[family.codes]


def covered(start: Ints, end: Ints) -> int:
    """The length of the union of intervals, ns.

    >>> covered(np.array([0, 5, 30]), np.array([10, 20, 40]))
    30
    """
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, last = start[order], np.maximum.accumulate(end[order])
    idle = np.maximum(start[1:] - last[:-1], 0).sum()
    return int(last[-1]) - int(start[0]) - int(idle)  # a strange table's times do not fit in 64 bits


def _efficiency(start: Ints, end: Ints, blocks_per_sm: Floats, span_ns: int) -> float:
    """Estimated SM efficiency, %: concurrent kernels' blocks per SM add up, and more than one is one."""
    known = blocks_per_sm > 0
    if not known.any() or not span_ns:
        return math.nan
    times = np.concatenate([start[known], end[known]])
    change = np.concatenate([blocks_per_sm[known], -blocks_per_sm[known]])
    order = np.argsort(times, kind="stable")
    load = np.cumsum(change[order])[:-1]
    return float(100 * (np.clip(load, 0, 1) * np.diff(times[order])).sum() / span_ns)


def _mean(values: Floats, weights: Floats) -> float:
    known = ~np.isnan(values)
    total = weights[known].sum()
    return float((values[known] * (weights[known] / total)).sum()) if total else math.nan  # no product overflows


def _dominant(found: Roofline, rows: Ints, annotation: Annotation) -> tuple[str, float]:
    """The unit that did most of these rows' FLOPs, and its peak on their device."""
    codes = found.unit.codes[rows]
    rows, codes = rows[codes >= 0], codes[codes >= 0]
    if not len(rows):
        return "", math.nan
    sums = np.bincount(codes, weights=annotation.flops[rows].astype(np.float64))
    unit = found.unit.values[int(sums.argmax())]
    device = int(found.device[rows[0]])
    return unit, found.devices[device].peak(unit) if device >= 0 else math.nan
