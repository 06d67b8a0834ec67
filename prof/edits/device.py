"""The run on another GPU as an edit: all kernels and copies take what the limits of both GPUs say; the host stays."""

from __future__ import annotations

import numpy as np

from pyprof.prof.edits.edit import Edit
from pyprof.prof.edits.scenario import Scenario
from pyprof.prof.limits.devices import Device
from pyprof.prof.limits.other_device import Moved, on_device


def device_edit(scenario: Scenario, target: Device) -> tuple[Edit, Moved]:
    """The edit, and what it rests on. Raises UsageError if the capture's GPU is not known."""
    run = scenario.run
    moved = on_device(run.table, run.annotation, target)
    edit = Edit(
        rule="device",
        change=f"Run the program on {target.part}.",
        why="each kernel keeps the share of its GPU's limit that it reached",
        cost="",
        rows=np.arange(run.rows),
        ns=moved.ns,
        left=np.ones(run.rows),
        deviation=moved.deviation,
        device=target.part,
    )
    return edit, moved
