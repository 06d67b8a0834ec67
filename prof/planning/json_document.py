"""What pyprof plan prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pyprof.command.json_schema import Record, doc
from pyprof.prof.advice import Run
from pyprof.prof.advice.advised import AbstainedRule, StepTime
from pyprof.prof.edits.cards import best_row, edit_place, step_time
from pyprof.prof.edits.forecast import Forecast, Forecaster
from pyprof.prof.planning.check import Checked, CheckedEdit
from pyprof.prof.planning.code_change import CodeChange, code_change
from pyprof.prof.planning.framework_settings import program_of
from pyprof.prof.planning.plan_device import PlanDevice
from pyprof.prof.planning.plan_timings import PlanTimings
from pyprof.prof.planning.search import Change, Plan, make_plan
from pyprof.source_path import Place


class PlannedChange(Record):
    """A change, after those before it."""

    rule: Annotated[str, doc("its name, for --with and --without (docs/explanation/advice.md)")]
    title: Annotated[str, doc("what to do, in a few words")]
    change: Annotated[str, doc("what to write instead")]
    why: Annotated[str, doc("the reason, in numbers")]
    cost: Annotated[str, doc("what it costs: numerics, memory, code")]
    op: Annotated[str, doc("what the user called, for the kernel that gains most; empty: it concerns all, or none")]
    layer: Annotated[str, doc("its layer")]
    trace: Annotated[str, doc("its line of code; empty: none is known, or none is outside of installed packages")]
    kernels: Annotated[float, doc("number of kernels and copies per step that it concerns")]
    saved_ms: Annotated[float, doc("what the step gets shorter by it, after the changes before", "ms")]
    step: Annotated[StepTime, doc("the step after it")]
    alone_ms: Annotated[
        float | None, doc("what it would save as the only change, roughly; null: its rule does not propose it so", "ms")
    ]
    needed_by: Annotated[str, doc("title of the change that it is made for, which needs it; empty: for itself")]
    timed: Annotated[float, doc("the share of its kernels' new durations that was measured, by time", "1")]
    source: Annotated[str, doc("the program's statement there; empty: the file is not here, or has changed")] = ""
    code: Annotated[CodeChange | None, doc("the change in code; null: in words alone")] = None
    library: Annotated[str, doc("the line of an installed package that its line leads to; empty: none")] = ""

    @property
    def place(self) -> Place:
        return Place(self.trace, self.library)


class NotChosen(Record):
    """A change that would save less than 1% of the step after those of the plan."""

    rule: Annotated[str, doc("its name")]
    title: Annotated[str, doc("what it would do")]
    saved_ms: Annotated[float, doc("what it would save, roughly; negative: the step would take longer", "ms")]


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


class PlanDocument(Record):
    """The document of pyprof plan: changes in the order in which they bring most, each after those before it."""

    captured_ms: Annotated[
        float, doc("what a step takes as captured, with the profiler; the whole capture if unmarked")
    ]
    steps: Annotated[
        int,
        doc("on how many marked steps it rests, some in a row of a long capture; 0: none, and a step is the capture"),
    ]
    measured: Annotated[bool, doc("whether the time without the profiler was given; otherwise now is an estimate")]
    now: Annotated[StepTime, doc("the step without a profiler, as the program is")]
    changes: Annotated[list[PlannedChange], doc("in order")]
    not_chosen: Annotated[list[NotChosen], doc("the greatest saving first")]
    abstained: Annotated[list[AbstainedRule], doc("rules that propose nothing, and why")]
    checked: Annotated[PlanChecked | None, doc("the plan beside a second capture, with --check")] = None
    timings: Annotated[PlanTimings | None, doc("measured durations, with --measure or --timings")] = None
    device: Annotated[PlanDevice | None, doc("the GPU of now and all that follows, with --device")] = None
    shapes: Annotated[bool, doc("whether the capture has shapes of ops, which most rules need")] = True
    besides_ms: Annotated[
        float,
        doc(
            "of captured_ms, what launches that take long do besides, such as loading a kernel: now leaves it out", "ms"
        ),
    ] = 0.0
    extent_ms: Annotated[
        float,
        doc(
            "as captured, from the first operation to the last: where steps is 0 or 1, that is what now and all times "
            "that follow are without a profiler",
            "ms",
        ),
    ] = 0.0
    doubt: Annotated[str, doc("why all these times may be false: what the replay lacks; empty: it is faithful")] = ""


def plan_document(run: Run, plan: Plan, measured: bool, newest: float, checked: Checked | None = None) -> PlanDocument:
    """``newest``: the time of the capture; the changes in code are by source files that are not newer."""
    times = [plan.now, *(change.forecast for change in plan.changes)]
    pairs = zip(plan.changes, times, strict=False)
    return PlanDocument(
        captured_ms=round(run.step_ns / 1e6, 6),
        steps=run.marked,
        measured=measured,
        now=step_time(plan.now),
        changes=[_change(change, before, newest) for change, before in pairs],
        not_chosen=[NotChosen(edit.rule, edit.title, round(saved / 1e6, 6)) for edit, saved in plan.others],
        abstained=[AbstainedRule(each.rule, each.why) for each in plan.abstained],
        checked=None if checked is None else _checked(plan, checked),
        shapes=run.has_sizes,
        extent_ms=round(run.extent_ns / 1e6, 6),
    )


def whole_plan(
    forecaster: Forecaster, newest: float, first: Sequence[str] = (), without: Sequence[str] = ()
) -> PlanDocument:
    """The plan of a run, with the changes in code by source files that are not newer.

    ``first``, ``without``: as for ``make_plan``. Raises UsageError for a rule that does not exist.
    """
    return plan_document(forecaster.base.run, make_plan(forecaster, first, without), forecaster.measured, newest)


def captured_at(file: str | Path) -> float:
    """The time of a capture, as that of its file; minus infinity where there is no file, as for standard input."""
    path = Path(file)
    return path.stat().st_mtime if path.exists() else -math.inf


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


def _change(change: Change, before: Forecast, newest: float) -> PlannedChange:
    edit, run = change.edit, change.before.run
    row, place = best_row(edit, run), edit_place(edit, run)
    op = run.op(row) if row >= 0 else ""
    source, code = code_change(edit.rule, edit.change, place.line, op, newest, program_of(run, edit.rows, row))
    return PlannedChange(
        rule=edit.rule,
        title=edit.title,
        change=run.in_makers_words(edit.change),
        why=run.in_makers_words(edit.why),
        cost=edit.cost,
        op=op,
        layer=run.layer(row) if row >= 0 else "",
        trace=place.line,
        kernels=round(run.count(len(edit.rows)), 3),
        saved_ms=round((before.ns - change.forecast.ns) / 1e6, 6),
        step=step_time(change.forecast),
        alone_ms=None if math.isnan(change.alone_ns) else round(change.alone_ns / 1e6, 6),
        needed_by=change.needed_by,
        timed=round(edit.timed, 4),
        source=source,
        code=code,
        library=place.library,
    )
