"""A plan's sentences, which the terminal, the page and the notebook share."""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.prof.advice.advised import StepTime
from pyprof.prof.advice.report import NO_SHAPES, TIMED, partly_timed
from pyprof.prof.limits.hardware_words import hardware_words
from pyprof.prof.planning.json_document import PlanDocument, PlannedChange
from pyprof.prof.planning.search import LEAST
from pyprof.quantities import counted, rounded

WORTH_SAYING = 0.05  # of the captured step, from which on it is said what its estimate leaves out
SHOWN = 5  # changes that are not in the plan


def unit(document: PlanDocument) -> str:
    return "step" if document.steps else "capture"


def one(document: PlanDocument) -> str:
    """What the times are those of: "a step", "the step" or "the capture"."""
    return f"{'a' if document.steps > 1 else 'the'} {unit(document)}"


def ms(amount: float) -> str:
    """
    >>> ms(1.2345), ms(1234.5)
    ('1.23', '1,234')
    """
    return rounded(amount, 3)


def interval(time: StepTime) -> str:
    """The 80% interval; empty where it has no width."""
    low, high = ms(time.low_ms), ms(time.high_ms)
    return f"{low} to {high}" if low != high else ""


def head(document: PlanDocument) -> str:
    """What a step takes, with the profiler and without; on another GPU; what was measured; whether to trust it."""
    doubt = f"This and all that follows may be false: {document.doubt}." if document.doubt else ""
    return " ".join(filter(None, (_step(document), doubt, _device(document), _timings(document))))


def _step(document: PlanDocument) -> str:
    time = document.now if document.device is None else document.device.captured
    what, mean = one(document), f" (mean of {document.steps} steps)" if document.steps > 1 else ""
    now, start = f"{ms(time.ms)} ms", f"{what.capitalize()} takes {ms(document.captured_ms)} ms{mean} as captured."
    if document.measured:
        return f"{start} Measured without the profiler, it takes {now}."
    without = "Without the profiler"
    if document.besides_ms > WORTH_SAYING * document.captured_ms:
        without += (
            f", and without {ms(document.besides_ms)} ms of launches that do more than that, such as load a kernel"
        )
    return (
        f"{start} {without}, {_timed(document)} about {now}: an estimate. If you know that time, give it with "
        "--step-ms; pyprof run --warmup 4 measures it."
    )


def _timed(document: PlanDocument) -> str:
    """What the time without the profiler is that of, and the verb."""
    extent = document.extent_ms
    return partly_timed(ms(extent)) if document.steps < 2 and extent < TIMED * document.captured_ms else "it takes"


def _device(document: PlanDocument) -> str:
    device = document.device
    if device is None:
        return ""
    said = (
        f"On {device.name} in place of {device.captured_on}: {ms(document.now.ms)} ms, in four of five cases "
        f"{interval(document.now)}. Each kernel keeps the share of its GPU's limit that it reached; the host is taken "
        "to be the same."
    )
    if device.replaced:
        without = f" Products per step without tensor cores, since it lacks theirs: {rounded(device.replaced)}."
        said += hardware_words(without, [device.name])
    if device.unknown:
        said += f" Kernels per step that cannot run there, scaled by the bandwidth: {rounded(device.unknown)}."
    return said


def _timings(document: PlanDocument) -> str:
    timings = document.timings
    if timings is None:
        return ""
    now = f", {timings.measured} of them now" if timings.measured else ""
    more = f"; {timings.missing} more were asked for and are estimated" if timings.missing else ""
    return f"Durations of {counted(timings.calls, 'call')} were measured on {timings.device}{now}{more}."


def place(document: PlanDocument) -> str:
    """Where the step is as it is: nothing, or on which other GPU."""
    return f", on {document.device.name}" if document.device is not None else ""


def titles(document: PlanDocument) -> Iterator[tuple[PlannedChange, str]]:
    """Each change with its title: "Use mixed precision: saves 6.24 ms per step (79%)", of the step as it is."""
    now = document.now.ms
    for change in document.changes:
        part = change.saved_ms / now if now else 0.0
        share = "" if not now else f" ({part:.0%})" if abs(part) >= 0.01 else " (under 1%)"
        does = f"saves {ms(change.saved_ms)} ms" if change.saved_ms >= 0 else f"costs {ms(-change.saved_ms)} ms"
        yield change, f"{change.title}: {does} per {unit(document)}{share}"


def depends(change: PlannedChange, now_ms: float) -> str:
    """What a change depends on: one that needs it, or those before it, without which it would not be worth it; else
    empty. ``now_ms``: the step as it is.
    """
    if change.needed_by and change.saved_ms < LEAST * now_ms:
        return f"It is made for the next change, which needs it: {change.needed_by}."
    if change.saved_ms < LEAST * now_ms or change.alone_ms is None or change.alone_ms >= LEAST * now_ms:
        return ""
    alone = f"save {ms(change.alone_ms)} ms" if change.alone_ms > 0 else "save nothing"
    return f"It pays only after those above: alone, it would {alone}."


def result(document: PlanDocument) -> str:
    """What the plan comes to."""
    if not document.changes:
        return f"No change was found that saves 1% of {one(document)}.{_shapeless(document)}"
    count = counted(len(document.changes), "change")
    before, after = ms(document.now.ms), ms(document.changes[-1].step.ms)
    further = "Each further one saves less than 1% of what is then left."
    return f"{count}: {before} to {after} ms. {further}{_shapeless(document)}"


def _shapeless(document: PlanDocument) -> str:
    """Where to find what a plan cannot have without shapes."""
    return "" if document.shapes else f" {NO_SHAPES}: pyprof prof --advise judges some by the kernels' names."


def others(document: PlanDocument) -> str:
    """What would save less than 1% of what is left; empty if there is no such change."""
    worth = [other for other in document.not_chosen if other.saved_ms > 0][:SHOWN]
    told = ", ".join(
        f"{other.title[:1].lower()}{other.title[1:]} ({other.rule}, {rounded(other.saved_ms, 2)} ms)" for other in worth
    )
    return f"Not worth it{' after these' if document.changes else ''}: {told}." if told else ""
