"""The GPU of a report: its peaks, and the clock at which the kernels were measured."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyprof.parse.ncu.quantities import quantity
from pyprof.parse.ncu.report import Report
from pyprof.prof.limits.devices import Device, find_device
from pyprof.prof.limits.peaks_file import Peaks, with_peaks

LOCKED = 0.9  # below this share of the highest clock, the clock was locked, or the GPU was slowed down by power or heat


class Gpu(NamedTuple):
    """``clock_hz`` is the median of the kernels' clocks, ``highest_hz`` the device's own limit; NaN where unknown."""

    name: str
    device: Device | None
    clock_hz: float
    highest_hz: float

    @property
    def byte_per_s(self) -> float:
        """The peak bandwidth of its memory, NaN if it is unknown."""
        return math.nan if self.device is None else self.device.bandwidth

    @property
    def slowed(self) -> bool:
        return self.clock_hz < LOCKED * self.highest_hz


def gpus(report: Report, peaks: Peaks | None) -> tuple[list[Gpu], list[int]]:
    """The GPUs of a report, and which of them ran each launch."""
    keys = [(launch.device_name, launch.cc) for launch in report.launches]
    known = list(dict.fromkeys(keys))
    numbers = [known.index(key) for key in keys]
    return [_gpu(report, np.flatnonzero(np.array(numbers) == at).tolist(), peaks) for at in range(len(known))], numbers


def _gpu(report: Report, rows: Sequence[int], peaks: Peaks | None) -> Gpu:
    launch = report.launches[rows[0]]

    def attribute(name: str) -> float:
        values = report.metric(f"device__attribute_{name}")
        return math.nan if values is None else float(values[rows[0]])

    major, _, minor = launch.cc.partition(".")
    clock_hz = 1e3 * attribute("clock_rate")  # reported in kHz
    # Two transfers per cycle over a bus whose width is in bits: 4.81 TB/s on an H200.
    bandwidth = 2 * attribute("global_memory_bus_width") / 8 * 1e3 * attribute("memory_clock_rate")
    facts = {
        "smCount": attribute("multiprocessor_count"),
        "clockRate": clock_hz,
        "memoryBandwidth": bandwidth,
        "l2CacheSize": attribute("l2_cache_size"),
        "computeMajor": float(major) if major.isdigit() else math.nan,
    }
    info = {key: value for key, value in facts.items() if math.isfinite(value)}
    if minor.isdigit():
        info["computeMinor"] = int(minor)
    device = find_device(launch.device_name, info)
    name = launch.device_name or (f"a GPU of compute capability {launch.cc}" if launch.cc else "an unknown GPU")
    if peaks is not None and peaks.arch != "cpu":
        device = with_peaks(device, peaks, launch.device_name or peaks.device)
    clocks = quantity(report, "sm_clock_hz")[list(rows)]
    clocks = clocks[np.isfinite(clocks)]
    return Gpu(name, device, float(np.median(clocks)) if len(clocks) else math.nan, clock_hz)
