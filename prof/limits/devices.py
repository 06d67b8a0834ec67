"""GPUs and what they can do: dense peaks, bandwidth, and the limits of a multiprocessor.

A device is looked up by its name in ``data/devices.csv``, where each row names its source. Peaks of other devices are
rates per clock (``architectures.RATES``) × SMs × clock, as the capture records them. A file of measured peaks may
replace both (``peaks_file``). Unknown figures are left out, never guessed. All peaks are dense: with structured
sparsity, data sheets print twice as much.
"""

import csv
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from pyprof.prof.kernels.precision import UNITS
from pyprof.prof.limits.architectures import HALVED, RATES, SM_LIMITS, Limits


@dataclass(frozen=True, slots=True)
class Device:
    """The known figures of a GPU or CPU. ``flop_per_s`` has an entry for each unit of ``UNITS`` whose peak is known."""

    name: str  # as the capture spells it
    part: str = ""  # the row of data/devices.csv
    arch: str = ""  # "sm_90", "gfx942", "cpu"
    sms: int | None = None
    flop_per_s: Mapping[str, float] = field(default_factory=dict)
    byte_per_s: float | None = None  # of the device's memory
    l2_bytes: int | None = None  # last cache before memory
    limits: Limits | None = None
    source: str = ""

    def peak(self, unit: str) -> float:
        """FLOP/s of a unit, NaN where unknown."""
        return self.flop_per_s.get(unit, math.nan)

    @property
    def bandwidth(self) -> float:
        """Memory bandwidth in bytes/s, NaN where unknown."""
        return math.nan if self.byte_per_s is None else self.byte_per_s

    @property
    def known(self) -> bool:
        """Whether a peak or the bandwidth is known, so that kernels can be compared with it."""
        return bool(self.flop_per_s) and self.byte_per_s is not None


@lru_cache(maxsize=1)
def parts() -> tuple[tuple[re.Pattern[str], Device], ...]:
    """The rows of data/devices.csv: what the names of a device look like, and the device."""
    with (Path(__file__).parent / "data" / "devices.csv").open(encoding="utf-8", newline="") as file:
        return tuple(_part(row) for row in csv.DictReader(file))


def _part(row: Mapping[str, str]) -> tuple[re.Pattern[str], Device]:
    """The table's numbers are in the units of data sheets: TFLOP/s, GB/s, MiB."""
    device = Device(
        name=row["name"],
        part=row["name"],
        arch=row["arch"],
        sms=int(row["sms"]),
        flop_per_s={unit: float(row[unit]) * 1e12 for unit in UNITS if row[unit]},
        byte_per_s=float(row["bandwidth_gb_s"]) * 1e9,
        l2_bytes=int(float(row["l2_mb"]) * 2**20),
        limits=SM_LIMITS.get(row["arch"]),
        source=row["source"],
    )
    return re.compile(row["match"]), device


def parsed(text: str) -> Any:
    """The value of a JSON text; None for other texts, since a table may come from anywhere."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def plain_name(name: str) -> str:
    """A device's name in lower case, without the vendor's name and brand, words separated by blanks.

    >>> plain_name("NVIDIA A100-SXM4-80GB"), plain_name("Tesla V100-SXM2-16GB"), plain_name("AMD Instinct MI300X")
    ('a100 sxm4 80gb', 'v100 sxm2 16gb', 'mi300x')
    """
    words = re.split(r"[\s_-]+", re.sub(r"\((?:r|tm)\)", "", name.lower()))
    return " ".join(word for word in words if word not in {"nvidia", "tesla", "geforce", "amd", "instinct", "oam", ""})


def find_device(name: str, info: Mapping[str, Any] | str | None = None) -> Device | None:
    """Find a device by its name as nsys, nvprof or torch spell it; None where neither name nor ``info`` identifies one.

    ``info`` is what the capture records about the device, a mapping or JSON text with any of ``smCount``, ``clockRate``
    (Hz), ``memoryBandwidth`` (bytes/s), ``computeMajor``, ``computeMinor``, ``l2CacheSize`` (bytes),
    ``threadsPerWarp``. For a device that is not in the table, peaks are rate × SMs × clock; without a clock it has no
    peaks, only limits.
    """
    return _find(name, info if isinstance(info, str) else json.dumps(info or {}, sort_keys=True))


@lru_cache(maxsize=256)
def _find(name: str, info: str) -> Device | None:
    recorded = parsed(info)
    facts = _Facts(name, recorded if isinstance(recorded, dict) else {})
    listed = _listed(plain_name(name), facts)
    return _computed(facts) if listed is None else _adjusted(listed, facts)


def is_rate(value: Any) -> TypeGuard[float]:
    """Whether a value from a file can be a rate or a size: not NaN, infinite, or an integer too large for a float."""
    return type(value) in (int, float) and 0 < value < 1e30


class _Facts:
    """What the capture records about a device; each figure is a positive number, or None."""

    def __init__(self, name: str, recorded: Mapping[str, Any]) -> None:
        self.name, self.recorded = name, recorded
        self.sms, self.clock_hz = self.number("smCount"), self.number("clockRate")
        self.byte_per_s, self.l2_bytes = self.number("memoryBandwidth"), self.number("l2CacheSize")

    def number(self, key: str) -> float | None:
        value = self.recorded.get(key)
        return float(value) if is_rate(value) else None

    @property
    def arch(self) -> str:
        """``sm_90`` for compute capability 9.0. AMD's devices report one too (gfx90a: 9.0), with warps of 64."""
        major, minor = self.number("computeMajor"), self.recorded.get("computeMinor", 0)
        amd = re.search(r"\bamd\b|radeon|instinct", self.name, re.IGNORECASE) or self.number("threadsPerWarp") == 64
        return "" if major is None or type(minor) is not int or amd else f"sm_{int(major)}{minor}"


def _listed(plain: str, facts: _Facts) -> Device | None:
    """The table's device of a name."""
    slice_of_gpu = re.sub(r" mig .*", "", plain)
    if slice_of_gpu != plain and facts.sms is None:
        return None  # a MIG slice of unknown size
    return next((device for pattern, device in parts() if pattern.fullmatch(slice_of_gpu)), None)


def _adjusted(device: Device, facts: _Facts) -> Device:
    """The table's figures with the capture's name and cache; scaled down where it ran on a slice of the GPU (MIG)."""
    device = replace(device, name=facts.name, l2_bytes=int(facts.l2_bytes or 0) or device.l2_bytes)
    if facts.sms is None or device.sms is None:
        return device
    share = facts.sms / device.sms
    if share >= 0.9:  # data sheets and devices differ by an SM or two
        return replace(device, sms=int(facts.sms))
    return replace(
        device,
        sms=int(facts.sms),
        flop_per_s={unit: peak * share for unit, peak in device.flop_per_s.items()},
        byte_per_s=facts.byte_per_s or device.bandwidth * share,
        source=f"{facts.sms:.0f} of {device.sms} SMs of {device.part}: {device.source}",
    )


def _computed(facts: _Facts) -> Device | None:
    """A device by compute capability × SMs × clock."""
    arch = facts.arch
    if not arch and facts.sms is None:
        return None
    rates = RATES.get(arch, {})
    peaks: dict[str, float] = {}
    if facts.sms is not None and facts.clock_hz is not None:
        halved = HALVED if "geforce" in facts.name.lower() else ()
        peaks = {u: rate * facts.sms * facts.clock_hz / (2 if u in halved else 1) for u, rate in rates.items()}
    return Device(
        name=facts.name,
        arch=arch,
        sms=None if facts.sms is None else int(facts.sms),
        flop_per_s=peaks,
        byte_per_s=facts.byte_per_s,
        l2_bytes=None if facts.l2_bytes is None else int(facts.l2_bytes),
        limits=SM_LIMITS.get(arch),
        source=f"{arch}: FLOP/clock × SMs × clock as the capture records them" if peaks else "",
    )
