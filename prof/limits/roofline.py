"""How far each kernel ran from the hardware's limit.

    limit of compute = flops / peak of the unit that ran them        limit of memory = bytes / bandwidth
    sol_ns = the greater                                             sol = 100 × sol_ns / duration

Where the kernel used tensor cores (``tc``), they are the unit, in the precision of their inputs; otherwise it is the
vector unit. FLOPs and bytes are those the algorithm needs. So a kernel that finds its inputs in the L2 cache may exceed
100%, and one that reads everything twice cannot exceed 50%. Clocks vary, whereas peaks are the data sheets' (see
``devices``).

The limits are unknown (NaN, empty) where FLOPs, bytes or the device are unknown, and for copies to and from the host
and collectives, whose limit is a link that the capture does not record.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyprof.prof.kernels.name_patterns import find_helper, find_product, stays_on_device
from pyprof.prof.kernels.operand_dtypes import kernel_dtypes
from pyprof.prof.kernels.precision import HOST_PRECISION, ROUNDED_PRECISION, tensor_unit
from pyprof.prof.limits.devices import Device, find_device
from pyprof.prof.limits.hardware_words import hardware_words
from pyprof.prof.limits.occupancy import Geometry, by_device, floats, geometry, json_list
from pyprof.prof.limits.peaks_file import Peaks, with_peaks
from pyprof.prof.ops.model import MATRIX
from pyprof.prof.work.annotate import Annotation
from pyprof.prof.work.kinds import NCCL, kinds
from pyprof.table.attribution import launched_alone
from pyprof.table.columns import Bools, Coded, Floats, Ints, Table, distinct, distinct_texts, kept_with_table

# A kernel is bound by latency where both limits are below the share FAR of its time and it is either SHORT (starting
# and ending any kernel takes 1 to 2 µs on an A100 or H200) or has fewer blocks than the GPU has SMs.
FAR = 0.25
SHORT_NS = 5000
BOUNDS = ("compute", "memory", "latency")


@dataclass(frozen=True, slots=True)
class Roofline:
    """The limits of each row, aligned with the table; NaN and empty where unknown."""

    ai: Floats  # FLOP/byte, arithmetic intensity
    tflops: Floats  # achieved TFLOP/s
    gbps: Floats  # achieved GB/s
    compute_ns: Floats  # flops / peak
    memory_ns: Floats  # bytes / bandwidth
    sol_ns: Floats  # the greater of compute_ns and bytes / bandwidth
    sol: Floats  # sol_ns in % of the duration
    bound: Coded  # one of BOUNDS
    unit: Coded  # one of precision.UNITS: the unit that did the arithmetic
    geometry: Geometry
    device: Ints  # index into devices, -1 where none is known
    devices: list[Device]  # the GPUs of the capture whose figures were used
    on_cpu: Bools

    def notes(self) -> list[str]:
        """The peaks that the figures are based on, one line per device, for the head or foot of a report."""
        said = []
        for device in self.devices:
            if device.known:
                said.append(
                    f"{device.name or 'GPU'}: peaks and bandwidth from {hardware_words(device.source, [device.name])}"
                )
            else:
                what = "peaks" if device.byte_per_s is not None else "peaks and bandwidth"
                said.append(f"{device.name or 'GPU'}: {what} unknown (measure them: pyprof peaks -o peaks.json)")
        nowhere = self.device < 0
        if bool((nowhere & self.on_cpu).any()):
            said.append("no limits: what this CPU reaches is not known (measure it: pyprof peaks -o peaks.json)")
        if bool((nowhere & ~self.on_cpu).any()):
            what = "the GPU: limits are unknown" if bool(nowhere.all()) else "the GPU of some rows: no limits there"
            said.append(f"the capture does not name {what} (give --peaks peaks.json)")
        return list(dict.fromkeys(said))  # several GPUs of the same kind give one line


@kept_with_table
def roofline(table: Table, annotation: Annotation, peaks: Peaks | None = None) -> Roofline:
    """Compare every row with its device. ``peaks`` replaces the table's figures (``devices.load_peaks``)."""
    number, devices = _devices(table, peaks)
    duration = table.ints("kDuration").astype(np.float64)
    duration[(duration <= 0) | launched_alone(table.coded("reason"))] = np.nan
    flop, nbytes = floats(annotation.flops), floats(annotation.bytes)
    unit = _units(table, annotation)
    unit = Coded(np.where(flop == 0, np.int32(-1), unit.codes), unit.values)  # no arithmetic, no unit
    compute = np.where(flop == 0, 0.0, 1e9 * flop / _peaks(unit, number, devices))
    bandwidth = by_device(number, [device.bandwidth or math.nan for device in devices])
    memory = np.where(_elsewhere(table, annotation), np.nan, 1e9 * nbytes / bandwidth)
    sol_ns = np.maximum(compute, memory)  # NaN where either is NaN
    launch = geometry(table, number, devices)
    return Roofline(
        ai=flop / np.where(nbytes > 0, nbytes, np.nan),
        tflops=flop / duration / 1e3,
        gbps=nbytes / duration,
        compute_ns=compute,
        memory_ns=memory,
        sol_ns=sol_ns,
        sol=100 * sol_ns / duration,
        bound=_bound(compute, memory, duration, launch),
        unit=unit,
        geometry=launch,
        device=number,
        devices=devices,
        on_cpu=table.coded("kind").among("cpu"),
    )


def _devices(table: Table, peaks: Peaks | None) -> tuple[Ints, list[Device]]:
    """Each row's device, found by the name and figures that the capture records."""
    names, infos = table.coded("gpu"), table.coded("gpuInfo")
    pairs, row = distinct(names.codes, infos.codes, table.coded("kind").among("cpu"))
    devices: list[Device] = []
    number = []
    for name_code, info_code, cpu in pairs:
        found = _device([*names.values, ""][name_code], [*infos.values, ""][info_code], bool(cpu), peaks)
        number.append(len(devices) if found is not None else -1)
        devices += [found] if found is not None else []
    return np.array(number, np.int64)[row], devices


def _device(name: str, info: str, cpu: bool, peaks: Peaks | None) -> Device | None:
    """One device. A CPU's peaks come only from a file measured on a CPU, and a GPU never uses such a file."""
    found = None if cpu else find_device(name, info)
    if peaks is None or cpu != (peaks.arch == "cpu"):
        return found if found is not None or not name else Device(name)
    return with_peaks(found, peaks, name or peaks.device)


def _peaks(unit: Coded, number: Ints, devices: Sequence[Device]) -> Floats:
    """FLOP/s of each row's unit on its device; NaN also where a file's figures of the device give 0."""
    peaks = [[*map(device.peak, unit.values), math.nan] for device in devices]
    found = np.array([*peaks, [math.nan] * (len(unit.values) + 1)])[number, unit.codes]
    return np.where(found > 0, found, np.nan)


def _elsewhere(table: Table, annotation: Annotation) -> Bools:
    """Rows whose bytes go over a link: collectives, and copies that leave the device."""
    name = table.coded("kShortName")
    copies = table.coded("kind").among("memcpy") & ~name.where(stays_on_device)
    linked: Bools = copies | annotation.family.among("collective") | kinds(table, annotation).among(NCCL)
    return linked


def _bound(compute: Floats, memory: Floats, duration: Floats, launch: Geometry) -> Coded:
    """What limits each row; empty where a limit is unknown, or where it has no FLOPs or bytes and is not short."""
    limit = np.maximum(compute, memory)
    code = np.where(compute >= memory, 0, 1).astype(np.int32)
    few = (duration <= SHORT_NS) | (launch.blocks_per_sm < 1)
    code[few & (limit < FAR * duration)] = 2
    code[np.isnan(limit) | np.isnan(duration) | ((limit == 0) & ~few)] = -1
    return Coded(code, list(BOUNDS))


# --- the unit that does a row's arithmetic


def _units(table: Table, annotation: Annotation) -> Coded:
    """The unit of each row, decided once per distinct (tensor-core use, kind of op, dtype)."""
    dtype = dtype_of_rows(table, annotation.family)
    hgemm = Coded(table.coded("kLongName").where(lambda name: "hgemm" in name).astype(np.int32) - 1, ["hgemm"])
    columns = annotation.tc, annotation.tcprec, annotation.family, table.coded("kind"), dtype, hgemm
    rows, number = distinct_texts(*columns)
    return Coded.of(_unit(*row) for row in rows).take(number)


def dtype_of_rows(table: Table, family: Coded) -> Coded:
    """The dtype that each row computes with: its first operand's, otherwise the one in the kernel's name."""
    recorded = table.coded("dtypes")
    texts = [_first_float(text) for text in recorded.values]
    codes = np.where(Coded(recorded.codes, texts).where(bool), recorded.codes, -1)
    silent = np.flatnonzero((codes < 0) & ~table.coded("kind").among("cpu"))
    if len(silent):
        columns = table.coded("kLongName"), table.coded("aten"), family
        rows, number = distinct_texts(*(column.take(silent) for column in columns))
        codes[silent] = len(texts) + number
        texts += [_of_name(*row) for row in rows]
    return Coded(codes.astype(np.int32), texts)


def _unit(tc: str, precision: str, family: str, kind: str, dtype: str, hgemm: str) -> str:
    """Which of ``precision.UNITS`` did the arithmetic, empty where that is unknown.

    PyTorch computes half precision in float wherever no tensor core does it: element-wise kernels (ATen/OpMathType.h)
    and matrix products (cuBLAS's 32-bit compute type), except kernels named hgemm.
    """
    if kind == "cpu":  # its peaks were measured with products in that dtype
        return HOST_PRECISION.get(dtype, "fp32")
    if tc == "1":
        return tensor_unit(precision or ROUNDED_PRECISION.get(dtype, ""))
    if tc == "?" or (tc == "-" and not family):  # an unknown op may use any unit
        return ""
    if family in MATRIX and hgemm:
        return "fp16"
    return "fp64" if dtype in ("float64", "complex128") else "fp32"


def _first_float(dtypes: str) -> str:
    """The dtype of the first operand that is no integer. 0-d tensors and numbers of wider types do not widen the op."""
    flat = flat_dtypes(dtypes)
    floats = (dtype for dtype in flat if dtype.startswith(("float", "bfloat", "complex")))
    return next(floats, next((dtype for dtype in flat if dtype in ("int8", "uint8")), ""))


def flat_dtypes(text: str) -> list[str]:
    """The dtypes of a JSON list that may hold lists."""
    flat = [d for item in json_list(text) for d in (item if isinstance(item, list) else [item])]
    return [dtype for dtype in flat if isinstance(dtype, str)]


def _of_name(name: str, aten: str, family: str) -> str:
    product = None if family or find_helper(name) else find_product(name)
    family = product[0].work if product is not None else family
    dtypes = kernel_dtypes(name, aten.removeprefix("aten::").partition(".")[0], family)
    return dtypes.of(0) or dtypes.rest or dtypes.out
