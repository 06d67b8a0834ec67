"""What pyprof plan prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from typing import Annotated

from pyprof.command.json_schema import Record, doc
from pyprof.prof.advice import Run
from pyprof.prof.edits.edit import Edit
from pyprof.prof.edits.forecast import Forecast, Forecaster
from pyprof.prof.edits.scenario import captured
from pyprof.prof.limits.other_device import KINDS
from pyprof.prof.planning.check import Checked
from pyprof.prof.planning.plan_device import OtherGpu
from pyprof.prof.planning.plan_timings import Source
from pyprof.prof.planning.search import Change, Plan


class StepTime(Record):
    """The time of a step without a profiler, and the interval that contains it in four cases of five."""

    ms: Annotated[float, doc("mean over what is not known: the host's pace, durations after a change", "ms")]
    low_ms: Annotated[float, doc("one case in ten is below", "ms")]
    high_ms: Annotated[float, doc("one case in ten is above", "ms")]


class PlannedChange(Record):
    """A change, after those before it."""

    rule: Annotated[str, doc("its name, for --with and --without (docs/explanation/advice.md)")]
    title: Annotated[str, doc("what to do, in a few words")]
    change: Annotated[str, doc("what to write instead")]
    why: Annotated[str, doc("the reason, in numbers")]
    cost: Annotated[str, doc("what it costs: numerics, memory, code")]
    op: Annotated[str, doc("what the user called, for the kernel that gains most; empty: it concerns all, or none")]
    layer: Annotated[str, doc("its layer")]
    trace: Annotated[str, doc("its line of code")]
    kernels: Annotated[float, doc("number of kernels and copies per step that it concerns")]
    saved_ms: Annotated[float, doc("what the step gets shorter by it, after the changes before", "ms")]
    step: Annotated[StepTime, doc("the step after it")]
    timed: Annotated[float, doc("the share of its kernels' new durations that was measured, by time", "1")]


class NotChosen(Record):
    """A change that would save less than 1% of the step after those of the plan."""

    rule: Annotated[str, doc("its name")]
    title: Annotated[str, doc("what it would do")]
    saved_ms: Annotated[float, doc("what it would save, roughly; negative: the step would take longer", "ms")]


class AbstainedRule(Record):
    """A rule that proposes nothing at the end of the plan."""

    rule: Annotated[str, doc("its name")]
    why: Annotated[str, doc("why it proposes nothing")]


class CheckedChange(Record):
    """A change of the plan in the second capture."""

    rule: Annotated[str, doc("its name")]
    title: Annotated[str, doc("what it was to do")]
    made: Annotated[bool, doc("whether its rule no longer proposes it there")]
    predicted: Annotated[StepTime, doc("the step after the changes that were made so far, predicted from the first")]


class PlanChecked(Record):
    """The plan beside a second capture, of the program after some of the changes."""

    now: Annotated[StepTime, doc("the second capture's step without a profiler")]
    changes: Annotated[list[CheckedChange], doc("those of the plan, in order")]
    difference: Annotated[float, doc("the last prediction / the second capture's step - 1")]


class MovedKind(Record):
    """Kernels and copies that one thing limits."""

    kind: Annotated[str, doc("compute, memory, latency, link, communication; unknown: scaled as memory")]
    captured_ms: Annotated[float, doc("their time per step on the capture's GPU", "ms")]
    ms: Annotated[float, doc("and on the other one", "ms")]


class PlanTimings(Record):
    """The measured durations that the plan used."""

    device: Annotated[str, doc("the GPU that they were measured on")]
    torch: Annotated[str, doc("its PyTorch's version")]
    calls: Annotated[int, doc("how many were known")]
    measured: Annotated[int, doc("how many of them were timed now (--measure)")]
    missing: Annotated[int, doc("how many more the plan's changes ask for")]
    failed: Annotated[list[str], doc("calls that could not be timed, with the reason")]


class PlanDevice(Record):
    """The GPU that the plan is for, where it is not the capture's."""

    name: Annotated[str, doc("of the GPU")]
    source: Annotated[str, doc("of its peaks")]
    captured_on: Annotated[str, doc("the capture's GPU")]
    captured: Annotated[StepTime, doc("the step there, without a profiler")]
    kinds: Annotated[list[MovedKind], doc("the GPU's time by what limits it")]
    replaced: Annotated[float, doc("kernels per step whose unit (TF32, bf16, ...) it lacks, taken to run on another")]
    unknown: Annotated[float, doc("kernels per step whose unit it lacks, and for which no other one is known")]


class PlanDocument(Record):
    """The document of pyprof plan: changes in the order in which they bring most, each after those before it."""

    captured_ms: Annotated[
        float, doc("what a step takes as captured, with the profiler; the whole capture if unmarked")
    ]
    steps: Annotated[int, doc("how many the capture marks; 0: none, and a step is the whole capture")]
    measured: Annotated[bool, doc("whether the time without the profiler was given; otherwise now is an estimate")]
    now: Annotated[StepTime, doc("the step without a profiler, as the program is")]
    changes: Annotated[list[PlannedChange], doc("in order")]
    not_chosen: Annotated[list[NotChosen], doc("the greatest saving first")]
    abstained: Annotated[list[AbstainedRule], doc("rules that propose nothing, and why")]
    checked: Annotated[PlanChecked | None, doc("the plan beside a second capture, with --check")] = None
    timings: Annotated[PlanTimings | None, doc("measured durations, with --measure or --timings")] = None
    device: Annotated[PlanDevice | None, doc("the GPU of now and all that follows, with --device")] = None


def plan_document(
    forecaster: Forecaster,
    plan: Plan,
    checked: Checked | None = None,
    source: Source | None = None,
    other: OtherGpu | None = None,
) -> PlanDocument:
    run = forecaster.base.run
    times = [plan.now, *(change.forecast for change in plan.changes)]
    pairs = zip(plan.changes, times, strict=False)
    return PlanDocument(
        captured_ms=round(run.step_ns / 1e6, 6),
        steps=run.marked,
        measured=forecaster.measured,
        now=_time(plan.now),
        changes=[_change(change, before) for change, before in pairs],
        not_chosen=[NotChosen(edit.rule, edit.title, round(saved / 1e6, 6)) for edit, saved in plan.others],
        abstained=[AbstainedRule(each.rule, each.why) for each in plan.abstained],
        checked=None if checked is None else _checked(plan, checked),
        timings=None if source is None else _timings(source),
        device=None if other is None else _device(other, forecaster),
    )


def _device(other: OtherGpu, forecaster: Forecaster) -> PlanDevice:
    run, moved, codes = forecaster.base.run, other.moved, other.moved.kind.codes
    sums = [(kind, run.dur[codes == code].sum(), moved.ns[codes == code].sum()) for code, kind in enumerate(KINDS)]
    return PlanDevice(
        name=moved.device.part,
        source=moved.device.source,
        captured_on=other.here,
        captured=_time(forecaster.forecast(captured(forecaster.base))),
        kinds=[MovedKind(kind, round(run.ms(a), 6), round(run.ms(b), 6)) for kind, a, b in sums if a],
        replaced=round(run.count(int((moved.missing & ~moved.impossible).sum())), 3),
        unknown=round(run.count(int(moved.impossible.sum())), 3),
    )


def _timings(source: Source) -> PlanTimings:
    content = source.content()
    failed = [f"{each.call}: {each.why}" for each in content.calls if each.seconds is None]
    return PlanTimings(content.device, content.torch, len(content.calls), source.measured, source.missing, failed)


def _checked(plan: Plan, checked: Checked) -> PlanChecked:
    rows = zip(plan.changes, checked.made, checked.predicted, strict=True)
    last = checked.predicted[-1] if checked.predicted else plan.now
    return PlanChecked(
        now=_time(checked.found),
        changes=[CheckedChange(c.edit.rule, c.edit.title, made, _time(time)) for c, made, time in rows],
        difference=round(last.ns / checked.found.ns - 1, 6) if checked.found.ns else 0.0,
    )


def _time(forecast: Forecast) -> StepTime:
    return StepTime(*(round(ns / 1e6, 6) for ns in (forecast.ns, forecast.low, forecast.high)))


def _change(change: Change, before: Forecast) -> PlannedChange:
    edit, run = change.edit, change.before.run
    row = _most_gained(edit, run)
    return PlannedChange(
        rule=edit.rule,
        title=edit.title,
        change=edit.change,
        why=edit.why,
        cost=edit.cost,
        op=run.op(row) if row >= 0 else "",
        layer=run.layer(row) if row >= 0 else "",
        trace=run.trace(row) if row >= 0 else edit.line,
        kernels=round(run.count(len(edit.rows)), 3),
        saved_ms=round((before.ns - change.forecast.ns) / 1e6, 6),
        step=_time(change.forecast),
        timed=round(edit.timed, 4),
    )


def _most_gained(edit: Edit, run: Run) -> int:
    """The row that gains most; -1 for a change about all rows, or none."""
    if not len(edit.rows) or len(edit.rows) == run.rows:
        return -1
    return int(edit.rows[(run.dur[edit.rows] - edit.ns).argmax()])
