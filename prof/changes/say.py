"""The list of changes in sentences, which summary, --advise, plan, page and notebook share."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.changes.records import CPU_UNKNOWN, ON_CPU, Change, Changes, StepTime
from pyprof.prof.changes.search import LEAST
from pyprof.quantities import counted, rounded
from pyprof.table.losses import incomplete_line

WIDTH = 80
INDENT = "   "
FIRST = 5  # changes that the summary names
SHOWN = 5  # changes that are not in the list
NO_SHAPES = "Most rules need the shapes of aten ops, which the capture does not have"
# Of programs that were written and measured by people who knew no rule (docs/explanation/advice-measured.md).
RECORD = "On programs that no rule had seen, the end of 36 of 59 plans came within 10%, and 418 of 567 intervals held."


def ms(amount: float) -> str:
    """
    >>> ms(1.2345), ms(1234.5)
    ('1.23', '1,234')
    """
    return rounded(amount, 3)


def one(document: Changes) -> str:
    """What the times are those of: "a step", "the step" or "the capture"."""
    return f"{'a' if document.steps > 1 else 'the'} {document.unit}"


def interval(time: StepTime) -> str:
    """The 80% interval; empty where it has no width."""
    low, high = ms(time.low_ms), ms(time.high_ms)
    return f"{low} to {high}" if low != high else ""


def gain(change: Change, document: Changes) -> str:
    """What a change brings: "saves 6.24 ms per step (79%)"; without a replay "removes 6.24 ms of GPU work per step"."""
    if change.saved_ms is None:
        return f"removes {ms(change.gpu_ms)} ms of GPU work per {document.unit}"
    does = f"saves {ms(change.saved_ms)} ms" if change.saved_ms >= 0 else f"costs {ms(-change.saved_ms)} ms"
    whole = document.captured_ms if document.now is None else document.now.ms
    part = change.saved_ms / whole if whole else 0.0
    share = "" if not whole else f" ({part:.0%})" if abs(part) >= LEAST else " (under 1%)"
    return f"{does} per {document.unit}{share}"


def title(change: Change, document: Changes) -> str:
    """The change and what it brings: "Use mixed precision: saves 6.24 ms per step (79%)"."""
    return f"{change.title}: {gain(change, document)}"


def depends(change: Change, document: Changes) -> str:
    """What a change depends on: one that needs it, or those above it, without which it would not be worth it."""
    least = LEAST * (document.now.ms if document.now is not None else document.captured_ms)
    if change.saved_ms is None or document.now is None:
        return ""
    if change.needed_by and change.saved_ms < least:
        return f"It is made for the next change, which needs it: {change.needed_by}."
    if change.saved_ms < least or change.alone_ms is None or change.alone_ms >= least:
        return ""
    alone = f"save {ms(change.alone_ms)} ms" if change.alone_ms > 0 else "save nothing"
    return f"It pays only after those above: alone, it would {alone}."


def result(document: Changes) -> str:
    """What the list comes to."""
    last = document.changes[-1].step if document.changes else None
    if document.not_judged:
        return f"Nothing can be said of changes: {document.not_judged}."
    if not document.changes:
        return f"No change was found that saves 1% of {one(document)}.{_lacking(document)}"
    if document.now is None or last is None:
        return f"{_work(document)}{_lacking(document)}"
    count = counted(len(document.changes), "change")
    further = "Each further one saves less than 1% of the step."
    return f"{count}: {ms(document.now.ms)} to {ms(last.ms)} ms. {further}{_lacking(document)} {RECORD}"


def others(document: Changes) -> str:
    """What would save less than 1% of the step; empty if there is no such change."""
    worth = [other for other in document.not_chosen if other.saved_ms > 0][:SHOWN]
    told = ", ".join(
        f"{other.title[:1].lower()}{other.title[1:]} ({other.rule}, {rounded(other.saved_ms, 2)} ms)" for other in worth
    )
    return f"Not worth it{' after these' if document.changes else ''}: {told}." if told else ""


def brief(document: Changes) -> list[str]:
    """The lines of the summary: what the list comes to, and one line for each of the first changes."""
    if document.incomplete:  # the summary's first line says it
        return []
    more = len(document.changes) - FIRST
    lines = [f"{title(each, document)}{_where(each)}" for each in document.changes[:FIRST]]
    return [_heading(document), *lines, *([f"{counted(more, 'more change')}: pyprof plan"] if more > 0 else [])]


def _heading(document: Changes) -> str:
    last = document.changes[-1].step if document.changes else None
    if document.now is not None and last is not None:
        count = counted(len(document.changes), "change")
        known = "" if document.measured else ", estimated without the profiler"
        each = ", each after those above it" if len(document.changes) > 1 else ""
        return f"What to change: {ms(document.now.ms)} to {ms(last.ms)} ms in {count}{known}{each}"
    if document.not_judged:
        return f"What to change: nothing can be said: {document.not_judged}"
    if document.changes:
        return f"What to change: {_work(document)}"
    nothing = f"What to change: no change was found that saves 1% of {one(document)}"
    reason = f" ({document.not_replayed})" if document.not_replayed not in ("", ON_CPU) else ""
    lacking = _lacking(document).removesuffix(".")
    return f"{nothing}{reason}{f'.{lacking}' if lacking else ''}"


def _work(document: Changes) -> str:
    """That only work is known, or of a CPU's ops, whose time is the step's."""
    if document.on_cpu:
        return "Amounts are the ops' own time, which is the step's on a CPU; they are not after each other."
    return f"Only the GPU's work is known of each change by itself: {document.not_replayed}."


def _lacking(document: Changes) -> str:
    """A sentence on what the capture does not say, so that some rules cannot judge it; empty if there is nothing."""
    if any(each.why == CPU_UNKNOWN for each in document.abstained):
        return f" Nothing is said of threads, bf16 and data loading: {CPU_UNKNOWN}."
    return "" if document.shapes else f" {NO_SHAPES}."


def _where(change: Change) -> str:
    line = change.place.innermost if not change.trace else change.trace
    where = " · ".join(text for text in (change.op, change.layer, line.split("/")[-1]) if text)
    return f" [{where}]" if where else ""


def advice_lines(document: Changes, width: int = WIDTH) -> Iterator[str]:
    """The cards of --advise: per change what shows it, how it is made, and what it would save as the only one."""
    width = max(width, 40)
    if document.incomplete:
        yield from textwrap.wrap(safe(incomplete_line(document.incomplete, withheld=True)), width)
        return
    yield from textwrap.wrap(f"{step_text(document)} {result(document)}", width)
    for number, change in enumerate(document.changes, 1):
        yield ""
        yield from _card(number, change, document, width)
    if left := others(document):
        yield ""
        yield from textwrap.wrap(safe(left), width, break_on_hyphens=False)


def step_text(document: Changes) -> str:
    """What the step takes, as captured and without the profiler."""
    start = f"{one(document).capitalize()} takes {ms(document.captured_ms)} ms as captured."
    if document.now is None:
        return start
    if document.measured:
        return f"{start} Measured without the profiler, it takes {ms(document.now.ms)} ms."
    between = f", {interval(document.now)} in four of five cases" if interval(document.now) else ""
    return f"{start} Without the profiler, it takes about {ms(document.now.ms)} ms (an estimate{between})."


def _card(number: int, change: Change, document: Changes, width: int) -> Iterator[str]:
    heading = safe(f"{number}. {title(change, document)} [{change.rule}]")
    yield from textwrap.wrap(heading, width, subsequent_indent=INDENT, break_on_hyphens=False)
    where = " · ".join(text for text in (change.op, change.layer, str(change.place)) if text)
    if where or change.kernels:  # some changes concern the host alone
        rows = "op" if document.on_cpu else "kernel"
        amount = f"{_number(change.kernels, rows)}, {ms(change.time_ms)} ms"
        yield cut_to(f"{INDENT}{amount}{'; most gained: ' if where else ''}{safe(where)}", width, "middle")
    yield from textwrap.wrap(amounts(change, document), width, initial_indent=INDENT, subsequent_indent=INDENT)
    yield from _wrapped("Why: ", change.why, width)
    if details := how(change):
        yield from _wrapped("How: ", details, width)
    if change.cost:
        yield from _wrapped("Cost:", change.cost, width)


def amounts(change: Change, document: Changes) -> str:
    """The three amounts of a change, the interval of its gain, and what it would save as the only change."""
    whose = "the ops'" if document.on_cpu else "the GPU's"
    work = f"It removes {ms(change.gpu_ms)} ms of {whose} work"
    if change.saved_ms is None or change.low_ms is None or change.high_ms is None:
        return f"{work}."
    if change.host_ms is not None:
        work += f" and {ms(change.host_ms)} ms of the host's"
    gained = f"the step gets {ms(change.low_ms)} to {ms(change.high_ms)} ms shorter in four of five cases"
    alone = "" if change.alone_ms is None else f"; alone, about {ms(change.alone_ms)} ms"
    timed = f" {change.timed:.0%} of its new durations were measured." if change.timed else ""
    return f"{work}; {gained}{alone}.{timed}"


def how(change: Change) -> str:
    """The change without the words of its title; empty where the title says everything."""
    return change.change[len(change.title) :].lstrip(".;: ")


def sentence(text: str) -> str:
    """A text as a sentence: with a capital letter, if it begins with a word and not with code, and a stop.

    >>> sentence("run it again"), sentence("torch.where in place of x[mask].")
    ('Run it again.', 'torch.where in place of x[mask].')
    """
    first = text.partition(" ")[0]
    if first.isalpha():
        text = first[0].upper() + text[1:]
    return text if not text or text.endswith(".") else f"{text}."


def _number(number: float, rows: str) -> str:
    """A mean number of kernels or ops per step.

    >>> _number(1205, "kernel"), _number(1, "kernel"), _number(0.5, "op")
    ('1,205 kernels', '1 kernel', '0.5 ops')
    """
    return f"{rounded(number)} {rows}{'' if number == 1 else 's'}"


def _wrapped(word: str, text: str, width: int) -> list[str]:
    """A paragraph with a hanging indent after its first word; names in code are not broken at hyphens."""
    hang = " " * (len(INDENT) + len(word) + 1)
    return textwrap.wrap(
        safe(sentence(text)), width, initial_indent=f"{INDENT}{word} ", subsequent_indent=hang, break_on_hyphens=False
    )
