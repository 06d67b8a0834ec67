"""The table of pyprof try for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from pyprof.command.terminal_text import cut_to, safe
from pyprof.quantities import counted, rounded
from pyprof.variants.json_document import MeasuredStep, TriedVariant, TryDocument

NAME = 16  # characters of the first column, at least
COLUMNS = {"step ms": 8, "quartiles": 16, "peak GB": 7, "difference": 12, "predicted": 22}  # and their characters
LEFT_OUT = ("quartiles", "peak GB")  # these go first where the width has no room for all


def try_lines(document: TryDocument, width: int) -> Iterator[str]:
    """What was measured and how, a line per variant, its losses, and what failed."""
    first = document.as_it_is
    where = safe(document.device) or "the CPU"
    runs = "" if len(first.runs_ms) == 1 else f" in {len(first.runs_ms)} runs"
    head = (
        f"{safe(document.script)} on {where}: {counted(first.steps, 'step')}{runs} of the script as it is, after "
        f"{document.passed_over} of warm-up in each run. A step ends with {document.steps_by}. No profiler ran."
    )
    yield from textwrap.wrap(head, width)
    yield ""
    column = max([NAME, *(len("+".join(variant.changes)) for variant in document.variants)]) + 2
    shown = _that_fit(any(variant.predicted for variant in document.variants), width - column)
    yield cut_to(_row("change", COLUMNS, shown, column), width)
    yield cut_to(_row("as it is", (*_measured(first), "", ""), shown, column), width)
    for variant in document.variants:
        if variant.measured is not None:
            cells = _cells(variant, variant.measured)
            yield cut_to(_row("+".join(variant.changes), cells, shown, column), width)
    yield from _losses(document, column, width)
    yield from _without(document.variants, column, width)
    yield from _conclusion(document, width)


def _that_fit(predicted: bool, room: int) -> list[str]:
    """The columns that fit into this many characters."""
    shown = [name for name in COLUMNS if predicted or name != "predicted"]
    for name in LEFT_OUT:
        if sum(COLUMNS[each] + 2 for each in shown) - 2 > room:
            shown.remove(name)
    return shown


def _row(name: str, cells: Iterable[str], shown: Sequence[str], column: int) -> str:
    told = zip(COLUMNS.items(), cells, strict=True)
    return f"{name:{column}}" + "  ".join(f"{cell:>{size}}" for (key, size), cell in told if key in shown).rstrip()


def _cells(variant: TriedVariant, step: MeasuredStep) -> tuple[str, ...]:
    beside = f"{variant.difference:+.1%}" if variant.beyond_noise else "within noise"
    expected = variant.predicted
    predicted = "" if expected is None else f"{_ms(expected.ms)} ({_ms(expected.low_ms)} to {_ms(expected.high_ms)})"
    return *_measured(step), beside, predicted


def _measured(step: MeasuredStep) -> tuple[str, str, str]:
    return _ms(step.ms), f"{_ms(step.low_ms)} to {_ms(step.high_ms)}", f"{step.peak_bytes / 1e9:.2f}"


def _losses(document: TryDocument, column: int, width: int) -> Iterator[str]:
    first = document.as_it_is.losses
    if not first:
        return
    shown = [variant for variant in document.variants if variant.measured is not None]
    yield ""
    yield cut_to(f"{'loss':{column}}of the first {len(first)} steps; the largest relative difference", width)
    yield cut_to(f"{'as it is':{column}}{_numbers(first)}", width)
    for variant in shown:
        assert variant.measured is not None
        share = "" if variant.loss_difference is None else f"  {variant.loss_difference:.2g}"
        yield cut_to(f"{'+'.join(variant.changes):{column}}{_numbers(variant.measured.losses)}{share}", width)


def _without(variants: Sequence[TriedVariant], column: int, width: int) -> Iterator[str]:
    """Why variants have no measurement."""
    without = [variant for variant in variants if variant.measured is None]
    if without:
        yield ""
        yield "not measured"
    for variant in without:
        name = f"{'+'.join(variant.changes):{column}}"
        yield from textwrap.wrap(safe(variant.why_none), width, initial_indent=name, subsequent_indent=" " * column)


def _conclusion(document: TryDocument, width: int) -> Iterator[str]:
    gains = [v for v in document.variants if v.beyond_noise and v.difference is not None and v.difference < 0]
    yield ""
    if not gains:
        yield from textwrap.wrap("No variant gains beyond the noise of the runs.", width)
    else:
        best = min(gains, key=lambda variant: variant.difference or 0.0)
        assert best.measured is not None
        now = f"{_ms(document.as_it_is.ms)} to {_ms(best.measured.ms)} ms"
        yield from textwrap.wrap(f"The fastest: {'+'.join(best.changes)}, {now}.", width)
    if document.by_hand:
        yield from textwrap.wrap(f"By hand, from the plan: {safe('; '.join(document.by_hand))}.", width)


def _numbers(losses: Sequence[float]) -> str:
    return " ".join(f"{loss:>9.5g}" for loss in losses)


def _ms(amount: float) -> str:
    return rounded(amount, 3)
