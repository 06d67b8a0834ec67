"""GPU architectures: the limits of a multiprocessor, its FLOP per clock, and the unit that a matrix product runs on."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyprof.prof.kernels.precision import PRECISIONS, tensor_unit

WARP = 32  # threads
REGISTER_UNIT = 256  # registers per warp are allocated in multiples of this


@dataclass(frozen=True, slots=True)
class Limits:
    """What one multiprocessor (SM) can hold at a time, and the units in which it allocates registers and memory."""

    warps: int
    blocks: int
    registers: int  # 32 bits each
    smem_bytes: int
    smem_reserved_bytes: int  # per block, reserved for the system
    smem_unit_bytes: int
    partitions: int  # of the register file; all registers of a warp are in the same one

    @property
    def threads(self) -> int:
        return self.warps * WARP


def _limits(warps: int, blocks: int, smem_kib: int, modern: bool = True, partitions: int = 4) -> Limits:
    """From compute capability 8.0 on, the system keeps 1 KiB per block, and shared memory comes in 128-byte units."""
    return Limits(warps, blocks, 65536, smem_kib * 1024, 1024 if modern else 0, 128 if modern else 256, partitions)


# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; units of allocation: CUDA's occupancy
# calculator (cuda_occupancy.h). The rows 7.5 to 9.0 agree with what nsys and ncu report for real devices.
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
    "sm_110": _limits(48, 24, 228),
    "sm_120": _limits(48, 24, 100),
    "sm_121": _limits(48, 24, 100),
}

# FLOP per clock and SM, dense; an FMA is 2. Source: CUDA C++ Programming Guide, "Throughput of Native Arithmetic
# Instructions", and the architectures' white papers. Multiplied by SMs and clock, they give the rows of
# data/devices.csv. The tensor cores of Jetson Orin (sm_87) and Thor (sm_110) follow from their data sheets: 170 sparse
# int8 TOPS / 2 / (16 SMs × 1.3 GHz) = 4,087, and 2,070 sparse fp4 TFLOP/s / 2 / (20 SMs × 1.575 GHz) = 32,857.
_RATES = """
           fp64    fp32    fp16    bf16 tc_fp64 tc_tf32 tc_fp16 tc_bf16  tc_fp8  tc_fp6  tc_fp4 tc_int8
sm_60        64     128     256       -       -       -       -       -       -       -       -       -
sm_61         8     256       4       -       -       -       -       -       -       -       -       -
sm_70        64     128     256       -       -       -    1024       -       -       -       -       -
sm_75         4     128     256       -       -       -    1024       -       -       -       -    2048
sm_80        64     128     512     256     128    1024    2048    2048       -       -       -    4096
sm_86         4     256     256     256       -     512    1024    1024       -       -       -    2048
sm_87         4     256       -       -       -    1024    2048    2048       -       -       -    4096
sm_89         4     256     256     256       -     512    1024    1024    2048       -       -    2048
sm_90       128     256     512     512     256    2048    4096    4096    8192       -       -    8192
sm_100      128     256     512     512     128    4096    8192    8192   16384   16384   32768   16384
sm_110        4     256       -       -       -    4096    8192    8192   16384   16384   32768   16384
sm_120        4     256     256     256       -     512    1024    1024    2048       -    4096    2048
sm_121        4     256     256     256       -     512    1024    1024    2048       -    4096    2048
"""
_UNITS, *_ROWS = (line.split() for line in _RATES.strip().splitlines())
# The table above as a mapping: architecture to unit to rate, without empty cells
RATES: Mapping[str, Mapping[str, int]] = {
    arch: {unit: int(cell) for unit, cell in zip(_UNITS, cells, strict=True) if cell != "-"} for arch, *cells in _ROWS
}
# GeForce GPUs multiply these types at half the rate when accumulating in fp32 (white papers of Turing, GA102, Ada and
# RTX Blackwell).
HALVED = ("tc_tf32", "tc_fp16", "tc_bf16", "tc_fp8")

# bytes/s that copies from pinned memory reach: PCIe 4 ×16 has 25 to 26 GB/s at its best, PCIe 5 ×16 twice that (`pyprof
# peaks` on an H200: 55.5 GB/s; from pageable memory there 18.6). What a slot, a board or a switch allows may be less.
PINNED = 20e9
PINNED_PCIE_5 = 50e9
PINNED_PCIE_3 = 12e9
PCIE_5 = ("sm_90", "sm_100", "sm_103")  # data-centre Hopper and Blackwell
PCIE_3 = ("sm_50", "sm_52", "sm_60", "sm_61", "sm_70", "sm_72", "sm_75")


def link_byte_per_s(arch: str) -> float:
    """bytes/s of copies between the host and a GPU of this architecture, through a full slot of its generation.

    >>> link_byte_per_s("sm_90"), link_byte_per_s("sm_80"), link_byte_per_s("sm_70"), link_byte_per_s("gfx942")
    (50000000000.0, 20000000000.0, 12000000000.0, 50000000000.0)
    """
    if arch in (*PCIE_5, "sm_120", "gfx942", "gfx950"):
        return PINNED_PCIE_5
    return PINNED_PCIE_3 if arch in PCIE_3 or arch in ("gfx906", "gfx900") else PINNED


DOUBLE_TENSOR = ("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950")  # fp64 products run on tensor (matrix) cores


def unit_of(precision: str, arch: str) -> str:
    """The unit (one of ``precision.UNITS``) that runs matrix products in a precision; empty if there is none or it is
    unknown.

    >>> unit_of("bf16", "sm_90"), unit_of("fp32", "sm_90"), unit_of("fp64", "sm_86"), unit_of("tf32", "sm_75")
    ('tc_bf16', 'fp32', 'fp64', '')
    """
    if arch == "cpu":
        return precision
    if precision == "fp64":
        return tensor_unit(precision) if arch in DOUBLE_TENSOR else "fp64"
    if precision == "fp32":
        return tensor_unit(precision) if arch.startswith("gfx9") else "fp32"
    if not arch.startswith("sm_"):
        return "" if precision == "tf32" else tensor_unit(precision)  # torch's tf32 setting does nothing there
    row = PRECISIONS.get(precision)
    generation = int(arch[3:]) if arch[3:].isdecimal() else 0
    return tensor_unit(precision) if row and row.since and generation >= row.since else ""
