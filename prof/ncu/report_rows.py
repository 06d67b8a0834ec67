"""The rows of the report, and their sums by kind and by phase.

A kernel's limit is the memory or the tensor cores, whichever is closer to its peak. Its efficiency is that share of the
peak, and the efficiency of several kernels is the mean of theirs, weighted by time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pyprof.parse.formats.kernel_names import short_name
from pyprof.parse.ncu.quantities import quantity
from pyprof.parse.ncu.report import Report
from pyprof.prof.limits.peaks_file import Peaks
from pyprof.prof.ncu.report_device import Gpu, gpus
from pyprof.prof.ncu.report_layers import Layers, counts
from pyprof.prof.ncu.report_passes import PHASES, passes_and_phases
from pyprof.prof.ops.evaluation import find
from pyprof.prof.ops.model import FAMILY
from pyprof.prof.work.kinds import KIND_OF_FAMILY, OTHER, PRODUCTS, kind_of_kernel
from pyprof.table.columns import Bools, Floats, Ints
from pyprof.table.kernel_names import shown_name

AMOUNTS = ("dram_read_bytes", "dram_write_bytes", "l2_read_bytes", "l2_write_bytes", "instructions")


@dataclass(frozen=True, slots=True)
class Kernels:
    """The measured kernels in the order of the report; numbers are of one run of each and NaN where unknown."""

    gpus: Sequence[Gpu]
    processes: int
    ids: Sequence[int]  # ncu's
    passes: Sequence[str]
    phases: Sequence[str]
    ranged: bool  # whether passes and phases follow from ranges, not from names
    counts: Ints  # how often each runs in the model
    kinds: Sequence[str]
    names: Sequence[str]  # without namespaces and templates
    ops: Sequence[str]
    layers: Sequence[str]
    time_ns: Floats
    amounts: dict[str, Floats]  # by AMOUNTS
    tensor_pct: Floats
    dram_pct: Floats  # of the memory's peak bandwidth
    efficiency_pct: Floats  # the greater of the two

    def __len__(self) -> int:
        return len(self.ids)


def kernels(report: Report, peaks: Peaks | None = None, layers: Layers | None = None) -> Kernels:
    """The rows of a report. Raises UsageError if ``layers`` do not fit it."""
    devices, number = gpus(report, peaks)
    origins, phases = passes_and_phases(report.launches)
    amounts = {key: quantity(report, key) for key in AMOUNTS}
    time_ns, tensor_pct = quantity(report, "duration_ns"), quantity(report, "tensor_pct")
    time_ns = np.where(time_ns > 0, time_ns, np.nan)
    bandwidth = np.array([gpu.byte_per_s for gpu in devices])[number]
    by_peak = 100 * quantity(report, "dram_bytes") / (1e-9 * time_ns * bandwidth)
    dram_pct = np.where(np.isnan(by_peak), quantity(report, "dram_pct"), by_peak)
    origin_layers = [origin.layer for origin in origins]
    short = {name: shown_name(short_name(name), name) for name in {launch.name for launch in report.launches}}
    return Kernels(
        gpus=devices,
        processes=len({launch.process_id for launch in report.launches}),
        ids=[launch.id for launch in report.launches],
        passes=[origin.passed for origin in origins],
        phases=phases,
        ranged=any(origin.ops or origin.layer for origin in origins),
        counts=np.array(counts(layers, origin_layers, phases), np.int64),
        kinds=[_kind(launch.name, origin.aten) for launch, origin in zip(report.launches, origins, strict=True)],
        names=[short[launch.name] for launch in report.launches],
        ops=[origin.op for origin in origins],
        layers=origin_layers,
        time_ns=time_ns,
        amounts=amounts,
        tensor_pct=tensor_pct,
        dram_pct=dram_pct,
        efficiency_pct=np.fmax(dram_pct, tensor_pct),
    )


@dataclass(frozen=True, slots=True)
class Sums:
    """What some kernels took together, each as often as it runs. NaN: known of none of them."""

    name: str
    kernels: int  # runs
    time_ns: float
    amounts: dict[str, float]
    rates: dict[str, float]  # amounts per second, of the kernels of which both are known
    tensor_pct: float  # mean by time
    efficiency_pct: float  # mean by time
    incomplete: bool  # whether a time or an amount that others have is unknown of some


def _kind(name: str, aten: str) -> str:
    """By the kernel's name, or else by its op."""
    found = kind_of_kernel(name)
    model = find(aten) if found == OTHER and aten else None
    return found if model is None else KIND_OF_FAMILY.get(FAMILY[model], OTHER)


def sums(found: Kernels, name: str, chosen: Bools) -> Sums:
    weights = found.counts * chosen
    times = found.time_ns * weights
    amounts = {key: _total(values, weights) for key, values in found.amounts.items()}
    rates = {key: _rate(values, found.time_ns, weights) for key, values in found.amounts.items()}
    columns = [found.time_ns, *(values for key, values in found.amounts.items() if math.isfinite(amounts[key]))]
    return Sums(
        name=name,
        kernels=int(weights.sum()),
        time_ns=_total(found.time_ns, weights),
        amounts=amounts,
        rates=rates,
        tensor_pct=_mean(found.tensor_pct, times, chosen),
        efficiency_pct=_mean(found.efficiency_pct, times, chosen),
        incomplete=any(bool(np.isnan(column[chosen]).any()) for column in columns),
    )


def total(found: Kernels) -> Sums:
    return sums(found, "total", np.ones(len(found), bool))


def without_products(found: Kernels) -> Sums:
    return sums(found, f"without {PRODUCTS}", np.array([kind != PRODUCTS for kind in found.kinds], bool))


def by_phase(found: Kernels) -> list[Sums]:
    """The sums of each phase that has kernels, in the order of a training step."""
    return _by(found, found.phases, lambda names: [phase for phase in PHASES if phase in names])


def by_kind(found: Kernels) -> list[Sums]:
    """The sums of each kind of work, the longest first."""
    groups = _by(found, found.kinds, list)
    return sorted(groups, key=lambda each: (math.isnan(each.time_ns), -each.time_ns if each.time_ns else 0.0))


def _by(found: Kernels, keys: Sequence[str], order: Callable[[list[str]], list[str]]) -> list[Sums]:
    column = np.array(keys, object)
    return [sums(found, key, column == key) for key in order(list(dict.fromkeys(keys)))]


def _total(values: Floats, weights: Ints) -> float:
    known = np.isfinite(values) & (weights > 0)
    return float((values[known] * weights[known]).sum()) if known.any() else math.nan


def _rate(values: Floats, time_ns: Floats, weights: Ints) -> float:
    known = np.isfinite(values) & np.isfinite(time_ns) & (weights > 0)
    seconds = 1e-9 * float((time_ns[known] * weights[known]).sum())
    return float((values[known] * weights[known]).sum()) / seconds if seconds else math.nan


def _mean(values: Floats, times: Floats, chosen: Bools) -> float:
    known = np.isfinite(values) & np.isfinite(times) & chosen
    whole = float(times[known].sum())
    return float((values[known] * times[known]).sum()) / whole if whole else math.nan
