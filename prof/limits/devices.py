"""GPUs and what they can do: dense peaks, bandwidth, and the limits of a multiprocessor.

A device is found by its name (``data/devices.csv``, a source a row), else by compute capability × SMs × clock as the
capture tells them (``RATES``), and its peaks may be replaced by a file that ``pyprof peaks`` wrote. What is not known
is absent, never a guess. All peaks are dense: data sheets print twice as much for structured sparsity.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeGuard

from pyprof.errors import InputError
from pyprof.prof.kernels.precision import PRECISIONS, UNITS, tensor_unit

__all__ = [
    "RATES", "SM_LIMITS", "Device", "Limits", "Peaks", "find_device", "load_peaks", "parts", "with_peaks",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Limits:
    """What one multiprocessor holds at a time, and in what units it hands it out."""

    warps: int
    blocks: int
    registers: int  # 32 bits each
    smem_bytes: int
    smem_reserved_bytes: int  # of every block, by the system
    smem_unit_bytes: int
    partitions: int  # a warp's registers come from one of them
    register_unit: int = 256  # a warp
    warp_threads: int = 32

    @property
    def threads(self) -> int:
        return self.warps * self.warp_threads


def _limits(warps: int, blocks: int, smem_kib: int, modern: bool = True, partitions: int = 4) -> Limits:
    """From compute capability 8.0 on the system keeps 1 KiB a block and shared memory comes in units of 128 bytes."""
    return Limits(warps, blocks, 65536, smem_kib * 1024, 1024 if modern else 0, 128 if modern else 256, partitions)


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; units of allocation: CUDA's occupancy
# calculator (cuda_occupancy.h). 7.5 to 9.0 agree with what devices report in captures and reports of nsys and ncu.
SM_LIMITS: Mapping[str, Limits] = {
    "sm_50": _limits(64, 32, 64, False),
    "sm_52": _limits(64, 32, 96, False),
    "sm_60": _limits(64, 32, 64, False, partitions=2),
    "sm_61": _limits(64, 32, 96, False),
    "sm_70": _limits(64, 32, 96, False),
    "sm_72": _limits(64, 32, 96, False),
    "sm_75": _limits(32, 16, 64, False),
    "sm_80": _limits(64, 32, 164),
    "sm_86": _limits(48, 16, 100),
    "sm_87": _limits(48, 16, 164),
    "sm_89": _limits(48, 24, 100),
    "sm_90": _limits(64, 32, 228),
    "sm_100": _limits(64, 32, 228),
    "sm_103": _limits(64, 32, 228),
    "sm_120": _limits(48, 24, 100),
    "sm_121": _limits(48, 24, 100),
}

# FLOP a clock and SM (an FMA is 2), dense. CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions",
# and the architectures' white papers; with their clocks they reproduce the rows of data/devices.csv. GeForce parts
# multiply 16-bit numbers and accumulate in fp32 at half the rate (Turing, GA102, Ada and RTX Blackwell white papers).
RATES: Mapping[str, Mapping[str, int]] = {
    "sm_60": {"fp64": 64, "fp32": 128, "fp16": 256},
    "sm_61": {"fp64": 8, "fp32": 256, "fp16": 4},
    "sm_70": {"fp64": 64, "fp32": 128, "fp16": 256, "tc_fp16": 1024},
    "sm_75": {"fp64": 4, "fp32": 128, "fp16": 256, "tc_fp16": 1024, "tc_int8": 2048},
    "sm_80": {"fp64": 64, "fp32": 128, "fp16": 512, "bf16": 256, "tc_fp64": 128, "tc_tf32": 1024, "tc_fp16": 2048,
              "tc_bf16": 2048, "tc_int8": 4096},
    "sm_86": {"fp64": 4, "fp32": 256, "fp16": 256, "bf16": 256, "tc_tf32": 512, "tc_fp16": 1024, "tc_bf16": 1024,
              "tc_int8": 2048},
    "sm_89": {"fp64": 4, "fp32": 256, "fp16": 256, "bf16": 256, "tc_tf32": 512, "tc_fp16": 1024, "tc_bf16": 1024,
              "tc_fp8": 2048, "tc_int8": 2048},
    "sm_90": {"fp64": 128, "fp32": 256, "fp16": 512, "bf16": 512, "tc_fp64": 256, "tc_tf32": 2048, "tc_fp16": 4096,
              "tc_bf16": 4096, "tc_fp8": 8192, "tc_int8": 8192},
    "sm_100": {"fp64": 128, "fp32": 256, "fp16": 512, "bf16": 512, "tc_fp64": 128, "tc_tf32": 4096, "tc_fp16": 8192,
               "tc_bf16": 8192, "tc_fp8": 16384, "tc_fp6": 16384, "tc_fp4": 32768, "tc_int8": 16384},
    "sm_120": {"fp64": 4, "fp32": 256, "fp16": 256, "bf16": 256, "tc_tf32": 512, "tc_fp16": 1024, "tc_bf16": 1024,
               "tc_fp8": 2048, "tc_fp4": 4096, "tc_int8": 2048},
}  # fmt: skip
HALVED = ("tc_tf32", "tc_fp16", "tc_bf16", "tc_fp8")  # on GeForce


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU (or CPU) as far as it is known. ``flop_per_s`` has the units of ``UNITS`` whose peak is known."""

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
        """Bytes/s of its memory, NaN where unknown."""
        return math.nan if self.byte_per_s is None else self.byte_per_s

    @property
    def known(self) -> bool:
        """Is there anything to compare a kernel with?"""
        return bool(self.flop_per_s) and self.byte_per_s is not None


@dataclass(frozen=True, slots=True)
class Part:
    """A row of data/devices.csv."""

    device: Device
    match: re.Pattern[str]


@lru_cache(maxsize=1)
def parts() -> tuple[Part, ...]:
    """The table of parts."""
    with (Path(__file__).parent / "data" / "devices.csv").open(encoding="utf-8", newline="") as file:
        return tuple(_part(row) for row in csv.DictReader(file))


def _part(row: Mapping[str, str]) -> Part:
    """Numbers stand in the table as data sheets print them: TFLOP/s, GB/s, MiB."""
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
    return Part(device, re.compile(row["match"]))


def plain_name(name: str) -> str:
    """A device's name without its vendor's words, in lower case, blanks between words.

    >>> plain_name("NVIDIA A100-SXM4-80GB"), plain_name("Tesla V100-SXM2-16GB"), plain_name("AMD Instinct MI300X")
    ('a100 sxm4 80gb', 'v100 sxm2 16gb', 'mi300x')
    """
    words = re.split(r"[\s_-]+", re.sub(r"\((?:r|tm)\)", "", name.lower()))
    return " ".join(word for word in words if word not in {"nvidia", "tesla", "geforce", "amd", "instinct", "oam", ""})


def find_device(name: str, info: Mapping[str, Any] | str | None = None) -> Device | None:
    """The device of a name as nsys, nvprof or torch spell it, or None where neither name nor info tells anything.

    ``info`` is what the capture says of it, a mapping or JSON text with any of ``smCount``, ``clockRate`` (Hz),
    ``memoryBandwidth`` (bytes/s), ``computeMajor``, ``computeMinor``, ``l2CacheSize`` (bytes),
    ``threadsPerWarp``. A part that the table lacks has its peaks by rate × SMs × clock; without a clock it has none,
    and only its limits are known.
    """
    return _find(name, info if isinstance(info, str) else json.dumps(info or {}, sort_keys=True))


@lru_cache(maxsize=256)
def _find(name: str, info: str) -> Device | None:
    try:
        told = json.loads(info) if info else {}
    except ValueError:
        told = {}
    facts = _Facts(name, told if isinstance(told, dict) else {})
    part = _listed(plain_name(name), facts)
    if part is not None:
        return _adjusted(part.device, facts)
    return _computed(facts)


class _Facts:
    """What the capture tells of a device, each a positive number or None."""

    def __init__(self, name: str, told: Mapping[str, Any]) -> None:
        self.name, self.told = name, told
        self.sms, self.clock_hz = self.number("smCount"), self.number("clockRate")
        self.byte_per_s, self.l2_bytes = self.number("memoryBandwidth"), self.number("l2CacheSize")

    def number(self, key: str) -> float | None:
        value = self.told.get(key)
        return float(value) if _is_rate(value) else None

    @property
    def arch(self) -> str:
        """``sm_90`` by compute capability; AMD's devices report one too, with warps of 64 (gfx90a says 9.0)."""
        major, minor = self.number("computeMajor"), self.told.get("computeMinor", 0)
        if major is None or type(minor) is not int or self.number("threadsPerWarp") == 64 or self.is_amd:
            return ""
        return f"sm_{int(major)}{minor}"

    @property
    def is_amd(self) -> bool:
        return bool(re.search(r"\bamd\b|radeon|instinct", self.name, re.IGNORECASE))


def _listed(plain: str, facts: _Facts) -> Part | None:
    """The table's row for a name."""
    slice_of_gpu = re.sub(r" mig .*", "", plain)
    if slice_of_gpu != plain and facts.sms is None:
        return None  # a slice of unknown size
    found = [part for part in parts() if part.match.fullmatch(slice_of_gpu)]
    return found[0] if found else None


def _adjusted(device: Device, facts: _Facts) -> Device:
    """The table's figures with the capture's name and cache; scaled where the capture saw a slice of the GPU (MIG)."""
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
        source=f"{arch}: FLOP/clock × SMs × clock as the capture tells them" if peaks else "",
    )


# Peaks from a file


@dataclass(frozen=True, slots=True)
class Peaks:
    """What a peaks file says: peaks to use in place of the table's."""

    file: str
    device: str
    arch: str = ""
    flop_per_s: Mapping[str, float] = field(default_factory=dict)
    byte_per_s: float | None = None


FORMAT = "pyprof peaks"


def load_peaks(file: str | Path) -> Peaks:
    """Read a JSON file as ``pyprof peaks`` writes it. Raises InputError that names what is wrong.

    Needed are ``"format": "pyprof peaks"`` and ``flop_per_s`` (unit -> FLOP/s) or ``byte_per_s``; the rest may be
    missing, so that a few lines by hand will do.
    """
    try:
        data = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(file, f"cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(file, f"expected JSON as pyprof peaks writes it, found none ({str(error)[:80]})") from error
    problem = next(_problems(data), None)
    if problem is not None:
        raise InputError(file, problem)
    return Peaks(
        str(file), data.get("device", ""), data.get("arch", ""), data.get("flop_per_s", {}), data.get("byte_per_s")
    )


def _problems(data: Any) -> Iterator[str]:
    """What is wrong with a peaks file, the first first."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        yield f'expected an object with "format": "{FORMAT}" (write one with pyprof peaks -o peaks.json)'
        return
    for key in ("device", "arch"):
        if not isinstance(data.get(key, ""), str):
            yield f"{key}: expected a text, found {str(data[key])[:40]}"
    peaks = data.get("flop_per_s", {})
    if not isinstance(peaks, dict):
        yield f"flop_per_s: expected an object of unit: FLOP/s, found {str(peaks)[:40]}"
        return
    for unit, value in peaks.items():
        if unit not in UNITS:
            yield f"flop_per_s: no unit {unit[:40]!r} (the units are {', '.join(UNITS)})"
        if not _is_rate(value):
            yield f"flop_per_s: {unit[:40]}: expected FLOP/s, a positive number, found {str(value)[:40]}"
    if "byte_per_s" in data and not _is_rate(data["byte_per_s"]):
        yield f"byte_per_s: expected bytes/s, a positive number, found {str(data['byte_per_s'])[:40]}"
    if not peaks and "byte_per_s" not in data:
        yield "expected flop_per_s or byte_per_s, found neither"


def _is_rate(value: Any) -> TypeGuard[float]:
    return type(value) in (int, float) and 0 < value < 1e30  # no NaN, no infinity, no integer that no float holds


def with_peaks(device: Device | None, peaks: Peaks, name: str = "") -> Device:
    """The device with a file's peaks where it has them, and its own elsewhere."""
    base = device or Device(name=name, arch=peaks.arch, limits=SM_LIMITS.get(peaks.arch))
    said = f"{peaks.file}" + (f", measured on {peaks.device}" if peaks.device else "")
    return replace(
        base,
        flop_per_s={**base.flop_per_s, **{unit: float(value) for unit, value in peaks.flop_per_s.items()}},
        byte_per_s=peaks.byte_per_s or base.byte_per_s,
        source=said + (f"; the rest: {base.source}" if base.source else ""),
    )


DOUBLE_TENSOR = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950")  # fp64 products run on tensor (matrix) cores


def unit_of(dtype: str, arch: str) -> str:
    """The unit (a key of ``UNITS``) that a product in a dtype runs on; empty where it has none or is unknown.

    >>> unit_of("bf16", "sm_90"), unit_of("fp32", "sm_90"), unit_of("fp64", "sm_86"), unit_of("tf32", "sm_75")
    ('tc_bf16', 'fp32', 'fp64', '')
    """
    if arch == "cpu":
        return dtype
    if dtype == "fp64":
        return tensor_unit(dtype) if arch in DOUBLE_TENSOR else "fp64"
    if dtype == "fp32":
        return tensor_unit(dtype) if arch.startswith("gfx9") else "fp32"
    if not arch.startswith("sm_"):
        return "" if dtype == "tf32" else tensor_unit(dtype)  # torch's tf32 setting does nothing there
    row = PRECISIONS.get(dtype)
    generation = int(arch[3:]) if arch[3:].isdecimal() else 0
    return tensor_unit(dtype) if row and row.since and generation >= row.since else ""
