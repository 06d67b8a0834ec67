"""The reports of ``pyprof stats``, once: names, titles, columns and functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyprof.parse.stats.calls import cuda_api_sum, osrt_sum
from pyprof.parse.stats.grouped import Cell
from pyprof.parse.stats.kernels import cuda_gpu_kern_gb_sum, cuda_gpu_kern_sum, cuda_gpu_sum
from pyprof.parse.stats.launches import cuda_kern_exec_sum
from pyprof.parse.stats.memory import cuda_gpu_mem_size_sum, cuda_gpu_mem_time_sum
from pyprof.parse.stats.nvtx_kernels import nvtx_kern_sum
from pyprof.parse.stats.nvtx_times import nvtx_pushpop_sum, nvtx_startend_sum, nvtx_sum
from pyprof.parse.stats.projection import nvtx_gpu_proj_sum, nvtx_gpu_proj_trace
from pyprof.parse.stats.recording import Recording

Rows = list[list[Cell]]
SPREAD = ("Avg (ns)", "Med (ns)", "Min (ns)", "Max (ns)", "StdDev (ns)")
KERNEL_NAMES = ("base", "mangled")  # without either, names with template arguments
TEXTS = frozenset({"Name", "Operation", "Range", "Style", "Category", "NVTX Range", "Kernel Name", "API Name",
                   "GridXYZ", "BlockXYZ", "RangeStack"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """A table of nsys stats. ``missing`` is what a file lacks for which it is empty."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: Callable[[Recording, str], Rows]
    missing: str
    variants: tuple[str, ...] = ()


def _times(count: str, *last: str) -> tuple[str, ...]:
    return ("Time (%)", "Total Time (ns)", count, *SPREAD, *last)


def _spread(prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{column}" for column in SPREAD)


NVTX, RUNTIME, API = "NV Tools Extension (NVTX) data", "OS Runtime trace data", "CUDA trace data"
KERNELS, MEMORY, LAUNCHES = "CUDA kernel data", "GPU memory data", "CUDA kernel and API data"
PROJECTED = "GPU work inside NVTX ranges"

REPORTS = (
    Report("nvtx_sum", "NVTX Range Summary", _times("Instances", "Style", "Range"), nvtx_sum, NVTX),
    Report("nvtx_pushpop_sum", "NVTX Push/Pop Range Summary", _times("Instances", "Range"), nvtx_pushpop_sum,
           "NVTX push/pop range data"),
    Report("nvtx_startend_sum", "NVTX Start/End Range Summary", _times("Instances", "Range"), nvtx_startend_sum,
           "NVTX start/end range data"),
    Report("nvtx_kern_sum", "NVTX Range Kernel Summary",
           ("NVTX Range", "Style", "PID", "TID", "NVTX Inst", "Kern Inst", "Total Time (ns)", *SPREAD, "Kernel Name"),
           nvtx_kern_sum, PROJECTED, KERNEL_NAMES),
    Report("nvtx_gpu_proj_sum", "NVTX GPU Projection Summary",
           ("Range", "Style", "Total Proj Time (ns)", "Total Range Time (ns)", "Range Instances", *_spread("Proj "),
            "Total GPU Ops", "Avg GPU Ops", "Avg Range Lvl", "Avg Num Child"),
           nvtx_gpu_proj_sum, PROJECTED),
    Report("nvtx_gpu_proj_trace", "NVTX GPU Projection Trace",
           ("Name", "Projected Start (ns)", "Projected Duration (ns)", "Orig Start (ns)", "Orig Duration (ns)",
            "Style", "PID", "TID", "NumGPUOps", "Lvl", "NumChild", "RangeId", "ParentId", "RangeStack"),
           nvtx_gpu_proj_trace, PROJECTED),
    Report("osrt_sum", "OS Runtime Summary", _times("Num Calls", "Name"), osrt_sum, RUNTIME),
    Report("cuda_api_sum", "CUDA API Summary", _times("Num Calls", "Name"), cuda_api_sum, API),
    Report("cuda_gpu_kern_sum", "CUDA GPU Kernel Summary", _times("Instances", "Name"), cuda_gpu_kern_sum, KERNELS,
           KERNEL_NAMES),
    Report("cuda_gpu_kern_gb_sum", "CUDA GPU Kernel/Grid/Block Summary",
           _times("Instances", "GridXYZ", "BlockXYZ", "Name"), cuda_gpu_kern_gb_sum, KERNELS, KERNEL_NAMES),
    Report("cuda_gpu_mem_time_sum", "CUDA GPU MemOps Summary (by Time)", _times("Count", "Operation"),
           cuda_gpu_mem_time_sum, MEMORY),
    Report("cuda_gpu_mem_size_sum", "CUDA GPU MemOps Summary (by Size)",
           ("Total (MB)", "Count", "Avg (MB)", "Med (MB)", "Min (MB)", "Max (MB)", "StdDev (MB)", "Operation"),
           cuda_gpu_mem_size_sum, MEMORY),
    Report("cuda_gpu_sum", "CUDA GPU Summary (Kernels/MemOps)", _times("Instances", "Category", "Operation"),
           cuda_gpu_sum, "CUDA kernel or memory data", KERNEL_NAMES),
    Report("cuda_kern_exec_sum", "CUDA Kernel Launch & Exec Time Summary",
           ("PID", "TID", "DevId", "Count", "QCount", *(f"{letter}{column}" for letter in "TAQK" for column in SPREAD),
            "API Name", "Kernel Name"),
           cuda_kern_exec_sum, LAUNCHES, KERNEL_NAMES),
)  # fmt: skip
REPORT = {report.name: report for report in REPORTS}
DEFAULT = ("nvtx_sum", "osrt_sum", "cuda_api_sum", "cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum",
           "cuda_gpu_mem_size_sum")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wanted:
    """A report that was asked for: ``cuda_gpu_kern_sum:base``."""

    report: Report
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.report.name}:{self.variant}" if self.variant else self.report.name

    def rows(self, recording: Recording) -> Rows:
        return self.report.rows(recording, self.variant)


def wanted(text: str) -> Wanted:
    """The report of a name. Raises ValueError where there is none."""
    name, _, variant = text.partition(":")
    report = REPORT.get(name)
    if report is None:
        raise ValueError(f"there is no report {name!r}; there are: {', '.join(REPORT)}")
    if ":" in text and variant not in report.variants:
        known = ", ".join(f"{name}:{known}" for known in report.variants) or "no variants of it"
        raise ValueError(f"there is no {text!r}; there are: {known}")
    return Wanted(report, variant)
