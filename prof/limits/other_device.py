"""How long the kernels of a capture would take on another GPU, by the limits of both.

Each kernel keeps the share of its limit that it reached (``roofline``), and the limit is the other GPU's:

    limit = max(FLOPs / peak of its unit, bytes / bandwidth)        ns' = START' + (ns - START) × limit' / limit

Captures of several GPUs show that this share carries over: element-wise kernels of more than 20 µs reach 0.83 to 0.88
of the data sheet's bandwidth on an A100, an H100 and an H200 (medians), long bf16 products 0.53 to 0.68 of the peak on
the H100 and 0.64 to 0.71 on the H200. Products by other kernels, tiles of other sizes and other caches are in the
deviation.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, replace

import numpy as np

from pyprof.errors import UsageError
from pyprof.prof.kernels.name_patterns import stays_on_device
from pyprof.prof.limits.architectures import link_byte_per_s
from pyprof.prof.limits.devices import Device, find_device, parts, plain_name
from pyprof.prof.limits.roofline import Roofline, roofline
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.kinds import NCCL, kinds
from pyprof.table.columns import Bools, Coded, Floats, Ints, Table

# What a kernel takes besides its work: a tenth of the kernels of captures takes at most 1.7 to 2.2 µs on an A100 and on
# H100s, 2 on a V100, 0.9 on an H200; 2.3 to 4.5 on MI300X, 3.5 on an MI210, 2.6 on an MI350X.
START_NS, START_AMD_NS = 1500.0, 3500.0
SMALL_NS = 5000.0  # a kernel whose limits are unknown and that is shorter is taken to be as short on any GPU
# What runs a product where the unit is missing. PyTorch computes bf16 without tensor cores in fp32.
INSTEAD = {"tc_tf32": "fp32", "tc_bf16": "fp32", "tc_fp16": "fp16", "fp16": "fp32", "bf16": "fp32", "tc_fp64": "fp64",
           "tc_fp32": "fp32"}  # fmt: skip
KINDS = ("compute", "memory", "latency", "link", "communication", "unknown")
# Per kind, the standard deviation of the logarithm of the new duration
DEVIATIONS = (0.25, 0.12, 0.15, 0.25, 0.5, 0.4)
OTHER_VENDOR = 1.5  # times these, with another vendor's libraries


@dataclass(frozen=True, slots=True)
class Moved:
    """The rows of a table on another GPU."""

    device: Device
    ns: Floats  # per row
    kind: Coded  # per row, one of KINDS
    deviation: float  # of all durations together, the logarithm's
    missing: Bools  # rows whose unit the GPU does not have, and for which another one was taken
    impossible: Bools  # rows for whose unit there is no other


def named_device(name: str) -> Device:
    """The GPU of data/devices.csv with this name, or of a driver's name. Raises UsageError with names that are near."""
    plain = plain_name(name)
    exact = [device for _, device in parts() if plain_name(device.part) == plain]
    found = exact[0] if exact else find_device(name)
    if found is not None and found.known and any(found.part == device.part for _, device in parts()):
        return replace(found, name=found.part)
    words = set(plain.split())
    near = [device.part for _, device in parts() if device.known and words <= set(plain_name(device.part).split())]
    names = [device.part for _, device in parts() if device.known]
    near = near or difflib.get_close_matches(name, names, 5, 0.4)
    said = f"one of {', '.join(near[:8])}" if near else "a GPU's name"
    raise UsageError(f"--device: expected {said} (--device list names all), found {name[:60]!r}")


def device_names() -> list[str]:
    """The GPUs whose peaks and bandwidth are known."""
    return [device.part for _, device in parts() if device.known]


def on_device(table: Table, annotation: Annotation, target: Device) -> Moved:
    """The rows of a table on another GPU. Raises UsageError if the capture's GPU, or its peaks, are not known."""
    limits = roofline(table, annotation)
    known = [device for device in limits.devices if device.known]
    if not known:
        found = limits.devices[0].name if limits.devices else "none"
        raise UsageError(f"--device: expected a capture of a GPU whose peaks are known, found {found[:60]!r}")
    number = np.where(limits.device < 0, 0, limits.device)
    took = table.ints("kDuration").astype(np.float64)
    missing, impossible, compute = _compute(limits, number, target)
    bandwidth = np.array([device.bandwidth for device in limits.devices])[number]
    memory = limits.memory_ns * bandwidth / target.bandwidth
    ratio = np.maximum(compute, memory) / np.where(limits.sol_ns > 0, limits.sol_ns, np.nan)
    kind = _kinds(table, annotation, limits)
    codes = kind.codes
    usual = np.where(np.isfinite(ratio) & (ratio > 0), ratio, bandwidth / target.bandwidth)
    links = _link_ratio(limits, number, target)
    ratio = np.select([codes <= 1, codes == 3, codes == 5], [usual, links, bandwidth / target.bandwidth], 1.0)
    starts = np.array([_start_ns(device) for device in limits.devices])[number]
    start = np.minimum(took, starts)
    ns = start * _start_ns(target) / starts + (took - start) * ratio
    other = OTHER_VENDOR if known[0].arch[:2] != target.arch[:2] else 1.0
    weight = ns / max(float(ns.sum()), 1.0)
    deviation = other * float((weight * np.array(DEVIATIONS)[codes]).sum())
    return Moved(target, ns, kind, deviation, missing & (codes == 0), impossible & (codes == 0))


def _start_ns(device: Device) -> float:
    return START_AMD_NS if device.arch.startswith("gfx") else START_NS


def _compute(limits: Roofline, number: Ints, target: Device) -> tuple[Bools, Bools, Floats]:
    """(rows whose unit is missing, those without another unit, per row the limit of compute in ns on the target)."""
    units = [*limits.unit.values, ""]
    here = np.array([[device.peak(unit) for unit in units] for device in limits.devices])
    there, missing, impossible = [], [], []
    for unit in units:
        peak, instead = target.peak(unit), unit
        while math.isnan(peak) and instead in INSTEAD:
            instead = INSTEAD[instead]
            peak = target.peak(instead)
        there.append(peak)
        missing.append(bool(unit) and instead != unit)
        impossible.append(bool(unit) and math.isnan(peak))
    codes = limits.unit.codes
    scale = here[number, codes] / np.array(there)[codes]
    compute = np.where(limits.compute_ns == 0, 0.0, limits.compute_ns * scale)
    return np.array(missing)[codes], np.array(impossible)[codes], compute


def _kinds(table: Table, annotation: Annotation, limits: Roofline) -> Coded:
    """What limits each row, as far as that is known."""
    bound = np.array([0, 1, 2, 5])[limits.bound.codes]  # BOUNDS; -1 finds the last
    copies = table.coded("kind").among("memcpy") & ~table.coded("kShortName").where(stays_on_device)
    talks = annotation.family.among("collective") | kinds(table, annotation).among(NCCL)
    short = (bound == 5) & (table.ints("kDuration") <= SMALL_NS)
    moves = (bound == 5) & np.isnan(limits.sol_ns) & ~np.isnan(limits.memory_ns)
    code = np.select([copies, talks, short, moves], [3, 4, 2, 1], bound)
    return Coded(code.astype(np.int32), list(KINDS))


def _link_ratio(limits: Roofline, number: Ints, target: Device) -> Floats:
    rates = np.array([link_byte_per_s(device.arch) for device in limits.devices])
    found: Floats = rates[number] / link_byte_per_s(target.arch)
    return np.where(np.isfinite(found), found, 1.0)


def moved_table(table: Table, part: str) -> Table:
    """The table as if it had been captured on this GPU, for what reads its peaks."""
    rows = np.zeros(len(table), np.int32)
    info = Coded(np.full(len(table), -1, np.int32), [])
    return table.with_column("gpu", Coded(rows, [part])).with_column("gpuInfo", info)
