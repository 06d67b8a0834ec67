"""Launch geometry: blocks, waves, theoretical occupancy and what limits it, for every kernel of a table at once.

The arithmetic of CUDA's occupancy calculator (cuda_occupancy.h, and the spreadsheet before it): registers are allocated
in units per warp, from the SM partition that the warp runs on; shared memory is allocated in units per block, with the
system's share added. Thread block clusters and the split between L1 and shared memory are ignored: the driver chooses
the split so that as many blocks fit as the rest allows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyprof.prof.limits.architectures import REGISTER_UNIT, WARP, Limits
from pyprof.prof.limits.devices import Device, parsed
from pyprof.table.columns import NULL, Coded, Floats, Ints, Table

LIMITERS = ("threads", "registers", "shared memory", "blocks")


@dataclass(frozen=True, slots=True)
class Geometry:
    """Launch geometry, one value per row. NaN or empty where unknown, or where the row is not a kernel."""

    blocks: Floats  # blocks per grid
    threads: Floats  # threads per block
    resident: Floats  # blocks that fit on an SM at a time
    occupancy: Floats  # theoretical, %: resident warps / the SM's maximum
    limiter: Coded  # one of LIMITERS; the first, where several limit equally
    waves: Floats  # blocks / (SMs × resident)
    tail: Floats  # share of the waves' slots that stay empty: (ceil(waves) - waves) / ceil(waves)
    sm_efficiency: Floats  # %, estimated: an SM is busy where the grid has a block for it
    achieved: Floats  # %, estimated achieved occupancy: the profiler's figure, otherwise the same formula
    blocks_per_sm: Floats  # blocks / SMs


def geometry(table: Table, device: Ints, devices: Sequence[Device | None]) -> Geometry:
    """The launch geometry of every row; row i ran on ``devices[device[i]]``."""
    kinds = table.coded("kind")
    kernel = kinds.among("kernel" if kinds.values else "")  # PyProf's own files: kernels, and copies without a grid
    blocks = np.where(kernel, _volumes(table.coded("grid")), np.nan)
    threads = np.where(kernel, _volumes(table.coded("block")), np.nan)
    sms = by_device(device, [float(d.sms) if d and d.sms else math.nan for d in devices])
    limits = [d.limits if d else None for d in devices]
    resident, limiter = _resident(threads, floats(table.ints("registers")), _smem(table), device, limits)
    most = by_device(device, [math.nan if limit is None else float(limit.threads) for limit in limits])
    occupied = np.ceil(threads / WARP) * WARP  # a warp takes all its slots, whether its threads are used or not
    per_sm = blocks / sms
    waves = per_sm / resident
    full = np.ceil(waves)
    estimated = 100 * np.minimum(per_sm, resident) * threads / most
    recorded = np.asarray(table.columns["occupancy"], np.float64)
    return Geometry(
        blocks=blocks,
        threads=threads,
        resident=resident,
        occupancy=100 * resident * occupied / most,
        limiter=limiter,
        waves=waves,
        tail=(full - waves) / full,
        sm_efficiency=100 * np.minimum(per_sm, 1.0),
        # Kineto before 2026 prints 0 where a block has more than 48 KiB of shared memory: its call of the occupancy
        # calculator fails.
        achieved=np.where(kernel & (recorded > 0), recorded, estimated),
        blocks_per_sm=per_sm,
    )


def _volumes(sizes: Coded) -> Floats:
    """The product of the three sizes of a grid or block, NaN where they are not recorded."""
    found = [json_list(text) for text in sizes.values]
    usual = [len(three) == 3 and all(type(n) is int and 0 < n < 2**32 for n in three) for three in found]
    volumes = [float(math.prod(three)) if good else math.nan for three, good in zip(found, usual, strict=True)]
    return np.array([*volumes, math.nan])[sizes.codes]


def json_list(text: str) -> list[Any]:
    """The list that a JSON text holds; empty for other texts."""
    found = parsed(text)
    return found if isinstance(found, list) else []


def floats(column: Ints) -> Floats:
    """The integers, NaN where they are unknown."""
    return np.where(column == NULL, np.nan, column.astype(np.float64))


def _smem(table: Table) -> Floats:
    """Shared memory per block in bytes. Kineto gives only the sum, as the dynamic part."""
    static, dynamic = floats(table.ints("staticSmem")), floats(table.ints("dynamicSmem"))
    both = np.isnan(static) & np.isnan(dynamic)
    return np.where(both, np.nan, np.nan_to_num(static) + np.nan_to_num(dynamic))


def by_device(device: Ints, values: Sequence[float]) -> Floats:
    """Spread values per device to the rows; NaN where a row has no device (-1)."""
    return np.array([*values, math.nan])[device]


def _resident(
    threads: Floats, registers: Floats, smem: Floats, device: Ints, limits: Sequence[Limits | None]
) -> tuple[Floats, Coded]:
    """How many blocks fit on an SM, and which resource limits their number."""
    resident = np.full(len(threads), np.nan)
    code = np.full(len(threads), -1, np.int32)
    for number, limit in enumerate(limits):
        rows = np.flatnonzero((device == number) & (threads > 0))
        if limit is None or not len(rows):
            continue
        fits = np.stack(block_limits(limit, threads[rows], registers[rows], smem[rows]))
        least = np.min(fits, axis=0)  # NaN where one of them is unknown
        good = least >= 1  # a kernel that ran fits at least once; otherwise this is not the device it ran on
        resident[rows[good]] = least[good]
        code[rows[good]] = np.argmin(fits[:, good], axis=0)
    return resident, Coded(code, list(LIMITERS))


def block_limits(limit: Limits, threads: Floats, registers: Floats, smem: Floats) -> tuple[Floats, ...]:
    """How many blocks each resource has room for, in the order of ``LIMITERS``.

    Example: blocks of 256 threads, 254 registers per thread and 67584 bytes on an H200. Warps: 64 // 8 = 8 blocks.
    Registers: a warp takes 254 × 32, rounded up to 8192; a partition has 16384, enough for 2 warps; four partitions
    hold 8 warps, 1 block. Shared memory: 67584 + 1024 = 68608 of 233472 bytes, 3 blocks. So 1 block fits, 8 of 64
    warps.
    """
    warps = np.ceil(threads / WARP)
    a_warp = np.ceil(np.maximum(registers, 1) * WARP / REGISTER_UNIT) * REGISTER_UNIT
    in_partition = np.floor(limit.registers / limit.partitions / a_warp)
    a_block = np.ceil((smem + limit.smem_reserved_bytes) / limit.smem_unit_bytes) * limit.smem_unit_bytes
    by_threads, by_registers = np.floor(limit.warps / warps), np.floor(in_partition * limit.partitions / warps)
    by_memory = np.floor(limit.smem_bytes / np.maximum(a_block, 1))
    return by_threads, by_registers, by_memory, np.full(len(threads), float(limit.blocks))
