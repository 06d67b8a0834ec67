"""The JSON document that pyprof try prints with --json (pyprof/command/envelope.py adds the header)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pyprof.command.json_schema import Record, doc, nan_doc
from pyprof.variants.changes import CHANGES
from pyprof.variants.compare_runs import Variant, change_beside, loss_difference

if TYPE_CHECKING:
    from pyprof.prof.changes.effect.forecast import Forecast

Loss = Annotated[float, nan_doc("the sum of the scalars on which backward() was called in the step; null: not finite")]


class PredictedStep(Record):
    """What pyprof plan expects of the step after the changes, with an 80% interval."""

    ms: Annotated[float, doc("mean", "ms")]
    low_ms: Annotated[float, doc("one case in ten is below", "ms")]
    high_ms: Annotated[float, doc("one case in ten is above", "ms")]


class MeasuredStep(Record):
    """Steps of a run without a profiler."""

    ms: Annotated[float, doc("the median of a run; of several runs, the median of these", "ms")]
    low_ms: Annotated[float, doc("lower quartile of all steps", "ms")]
    high_ms: Annotated[float, doc("upper quartile of all steps", "ms")]
    runs_ms: Annotated[list[Annotated[float, doc("median of a run", "ms")]], doc("run by run")]
    steps: Annotated[int, doc("how many were timed, in all runs")]
    peak_bytes: Annotated[int, doc("of the GPU's memory as PyTorch allocates it; without a GPU, of the process")]
    losses: Annotated[list[Loss], doc("of the first steps of the first run")]


class TriedVariant(Record):
    """The script with changes that were applied from outside."""

    changes: Annotated[list[Annotated[str, doc("a change's name")]], doc("applied together")]
    does: Annotated[str, doc("what they are")]
    done: Annotated[list[Annotated[str, doc("in code")]], doc("what they did in this script")]
    measured: Annotated[MeasuredStep | None, doc("null: it has no measurement")]
    why_none: Annotated[str, doc("why there is no measurement: the last line of its error, or nothing to change")]
    difference: Annotated[float | None, doc("its step / the step of the script as it is - 1")]
    beyond_noise: Annotated[bool, doc("whether the difference is beyond the noise of both, and 1%")]
    loss_difference: Annotated[
        float | None,
        doc("the largest relative difference between losses of the same step; null: no losses, or one is not finite"),
    ]
    predicted: Annotated[PredictedStep | None, doc("with --capture: the step by pyprof plan")]
    kept: Annotated[bool | None, doc("with --plan: whether the changes after it were tried on top of it")] = None


class TryDocument(Record):
    """The document of pyprof try: a script's step as it is, and with changes."""

    script: Annotated[str, doc("as given")]
    exit_code: Annotated[int, doc("the script's; 0 where it was stopped after its steps were timed")]
    device: Annotated[str, doc("the GPU; empty: the script uses none")]
    steps_by: Annotated[str, doc("what ends a step: module calls, optimizer.step() or pyprof.step()")]
    passed_over: Annotated[int, doc("steps of the warm-up")]
    as_it_is: Annotated[MeasuredStep, doc("the script without changes, but with fixed seeds")]
    variants: Annotated[list[TriedVariant], doc("in the order in which they were tried")]
    by_hand: Annotated[
        list[Annotated[str, doc("title of a change")]], doc("with --plan: its changes that cannot be made from outside")
    ]


def measured_step(variant: Variant) -> MeasuredStep:
    low, high = variant.quartiles_ns()
    return MeasuredStep(
        ms=_ms(variant.step_ns),
        low_ms=_ms(low),
        high_ms=_ms(high),
        runs_ms=[_ms(Variant((), [run]).step_ns) for run in variant.runs],
        steps=sum(len(run.step_ns) for run in variant.runs),
        peak_bytes=variant.peak_bytes,
        losses=variant.losses,
    )


def tried(variant: Variant, original: Variant, forecast: Forecast | None, kept: bool | None = None) -> TriedVariant:
    difference, beyond = change_beside(variant, original)
    has_runs = bool(variant.runs)
    return TriedVariant(
        changes=list(variant.changes),
        does="; ".join(CHANGES[name].does for name in variant.changes),
        done=variant.runs[0].done if has_runs else [],
        measured=measured_step(variant) if has_runs else None,
        why_none="" if has_runs else variant.failed,
        difference=round(difference, 6) if has_runs else None,
        beyond_noise=beyond,
        loss_difference=loss_difference(variant.losses, original.losses),
        predicted=None if forecast is None else predicted_step(forecast),
        kept=kept,
    )


def predicted_step(forecast: Forecast) -> PredictedStep:
    return PredictedStep(ms=_ms(forecast.ns), low_ms=_ms(forecast.low), high_ms=_ms(forecast.high))


def try_document(
    script: str, code: int, original: Variant, variants: list[TriedVariant], by_hand: Sequence[str]
) -> TryDocument:
    first = original.runs[0]
    return TryDocument(
        script=script,
        exit_code=code,
        device=first.facts.gpu,
        steps_by=first.steps_by,
        passed_over=first.passed_over,
        as_it_is=measured_step(original),
        variants=variants,
        by_hand=list(by_hand),
    )


def _ms(ns: float) -> float:
    return round(ns / 1e6, 6)
