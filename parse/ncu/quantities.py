"""The quantities of each launch under one name for all generations of GPUs and all sections that ncu may collect.

Each quantity is the first of its sources that the launch has, else unknown (NaN). A source is a formula of metrics, and
of numbers: ``A * B``, ``A / B``, and sums of these. A metric that ends in ``.sum`` may also have been collected as a
rate (``.sum.per_second``, ``.sum.per_cycle_elapsed``), which is multiplied by the time or the cycles. ``max:PATTERN``
is the largest of the metrics that match, ``sum:PATTERN`` their sum.

Sources of the names: ``ncu --query-metrics`` of 2019.5 to 2025.3 for gv100, ga100, gh100, gb100 and gb202, the
``.section`` files of the same versions, and the reports in tests. Sectors have 32 bytes (Kernel Profiling Guide,
"Memory Tables").
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pyprof.parse.ncu.report import Floats, Report


class Quantity(NamedTuple):
    """A quantity: its key, base unit and meaning, and the sources, best first."""

    key: str
    unit: str
    meaning: str
    sources: tuple[str, ...]


TIME = "gpu__time_duration.sum"


def _pipe(kind: str) -> tuple[str, ...]:
    """Of a share of the peak: while the unit was active, else of the kernel's whole time."""
    return tuple(f"{kind}.avg.pct_of_peak_sustained_{of}" for of in ("active", "elapsed"))


def _cuda_cores(letter: str, lanes: int) -> tuple[str, ...]:
    """FLOPs of instructions by thread whose predicate was on: FMA is 2, and HFMA2, HADD2, HMUL2 have two lanes.

    Without the counts of additions and multiplications those of the multiply-adds are a lower bound.
    """
    found = []
    for unit in ("smsp", "sm"):
        one = f"{unit}__sass_thread_inst_executed_op_{letter}"
        fma = f"{2 * lanes} * {one}fma_pred_on.sum"
        rest = f"{lanes} * {one}add_pred_on.sum + {lanes} * {one}mul_pred_on.sum"
        derived = f"derived__{unit}__sass_thread_inst_executed_op_{letter}fma_pred_on_x{2 * lanes}"
        found += [f"{fma} + {rest}", f"{derived} * {CYCLES} + {rest}", fma, f"{derived} * {CYCLES}"]
    return tuple(found[:2] + found[4:6] + found[2:4] + found[6:])


CYCLES = "cycles"  # the SMs' clock cycles that the kernel took, CYCLE_SOURCES
CYCLE_SOURCES = (
    "smsp__cycles_elapsed.avg", "smsp__cycles_elapsed.max", "sm__cycles_elapsed.avg", "sm__cycles_elapsed.max",
    f"smsp__cycles_elapsed.avg.per_second * {TIME} * 1e-9", f"sm__cycles_elapsed.avg.per_second * {TIME} * 1e-9",
    "gpc__cycles_elapsed.max",
)  # fmt: skip
ACTIVE_DRAM = (
    # The share of cycles in which the DRAM transfers, of two transfers per cycle over the whole bus: equal to
    # dram__bytes.sum.per_second to 7 digits on an H800.
    "0.0025 * dram__cycles_active.avg.pct_of_peak_sustained_elapsed * device__attribute_global_memory_bus_width"
    f" * dram__cycles_elapsed.avg.per_second * {TIME} * 1e-9"
)

QUANTITIES = (
    Quantity("duration_ns", "ns", "the kernel's time on the GPU, at ncu's clocks and with its cold caches",
             (TIME, "gpu__time_duration.avg", "gpu__time_duration.max", "gpu__time_active.sum")),
    Quantity("dram_read_bytes", "byte", "read from the GPU's memory",
             ("dram__bytes_read.sum", "dram__bytes_op_read.sum", "32 * dram__sectors_read.sum",
              "fbpa__dram_read_bytes.sum")),
    Quantity("dram_write_bytes", "byte", "written to the GPU's memory",
             ("dram__bytes_write.sum", "dram__bytes_op_write.sum", "32 * dram__sectors_write.sum",
              "fbpa__dram_write_bytes.sum")),
    Quantity("dram_bytes", "byte", "read from and written to the GPU's memory",
             ("dram__bytes_read.sum + dram__bytes_write.sum", "dram__bytes_op_read.sum + dram__bytes_op_write.sum",
              "dram__bytes.sum", "32 * dram__sectors_read.sum + 32 * dram__sectors_write.sum",
              "32 * dram__sectors.sum", ACTIVE_DRAM)),
    Quantity("l2_read_bytes", "byte", "read from the L2 cache, by the SMs where only theirs were counted",
             ("lts__t_bytes_op_read.sum", "32 * lts__t_sectors_op_read.sum", "lts__t_bytes_srcunit_tex_op_read.sum",
              "32 * lts__t_sectors_srcunit_tex_op_read.sum")),
    Quantity("l2_write_bytes", "byte", "written to the L2 cache, by the SMs where only theirs were counted",
             ("lts__t_bytes_op_write.sum", "32 * lts__t_sectors_op_write.sum",
              "lts__t_bytes_srcunit_tex_op_write.sum", "32 * lts__t_sectors_srcunit_tex_op_write.sum")),
    Quantity("l1_bytes", "byte", "requested from the L1 cache",
             ("l1tex__t_bytes.sum", "32 * l1tex__t_sectors.sum")),
    Quantity("l1_hit_pct", "%", "of the sectors requested from the L1 cache, those found in it",
             ("l1tex__t_sector_hit_rate.pct",)),
    Quantity("l2_hit_pct", "%", "of the sectors requested from the L2 cache, those found in it",
             ("lts__t_sector_hit_rate.pct",)),
    Quantity("instructions", "inst", "instructions executed, counted by warp",
             ("smsp__inst_executed.sum", "sm__inst_executed.sum", "inst_executed")),
    Quantity("tensor_pct", "%", "of the tensor pipe's peak while the SMs were active; on Hopper it also runs HFMA2.MMA",
             (*_pipe("sm__pipe_tensor_cycles_active"), *_pipe("smsp__pipe_tensor_cycles_active"),
              *(f"max:{name}" for name in _pipe(r"sms?p?__pipe_tensor(?:_sub)?\w*_cycles_active")),
              *_pipe("sm__inst_executed_pipe_tensor"),
              *(f"max:{name}" for name in _pipe(r"sms?p?__inst_executed_pipe_tensor\w*")))),
    Quantity("tensor_instructions", "inst", "instructions of the tensor cores, counted by warp",
             ("sm__inst_executed_pipe_tensor.sum", "smsp__inst_executed_pipe_tensor.sum",
              r"sum:sm__inst_executed_pipe_tensor_(?:op|subpipe)_\w+\.sum",
              r"sum:smsp__inst_executed_pipe_tensor_(?:op|subpipe)_\w+\.sum")),
    Quantity("fp16_flops", "op", "FLOPs in half precision, without tensor cores", _cuda_cores("h", 2)),
    Quantity("fp32_flops", "op", "FLOPs in single precision, without tensor cores", _cuda_cores("f", 1)),
    Quantity("fp64_flops", "op", "FLOPs in double precision, without tensor cores", _cuda_cores("d", 1)),
    Quantity("dram_pct", "%", "of the memory's peak bandwidth",
             ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
              "dram__throughput.avg.pct_of_peak_sustained_elapsed",
              "dram__bytes.sum.pct_of_peak_sustained_elapsed",
              "dram__bytes_read.sum.pct_of_peak_sustained_elapsed + "
              "dram__bytes_write.sum.pct_of_peak_sustained_elapsed",
              "dram__cycles_active.avg.pct_of_peak_sustained_elapsed")),
    Quantity("sm_pct", "%", "of the peak of the SM's busiest part",
             ("sm__throughput.avg.pct_of_peak_sustained_elapsed",)),
    Quantity("occ_achieved_pct", "%", "warps that were resident, of the most that an SM holds",
             ("sm__warps_active.avg.pct_of_peak_sustained_active",)),
    Quantity("occ_theoretical_pct", "%", "warps that the launch allows on an SM, of the most that it holds",
             ("sm__maximum_warps_per_active_cycle_pct",)),
    Quantity("registers", "register/thread", "registers per thread", ("launch__registers_per_thread",)),
    Quantity("shared_bytes", "byte/block", "shared memory per block, static and dynamic",
             ("launch__shared_mem_per_block_static + launch__shared_mem_per_block_dynamic",
              "launch__shared_mem_per_block")),
    Quantity("sm_clock_hz", "hz", "the SMs' clock while the kernel ran",
             # In a kernel of microseconds, the SM's own counter reads above the highest clock; the GPC's does not.
             ("gpc__cycles_elapsed.avg.per_second", "sm__cycles_elapsed.avg.per_second",
              "smsp__cycles_elapsed.avg.per_second", f"1e9 * gpc__cycles_elapsed.max / {TIME}")),
)  # fmt: skip
BY_KEY = {quantity.key: quantity for quantity in QUANTITIES}
RATES = ((".per_second", (f"{TIME} * 1e-9",)), (".per_cycle_elapsed", CYCLE_SOURCES))


def quantity(report: Report, key: str) -> Floats:
    """A quantity of QUANTITIES for each launch in its base unit, NaN where it is unknown. KeyError: no such quantity.

    Percentages are 0 to 100, bytes and FLOPs amounts of the whole launch.
    """
    return _first(report, BY_KEY[key].sources)


def unknown(report: Report) -> Floats:
    """A column of nothing but unknowns."""
    return np.full(len(report), np.nan)


def _first(report: Report, sources: tuple[str, ...]) -> Floats:
    """For each launch the first source that it has."""
    found = unknown(report)
    for source in sources:
        missing = np.isnan(found)
        if not missing.any():
            break
        found = np.where(missing, _value(report, source), found)
    return found


def _value(report: Report, source: str) -> Floats:
    """The value of a formula for each launch."""
    kind, colon, pattern = source.partition(":")
    if colon and kind in OVER:
        return OVER[kind](report, pattern)
    found: Floats = np.add.reduce([_product(report, term) for term in source.split(" + ")])
    return found


def _product(report: Report, term: str) -> Floats:
    above, _, below = term.partition(" / ")
    found = np.ones(len(report))
    for factor in above.split(" * "):
        found = found * _factor(report, factor)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = found / _factor(report, below) if below else found
    return np.where(np.isfinite(found), found, np.nan)


def _factor(report: Report, name: str) -> Floats:
    """A metric, a number, or ``cycles``. A sum is also made from its rates."""
    if name == CYCLES:
        return _first(report, CYCLE_SOURCES)
    if name[0].isdigit():
        return np.full(len(report), float(name))
    found = report.metrics.get(name)
    found = unknown(report) if found is None else found
    if name.endswith(".sum"):
        for suffix, by in RATES:
            rate = report.metrics.get(name + suffix)
            if rate is not None:
                found = np.where(np.isnan(found), rate * _first(report, by), found)
    return found


def _matching(report: Report, pattern: str) -> list[Floats]:
    matches = re.compile(pattern).fullmatch
    return [values for name, values in report.metrics.items() if matches(name)]


def _largest(report: Report, pattern: str) -> Floats:
    found: Floats = np.fmax.reduce([*_matching(report, pattern), unknown(report)])
    return found


def _total(report: Report, pattern: str) -> Floats:
    columns = _matching(report, pattern)
    return np.add.reduce(columns) if columns else unknown(report)


OVER: dict[str, Callable[[Report, str], Floats]] = {"max": _largest, "sum": _total}

# ----- tensor cores -----

PATH = re.compile(r"sm__ops_path_tensor_(?:op_(?P<op>[a-z0-9]+?)_)?src_(?P<src>\w+?)(?:_dst_\w+?)?"
                  r"(?:_sparsity_(?:on|off))?\.sum(?:\.per_second|\.per_cycle_elapsed)?")  # fmt: skip
VOLTA_HMMA = 512  # FLOPs of one HMMA.884 by a warp: 8×8×4 multiply-adds (CC 7.0, whose only tensor instruction it is)


@lru_cache(maxsize=4)
def _path_names(names: frozenset[str]) -> dict[str, tuple[str, ...]]:
    """The counters of operations to add up, by source precision ("bf16", "fp8"), so that none is counted twice.

    The counter of a precision includes those of its results and of sparsity, and on Hopper that of an instruction
    misses warpgroup MMA: a counter whose name is another's and more is left out, and one by instruction if there are
    others.
    """
    found = {re.sub(r"\.sum\.per_\w+$", ".sum", name): match for name in names if (match := PATH.fullmatch(name))}
    plain = {name: match for name, match in found.items() if not match["op"]} or found
    stems = {name: name.removesuffix(".sum") for name in plain}
    least = [name for name, stem in stems.items() if not any(stem.startswith(f"{o}_") for o in stems.values())]
    by_source: dict[str, list[str]] = {}
    for name in sorted(least):
        by_source.setdefault(plain[name]["src"], []).append(name)
    return {source: tuple(named) for source, named in by_source.items()}


def tensor_ops_by_precision(report: Report) -> dict[str, Floats]:
    """Operations of the tensor cores by the precision of what they multiply; a multiply-add is 2.

    Empty if the report has no counters of them: ``sm__ops_path_tensor_*``, from Ampere on.
    """
    by_source = _path_names(frozenset(report.metrics))
    return {source: np.add.reduce([_factor(report, name) for name in names]) for source, names in by_source.items()}


def tensor_ops(report: Report) -> Floats:
    """Operations of the tensor cores for each launch; a multiply-add is 2.

    0 where the tensor pipe was idle. Unknown where it worked and its operations were not counted: its instructions
    have no fixed size after Volta.
    """
    columns = tensor_ops_by_precision(report).values()
    counted = np.fmax(0, np.nansum([*columns], axis=0)) if columns else unknown(report)
    if columns:
        counted = np.where(np.logical_and.reduce([np.isnan(column) for column in columns]), np.nan, counted)
    found = np.where(np.isnan(counted) & (quantity(report, "tensor_pct") == 0), 0, counted)
    instructions = quantity(report, "tensor_instructions")
    found = np.where(np.isnan(found) & (instructions == 0), 0, found)
    volta = np.array([launch.cc == "7.0" for launch in report.launches], bool)
    return np.where(np.isnan(found) & volta, VOLTA_HMMA * instructions, found)


def executed_flops(report: Report) -> Floats:
    """Floating-point operations executed for each launch, by tensor cores and CUDA cores, of what was counted.

    Unknown where the tensor cores' are, and where nothing but an idle tensor pipe is known. Where additions,
    multiplications or a precision were not collected, this is a lower bound.
    """
    tensor = tensor_ops(report)
    cores = [quantity(report, key) for key in ("fp16_flops", "fp32_flops", "fp64_flops")]
    counted = np.nansum(cores, axis=0)
    is_counted = np.logical_or.reduce([~np.isnan(column) for column in cores])
    return np.where(np.isnan(tensor) | (~is_counted & (tensor == 0)), np.nan, tensor + counted)
