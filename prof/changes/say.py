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
MOSTLY_TAKEN = 2.0  # what a change saves alone over what it saves after others, from which both are said
FIRST = 5  # changes that the summary names
SHOWN = 5  # changes that are not in the list
WORTH_SAYING = 0.05  # of the captured step, from which on it is said what its estimate leaves out
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
    """What a change brings: "saves 6.24 ms per step (79%)"; without a replay "removes 6.24 ms of GPU work per step".

    Where one case in ten has no gain: "may save 0.2 ms per step (1%), or nothing".
    """
    if change.saved_ms is None:
        return f"removes {ms(change.gpu_ms)} ms of GPU work per {document.unit}"
    unsure = change.low_ms is not None and change.low_ms < 0 <= change.saved_ms
    saves = "may save" if unsure else "saves"
    does = f"{saves} {ms(change.saved_ms)} ms" if change.saved_ms >= 0 else f"costs {ms(-change.saved_ms)} ms"
    needed = "; it is made for a later change" if change.needed_by else ""
    if needed and ms(change.saved_ms) == "0":
        return f"saves nothing by itself{needed}"
    whole = document.captured_ms if document.now is None else document.now.ms
    part = change.saved_ms / whole if whole else 0.0
    share = "" if not whole else f"{part:.0%}" if abs(part) >= LEAST else "under 1%"
    share = ", ".join(filter(None, (share, _first(change))))
    share = f" ({share})" if share else ""
    return f"{does} per {document.unit}{share}{', or nothing' if unsure else ''}{needed}"


def _first(change: Change) -> str:
    """What a change saves by itself, where those above it have taken most of that."""
    saved, alone = change.saved_ms or 0.0, change.alone_ms or 0.0
    return f"alone {ms(alone)} ms" if alone > MOSTLY_TAKEN * max(saved, 0.0) and ms(alone) != "0" else ""


def title(change: Change, document: Changes) -> str:
    """The change and what it brings: "Use mixed precision: saves 6.24 ms per step (79%)"."""
    return f"{change.title}: {gain(change, document)}"


def depends(change: Change, document: Changes) -> str:
    """What a change depends on: one that needs it, or those above it, without which it would not be worth it."""
    least = LEAST * (document.now.ms if document.now is not None else document.captured_ms)
    if change.saved_ms is None or document.now is None:
        return ""
    if change.needed_by and change.saved_ms < least:
        return f"It is made for a later change, which brings more after it: {change.needed_by}."
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
        return f"{_nothing(document)}.{_lacking(document)}"
    if document.now is None or last is None:
        return f"{_work(document)}{_lacking(document)}"
    count = counted(len(document.changes), "change")
    further = f"Each further one saves less than 1% of the {document.unit}."
    return f"{count}: {ms(document.now.ms)} to {ms(last.ms)} ms. {further}{_lacking(document)} {RECORD}"


def _nothing(document: Changes) -> str:
    """That there is no change, with what may be why."""
    why = f" ({document.not_replayed})" if document.not_replayed not in ("", ON_CPU) else ""
    return f"No change was found that saves 1% of {one(document)}{why}"


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
    first = f"; the first {FIRST} (pyprof plan has all)" if len(document.changes) > FIRST else ""
    lines = [f"{title(each, document)}{_where(each)}" for each in document.changes[:FIRST]]
    return [f"{_heading(document)}{first}", *lines]


def _heading(document: Changes) -> str:
    last = document.changes[-1].step if document.changes else None
    if document.now is not None and last is not None:
        count = counted(len(document.changes), "change")
        known = "" if document.measured else ", estimated without the profiler"
        each = ", each after those above it" if len(document.changes) > 1 else ""
        return f"What to change: {ms(document.now.ms)} to {ms(last.ms)} ms in {count}{known}{each}"
    if document.not_judged:
        return f"What to change: nothing can be said: {document.not_judged}"
    said = _work(document) if document.changes else f"{_nothing(document)}.{_lacking(document)}"
    return f"What to change: {said[0].lower()}{said[1:].removesuffix('.')}"


def _work(document: Changes) -> str:
    """That only work is known, or of a CPU's ops, whose time is the step's."""
    if document.on_cpu:
        return (
            "Each change by itself saves the time of the ops that it removes, since a CPU runs them one after another."
        )
    known = "Only the GPU's work that each removes by itself is known, and no change for the host"
    return f"{known}, since {document.not_replayed}."


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
        yield from wrapped(incomplete_line(document.incomplete, withheld=True), width)
        return
    yield from wrapped(f"{step_text(document)} {result(document)}", width)
    for number, change in enumerate(document.changes, 1):
        yield ""
        yield from _card(number, change, document, width)
    if left := others(document):
        yield ""
        yield from wrapped(left, width)


def step_text(document: Changes) -> str:
    """What the step takes, as captured and without the profiler."""
    captured = " as captured" if document.steps else ""
    start = f"{one(document).capitalize()} takes {ms(document.captured_ms)} ms{captured}."
    if document.now is None:
        return start
    if document.measured:
        return f"{start} Measured without the profiler, it takes {ms(document.now.ms)} ms."
    between = f", {interval(document.now)} in four of five cases" if interval(document.now) else ""
    return f"{start} {without_profiler(document)}, it takes about {ms(document.now.ms)} ms (an estimate{between})."


def without_profiler(document: Changes) -> str:
    """What the estimate of a step leaves out of the captured one."""
    if document.besides_ms <= WORTH_SAYING * document.captured_ms:
        return "Without the profiler"
    besides = f"{ms(document.besides_ms)} ms of launches that do more than that, such as load a kernel"
    return f"Without the profiler, and without {besides}"


def _card(number: int, change: Change, document: Changes, width: int) -> Iterator[str]:
    yield from wrapped(f"{number}. {title(change, document)} [{change.rule}]", width, further=INDENT)
    where = " · ".join(text for text in (change.op, change.layer, str(change.place)) if text)
    if where or change.kernels:  # some changes concern the host alone
        rows = "op" if document.on_cpu else "kernel"
        amount = f"{_number(change.kernels, rows)}, {ms(change.time_ms)} ms"
        yield cut_to(f"{INDENT}{amount}{'; most gained: ' if where else ''}{safe(where)}", width, "middle")
    needed = depends(change, document) if change.needed_by else ""
    yield from wrapped(" ".join(filter(None, (amounts(change, document), needed))), width, INDENT)
    for word, text in (("Why: ", change.why), ("How: ", how(change)), ("Cost:", change.cost)):
        if text:
            yield from wrapped(sentence(text), width, f"{INDENT}{word} ")


def amounts(change: Change, document: Changes) -> str:
    """The three amounts of a change, the interval of its gain, and what it would save as the only change."""
    work = f"{_removed(change, document)}{_waits(change, document)}"
    if change.saved_ms is None or change.low_ms is None or change.high_ms is None:
        return f"{work}."
    timed = f" {change.timed:.0%} of its new durations were measured." if change.timed else ""
    return f"{work}; {_gained(change.low_ms, change.high_ms)}{_alone(change)}.{timed}"


def _removed(change: Change, document: Changes) -> str:
    """The work that a change removes or adds: "It removes 2 ms of the GPU's work and adds 1 ms to the host's"."""
    whose = "the ops'" if document.on_cpu else "the GPU's"
    first = f"It {_part(change.gpu_ms, f'{whose} work')}"
    if not change.host_ms:
        return first
    second = _part(change.host_ms, "the host's")
    same = (change.gpu_ms < 0) == (change.host_ms < 0)
    return f"{first} and {second.partition(' ')[2] if same else second}"


def _waits(change: Change, document: Changes) -> str:
    """That a change removes waits, where it saves more than work."""
    if change.saved_ms is None or change.host_ms is None or document.now is None:
        return ""
    rest = change.saved_ms - max(change.gpu_ms, 0.0) - max(change.host_ms, 0.0)
    return ", and waits of one for the other" if rest > LEAST * document.now.ms else ""


def _part(amount: float, whose: str) -> str:
    return f"removes {ms(amount)} ms of {whose}" if amount >= 0 else f"adds {ms(-amount)} ms to {whose}"


def _gained(low: float, high: float) -> str:
    """What the step gains in four of five cases.

    >>> _gained(-0.5, 2.0)
    'in four of five cases, the step gets between 0.5 ms longer and 2 ms shorter'
    """
    if low >= 0:
        return f"the step gets {ms(low)} to {ms(high)} ms shorter in four of five cases"
    if high <= 0:
        return f"the step gets {ms(-high)} to {ms(-low)} ms longer in four of five cases"
    return f"in four of five cases, the step gets between {ms(-low)} ms longer and {ms(high)} ms shorter"


def _alone(change: Change) -> str:
    """What the change would do as the only one."""
    if change.alone_ms is None:
        return ""
    does = f"it would save about {ms(change.alone_ms)} ms" if change.alone_ms > 0 else "it would save nothing"
    return f"; alone, {does}"


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


def wrapped(text: str, width: int, first: str = "", further: str | None = None) -> list[str]:
    """A paragraph behind ``first``, whose further lines are indented as much; names in code stay whole at hyphens."""
    hang = " " * len(first) if further is None else further
    return textwrap.wrap(safe(text), width, initial_indent=first, subsequent_indent=hang, break_on_hyphens=False)
