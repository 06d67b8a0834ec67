"""The cards as text for a terminal, and as JSON."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, BinaryIO

from pyprof.command.terminal_text import cut_to, safe
from pyprof.prof.advice.run import HOST_SURE
from pyprof.prof.summary.time_sentences import HOST_BOUND
from pyprof.quantities import ms

if TYPE_CHECKING:
    from pyprof.prof.advice import Advice, Run

__all__ = ["brief", "cards", "document", "write_advice"]

WIDTH = 80
INDENT = "   "
FIRST = 5  # pieces of the summary


def write_advice(run: Run, found: Sequence[Advice], out: BinaryIO, width: int = 0) -> None:
    """Write the run's advice: cards of at most ``width`` characters a line."""
    out.write("\n".join(cards(run, found, width or WIDTH)).encode() + b"\n")


def document(run: Run, found: Sequence[Advice]) -> dict[str, object]:
    """The own keys of its JSON. ``steps`` is 0 where the capture marks none: then a "step" is the whole capture."""
    from pyprof.prof.advice import together_ms

    return {
        "step_ms": round(run.step_ns / 1e6, 6),
        "busy_ms": round(run.busy_ns / 1e6, 6),
        "host_ms": round(run.host_ns / 1e6, 6),
        "steps": run.marked,
        "together_ms": round(together_ms(run), 6),
        "advice": [asdict(advice) for advice in found],
    }


def cards(run: Run, found: Sequence[Advice], width: int = WIDTH) -> Iterator[str]:
    """The lines of all cards, after one that says what a step takes."""
    from pyprof.prof.advice import together_ms

    width = max(width, 40)
    unit = "step" if run.marked else "capture (no steps marked)"
    took, busy = _digits(run.step_ns / 1e6, 4), _digits(run.busy_ns / 1e6, 4)
    head = f"A {unit} takes {took} ms as captured, the GPU works {busy} ms of it"
    head += f", the host about {_digits(run.host_ns / 1e6, 2)} ms without a profiler." if run.host_ns else "."
    if not run.rows:
        yield from textwrap.wrap("Nothing ran on a GPU in this capture, and advice is for what GPUs do.", width)
        return
    if not found:
        yield from textwrap.wrap(f"{head} Nothing to advise{_because(run)}.", width)
        return
    pieces = "1 piece" if len(found) == 1 else f"{len(found)} pieces"
    head += f" {pieces} of advice, together worth at most {_digits(together_ms(run), 3)} ms."
    slower = " The host is the limit: faster kernels alone do not shorten the step."
    yield from textwrap.wrap(head + (slower if _side(run) == "host" else ""), width)
    for number, advice in enumerate(found, 1):
        yield ""
        yield from _card(number, advice, "step" if run.marked else "capture", width)


def _side(run: Run) -> str:
    """Which takes longer for a step, four times in five of what the host may need: "host", "GPU"; "near": neither."""
    if run.host_ns > HOST_SURE * run.queued_ns:
        return "host"
    return "GPU" if HOST_SURE * run.host_ns < run.queued_ns else "near"


def _because(run: Run) -> str:
    """Why there is nothing to advise, where it is not that the GPU works well."""
    return {
        "host": ": the host is the limit, and not by launches alone. A sampling profiler (py-spy) tells by what else",
        "near": ": host and GPU are near each other, and a change to one of them alone saves little",
        "GPU": "",
    }[_side(run)]


def _card(number: int, advice: Advice, unit: str, width: int) -> Iterator[str]:
    share = f", {100 * advice.saved_ms / advice.step_ms:.1f}%" if advice.step_ms else ""
    saved = f"saves {_digits(advice.saved_ms, 3)} ms a {unit}{share}"
    title = f"{number}. {advice.rule}: {saved} (confidence {advice.confidence})"
    yield title[:width]
    where = [text for text in (advice.op, advice.layer, advice.trace) if text]
    amount = f"{advice.kernels:.4g} kernels, {_digits(advice.time_ms, 3)} ms"
    yield cut_to(f"{INDENT}{amount}{': ' if where else ''}{safe(' · '.join(where))}", width, "middle")
    yield from _wrapped("Why: ", advice.why, width)
    yield from _wrapped("Do:  ", advice.change, width)
    if advice.shares:
        yield from _wrapped(
            "Note:", f"shares kernels with {', '.join(advice.shares)} above; savings do not add up", width
        )


def _wrapped(word: str, text: str, width: int) -> list[str]:
    """A paragraph that hangs behind its word; names in code are not broken at hyphens."""
    hang = " " * (len(INDENT) + len(word) + 1)
    end = "" if text.endswith(".") else "."
    return textwrap.wrap(f"{safe(text)}{end}", width, initial_indent=f"{INDENT}{word} ", subsequent_indent=hang,
                         break_on_hyphens=False)  # fmt: skip


def brief(run: Run, found: Sequence[Advice]) -> list[str]:
    """A line that says what all pieces are worth, and one for each of the first five: for the summary."""
    from pyprof.prof.advice import together_ms

    unit = "step" if run.marked else "capture"
    outlook = _outlook(run, unit)
    if not found:
        return [f"What to change: nothing found that is worth more than 0.5% of a {unit}{outlook}"]
    worth = f"at most {_told(together_ms(run))} of {_told(run.step_ns / 1e6)} a {unit}"
    count = "one piece of advice" if len(found) == 1 else f"{len(found)} pieces of advice"
    first = f", the first {FIRST}" if len(found) > FIRST else ""
    return [
        f"What to change: {count}, together worth {worth}{first}{outlook}",
        *(_line(advice, unit) for advice in found[:FIRST]),
    ]


def _outlook(run: Run, unit: str) -> str:
    """Of a capture whose GPU idles: whether it would without the profiler."""
    if not run.host_ns or run.busy_ns > (1 - HOST_BOUND) * run.step_ns:
        return ""
    host, gpu = f"{_digits(run.host_ns / 1e6, 2)} ms", f"{_digits(run.busy_ns / 1e6, 2)} ms"
    limit = {"host": "the host is the limit", "near": "neither is clearly the limit", "GPU": "the GPU is the limit"}
    return f". Without a profiler the host needs about {host} a {unit}, the GPU {gpu}: {limit[_side(run)]}"


def _line(advice: Advice, unit: str) -> str:
    share = f" ({100 * advice.saved_ms / advice.step_ms:.1f}%)" if advice.step_ms else ""
    where = " · ".join(text for text in (advice.op, advice.layer, advice.trace.split("/")[-1]) if text)
    aside = f" [{where}]" if where else ""
    return f"{advice.rule}: {_told(advice.saved_ms)} a {unit}{share}: {_first_sentence(advice.change)}{aside}"


def _digits(amount: float, digits: int) -> str:
    """So many digits, or all before the point."""
    return f"{amount:.{digits}g}" if amount < 10**digits else f"{amount:,.0f}"


def _told(amount_ms: float) -> str:
    """As the summary's sentences tell it."""
    return ms(round(amount_ms * 1e6))


def _first_sentence(text: str) -> str:
    """Up to the first full stop, semicolon or colon outside of parentheses."""
    for match in re.finditer(r"[.;:](?=\s)", text):
        before = text[: match.start()]
        if before.count("(") == before.count(")"):
            return before
    return text.rstrip(".;:")
