"""A plan as text for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.changes.records import Change, StepTime
from pyprof.prof.changes.say import depends, interval, ms, one, others, result, title, without_profiler, wrapped
from pyprof.prof.limits.hardware_words import hardware_words
from pyprof.prof.planning.check import CheckedChange, PlanChecked
from pyprof.prof.planning.json_document import PlanDocument
from pyprof.quantities import counted, rounded

WIDTH = 100
LEAST_WIDTH = 60
INDENT = " " * 11  # of what stands below a change: behind its time, and so that most code fits 80 characters
MEASURED = (
    "Measured: the second capture's kernels at the places of a change, in a replay; what a change saves of the host's "
    "time is in the step alone (-)."
)


def plan_lines(document: PlanDocument, width: int = WIDTH) -> Iterator[str]:
    """The step as it is, a line per change with its place, code and cost, and what is left."""
    width = max(width, LEAST_WIDTH)
    yield from wrapped(head(document), width)
    yield ""
    if document.changes and document.now is not None:
        where = "" if document.device is None else f", on {document.device.name}"
        yield f"{'step, ms':>9}  {'80% interval':^17}  change"
        yield f"{_time(document.now)}as it is{safe(where)}"
    for change in document.changes:
        yield from _change_lines(change, document, width)
    if document.changes:
        yield ""
    yield from wrapped(result(document), width)
    yield from wrapped(others(document), width)
    if document.checked is not None:
        yield from _checked_lines(document, document.checked, width)


def _time(step: StepTime) -> str:
    return f"{ms(step.ms):>9}  {interval(step):^17}  "


def _change_lines(change: Change, document: PlanDocument, width: int) -> Iterator[str]:
    first = "" if change.step is None else _time(change.step)
    yield from wrapped(f"{title(change, document)} [{change.rule}]", width, first)
    if where := str(change.place):
        yield cut_to(f"{INDENT}{safe(where)}{safe(f' · {change.op}' if change.op else '')}", width, "middle")
    if change.timed:
        share = "all" if change.timed > 0.995 else f"{change.timed:.0%}"
        yield cut_to(f"{INDENT}{share} of its new durations measured", width)
    yield from wrapped(depends(change, document), width, INDENT)
    yield from _code_lines(change, width)
    if change.cost:
        yield from wrapped(f"What it costs: {change.cost}.", width, INDENT)


def _code_lines(change: Change, width: int) -> Iterator[str]:
    """The program's statement, and the change in code as a difference."""
    code = change.code
    own = change.source if code is None or code.general else ""
    texts = [(" ", own)]
    if code is not None:
        texts += [("-", code.before), ("+", code.after)]
    for sign, text in texts:
        if sign == "-" and code is not None and code.general:
            yield cut_to(f"{INDENT}In general form; the names are examples:", width)
        elif sign == "-" and code is not None and code.place != change.trace:
            yield cut_to(f"{INDENT}{safe(code.place)}", width, "middle")
        for line in text.split("\n") if text else ():
            yield from _code(sign, line, width)


def _code(sign: str, line: str, width: int) -> list[str]:
    """A line of code behind its sign; if it is longer than the width, its rest is on further lines.

    A comment is then on lines of its own before the code, each with its mark, so that what is copied from there runs.
    """
    first = f"{INDENT}{sign} "
    margin = first + " " * (len(line) - len(line.lstrip()))
    code, mark, comment = line.partition("  # ")
    lines = []
    if mark and len(first) + len(line) > width and not any(code.count(quote) % 2 for quote in "'\""):
        lines = wrapped(comment, width, f"{margin}# ", f"{margin}# ")
        line = code
    further = "# " if line.lstrip().startswith("#") else " " * 8
    return [*lines, *wrapped(line, width, first, margin + further)] or [first.rstrip()]


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


def _checked_lines(document: PlanDocument, checked: PlanChecked, width: int) -> Iterator[str]:
    """Per change that was made, what was predicted of it and what the second capture's kernels say it saved."""
    made, planned = ([c for c in checked.changes if c.made], [c for c in checked.changes if c.planned])
    done, others = len([c for c in planned if c.made]), len([c for c in made if not c.planned])
    yield ""
    besides = f", and {others} that {'is' if others == 1 else 'are'} not in the plan" if others else ""
    yield f"The second capture: {done} of the plan's {counted(len(planned), 'change')} made{besides}"
    if made:
        yield ""
        yield f"{'saves, ms':>9}  {'measured, ms':>12}  change that was made"
    for change in made:
        measured = "-" if change.measured_ms is None else ms(change.measured_ms)
        yield from _row(ms(change.predicted_ms), measured, change, width)
    left = [change for change in checked.changes if not change.made]
    if left:
        yield ""
        yield f"{'saves, ms':>9}  {'':>12}  not made, as its rule still proposes it; in the second capture"[:width]
    for change in left:
        yield from _row(ms(change.predicted_ms), "", change, width)
    yield ""
    last = checked.predicted
    yield from wrapped(
        f"With what was made, {ms(last.ms)} ms were predicted for a {document.unit}{_between(last)}; in the second "
        f"capture it takes {ms(checked.now.ms)} ms without the profiler{_between(checked.now)}. The prediction is "
        f"{checked.difference:+.1%} beside it.",
        width,
    )
    if any(change.measured_ms is not None for change in made):
        yield from wrapped(MEASURED, width)


def _between(time: StepTime) -> str:
    return f" ({interval(time)})" if interval(time) else ""


def _row(saves: str, measured: str, change: CheckedChange, width: int) -> list[str]:
    return wrapped(f"{change.title} [{change.rule}]", width, f"{saves:>9}  {measured:>12}  ")
