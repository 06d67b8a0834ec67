"""Advice as text for a terminal and for the summary."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.advice.card import first_sentence
from pyprof.prof.advice.host_time import interval_ns, own_of
from pyprof.prof.advice.run import HOST_SURE
from pyprof.prof.timing.timeline import HOST_BOUND
from pyprof.quantities import counted, ms, rounded
from pyprof.table.losses import incomplete_line

if TYPE_CHECKING:
    from pyprof.prof.advice import Advice, Run
    from pyprof.prof.advice.advised import Advised, StepTime

WIDTH = 80
INDENT = "   "
FIRST = 5  # number of cards that the summary shows
PERHAPS = 2  # number of changes without a card that a sentence names
BECAUSE = {  # why there is no advice, unless it is that the GPU works well
    "host": ": the host is the limit, not by launches alone. A sampling profiler (py-spy) shows where it is",
    "near": ": host and GPU take about as long, so a change to one of them alone saves little",
    "turns": ": host and GPU take turns, as the host waits for results of the GPU, or the GPU for input data",
    "GPU": "",
}
LIMITS = {
    "host": "the host is the limit",
    "near": "neither is clearly the limit",
    "turns": "they take turns, so neither alone is the limit",
    "GPU": "the GPU is the limit",
}
NO_SHAPES = "Most rules need the shapes of aten ops, which the capture does not have"
EXPLAINED = 0.1  # a profiler makes a step up to three times as long (host_time.py), not ten times
TIMED = 0.95  # a replay that times less than this share of a step is said to
WORTH_SAYING = 0.05  # the share of the GPU's time from which on its waits for other ranks are said


def write_advice(advised: Advised, out: BinaryIO, width: int = 0) -> None:
    """Write the advice for a run as cards in lines of at most ``width`` characters."""
    out.write("\n".join(cards(advised, width or WIDTH)).encode() + b"\n")


def cards(advised: Advised, width: int = WIDTH) -> Iterator[str]:
    """The lines of all cards, after a paragraph with the time of a step."""
    width, run, found = max(width, 40), advised.run, advised.cards
    if run.incomplete:
        yield from textwrap.wrap(safe(incomplete_line(run.incomplete, withheld=True)), width)
        return
    if not run.rows:
        nothing = "Nothing ran in the marked steps of this capture."
        yield from textwrap.wrap(nothing, width)
        return
    yield from textwrap.wrap(_head(advised), width)
    for number, advice in enumerate(found, 1):
        yield ""
        yield from _card(number, advice, run.unit, width, "ops" if run.on_cpu else "kernels")


def _unknown(run: Run) -> str:
    """What a capture of CPU ops does not say, and rules therefore cannot examine."""
    if not run.on_cpu or run.table.cpu is not None:
        return ""
    return (
        " The capture does not say what CPU it ran on, so nothing is said about threads, bf16 and data loading: "
        "`pyprof run` records it."
    )


def _shapeless(run: Run) -> str:
    """What rules cannot judge in a capture without shapes."""
    return "" if run.has_sizes else f" {NO_SHAPES}."


def _head(advised: Advised) -> str:
    run, found = advised.run, advised.cards
    took, busy = rounded(run.step_ns / 1e6, 4), rounded(run.busy_ns / 1e6, 4)
    works = "ops run" if run.on_cpu else "the GPU works"
    whole = _one(run) if run.marked else f"{_one(run)} (no steps marked)"
    head = f"{whole[0].upper()}{whole[1:]} takes {took} ms{_mean(run)} as captured; {works} {busy} ms of it."
    if advised.now is not None:
        partly = run.marked < 2 and run.extent_ns < TIMED * run.step_ns
        timed = partly_timed(rounded(run.extent_ns / 1e6, 4)) if partly else "it takes"
        head += f" {step_text(advised.now, advised.measured, timed)}."
    if run.unfit:
        return f"{head} There is no advice: {run.unfit}."
    if run.launches_timed:
        host = rounded(host_ms(run, advised.now)[0], 2)
        head += f" Without a profiler the host needs about {host} ms per {run.unit}."
    limit = "GPU" if run.on_cpu else _limit(run, advised.now)  # nothing waits for another
    perhaps = f" {text}." if (text := _perhaps(advised)) else ""
    if not found:
        return f"{head} There is no advice{BECAUSE[limit]}.{perhaps}{_unknown(run)}{_shapeless(run)}"
    slower = " The host is the limit: faster kernels alone do not shorten the step." if limit == "host" else ""
    saves = "saves" if len(found) == 1 else "together save"
    most = "" if advised.now is not None else "at most "
    amount = f"{most}{rounded(advised.together_ms, 3)} ms"
    return f"{head} {counted(len(found), 'piece')} of advice {saves} {amount}.{slower}{perhaps}{_unknown(run)}"


def partly_timed(extent: str) -> str:
    """The subject, with its verb, of the time without the profiler where one step alone is replayed: no other step's
    end says when it began, so what the host does before its first operation is not timed. ``extent``: in ms."""
    return f"the {extent} ms from its first operation on the GPU to its last take"


def step_text(now: StepTime, measured: bool, timed: str = "it takes") -> str:
    """The time of a step without the profiler: measured, or an estimate with its interval if that has a width."""
    time, low, high = (rounded(value, 3) for value in (now.ms, now.low_ms, now.high_ms))
    if measured:
        return f"Measured without the profiler, it takes {time} ms"
    interval = f" ({low} to {high} in four of five cases)" if low != high else ""
    return f"Without the profiler, {timed} about {time} ms, an estimate{interval}"


def _limit(run: Run, now: StepTime | None = None) -> str:
    """Which limits the step with a probability of at least 80%: "host" or "GPU"; "near" if neither does.

    "turns" if the GPU is idle for long because the host has waited for a result of the GPU, or has no input data ready:
    their times then add up, whichever is greater. They need not do so without the profiler, which slows the host alone:
    ``now``, the step without it where a replay knows it, is then nearer to the longer of both than to their sum.
    """
    by_cause, much = run.idle_by_cause_ns, HOST_BOUND * run.step_ns
    host = run.host_ns > HOST_SURE * run.queued_ns
    shorter, longer = sorted((run.host_ns, run.queued_ns))
    waited = by_cause["sync"] > much or (not host and by_cause["sync"] + by_cause["data"] > much)
    if waited and (now is None or now.ms * 1e6 > longer + shorter / 2):
        return "turns"
    if host:
        return "host"
    return "GPU" if HOST_SURE * run.host_ns < run.queued_ns else "near"


def _card(number: int, advice: Advice, unit: str, width: int, rows: str) -> Iterator[str]:
    heading = f"{number}. {title(advice, unit, rounded(advice.saved_ms, 3) + ' ms')}"
    yield from textwrap.wrap(safe(heading), width, subsequent_indent=INDENT, break_on_hyphens=False)
    where = [text for text in (advice.op, advice.layer, str(advice.place)) if text]
    amount = f"{_rows(advice.kernels, rows)}, {rounded(advice.time_ms, 3)} ms"
    if where or advice.kernels:  # some changes concern the host alone
        yield cut_to(f"{INDENT}{amount}{'; most gained: ' if where else ''}{safe(' · '.join(where))}", width, "middle")
    yield from textwrap.wrap(sure(advice), width, initial_indent=INDENT, subsequent_indent=INDENT)
    yield from _wrapped("Why: ", advice.why, width)
    if details := how(advice):
        yield from _wrapped("How: ", details, width)
    if advice.shares:
        note = f"It concerns {rows} of {', '.join(advice.shares)} above, so the savings do not add up"
        yield from _wrapped("Note:", note, width)


def _rows(number: float, rows: str) -> str:
    """A mean number of kernels or ops per step.

    >>> _rows(1205, "kernels"), _rows(1, "kernels"), _rows(0.5, "ops")
    ('1,205 kernels', '1 kernel', '0.5 ops')
    """
    return f"{rounded(number)} {rows.removesuffix('s') if number == 1 else rows}"


def sure(advice: Advice) -> str:
    """The rule's name, and how sure the saving is: its 80% interval, or that it is a sum."""
    said = f"Rule {advice.rule}, confidence {advice.confidence}"
    if advice.timed:
        said += f", {advice.timed:.0%} of its new durations measured"
    if advice.source == "sum":
        return f"{said}; a sum, not replayed."
    return f"{said}; in four of five cases {rounded(advice.low_ms, 3)} to {rounded(advice.high_ms, 3)} ms."


def how(advice: Advice) -> str:
    """The change without the words of its title; empty where the title says everything."""
    return advice.change[len(first_sentence(advice.change)) :].lstrip(".;: ")


def title(advice: Advice, unit: str, saved: str = "") -> str:
    """The change and its saving: "Pad the vocabulary from 50257 to 50264: saves 5.03 ms per step (32.0%)"."""
    saved = saved or ms(round(advice.saved_ms * 1e6))
    share = f" ({100 * advice.saved_ms / advice.step_ms:.1f}%)" if advice.step_ms else ""
    return f"{first_sentence(advice.change)}: saves {saved} per {unit}{share}"


def sentence(text: str) -> str:
    """A part of a card as a sentence: with a capital letter, if it begins with a word and not with code, and a stop.

    >>> sentence("run it again"), sentence("torch.where in place of x[mask].")
    ('Run it again.', 'torch.where in place of x[mask].')
    """
    first = text.partition(" ")[0]
    if first.isalpha():
        text = first[0].upper() + text[1:]
    return text if not text or text.endswith(".") else f"{text}."


def _wrapped(word: str, text: str, width: int) -> list[str]:
    """A paragraph with a hanging indent after its first word; names in code are not broken at hyphens."""
    hang = " " * (len(INDENT) + len(word) + 1)
    return textwrap.wrap(
        safe(sentence(text)), width, initial_indent=f"{INDENT}{word} ", subsequent_indent=hang, break_on_hyphens=False
    )


def brief(advised: Advised) -> list[str]:
    """The lines of the summary: the total saving of all advice, and one line per card for the first five."""
    run, found = advised.run, advised.cards
    if run.incomplete:  # the summary's first line says it
        return []
    if run.unfit:
        return [f"What to change: nothing can be advised: {run.unfit}"]
    outlook = _outlook(run, advised.now)
    if not found:
        nothing = f"nothing was found that saves more than 0.5% of {_one(run)}"
        if advised.unsure:
            nothing = f"no change alone saves 0.5% of {_one(run)} in nine of ten cases"
        unknown = _unknown(run).strip().removesuffix(".")
        more = [text for text in (_perhaps(advised), unknown, "" if run.has_sizes else NO_SHAPES) if text]
        return [_stopped([f"What to change: {nothing}{outlook}", *more])]
    step = run.step_ns if advised.now is None else advised.now.ms * 1e6
    most = "at most " if advised.now is None else ""
    mean = _mean(run) if advised.now is None else ", without the profiler"
    amount = f"{most}{ms(round(advised.together_ms * 1e6))} of {ms(round(step))} per {run.unit}{mean}"
    count = "one piece of advice saves" if len(found) == 1 else f"{len(found)} pieces of advice together save"
    first = f" (the first {FIRST} are shown)" if len(found) > FIRST else ""
    title = f"What to change: {count} {amount}{first}{outlook}"
    lines = [_line(advice, run.unit) for advice in found[:FIRST]]
    return [_stopped(filter(None, (title, _perhaps(advised)))), *lines]


def _stopped(sentences: Iterable[str]) -> str:
    """The sentences as one text, with a stop at the end if they are several; one alone is a heading."""
    text = ". ".join(sentences)
    return f"{text}." if ". " in text and not text.endswith(".") else text


def _perhaps(advised: Advised) -> str:
    """A sentence without its stop about changes that have no card and save more than those that have; else empty."""
    best = max((card.saved_ms for card in advised.cards), default=0.0)
    named = [each for each in advised.unsure if each.saved_ms > best][:PERHAPS]
    if not named:
        return ""
    texts = [
        f"{first_sentence(each.title)} (about {rounded(each.saved_ms, 2)} ms"
        + (f" with this before it: {first_sentence(each.after)})" if each.after else ", or nothing)")
        for each in named
    ]
    return f"Less sure, or only with another change (pyprof plan weighs these): {'; '.join(texts)}"


def _one(run: Run) -> str:
    """What the times are those of: "a step", "the step" or "the capture"."""
    return f"{'a' if run.marked > 1 else 'the'} {run.unit}"


def _mean(run: Run) -> str:
    """Says of the time of a step that it is the mean of several."""
    return " (mean)" if run.marked > 1 else ""


def _outlook(run: Run, now: StepTime | None) -> str:
    """For a capture whose GPU is often idle: whether host or GPU would limit the step without the profiler."""
    if not run.launches_timed or run.busy_ns > (1 - HOST_BOUND) * run.step_ns:
        return ""
    if run.host_ns + run.busy_ns < EXPLAINED * run.step_ns:  # what takes so long is not in the capture
        return ""
    host, gpu = _host(run, now), f"{rounded(run.busy_ns / 1e6, 2)} ms"
    if run.for_ranks_ns > WORTH_SAYING * run.busy_ns:
        gpu += f" ({rounded(run.for_ranks_ns / 1e6, 2)} ms of them waiting for other ranks)"
    limits = _limit(run, now)
    limit = LIMITS[limits]
    host_is_all = now is not None and limits == "host"  # the host's time is then that of the step (``host_ms``)
    if not host_is_all and run.stalled_ns > HOST_BOUND * run.step_ns:
        stalled = rounded(run.stalled_ns / 1e6, 2)
        limit = f"neither explains {stalled} ms per {run.unit} in which the GPU is idle though work is launched"
    return f". Without a profiler the host needs {host} per {run.unit} and the GPU {gpu}: {limit}"


def _host(run: Run, now: StepTime | None) -> str:
    """The host's time: measured, or estimated with its interval."""
    host, low, high = (rounded(value, 2) for value in host_ms(run, now))
    return f"{host} ms (measured)" if own_of(run).measured else f"about {host} ms ({low} to {high})"


def host_ms(run: Run, now: StepTime | None) -> tuple[float, float, float]:
    """The host's time per step without a profiler and its interval, in ms.

    Where the host is the limit, that is the step's time, which the replay knows better. It is never longer.
    """
    if now is not None and _limit(run, now) == "host":
        return now.ms, now.low_ms, now.high_ms
    low, high = interval_ns(run)
    host = run.host_ns / 1e6, low / 1e6, high / 1e6
    return host if now is None else (min(host[0], now.ms), min(host[1], now.ms), min(host[2], now.high_ms))


def _line(advice: Advice, unit: str) -> str:
    where = " · ".join(
        text for text in (advice.op, advice.layer, (advice.trace or advice.library).split("/")[-1]) if text
    )
    return title(advice, unit) + (f" [{where}]" if where else "")
