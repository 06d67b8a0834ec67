"""What pyprof plan prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

import math
from typing import Annotated

from pyprof.command.json_schema import Record, doc
from pyprof.prof.changes.find_changes import step_time
from pyprof.prof.changes.records import Changes, StepTime
from pyprof.prof.changes.search import Plan
from pyprof.prof.planning.check import Checked, CheckedEdit
from pyprof.prof.planning.plan_device import PlanDevice
from pyprof.prof.planning.plan_timings import PlanTimings


class CheckedChange(Record):
    """A change of the plan in the second capture."""

    rule: Annotated[str, doc("its name")]
    title: Annotated[str, doc("what it was to do")]
    made: Annotated[bool, doc("whether its rule no longer proposes it there, or for half of the kernels at most")]
    planned: Annotated[bool, doc("whether it is in the plan")]
    predicted: Annotated[StepTime, doc("the step after the changes that were made so far, predicted from the first")]
    predicted_ms: Annotated[
        float, doc("what it saves after those made before it; of one that was not made: in the second capture", "ms")
    ]
    measured_ms: Annotated[
        float | None,
        doc(
            "what it saved, by the durations of the second capture's kernels at its places, replayed; null: not made, "
            "or it shortens no kernels of its own",
            "ms",
        ),
    ]


class PlanChecked(Record):
    """The plan beside a second capture, of the program after some of the changes."""

    now: Annotated[StepTime, doc("the second capture's step without a profiler")]
    predicted: Annotated[StepTime, doc("what was predicted for it, after all changes that were made")]
    changes: Annotated[list[CheckedChange], doc("those of the plan in order, then others that were made")]
    difference: Annotated[float, doc("the prediction / the second capture's step - 1")]


class PlanDocument(Changes, kw_only=True):
    """The document of pyprof plan: the list of changes, and what the options ask for besides."""

    checked: Annotated[PlanChecked | None, doc("the plan beside a second capture, with --check")] = None
    timings: Annotated[PlanTimings | None, doc("measured durations, with --measure or --timings")] = None
    device: Annotated[PlanDevice | None, doc("the GPU of now and all that follows, with --device")] = None


def plan_document(found: Changes, plan: Plan | None = None, checked: Checked | None = None) -> PlanDocument:
    """The document of a list of changes. ``plan``, ``checked``: with a second capture."""
    document = PlanDocument(**{name: getattr(found, name) for name in found.__struct_fields__})
    if plan is not None and checked is not None:
        document.checked = _checked(plan, checked)
    return document


def _checked(plan: Plan, checked: Checked) -> PlanChecked:
    last = checked.last or plan.now
    return PlanChecked(
        now=step_time(checked.found),
        predicted=step_time(last),
        changes=[_checked_change(each) for each in checked.edits],
        difference=round(last.ns / checked.found.ns - 1, 6) if checked.found.ns else 0.0,
    )


def _checked_change(found: CheckedEdit) -> CheckedChange:
    return CheckedChange(
        rule=found.edit.rule,
        title=found.edit.title,
        made=found.made,
        planned=found.planned,
        predicted=step_time(found.predicted),
        predicted_ms=round(found.predicted_ns / 1e6, 6),
        measured_ms=None if math.isnan(found.measured_ns) else round(found.measured_ns / 1e6, 6),
    )
