"""How well a run used its GPUs: one record per device.

GPU utilisation, estimated SM efficiency and estimated achieved occupancy are defined as in PyTorch's tensorboard plugin
(kineto, tb_plugin: gpu_metrics_parser.py, range_utils.py), of the steps as the user runs them (prof/step); where no
steps are known, of the span from a device's first operation to its last.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc, nan_doc
from pyprof.prof.limits.devices import Device
from pyprof.prof.limits.roofline import Roofline
from pyprof.prof.ops.model import MATRIX
from pyprof.prof.timing.gpus import DeviceKey, device_rows, ends
from pyprof.prof.work.annotate import Annotation, sum_known
from pyprof.table.columns import NULL, Bools, Floats, Ints, Table, known
from pyprof.table.intervals import covered

# Efficiency and occupancy are stated where they are known for this share of the kernels' time; graphs hide theirs.
STATED = 0.99


@dataclass(frozen=True, slots=True)
class Usage:
    """The use of one device during a run. Times in ns, shares in %; NaN if unknown."""

    rank: Annotated[int | None, doc("rank in the distributed job")]
    pid: Annotated[int | None, doc("process")]
    ordinal: Annotated[int | None, doc("the device, as its process numbers it")]
    name: Annotated[str, doc("the device's name")]
    operations: Annotated[int, doc("number of kernels, copies and memsets")]
    span_ns: Annotated[int, doc("its steps as the user runs them; without steps, from its first operation to its last")]
    busy_ns: Annotated[
        int | None, doc("time with at least one operation: kernel, copy, memset, graph; null in an incomplete capture")
    ]
    kernel_ns: Annotated[int | None, doc("time with at least one kernel or graph; null in an incomplete capture")]
    sm_efficiency: Annotated[float, nan_doc("%, mean over the span of min(1, blocks of the running kernels / SMs)")]
    occupancy: Annotated[float, nan_doc("%, mean of the kernels' estimated achieved occupancy, by their durations")]
    flop: Annotated[int | None, doc("FLOPs of the rows that have a count; null if no operation could be counted")]
    matrix_flop: Annotated[int | None, doc("FLOPs of the matrix products among them")]
    nbytes: Annotated[int | None, doc("bytes of the rows that have a count; null if no bytes could be counted")]
    uncounted_ns: Annotated[int, doc("time of the rows without a count")]
    unit: Annotated[str, doc("the unit that did most of the matrix products' FLOPs")]
    peak_flop_per_s: Annotated[float, nan_doc("of that unit, dense")]
    half_unit: Annotated[str, doc("the unit with the device's best dense peak in half precision")]
    half_peak_flop_per_s: Annotated[float, nan_doc("of that unit, dense")]
    matrix_ns: Annotated[
        float, nan_doc("ns that the matrix products need at the dense peak of the unit that each ran on")
    ]
    memory_ns: Annotated[float, nan_doc("ns that the counted bytes of its own memory need at its bandwidth")]

    @property
    def utilisation(self) -> float:
        """GPU utilisation: the share of the span, in %, in which a kernel ran on the GPU."""
        return 100 * self.kernel_ns / self.span_ns if self.span_ns and self.kernel_ns is not None else math.nan

    @property
    def busy(self) -> float:
        """The share of the span, in %, in which any operation ran on the GPU."""
        return 100 * self.busy_ns / self.span_ns if self.span_ns and self.busy_ns is not None else math.nan

    @property
    def tflops(self) -> float:
        """TFLOP/s over the span, idle time included; NaN if unknown."""
        return math.nan if self.flop is None else self._rate(self.flop) * 1e-12

    @property
    def gbps(self) -> float:
        """GB/s over the span, idle time included; NaN if unknown."""
        return math.nan if self.nbytes is None else self._rate(self.nbytes) * 1e-9

    def _rate(self, amount: float) -> float:
        """An amount per second of the span; NaN without a span, or if the capture lacks some of its operations."""
        return amount / self.span_ns * 1e9 if self.span_ns and self.busy_ns is not None else math.nan

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, %: the time that the matrix products need at the dense peak of the unit that each
        one ran on, of the span. If all ran on one unit, that is FLOPs / span / its peak.

        All executed FLOPs count, including recomputed products (activation checkpointing), as in "hardware FLOPs".
        """
        return 100 * self.matrix_ns / self.span_ns if self.span_ns and self.matrix_flop is not None else math.nan

    @property
    def mfu_half(self) -> float:
        """The products' FLOPs, %, of what the device's best unit for half precision could do in the span, dense."""
        known = self.span_ns and self.matrix_flop is not None and not math.isnan(self.matrix_ns)
        return 100 * (self.matrix_flop or 0) / (self.span_ns * 1e-9) / self.half_peak_flop_per_s if known else math.nan

    @property
    def mbu(self) -> float:
        """Memory bandwidth utilisation, %: the bytes that the operations need / span / the GPU's bandwidth."""
        return 100 * self.memory_ns / self.span_ns if self.span_ns and self.nbytes is not None else math.nan


def usage(
    table: Table, annotation: Annotation, limits: Roofline, counted: Bools | None = None, span_ns: float | None = None
) -> list[Usage]:
    """One record per (rank, process, device) with GPU operations, in that order.

    ``counted``: the rows that count, such as those of steps; ``span_ns``: how long these take as the user runs them;
    without it, from each device's first operation to its last.
    """
    wanted = ~table.coded("kind").among("cpu")
    devices = device_rows(table, wanted if counted is None else wanted & counted)
    return [_usage(key, rows, table, annotation, limits, span_ns) for key, rows in devices if len(rows)]


def _usage(
    key: DeviceKey, rows: Ints, table: Table, annotation: Annotation, limits: Roofline, given_ns: float | None
) -> Usage:
    start, end = table.ints("start")[rows], ends(table)[rows]
    span_ns = int(end.max()) - int(start.min()) if given_ns is None else round(given_ns)
    kernel = table.coded("kind").among("kernel", "graph", "")[rows]
    flops, nbytes = annotation.flops[rows], annotation.bytes[rows]
    matrix = is_product(annotation)[rows]
    blocks_per_sm = np.where(kernel, limits.geometry.blocks_per_sm[rows], np.nan)
    achieved = np.where(kernel, limits.geometry.achieved[rows], np.nan)
    took = (end - start).astype(np.float64)

    def stated(values: Floats) -> bool:
        return bool(took[kernel & ~np.isnan(values)].sum() >= STATED * took[kernel].sum())

    unit, peak = _dominant(limits, rows[matrix & (flops > 0)], annotation)
    device = limits.device[rows][limits.device[rows] >= 0]
    half = _best_half(limits.devices[device[0]]) if len(device) else ("", math.nan)
    rank, pid, ordinal = map(known, key)
    return Usage(
        rank=rank,
        pid=pid,
        ordinal=ordinal,
        name=limits.devices[device[0]].name if len(device) else "",
        operations=len(rows),
        span_ns=span_ns,
        busy_ns=min(covered(start, end), span_ns),  # steps without the profiler may be shorter than the captured work
        kernel_ns=min(covered(start[kernel], end[kernel]), span_ns),
        sm_efficiency=_efficiency(start, end, blocks_per_sm, span_ns) if stated(blocks_per_sm) else math.nan,
        occupancy=_mean(achieved, took) if stated(achieved) else math.nan,
        flop=sum_known(flops),
        matrix_flop=sum_known(flops[matrix | (flops == NULL)]),  # what is not counted may be a product
        nbytes=sum_known(nbytes),
        uncounted_ns=int((end - start)[flops == NULL].sum()),
        unit=unit,
        peak_flop_per_s=peak,
        half_unit=half[0],
        half_peak_flop_per_s=half[1],
        matrix_ns=matrix_ns(limits, annotation, rows),
        memory_ns=bandwidth_ns(limits, rows),
    )


def _best_half(device: Device) -> tuple[str, float]:
    """The device's unit with the best dense peak for 16 bits, and that peak; NaN if none is known."""
    peaks = {unit: device.peak(unit) for unit in ("tc_bf16", "tc_fp16", "bf16", "fp16")}
    known = {unit: peak for unit, peak in peaks.items() if not math.isnan(peak)}
    best = max(known, key=lambda unit: known[unit], default="")
    return best, known.get(best, math.nan)


def is_product(annotation: Annotation) -> Bools:
    """A mask of the rows that multiply matrices, by their op or, as in a mixture of experts, by their kernel's name."""
    found: Bools = annotation.family.among(*MATRIX) | annotation.tc.among("1", "0", "?")
    return found


def matrix_ns(limits: Roofline, annotation: Annotation, rows: Ints) -> float:
    """The time, in ns, that the matrix products among these rows need at the dense peak of the unit that each ran on.

    A product whose unit is unknown counts at the peak of the unit that did most. NaN if no unit is known.
    """
    products = rows[is_product(annotation)[rows] & (annotation.flops[rows] > 0)]
    _, peak = _dominant(limits, products, annotation)
    needed = limits.compute_ns[products]
    at_peak = annotation.flops[products].astype(np.float64) / peak * 1e9
    return float(np.where(np.isnan(needed), at_peak, needed).sum()) if len(products) else math.nan


def bandwidth_ns(limits: Roofline, rows: Ints) -> float:
    """The time, in ns, that the counted bytes of these rows need at their GPU's bandwidth; NaN if none is known."""
    needed = limits.memory_ns[rows]
    known = needed[~np.isnan(needed)]
    return float(known.sum()) if len(known) else math.nan


def _efficiency(start: Ints, end: Ints, blocks_per_sm: Floats, span_ns: int) -> float:
    """Estimated SM efficiency, %: the blocks per SM of concurrent kernels are added, up to a maximum of 1."""
    counted = blocks_per_sm > 0
    if not counted.any() or not span_ns:
        return math.nan
    times = np.concatenate([start[counted], end[counted]])
    change = np.concatenate([blocks_per_sm[counted], -blocks_per_sm[counted]])
    order = np.argsort(times, kind="stable")
    load = np.cumsum(change[order])[:-1]
    return float(100 * (np.clip(load, 0, 1) * np.diff(times[order])).sum() / span_ns)


def _mean(values: Floats, weights: Floats) -> float:
    has_value = ~np.isnan(values)
    values, weights = values[has_value], weights[has_value]
    total = weights.sum()
    return float((values * (weights / total)).sum()) if total else math.nan  # scaled first, so no product overflows


def _dominant(limits: Roofline, rows: Ints, annotation: Annotation) -> tuple[str, float]:
    """The unit that did most FLOPs of these rows, and that unit's peak on their device."""
    codes = limits.unit.codes[rows]
    rows, codes = rows[codes >= 0], codes[codes >= 0]
    if not len(rows):
        return "", math.nan
    sums = np.bincount(codes, weights=annotation.flops[rows].astype(np.float64))
    unit = limits.unit.values[int(sums.argmax())]
    device = int(limits.device[rows[0]])
    return unit, limits.devices[device].peak(unit) if device >= 0 else math.nan
