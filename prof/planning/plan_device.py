"""The plan's run on another GPU: where the plan begins, and what the document says of it."""

from __future__ import annotations

import argparse
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import Record, doc
from pyprof.errors import UsageError
from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.effect.scenario import Scenario, apply, captured
from pyprof.prof.changes.find_changes import step_time
from pyprof.prof.changes.records import StepTime
from pyprof.prof.limits.other_device import KINDS, named_device, on_device


class MovedKind(Record):
    """Kernels and copies that one thing limits."""

    kind: Annotated[str, doc("compute, memory, latency, link, communication; unknown: scaled as memory")]
    captured_ms: Annotated[float, doc("their time per step on the capture's GPU", "ms")]
    ms: Annotated[float, doc("and on the other one", "ms")]


class PlanDevice(Record):
    """The GPU that the plan is for, where it is not the capture's."""

    name: Annotated[str, doc("of the GPU")]
    source: Annotated[str, doc("of its peaks")]
    captured_on: Annotated[str, doc("the capture's GPU")]
    captured: Annotated[StepTime, doc("the step there, without a profiler")]
    kinds: Annotated[list[MovedKind], doc("the GPU's time by what limits it")]
    replaced: Annotated[float, doc("kernels per step whose unit (TF32, bf16, ...) it lacks, taken to run on another")]
    unknown: Annotated[float, doc("kernels per step whose unit it lacks, and for which no other one is known")]


def check_device_options(args: argparse.Namespace) -> None:
    """Raise UsageError for options that say something of the capture's GPU alone."""
    given = {"--measure": args.measure, "--timings": args.timings, "--check": args.check, "--peaks": args.peaks}
    for option, value in given.items():
        if args.device and value:
            raise UsageError(f"{option} does not go with --device: it is about the capture's GPU")


def on_other_gpu(name: str, forecaster: Forecaster) -> tuple[Scenario, PlanDevice]:
    """The run of a capture on the GPU of this name, and what the plan's document says of it; the host stays as it is.

    Raises UsageError if either GPU is not known.
    """
    start = captured(forecaster.base)
    run = start.run
    moved = on_device(run.table, run.annotation, named_device(name))
    part, codes = moved.device.part, moved.kind.codes
    edit = Edit(
        rule="device",
        change=f"Run the program on {part}.",
        why="each kernel keeps the share of its GPU's limit that it reached",
        cost="",
        rows=np.arange(run.rows),
        ns=moved.ns,
        left=np.ones(run.rows),
        deviation=moved.deviation,
        device=part,
    )
    sums = [(kind, run.dur[codes == code].sum(), moved.ns[codes == code].sum()) for code, kind in enumerate(KINDS)]
    return apply(edit, start), PlanDevice(
        name=part,
        source=moved.device.source,
        captured_on=next((device.name for device in run.limits.devices if device.known), ""),
        captured=step_time(forecaster.forecast(start)),
        kinds=[MovedKind(kind, round(run.ms(a), 6), round(run.ms(b), 6)) for kind, a, b in sums if a],
        replaced=round(run.count(int((moved.missing & ~moved.impossible).sum())), 3),
        unknown=round(run.count(int(moved.impossible.sum())), 3),
    )
