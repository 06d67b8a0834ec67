"""Where the host pauses: the lines of the program before which it launches nothing for long, the longest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.prof.step.run_step import RunStep
from pyprof.prof.timing.blocking_copies import call_places
from pyprof.prof.timing.waiting import CAUSES, waiting
from pyprof.table.columns import Table

MOST = 10  # places that are told


@dataclass(frozen=True, slots=True)
class HostPlace:
    """A place before whose launch the GPU waits for the host."""

    op: Annotated[str, doc("what the user called, whose launch ends the pause")]
    line: Annotated[str, doc("the program's line, and the library's that it leads to")]
    ns: Annotated[float, doc("per step as captured: idle time of the GPU in pauses of 0.2 ms or longer before it")]
    pauses: Annotated[float, doc("number of them per step")]


def host_places(table: Table, step: RunStep) -> list[HostPlace]:
    """The places of a capture's steps, of all devices together, per device."""
    paused = waiting(table).parts[:, CAUSES.index("host")]
    rows = np.flatnonzero(paused > 0)
    if step.numbers:
        rows = rows[np.isin(table.ints("step")[rows], step.numbers)]
    places, group = call_places(table, rows)
    per = step.count * max(len(step.devices), 1)
    ns = np.bincount(group, weights=paused[rows], minlength=len(places)) / per
    count = np.bincount(group, minlength=len(places)) / per
    found = [
        HostPlace(op, str(place), float(ns[i]), float(count[i])) for i, (op, place) in enumerate(places) if any(place)
    ]
    return sorted(found, key=lambda place: (-place.ns, place.line))[:MOST]
