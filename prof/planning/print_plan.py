"""A plan as text for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.planning.json_document import PlanChecked, PlanDocument, PlannedChange
from pyprof.prof.planning.plan_sentences import head, interval, ms, others, result, titles

WIDTH = 100
LEAST_WIDTH = 60


def plan_lines(document: PlanDocument, width: int = WIDTH) -> Iterator[str]:
    """The step as it is, a line per change with its place, code and cost, and what is left."""
    width = max(width, LEAST_WIDTH)
    yield from textwrap.wrap(head(document), width)
    yield ""
    if document.changes:
        yield f"{'ms':>9}  {'80% interval':^17}  change"
        yield f"{ms(document.now.ms):>9}  {interval(document.now):^17}  as it is"
        for change, title in titles(document):
            yield from _change_lines(change, title, width)
        yield ""
    yield from textwrap.wrap(result(document), width)
    yield from textwrap.wrap(safe(others(document)), width, break_on_hyphens=False)
    if document.checked is not None:
        yield from _checked_lines(document.checked, width)


def _change_lines(change: PlannedChange, title: str, width: int) -> Iterator[str]:
    first = f"{ms(change.step.ms):>9}  {interval(change.step):^17}  "
    hang = " " * len(first)
    text = safe(f"{title} [{change.rule}]")
    yield from textwrap.wrap(text, width, initial_indent=first, subsequent_indent=hang, break_on_hyphens=False)
    if change.trace:
        yield cut_to(f"{hang}{safe(change.trace)}{safe(f' · {change.op}' if change.op else '')}", width)
    yield from _code_lines(change, hang, width)
    yield from (
        textwrap.wrap(safe(change.cost), width, initial_indent=f"{hang}costs ", subsequent_indent=f"{hang}      ")
        if change.cost
        else ()
    )


def _code_lines(change: PlannedChange, hang: str, width: int) -> Iterator[str]:
    """The program's statement, and the change in code as a difference."""
    code = change.code
    if change.source and (code is None or code.general):
        yield from (cut_to(f"{hang}  {safe(line)}".rstrip(), width) for line in change.source.split("\n"))
    if code is None:
        return
    if code.general:
        yield cut_to(f"{hang}in general form; the names are examples:", width)
    elif code.place != change.trace:
        yield cut_to(f"{hang}{safe(code.place)}", width)
    for sign, text in (("-", code.before), ("+", code.after)):
        yield from (cut_to(f"{hang}{sign} {safe(line)}".rstrip(), width) for line in text.split("\n") if text)


def _checked_lines(checked: PlanChecked, width: int) -> Iterator[str]:
    yield ""
    yield "The second capture"
    for change in checked.changes:
        made = f"{ms(change.predicted.ms):>9}  {interval(change.predicted):^17}" if change.made else f"{'not made':>28}"
        yield cut_to(f"{made}  {safe(change.title)}  [{change.rule}]", width)
    yield f"{ms(checked.now.ms):>9}  {interval(checked.now):^17}  its own step without the profiler"
    yield from textwrap.wrap(f"Predicted of the changes that were made: {checked.difference:+.1%} beside it.", width)
