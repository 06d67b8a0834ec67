"""A replay on another GPU: kernels and copies take what the limits of both GPUs say, the host what it did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from pyprof.prof.limits.other_device import Moved, named_device, on_device
from pyprof.prof.limits.roofline import roofline
from pyprof.prof.replay.replayed_run import Replayed
from pyprof.prof.replay.tasks import WORK
from pyprof.prof.replay.without_profiler import mean_step_ns
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Floats

SURE = 0.9  # the quantile at the upper end of an 80% interval


@dataclass(frozen=True, slots=True)
class OnOtherGpu:
    """A replay on another GPU, and the interval of its mean step, all kernels being faster or slower together."""

    replayed: Replayed
    moved: Moved
    here: str  # the capture's GPU
    step_ns: float
    low_ns: float
    high_ns: float


def on_other_gpu(replayed: Replayed, name: str) -> OnOtherGpu:
    """The replay on the GPU of this name. Raises UsageError if either GPU is not known."""
    annotation = annotate(replayed.table)
    moved = on_device(replayed.table, annotation, named_device(name))
    away = NormalDist().inv_cdf(SURE) * moved.deviation
    found, low, high = (_with(replayed, moved.ns * np.exp(error)) for error in (0.0, -away, away))
    here = next((each.name for each in roofline(replayed.table, annotation).devices if each.known), "")
    return OnOtherGpu(found, moved, here, mean_step_ns(found), mean_step_ns(low), mean_step_ns(high))


def _with(replayed: Replayed, ns: Floats) -> Replayed:
    """The replay with these durations of its table's rows."""
    duration, work = replayed.tasks.duration.copy(), replayed.tasks.kind == WORK
    duration[work] = np.round(ns[replayed.run.work.row[replayed.tasks.item[work]]]).astype(np.int64)
    return replayed.with_tasks(replace(replayed.tasks, duration=duration))
