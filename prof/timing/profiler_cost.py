"""What the profiler added to a run: measured, where steps were timed before it started, and estimated otherwise.

A profiler slows the host: each op, range and launch costs it time. How much of the host's time in a capture is the
program's own depends on the program, the profiler and the machine. ``pyprof run --warmup`` and
``pyprof.profile(warmup=)`` time steps before they start it; other captures have an estimate with its interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.table.columns import NULL, Table
from pyprof.table.measured_steps import MeasuredStep

# How much of the host's time under a profiler is its own. 45 programs on an H200 (PyTorch 2.11, tests/device/
# advice_measured.py): Python's time without a profiler over the time between the first and the last launch under
# torch.profiler with shapes, as pyprof.profile records: median 0.53, four fifths of them 0.35 to 0.66. GPT-2's step
# (docs/explanation/marking.md): 10.2 ms, under nsys with PyTorch's ranges 28.8, with init() too 32; under nsys alone
# 14.3. The other profilers' intervals are as wide as that of torch.profiler, in proportion.
_SPREAD = 0.35 / 0.53, 0.66 / 0.53
KINETO, RANGES, MARKED, PLAIN = 0.53, 0.35, 0.32, 0.7
# Those 45 programs launch 20 to 400 kernels per step. Six of 1,100 to 9,300 (tests/device/plan_programs, recorded twice
# on H200s with pyprof's markers; by the replay) keep less: 0.23, 0.28, 0.30, 0.35, 0.36, 0.39, 0.43, 0.45, 0.51, 0.53
# and 0.63 of it (docs/explanation/advice.md).
MANY, KINETO_MANY, OF_MANY = 500, 0.39, (0.28, 0.53)
HOST_LIMITS = 0.85  # below this share of the step, the GPU's work does not limit it


@dataclass(frozen=True, slots=True)
class Unprofiled:
    """The steps that were timed before the profiler started."""

    count: Annotated[int, doc("number of steps that were timed")]
    step_ns: Annotated[float, doc("the median of the later half: of each the longer time of host and GPU")]
    low_ns: Annotated[int, doc("the shortest of them")]
    high_ns: Annotated[int, doc("the longest of them")]
    host_ns: Annotated[float, doc("their median on the host, from the end of one iteration to the end of the next")]
    gpu_ns: Annotated[float | None, doc("their median on the GPU, by events at these ends; null: not timed there")]
    marked: Annotated[bool, doc("whether pyprof's markers were pushed meanwhile, as under nsys")]
    host_alone_ns: Annotated[
        float | None, doc("the host's median time for the last of them, which began on an idle GPU; null: none did")
    ] = None


@dataclass(frozen=True, slots=True)
class OwnShare:
    """How much of the captured host time is the program's own, with an 80% interval; the rest is the profiler's."""

    share: float
    low: float
    high: float
    measured: bool


def unprofiled(steps: Sequence[MeasuredStep]) -> Unprofiled | None:
    """The figures of measured steps; None if there are none. The first half may still be warming up."""
    alone = [step for step in steps if step.alone]
    steps = [step for step in steps if not step.alone] or alone
    if not steps:
        return None
    late = sorted(steps, key=lambda step: step.number)[len(steps) // 2 :]
    on_gpu = [step.gpu_ns for step in late if step.gpu_ns is not None]
    times = [step.ns for step in late]
    return Unprofiled(
        count=len(steps),
        step_ns=median(times),
        low_ns=min(times),
        high_ns=max(times),
        host_ns=median(step.host_ns for step in late),
        gpu_ns=median(on_gpu) if on_gpu else None,
        marked=any(step.marked for step in steps),
        host_alone_ns=median(step.host_ns for step in alone) if alone else None,
    )


def estimated_share(table: Table) -> OwnShare:
    """The estimate for captures without measured steps, by the profiler that its columns show."""
    if not bool(np.isnan(np.asarray(table.columns["occupancy"], np.float64)).all()):  # torch.profiler's column
        marked = bool((table.coded("marker").codes >= 0).any())
        if marked and _launches(table) >= MANY:
            return OwnShare(KINETO_MANY, *OF_MANY, measured=False)
        share = KINETO
    elif not (table.coded("aten").codes >= 0).any():
        share = PLAIN
    else:
        share = MARKED if bool((table.coded("marker").codes >= 0).any()) else RANGES
    return OwnShare(share, share * _SPREAD[0], min(share * _SPREAD[1], 1.0), measured=False)


def _launches(table: Table) -> float:
    """Operations per step, or in all where no steps are marked."""
    steps = table.ints("step")
    marked = steps[steps != NULL]
    return len(marked) / len(np.unique(marked)) if len(marked) else float(len(table))


def host_ran_ahead(found: Unprofiled) -> bool:
    """Whether the host was done with a step long before the GPU, so that its time is that of its own work alone."""
    return found.gpu_ns is not None and found.host_ns < HOST_LIMITS * found.gpu_ns
