"""Which of ncu's metrics to ask for: those of the report and of `prof.py --ncu`, by the generation of the GPU.

ncu ends with an error at a name that the GPU does not have, and runs each kernel once more for every few names. So this
list is short, and it has only names that the generation is known to have. For any other generation, ncu is asked.
"""

import re
import subprocess
from collections.abc import Collection
from typing import NamedTuple

from pyprof.errors import PyprofError

Capability = tuple[int, int]  # compute capability: (9, 0)


class Metric(NamedTuple):
    """A quantity: the counters that may hold it, of which a GPU has one, and what ncu is to print of it."""

    means: str
    counters: tuple[str, ...]
    rollups: tuple[str, ...]  # ".sum" and the like; several of one counter need no further run


METRICS = (
    Metric("time", ("gpu__time_duration",), (".sum",)),
    Metric("bytes read from DRAM", ("dram__bytes_read", "dram__bytes_op_read"), (".sum",)),
    Metric("bytes written to DRAM", ("dram__bytes_write", "dram__bytes_op_write"), (".sum",)),
    Metric("sectors read from the L2 by the SMs", ("lts__t_sectors_srcunit_tex_op_read",), (".sum",)),
    Metric("sectors written to the L2 by the SMs", ("lts__t_sectors_srcunit_tex_op_write",), (".sum",)),
    Metric(
        "how busy the tensor cores are",
        ("sm__pipe_tensor_cycles_active",),
        (".avg.pct_of_peak_sustained_active", ".avg.pct_of_peak_sustained_elapsed"),
    ),
    Metric(
        "how busy the tensor cores are with instructions of the fifth generation (tcgen05)",
        ("sm__pipe_tc_cycles_active",),
        (".avg.pct_of_peak_sustained_active", ".avg.pct_of_peak_sustained_elapsed"),
    ),
    Metric("instructions of warps", ("smsp__inst_executed",), (".sum",)),
    Metric("the clock of the SMs", ("sm__cycles_elapsed",), (".avg.per_second",)),
)

_SINCE_VOLTA = frozenset(metric.counters[0] for metric in METRICS) - {"sm__pipe_tc_cycles_active"}
_DRAM = {"dram__bytes_read": "dram__bytes_op_read", "dram__bytes_write": "dram__bytes_op_write"}
# Read in NVIDIA's Kernel Profiling Guide (the pipes) and in public reports of ncu 2025.3 and later (DRAM on 12.0);
# 9.0 was measured with 2025.3. Generations that are not listed, such as GPUs that share the CPU's memory, are queried.
KNOWN: dict[Capability, frozenset[str]] = {
    **dict.fromkeys(((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0)), _SINCE_VOLTA),
    (12, 0): frozenset(_DRAM.get(name, name) for name in _SINCE_VOLTA),
}


def metrics(ncu: str, capability: Capability | None) -> list[str]:
    """The names to give to ``--metrics``. ``capability``: None if it is not known.

    If ncu has to be asked and cannot answer, they are those of Volta and later, and ncu says what is wrong.
    """
    known = None if capability is None else KNOWN.get(capability)
    return chosen(known or available(ncu) or _SINCE_VOLTA)


def chosen(counters: Collection[str]) -> list[str]:
    """
    >>> chosen({"gpu__time_duration", "dram__bytes_op_read", "l1tex__t_bytes"})
    ['gpu__time_duration.sum', 'dram__bytes_op_read.sum']
    """
    first = ((metric, next((name for name in metric.counters if name in counters), None)) for metric in METRICS)
    return [f"{name}{rollup}" for metric, name in first if name is not None for rollup in metric.rollups]


def available(ncu: str) -> frozenset[str]:
    """The counters of this machine's GPU, by ``ncu --query-metrics``, which takes seconds."""
    command = [ncu, "--query-metrics"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise PyprofError(f"{ncu}: cannot be run: {error.strerror or error}") from None
    return frozenset(re.findall(r"^\s*([a-z0-9]+__\w+)\b", done.stdout, re.MULTILINE))


def capability() -> Capability | None:
    """The compute capability of this machine's GPUs, as nvidia-smi names it; None if it is unknown or they differ."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = {match.groups() for match in map(re.compile(r"(\d+)\.(\d+)").fullmatch, done.stdout.split()) if match}
    if len(found) != 1 or done.returncode:
        return None
    ((major, minor),) = found
    return int(major), int(minor)
