"""What pyprof plan prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from typing import Annotated, Any

from pyprof.command.json_schema import doc
from pyprof.prof.changes.records import Changes
from pyprof.prof.planning.check import PlanChecked
from pyprof.prof.planning.plan_device import PlanDevice
from pyprof.prof.planning.plan_timings import PlanTimings


class PlanDocument(Changes, kw_only=True):
    """The document of pyprof plan: the list of changes, and what the options ask for besides."""

    checked: Annotated[PlanChecked | None, doc("the plan beside a second capture, with --check")] = None
    timings: Annotated[PlanTimings | None, doc("measured durations, with --measure or --timings")] = None
    device: Annotated[PlanDevice | None, doc("the GPU of now and all that follows, with --device")] = None


def plan_document(found: Changes, **asked: Any) -> PlanDocument:
    """The document of a list of changes, with what options ask for."""
    return PlanDocument(**{name: getattr(found, name) for name in found.__struct_fields__}, **asked)
