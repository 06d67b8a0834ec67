"""Numbers about the work of the kernels: matrix math, attention, hardware limits, ops without a FLOP model."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc, nan_doc
from pyprof.prof.kernels.name_patterns import find_helper
from pyprof.prof.kernels.precision import on_tensor_cores
from pyprof.prof.limits.devices import peak_at
from pyprof.prof.limits.roofline import Roofline
from pyprof.prof.ops.model import MATRIX
from pyprof.prof.summary.components import Part, parts_of
from pyprof.prof.timing.clocks import Clocks
from pyprof.prof.timing.usage import Usage
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.autotuning import trial_rows
from pyprof.prof.work.calls import call_numbers
from pyprof.prof.work.kinds import is_fused_attention
from pyprof.prof.work.unfused_attention import softmaxes_apart
from pyprof.table.columns import Coded, Ints, Table


@dataclass(frozen=True, slots=True)
class Matrix:
    """Kernels that multiply matrices, including convolutions and attention but not their helper kernels."""

    ns: Annotated[int, doc("time of the kernels that multiply matrices, convolutions and attention among them")]
    tensor_ns: Annotated[int, doc("time on tensor cores")]
    unknown_ns: Annotated[int, doc("time of kernels that may or may not use tensor cores")]
    units: Annotated[tuple[Part, ...], doc("by the unit that did the arithmetic")]
    better: Annotated[
        tuple[tuple[str, float], ...], doc("the GPU's tensor units: their peak over that of the unit most used")
    ]


@dataclass(frozen=True, slots=True)
class Attention:
    fused_rows: Annotated[int, doc("number of fused attention kernels")]
    fused_ns: Annotated[int, doc("their time")]
    fused_name: Annotated[str, doc("name of the one with most time")]
    apart_rows: Annotated[int, doc("number of softmaxes that stand between two matrix products")]
    apart_ns: Annotated[int, doc("time of the kernels between these products")]


@dataclass(frozen=True, slots=True)
class Autotuning:
    """The kernels with which cuDNN measured its algorithms (torch.backends.cudnn.benchmark); not their helpers."""

    calls: Annotated[int, doc("number of convolutions that tried algorithms")]
    rows: Annotated[int, doc("number of trials")]
    ns: Annotated[int, doc("their time")]


@dataclass(frozen=True, slots=True)
class Dropout:
    """Dropout in a capture of ops none of which autograd numbered: it numbers each one that could record a gradient."""

    rows: Annotated[int, doc("number of dropout kernels")]
    ns: Annotated[int, doc("their time")]


@dataclass(frozen=True, slots=True)
class Limits:
    """The rows whose hardware limit is known, compared with that limit."""

    rows: Annotated[int, doc("rows whose limit is known")]
    ns: Annotated[int, doc("their time")]
    sol_ns: Annotated[float, nan_doc("time that they would take at the limit: FLOPs / peak or bytes / bandwidth")]
    bounds: Annotated[tuple[Part, ...], doc("by their limit: compute, memory or latency")]


@dataclass(frozen=True, slots=True)
class ClockPeak:
    """The peak of a GPU's most used unit at the clock that it had, beside the peak that limits and MFU refer to."""

    unit: Annotated[str, doc("the unit that did most of the matrix products' FLOPs")]
    sm_mhz: Annotated[float, doc("mean SM clock while the GPU worked", "MHz")]
    flop_per_s: Annotated[float, doc("FLOPs per clock and SM × SMs × that clock, dense")]
    peak_flop_per_s: Annotated[float, doc("the peak that limits and MFU refer to")]


def matrix_numbers(table: Table, annotation: Annotation, limits: Roofline) -> Matrix:
    duration = table.ints("kDuration")
    names = table.coded("kLongName") if table.coded("kLongName").values else table.coded("kShortName")
    helping = annotation.family.among("") & names.where(lambda name: find_helper(name) is not None)
    main = ~annotation.role.among("aux") & ~helping & table.coded("kind").among("kernel", "cpu", "")
    by_name = annotation.tc.among("1", "0", "?")
    rows = np.flatnonzero(main & (by_name | annotation.family.among(*MATRIX)))
    units = parts_of(limits.unit, duration, rows, empty="unknown")
    return Matrix(
        ns=int(duration[rows].sum()),
        tensor_ns=int(duration[rows][annotation.tc.among("1")[rows]].sum()),
        unknown_ns=int(duration[rows][annotation.tc.among("?")[rows]].sum()),
        units=units,
        better=_better(limits, units),
    )


def _better(limits: Roofline, units: tuple[Part, ...]) -> tuple[tuple[str, float], ...]:
    if not units or not limits.devices or on_tensor_cores(units[0].name):
        return ()
    device = limits.devices[0]
    base = device.peak(units[0].name)
    # Narrower types are no choice for a program in fp64.
    faster = ("tc_fp64",) if units[0].name == "fp64" else ("tc_tf32", "tc_bf16", "tc_fp16")
    ratios = [(unit, device.peak(unit) / base) for unit in faster]
    return tuple((unit, ratio) for unit, ratio in ratios if ratio > 1)  # not NaN


def attention_numbers(table: Table, annotation: Annotation, row_kinds: Coded) -> Attention:
    names = table.coded("kLongName") if table.coded("kLongName").values else table.coded("kShortName")
    duration = table.ints("kDuration")
    fused = names.where(is_fused_attention) & ~annotation.role.among("aux")
    kernels = parts_of(table.coded("kShortName"), duration, np.flatnonzero(fused))
    count, between = softmaxes_apart(table, row_kinds)
    return Attention(
        fused_rows=int(fused.sum()),
        fused_ns=int(duration[fused].sum()),
        fused_name=kernels[0].name if kernels else "",
        apart_rows=count,
        apart_ns=int(duration[between].sum()),
    )


def autotuning_numbers(table: Table, annotation: Annotation) -> Autotuning:
    rows = trial_rows(table, annotation.role)
    calls = len(np.unique(call_numbers(table)[rows]))
    return Autotuning(calls, len(rows), int(table.ints("kDuration")[rows].sum()))


def dropout_without_gradients(table: Table) -> Dropout:
    found = table.coded("aten").among("aten::native_dropout", "aten::_fused_dropout")
    if any(len(table.ragged(key).values) for key in ("seqId", "altSeqId")):
        found[:] = False
    return Dropout(int(found.sum()), int(table.ints("kDuration")[found].sum()))


def limit_numbers(limits: Roofline, duration: Ints) -> Limits:
    known = np.flatnonzero(~np.isnan(limits.sol_ns) & (limits.sol_ns > 0) & (duration > 0))
    return Limits(
        rows=len(known),
        ns=int(duration[known].sum()),
        sol_ns=float(np.minimum(limits.sol_ns[known], duration[known]).sum()),
        bounds=parts_of(limits.bound, duration, known, empty="neither"),
    )


def uncounted_ops(table: Table, rows: Ints) -> tuple[Part, ...]:
    """The ops of these rows with their time, by aten name if there is one."""
    aten, op = table.coded("aten"), table.coded("op")
    names = Coded.concat([aten, op])
    picked = np.where(aten.codes[rows] >= 0, rows, len(table) + rows)
    return parts_of(names, np.tile(table.ints("kDuration"), 2), picked)


def clock_peaks(clocks: Sequence[Clocks], devices: Sequence[Usage], limits: Roofline) -> Iterator[ClockPeak]:
    """The clock-limited peak of each GPU whose clocks are on record, where its unit's rate per clock is known."""
    used = {(usage.rank, usage.pid, usage.ordinal): usage for usage in devices}
    for gpu in clocks:
        usage = used.get((gpu.rank, gpu.pid, gpu.ordinal))
        device = next((each for each in limits.devices if usage is not None and each.name == usage.name), None)
        if usage is None or device is None or not usage.unit or gpu.sm_limit_mhz is None:
            continue
        reached = peak_at(device, usage.unit, gpu.sm_mhz * 1e6, gpu.sm_limit_mhz * 1e6)
        if not math.isnan(reached):
            yield ClockPeak(usage.unit, gpu.sm_mhz, reached, usage.peak_flop_per_s)
