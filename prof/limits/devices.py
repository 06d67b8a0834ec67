"""GPUs and what they can do: dense peaks, bandwidth, and the limits of a multiprocessor.

A device is looked up in ``data/devices.csv``, where each row names its source: by its name, or by its figures if the
name says nothing. Peaks that a row does not list are rates per clock (``architectures.RATES``) × SMs × boost clock.
Peaks of other devices, and of laptop parts, whose clock depends on the laptop, are the same with the clock that the
capture records. A file of measured peaks may replace them (``peaks_file``). Unknown figures are left out, never
guessed. All peaks are dense: with structured sparsity, data sheets print twice as much.
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

# What drivers call a device whose name they do not know, as ``plain_name`` leaves it
NAMELESS = frozenset(("", "graphics", "graphics device", "radeon graphics"))
RENAMED = {"sm_101": "sm_110"}  # CUDA 13 renamed the compute capability of Jetson Thor
INTEGRATED = ("sm_87", "sm_110", "sm_121")  # Orin, Thor, DGX Spark: they share the memory with the operating system


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
    memory_gib: float | None = None
    # Rate of the tensor cores: "full", "half" (``HALVED``), or empty: none, or not published. "cut": none of the part's
    # rates is its architecture's
    tensor: str = "full"
    boost_hz: float | None = None

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
def parts() -> tuple[tuple[str, Device], ...]:
    """The rows of data/devices.csv: the pattern of a device's names (``fits``), and the device."""
    with (Path(__file__).parent / "data" / "devices.csv").open(encoding="utf-8", newline="") as file:
        return tuple(_part(row) for row in csv.DictReader(file))


# The plain text that a pattern begins with, without a character that may be missing.
_BEGIN = re.compile(r"[a-z0-9 ]*(?![?*+{])")


def fits(pattern: str, plain: str) -> bool:
    """Whether a plain name fits a pattern of the table, which is compiled only if an alternative begins as the name."""
    begins = tuple(_BEGIN.match(text)[0] for text in pattern.split("|"))  # type: ignore[index]  # it always matches
    return plain.startswith(begins) and re.fullmatch(pattern, plain) is not None


def _part(row: Mapping[str, str]) -> tuple[str, Device]:
    """The table's numbers are in the units of data sheets: TFLOP/s, GB/s, MiB, GiB, MHz. An empty cell is unknown."""
    bandwidth, l2, memory, boost, sms = (
        float(row[key]) if row[key] else None for key in ("bandwidth_gb_s", "l2_mb", "memory_gb", "boost_mhz", "sms")
    )
    at_boost = _rates(row["arch"], sms, None if boost is None else boost * 1e6, row["tensor"])
    device = Device(
        name=row["name"],
        part=row["name"],
        arch=row["arch"],
        sms=None if sms is None else int(sms),
        flop_per_s={**at_boost, **{unit: float(row[unit]) * 1e12 for unit in UNITS if row[unit]}},
        byte_per_s=None if bandwidth is None else bandwidth * 1e9,
        l2_bytes=None if l2 is None else int(l2 * 2**20),
        limits=SM_LIMITS.get(row["arch"]),
        source=row["source"],
        memory_gib=memory,
        tensor=row["tensor"],
        boost_hz=None if boost is None else boost * 1e6,
    )
    return row["match"], device


def _rates(arch: str, sms: float | None, clock_hz: float | None, tensor: str) -> dict[str, float]:
    """FLOP/s of each unit: rate per clock × SMs × clock; empty if a factor is unknown."""
    if sms is None or clock_hz is None or tensor == "cut":
        return {}
    share = dict.fromkeys(HALVED, 0.5) if tensor == "half" else {}
    return {
        unit: rate * sms * clock_hz * share.get(unit, 1)
        for unit, rate in RATES.get(arch, {}).items()
        if tensor or not unit.startswith("tc_")
    }


def peak_at(device: Device, unit: str, clock_hz: float, limit_hz: float) -> float:
    """FLOP/s of a unit at a clock: rate × SMs × clock; NaN where the unit's rate on this part is not known.

    ``limit_hz``: the highest clock that the GPU allows. A listed peak that implies a clock far from it is of a unit
    that is cut (an H20's tensor cores), or was measured.
    """
    rate = RATES.get(device.arch, {}).get(unit, 0) * (0.5 if device.tensor == "half" and unit in HALVED else 1)
    if not rate or device.sms is None or not limit_hz > 0:
        return math.nan
    implied = device.peak(unit) / (rate * device.sms)
    return rate * device.sms * clock_hz if 0.8 < implied / limit_hz < 1.1 else math.nan


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
        memory = self.number("totalMemory")
        self.memory_gib = None if memory is None else memory / 2**30

    def number(self, key: str) -> float | None:
        value = self.recorded.get(key)
        return float(value) if is_rate(value) else None

    @property
    def is_amd(self) -> bool:
        """Whether it is AMD's: its name says so, or its warps have 64 threads."""
        named = re.search(r"\bamd\b|radeon|instinct", self.name, re.IGNORECASE)
        return named is not None or self.number("threadsPerWarp") == 64

    @property
    def capability(self) -> tuple[int, int] | None:
        """The compute capability; also of AMD's devices (gfx942: 9.4)."""
        major, minor = self.number("computeMajor"), self.recorded.get("computeMinor", 0)
        return None if major is None or type(minor) is not int else (int(major), minor)

    @property
    def arch(self) -> str:
        """``sm_90`` for compute capability 9.0; empty for AMD's devices, of which several have the same."""
        if self.capability is None or self.is_amd:
            return ""
        name = f"sm_{self.capability[0]}{self.capability[1]}"
        return RENAMED.get(name, name)


def _listed(plain: str, facts: _Facts) -> Device | None:
    """The table's device of a name, or of the recorded figures if the name says nothing."""
    slice_of_gpu = re.sub(r" mig .*", "", plain)
    if slice_of_gpu != plain and facts.sms is None:
        return None  # a MIG slice of unknown size
    if plain in NAMELESS:
        return _common(_variants([device for _, device in parts() if _has_figures(device, facts)], facts))
    is_slice = slice_of_gpu != plain
    named = [device for pattern, device in parts() if fits(pattern, slice_of_gpu)]
    if not named:  # the table's own name, which no driver gives
        named = [device for _, device in parts() if plain_name(device.part) == slice_of_gpu]
    return _common(_variants([device for device in named if not _contradicts(device, facts, is_slice)], facts))


def _same_memory(device: Device, facts: _Facts) -> bool | None:
    """Whether the capture's memory is the device's; None if one is unknown. Drivers keep up to a tenth of it, and the
    system of an integrated GPU up to a quarter.
    """
    if device.memory_gib is None or facts.memory_gib is None:
        return None
    return (0.75 if device.arch in INTEGRATED else 0.88) < facts.memory_gib / device.memory_gib < 1.07


def _contradicts(device: Device, facts: _Facts, is_slice: bool) -> bool:
    """Whether the capture's figures show that a device of the right name is another part: a laptop's, a later one's."""
    if facts.arch and device.arch.startswith("sm_") and facts.arch != device.arch:
        return True
    if facts.sms is not None and device.sms is not None and facts.sms > 1.1 * device.sms:
        return True
    return not is_slice and _same_memory(device, facts) is False


def _variants(devices: list[Device], facts: _Facts) -> list[Device]:
    """Of several devices that fit, those with exactly the recorded SMs, and of these, those whose boost clock is the
    recorded one; where none has it, all of them. The clock only chooses: a device may run at another one than listed.
    """
    exact = [device for device in devices if facts.sms is not None and device.sms == facts.sms] or devices
    return [device for device in exact if _same_clock(device, facts)] or exact


def _same_clock(device: Device, facts: _Facts) -> bool:
    """Whether the capture's clock is the device's boost clock; data sheets and drivers round to some MHz."""
    if device.boost_hz is None or facts.clock_hz is None:
        return False
    return abs(facts.clock_hz / device.boost_hz - 1) < 0.01


def _has_figures(device: Device, facts: _Facts) -> bool:
    """Whether a device has all the recorded figures: compute capability, SMs and memory must be recorded."""
    digits = re.fullmatch(r"(sm_|gfx)(\d+)(\d)[0-9a-f]?", device.arch)
    if digits is None or facts.capability is None or facts.sms is None:
        return False
    if device.arch.startswith("sm_"):
        same = not facts.is_amd and facts.arch == device.arch
    else:
        same = facts.is_amd and facts.capability == (int(device.arch[3:-2]), int(device.arch[-2]))
    return same and device.sms == facts.sms and _same_memory(device, facts) is True


def _common(devices: list[Device]) -> Device | None:
    """The device; of several that fit equally, what all of them have in common: what differs is unknown."""
    if len(devices) < 2:
        return devices[0] if devices else None

    def agreed(values: list[Any]) -> Any:
        return values[0] if all(value == values[0] for value in values) else None

    first, rest = devices[0], devices[1:]
    peaks = {unit: peak for unit, peak in first.flop_per_s.items() if all(other.peak(unit) == peak for other in rest)}
    name = " or ".join(device.part for device in devices)
    arch = agreed([device.arch for device in devices])
    return Device(
        name=name,
        part=name,
        arch=arch or "",
        sms=agreed([device.sms for device in devices]),
        flop_per_s=peaks,
        byte_per_s=agreed([device.byte_per_s for device in devices]),
        l2_bytes=agreed([device.l2_bytes for device in devices]),
        limits=SM_LIMITS.get(arch or ""),
        source="; ".join(dict.fromkeys(device.source for device in devices)),
        memory_gib=agreed([device.memory_gib for device in devices]),
        tensor=agreed([device.tensor for device in devices]) or "",
    )


def _adjusted(device: Device, facts: _Facts) -> Device:
    """The table's figures with the capture's name, cache, and what the table lacks; scaled down for a slice (MIG)."""
    device = replace(device, name=facts.name, l2_bytes=int(facts.l2_bytes or 0) or device.l2_bytes)
    if device.byte_per_s is None:
        device = replace(device, byte_per_s=facts.byte_per_s)
    if not device.flop_per_s and (peaks := _rates(device.arch, facts.sms, facts.clock_hz, device.tensor)):
        return replace(device, sms=int(facts.sms or 0), flop_per_s=peaks, source=_by_clock(device.arch))
    if facts.sms is None or device.sms is None:
        return device
    share = facts.sms / device.sms
    if share >= 0.9:  # data sheets and devices differ by an SM or two
        return replace(device, sms=int(facts.sms))
    bandwidth = facts.byte_per_s or (None if device.byte_per_s is None else device.byte_per_s * share)
    return replace(
        device,
        sms=int(facts.sms),
        flop_per_s={unit: peak * share for unit, peak in device.flop_per_s.items()},
        byte_per_s=bandwidth,
        source=f"{facts.sms:.0f} of {device.sms} SMs of {device.part}: {device.source}",
    )


def _by_clock(arch: str) -> str:
    """The source of computed peaks."""
    return f"{arch}: FLOP/clock × SMs × clock as the capture records them"


def _computed(facts: _Facts) -> Device | None:
    """A device by compute capability × SMs × clock."""
    arch = facts.arch
    if not arch and facts.sms is None:
        return None
    peaks = _rates(arch, facts.sms, facts.clock_hz, "half" if "geforce" in facts.name.lower() else "full")
    return Device(
        name=facts.name,
        arch=arch,
        sms=None if facts.sms is None else int(facts.sms),
        flop_per_s=peaks,
        byte_per_s=facts.byte_per_s,
        l2_bytes=None if facts.l2_bytes is None else int(facts.l2_bytes),
        limits=SM_LIMITS.get(arch),
        source=_by_clock(arch) if peaks else "",
    )
