"""The plan's run on another GPU: where the plan begins, and what is said of it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from pyprof.errors import UsageError
from pyprof.prof.edits.base_run import BaseRun
from pyprof.prof.edits.device import device_edit
from pyprof.prof.edits.scenario import Scenario, apply, captured
from pyprof.prof.limits.other_device import Moved, named_device


@dataclass(frozen=True, slots=True)
class OtherGpu:
    """The run on another GPU."""

    scenario: Scenario
    moved: Moved
    here: str  # the capture's GPU


def check_device_options(args: argparse.Namespace) -> None:
    """Raise UsageError for options that say something of the capture's GPU alone."""
    given = {"--measure": args.measure, "--timings": args.timings, "--check": args.check, "--peaks": args.peaks}
    for option, value in given.items():
        if args.device and value:
            raise UsageError(f"{option} does not go with --device: it is about the capture's GPU")


def on_other_gpu(name: str, base: BaseRun) -> OtherGpu:
    """The run of a capture on the GPU of this name. Raises UsageError if either GPU is not known."""
    start = captured(base)
    edit, moved = device_edit(start, named_device(name))
    here = next((device.name for device in start.run.limits.devices if device.known), "")
    return OtherGpu(apply(edit, start), moved, here)
