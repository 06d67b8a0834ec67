"""The list of reports of ``pyprof stats``: names, titles, columns and functions."""

from collections.abc import Callable
from dataclasses import dataclass

from pyprof.parse.stats import cuda_sums as cuda
from pyprof.parse.stats import nvtx_sums as nvtx
from pyprof.parse.stats.group_statistics import Rows
from pyprof.parse.stats.recording import Recording

SPREAD = ("Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)", "StdDev (ns)")
KERNEL_NAMES = ("base", "mangled")  # without a variant, names with template arguments
_TEXTS = "Name, Operation, Range, Style, Category, NVTX Range, Kernel Name, API Name, GridXYZ, BlockXYZ, RangeStack"
TEXTS = frozenset(_TEXTS.split(", "))  # all other columns are numbers


@dataclass(frozen=True, slots=True)
class Report:
    """A table of nsys stats, named after the function that computes its rows."""

    rows: Callable[[Recording, str], Rows]
    title: str
    columns: tuple[str, ...]
    missing: str  # the data that a file lacks if the table is empty
    variants: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.rows.__name__


def _columns(text: str) -> tuple[str, ...]:
    """Column names separated by commas. `*` means the five columns of statistics, `P*` the same with prefix P."""
    names: list[str] = []
    for name in text.split(", "):
        names += [f"{name[:-1]}{column}" for column in SPREAD] if name.endswith("*") else [name]
    return tuple(names)


def _times(count: str, last: str) -> tuple[str, ...]:
    """The columns of ``group_rows``."""
    return _columns(f"Time (%), Total Time (ns), {count}, *, {last}")


NVTX, RUNTIME, API = "NV Tools Extension (NVTX) data", "OS Runtime trace data", "CUDA trace data"
KERNELS, MEMORY, LAUNCHES = "CUDA kernel data", "GPU memory data", "CUDA kernel and API data"
PUSHED, STARTED, PROJECTED = "NVTX push/pop range data", "NVTX start/end range data", "GPU work inside NVTX ranges"
RANGES, CALLS, COPIES = _times("Instances", "Range"), _times("Num Calls", "Name"), _times("Count", "Operation")
RANGE_KERNELS = _columns("NVTX Range, Style, PID, TID, NVTX Inst, Kern Inst, Total Time (ns), *, Kernel Name")
PROJECTION = _columns(
    "Range, Style, Total Proj Time (ns), Total Range Time (ns), Range Instances, Proj *, Total GPU Ops, Avg GPU Ops,"
    " Avg Range Lvl, Avg Num Child"
)
PROJECTION_TRACE = _columns(
    "Name, Projected Start (ns), Projected Duration (ns), Orig Start (ns), Orig Duration (ns), Style, PID, TID,"
    " NumGPUOps, Lvl, NumChild, RangeId, ParentId, RangeStack"
)
GRIDS, KINDS = _times("Instances", "GridXYZ, BlockXYZ, Name"), _times("Instances", "Category, Operation")
SIZES = _columns("Total (MB), Count, Avg (MB), Med (MB), Min (MB), Max (MB), StdDev (MB), Operation")
EXECUTION = _columns("PID, TID, DevId, Count, QCount, T*, A*, Q*, K*, API Name, Kernel Name")

REPORTS = (
    Report(nvtx.nvtx_sum, "NVTX Range Summary", _times("Instances", "Style, Range"), NVTX),
    Report(nvtx.nvtx_pushpop_sum, "NVTX Push/Pop Range Summary", RANGES, PUSHED),
    Report(nvtx.nvtx_startend_sum, "NVTX Start/End Range Summary", RANGES, STARTED),
    Report(nvtx.nvtx_kern_sum, "NVTX Range Kernel Summary", RANGE_KERNELS, PROJECTED, KERNEL_NAMES),
    Report(nvtx.nvtx_gpu_proj_sum, "NVTX GPU Projection Summary", PROJECTION, PROJECTED),
    Report(nvtx.nvtx_gpu_proj_trace, "NVTX GPU Projection Trace", PROJECTION_TRACE, PROJECTED),
    Report(cuda.osrt_sum, "OS Runtime Summary", CALLS, RUNTIME),
    Report(cuda.cuda_api_sum, "CUDA API Summary", CALLS, API),
    Report(cuda.cuda_gpu_kern_sum, "CUDA GPU Kernel Summary", _times("Instances", "Name"), KERNELS, KERNEL_NAMES),
    Report(cuda.cuda_gpu_kern_gb_sum, "CUDA GPU Kernel/Grid/Block Summary", GRIDS, KERNELS, KERNEL_NAMES),
    Report(cuda.cuda_gpu_mem_time_sum, "CUDA GPU MemOps Summary (by Time)", COPIES, MEMORY),
    Report(cuda.cuda_gpu_mem_size_sum, "CUDA GPU MemOps Summary (by Size)", SIZES, MEMORY),
    Report(cuda.cuda_gpu_sum, "CUDA GPU Summary (Kernels/MemOps)", KINDS, "CUDA kernel or memory data", KERNEL_NAMES),
    Report(cuda.cuda_kern_exec_sum, "CUDA Kernel Launch & Exec Time Summary", EXECUTION, LAUNCHES, KERNEL_NAMES),
)
REPORT = {report.name: report for report in REPORTS}
DEFAULT = "nvtx_sum,osrt_sum,cuda_api_sum,cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,cuda_gpu_mem_size_sum"


@dataclass(frozen=True, slots=True)
class Wanted:
    """A report that the user asked for: ``cuda_gpu_kern_sum:base``."""

    report: Report
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.report.name}:{self.variant}" if self.variant else self.report.name

    def rows(self, recording: Recording) -> Rows:
        return self.report.rows(recording, self.variant)


def wanted(text: str) -> Wanted:
    """The report with this name. Raises ValueError if there is none."""
    name, _, variant = text.partition(":")
    report = REPORT.get(name)
    if report is None:
        raise ValueError(f"there is no report {name!r}; there are: {', '.join(REPORT)}")
    if ":" in text and variant not in report.variants:
        known = ", ".join(f"{name}:{known}" for known in report.variants) or "no variants of it"
        raise ValueError(f"there is no {text!r}; there are: {known}")
    return Wanted(report, variant)
