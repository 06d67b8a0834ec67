"""What the command pyprof plan says besides the list of changes: the step, another GPU, and measured durations."""

from __future__ import annotations

from pyprof.prof.changes.say import interval, ms, one, without_profiler
from pyprof.prof.limits.hardware_words import hardware_words
from pyprof.prof.planning.json_document import PlanDocument
from pyprof.quantities import counted, rounded


def head(document: PlanDocument) -> str:
    """What a step takes, with the profiler and without; on another GPU; what was measured; whether to trust it."""
    doubt = f"This and all that follows may be false: {document.doubt}." if document.doubt else ""
    return " ".join(filter(None, (_step(document), doubt, _device(document), _timings(document))))


def _step(document: PlanDocument) -> str:
    time = document.now if document.device is None else document.device.captured
    if time is None:
        return f"{one(document).capitalize()} takes {ms(document.captured_ms)} ms as captured."
    replayed = f" ({document.steps} steps are replayed)" if document.steps > 1 else ""
    start = f"{one(document).capitalize()} takes {ms(document.captured_ms)} ms as captured{replayed}."
    now = f"{ms(time.ms)} ms"
    if document.measured:
        return f"{start} Measured without the profiler, it takes {now}."
    return (
        f"{start} {without_profiler(document)}, it takes about {now}: an estimate. If you know that time, give it with "
        "--step-ms; pyprof run --warmup 4 measures it."
    )


def _device(document: PlanDocument) -> str:
    device = document.device
    if device is None:
        return ""
    now = document.now or device.captured
    said = (
        f"On {device.name} in place of {device.captured_on}: {ms(now.ms)} ms, in four of five cases "
        f"{interval(now)}. Each kernel keeps the share of its GPU's limit that it reached; the host is taken "
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
