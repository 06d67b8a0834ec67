"""A plan as text for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.advice.advised import StepTime
from pyprof.prof.planning.json_document import CheckedChange, PlanChecked, PlanDocument, PlannedChange
from pyprof.prof.planning.plan_sentences import depends, head, interval, ms, others, place, result, titles, unit
from pyprof.quantities import counted

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
    yield from textwrap.wrap(safe(head(document)), width)
    yield ""
    if document.changes:
        yield f"{'step, ms':>9}  {'80% interval':^17}  change"
        yield f"{ms(document.now.ms):>9}  {interval(document.now):^17}  as it is{safe(place(document))}"
        for change, title in titles(document):
            yield from _change_lines(change, title, document.now.ms, width)
        yield ""
    yield from textwrap.wrap(result(document), width)
    yield from textwrap.wrap(safe(others(document)), width, break_on_hyphens=False)
    if document.checked is not None:
        yield from _checked_lines(document, document.checked, width)


def _change_lines(change: PlannedChange, title: str, now_ms: float, width: int) -> Iterator[str]:
    first = f"{ms(change.step.ms):>9}  {interval(change.step):^17}  "
    hang = " " * len(first)
    text = safe(f"{title} [{change.rule}]")
    yield from textwrap.wrap(text, width, initial_indent=first, subsequent_indent=hang, break_on_hyphens=False)
    if where := str(change.place):
        yield cut_to(f"{INDENT}{safe(where)}{safe(f' · {change.op}' if change.op else '')}", width, "middle")
    if change.timed:
        share = "all" if change.timed > 0.995 else f"{change.timed:.0%}"
        yield cut_to(f"{INDENT}{share} of its new durations measured", width)
    if why := depends(change, now_ms):
        yield from textwrap.wrap(safe(why), width, initial_indent=INDENT, subsequent_indent=INDENT)
    yield from _code_lines(change, width)
    if change.cost:
        text = safe(f"What it costs: {change.cost}.")
        yield from textwrap.wrap(text, width, initial_indent=INDENT, subsequent_indent=INDENT)


def _code_lines(change: PlannedChange, width: int) -> Iterator[str]:
    """The program's statement, and the change in code as a difference."""
    code = change.code
    if change.source and (code is None or code.general):
        for line in change.source.split("\n"):
            yield from _code(" ", line, width)
    if code is None:
        return
    if code.general:
        yield cut_to(f"{INDENT}In general form; the names are examples:", width)
    elif code.place != change.trace:
        yield cut_to(f"{INDENT}{safe(code.place)}", width, "middle")
    for sign, text in (("-", code.before), ("+", code.after)):
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
        lines = _wrapped_code(comment, width, f"{margin}# ", f"{margin}# ")
        line = code
    further = "# " if line.lstrip().startswith("#") else " " * 8
    return [*lines, *_wrapped_code(line, width, first, margin + further)] or [first.rstrip()]


def _wrapped_code(text: str, width: int, first: str, further: str) -> list[str]:
    return textwrap.wrap(safe(text), width, initial_indent=first, subsequent_indent=further, break_on_hyphens=False)


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
        yield from _row(f"{ms(change.predicted_ms):>9}  {measured:>12}  ", change, width)
    left = [change for change in checked.changes if not change.made]
    if left:
        yield ""
        yield f"{'saves, ms':>9}  {'':>12}  not made, as its rule still proposes it; in the second capture"[:width]
    for change in left:
        yield from _row(f"{ms(change.predicted_ms):>9}  {'':>12}  ", change, width)
    yield ""
    last = checked.predicted
    text = (
        f"With what was made, {ms(last.ms)} ms were predicted for a {unit(document)}{_between(last)}; in the second "
        f"capture it takes {ms(checked.now.ms)} ms without the profiler{_between(checked.now)}. The prediction is "
        f"{checked.difference:+.1%} beside it."
    )
    yield from textwrap.wrap(text, width)
    if any(change.measured_ms is not None for change in made):
        yield from textwrap.wrap(MEASURED, width)


def _between(time: StepTime) -> str:
    return f" ({interval(time)})" if interval(time) else ""


def _row(first: str, change: CheckedChange, width: int) -> Iterator[str]:
    text, hang = safe(f"{change.title} [{change.rule}]"), " " * len(first)
    yield from textwrap.wrap(text, width, initial_indent=first, subsequent_indent=hang, break_on_hyphens=False)
