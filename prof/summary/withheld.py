"""The summary of an incomplete capture: without what would be false because records are missing.

Where kernels are lost, the time in which nothing is on record is not idle time, and the FLOPs and bytes on record are
not those of the span. What is computed of each operation by itself, or of the marks of steps, stays, unless times are
wrong.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from pyprof.prof.timing.usage import Usage
from pyprof.table.losses import times_are_wrong

if TYPE_CHECKING:
    from pyprof.prof.summary.capture_numbers import Summary


def withheld(summary: Summary) -> Summary:
    """The summary with unknown idle and busy times and shares of the span."""
    wrong = times_are_wrong(summary.incomplete)
    return replace(
        summary,
        busy_ns=None,
        idle_ns=None,
        exposed_ns=None,
        devices=tuple(_unused(device) for device in summary.devices),
        steps=() if wrong else tuple(replace(step, idle_ns=None) for step in summary.steps),
        step=None if wrong else summary.step,
        phases=tuple(replace(phase, idle_ns=None) for phase in summary.phases),
        serving=tuple(replace(phase, mfu=math.nan, mbu=math.nan) for phase in summary.serving),
    )


def _unused(device: Usage) -> Usage:
    """The device without the figures that rest on all of its operations."""
    nan = math.nan
    return replace(device, busy_ns=None, kernel_ns=None, sm_efficiency=nan, matrix_ns=nan, memory_ns=nan)
