"""osrt_sum and cuda_api_sum: time on the CPU by the function called."""

from __future__ import annotations

from pyprof.parse.stats.group_statistics import Cell, time_rows
from pyprof.parse.stats.recording import Calls, Recording
from pyprof.table.columns import Coded


def osrt_sum(recording: Recording, _: str = "") -> list[list[Cell]]:
    """Calls of the operating system's runtime."""
    return time_rows(recording.os.name, recording.os.end - recording.os.start)


def cuda_api_sum(recording: Recording, _: str = "") -> list[list[Cell]]:
    """Calls of the CUDA API."""
    return time_rows(function_names(recording.api), recording.api.end - recording.api.start)


def function_names(calls: Calls) -> Coded:
    """API names as nsys prints them."""
    return Coded(calls.name.codes, [without_version(name) for name in calls.name.values])


def without_version(name: str) -> str:
    """The name without its ABI version, which nsys strips where it has four digits.

    >>> without_version("cudaLaunchKernel_v7000"), without_version("cudaGraphLaunch_v10000")
    ('cudaLaunchKernel', 'cudaGraphLaunch_v10000')
    """
    return name[:-6] if name[-6:-4] == "_v" else name
