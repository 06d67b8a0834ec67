"""A replay on another GPU: kernels and copies take what the limits of both GPUs say, the host what it did."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import Record, doc
from pyprof.prof.limits.other_device import named_device, on_device
from pyprof.prof.limits.roofline import roofline
from pyprof.prof.replay.replayed_run import Replayed
from pyprof.prof.replay.tasks import WORK
from pyprof.prof.replay.without_profiler import mean_step_ns
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Floats

SURE = 0.9  # the quantile at the upper end of an 80% interval


class ReplayedDevice(Record):
    """The GPU that the replay is for, where it is not the capture's."""

    name: Annotated[str, doc("of the GPU")]
    source: Annotated[str, doc("of its peaks")]
    captured_on: Annotated[str, doc("the capture's GPU")]
    step_ns: Annotated[float, doc("the mean step of this replay; of the whole run where no steps are marked")]
    low_ns: Annotated[float, doc("one case in ten is below")]
    high_ns: Annotated[float, doc("one case in ten is above")]


def on_other_gpu(replayed: Replayed, name: str) -> tuple[Replayed, ReplayedDevice]:
    """The replay on the GPU of this name, and the interval of its mean step, all kernels being faster or slower
    together. Raises UsageError if either GPU is not known."""
    annotation = annotate(replayed.table)
    moved = on_device(replayed.table, annotation, named_device(name))
    away = NormalDist().inv_cdf(SURE) * moved.deviation
    runs = [_with(replayed, moved.ns * np.exp(error)) for error in (0.0, -away, away)]
    here = next((each.name for each in roofline(replayed.table, annotation).devices if each.known), "")
    return runs[0], ReplayedDevice(moved.device.part, moved.device.source, here, *map(mean_step_ns, runs))


def _with(replayed: Replayed, ns: Floats) -> Replayed:
    """The replay with these durations of its table's rows."""
    duration = replayed.tasks.duration.copy()
    duration[replayed.tasks.of(WORK)] = np.round(ns[replayed.run.work.row]).astype(np.int64)
    return replayed.with_tasks(replace(replayed.tasks, duration=duration))
