"""The summary on a terminal or in a pipe: sentences, then a table each by phase, part of the model, layer and kind.

Names in a trace are anybody's: they are cleaned of control characters and never read as markup. Colour and width only
where the output is a terminal, or as asked for.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from pyprof.command.terminal_text import cut_to, prose, safe
from pyprof.prof.summary.capture_numbers import Part, Summary
from pyprof.prof.summary.sentences import OUTLIER, assumptions, headline, ms, sentences, share, worker
from pyprof.prof.timing.usage import Usage

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["write_summary"]

MOST = 14  # rows of a table
LAYERS = 6
BAR = 24


def write_summary(
    found: Summary, out: BinaryIO, width: int, terminal: bool = False, advice: Sequence[str] = ()
) -> None:
    """``advice``: a title and the pieces, as ``pyprof.prof.advice.report.brief`` makes them."""
    from rich.console import Console

    text = io.StringIO()
    console = Console(
        file=text,
        width=max(width, 40),
        height=25,  # of no matter, but without one TERM=dumb is 80 wide
        force_terminal=terminal,
        force_jupyter=False,  # in a notebook it would show each line in place of writing it
        highlight=False,
        markup=False,
        emoji=False,
    )
    _print(console, found, advice)
    lines = text.getvalue().split("\n")
    out.write("\n".join(line.rstrip() for line in lines).encode("utf-8", "replace"))


def _print(console: Console, found: Summary, advice: Sequence[str]) -> None:
    prose(console, headline(found), "bold")
    for sentence in sentences(found):
        prose(console, f"• {sentence}", "", hang=2)
    if advice:
        title, *pieces = advice
        console.print()
        prose(console, title, "bold")
        for number, piece in enumerate(pieces, 1):
            prose(console, f"{number}. {piece}", "", hang=3)
    _tables(console, found)
    console.print()
    for line in assumptions(found):
        prose(console, line, "dim")


def _tables(console: Console, found: Summary) -> None:
    if found.span_ns and (len(found.phases) > 1 or found.phases[0].name != "other"):
        _phases(console, found)
    if len(found.devices) > 1:
        _devices(console, found)
    if found.has_layers:
        _parts(console, found, "By part of the model", found.components)
        _layers(console, found)
    elif _many(found.components):
        _parts(console, found, "By part of the model, as far as ops tell it (the capture names no layers)",
               found.components)  # fmt: skip
    _parts(console, found, "By kind of work", found.kinds)
    if found.matrix.ns and len(found.matrix.units) > 1:
        _parts(console, found, "Matrix math by unit", found.matrix.units, found.matrix.ns)


def _many(parts: Sequence[Part]) -> bool:
    """Whether a table of them tells more than one line would."""
    whole = sum(part.ns for part in parts)
    return sum(part.ns for part in parts if part.name not in ("other", "copies")) > whole / 2


def _phases(console: Console, found: Summary) -> None:
    rows = [
        (part.name, part.rows, ms(part.ns), share(part.ns, found.span_ns), ms(part.idle_ns),
         share(part.idle_ns, found.span_ns))
        for part in found.phases
    ]  # fmt: skip
    rows.append(("all", sum(part.rows for part in found.phases), ms(found.busy_ns), share(found.busy_ns, found.span_ns),
                 ms(found.idle_ns), share(found.idle_ns, found.span_ns)))  # fmt: skip
    title = f"By phase, of {ms(found.span_ns)} (overlaps counted once; idle is before the phase's rows)"
    _table(console, title, ("phase", "rows", "works", "", "idle", ""), rows)


def _devices(console: Console, found: Summary) -> None:
    """Each GPU beside the others: one that works less waits, or has less to do."""
    rows = [
        (_whose(device), device.operations, ms(device.span_ns), share(device.busy_ns, device.span_ns),
         share(device.kernel_ns, device.span_ns), f"{device.tflops:.4g}")
        for device in found.devices[:MOST]
    ]  # fmt: skip
    more = len(found.devices) - len(rows)
    title = f"By GPU{f', the first {MOST} of {len(found.devices)}' if more else ''}"
    _table(console, title, ("", "rows", "time", "works", "kernels", "TFLOP/s"), rows)


def _whose(device: Usage) -> str:
    told = (("rank", device.rank), ("process", device.pid), ("device", device.ordinal))
    return ", ".join(f"{name} {value}" for name, value in told if value is not None) or device.name or "GPU"


def _parts(console: Console, found: Summary, title: str, parts: Sequence[Part], whole: int | None = None) -> None:
    total = found.total_ns if whole is None else whole
    shown = list(parts[:MOST])
    rest = parts[MOST:]
    if rest:
        shown.append(Part(f"{len(rest)} more", sum(p.rows for p in rest), sum(p.ns for p in rest)))
    most = max((part.ns for part in shown), default=0)
    rows = [
        (
            part.name,
            part.rows,
            ms(part.ns),
            share(part.ns, total),
            "█" * math.ceil(BAR * part.ns / most) if most else "",
        )
        for part in shown
    ]
    _table(console, f"{title}, of {ms(total)} of {worker(found)} time", ("", "rows", "time", "", ""), rows)


def _layers(console: Console, found: Summary) -> None:
    """The layers of the longest time, in their order."""
    layers = found.series
    if layers is None or not layers.outliers(OUTLIER):
        return  # a sentence has said it
    pairs = list(zip(layers.numbers, layers.ns, strict=True))
    chosen = sorted(sorted(pairs, key=lambda pair: -pair[1])[:LAYERS])
    most = max(layers.ns)
    rows = [
        (str(number), ms(ns), f"{ns / layers.median_ns:.2f} × median" if layers.median_ns else "",
         "█" * math.ceil(BAR * ns / most) if most else "")
        for number, ns in chosen
    ]  # fmt: skip
    which = "all" if len(pairs) <= LAYERS else f"the {LAYERS} longest of"
    title = f"By layer, {which} {len(pairs)}: {cut_to(safe(layers.name), 60, 'left')}"
    _table(console, title, ("layer", "time", "", ""), rows)


def _table(console: Console, title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print()
    prose(console, title, "bold")
    table = Table(box=None, show_header=any(head), header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for i, name in enumerate(head):
        bar = i == len(head) - 1 and any("█" in str(row[-1]) for row in rows)
        justify: Any = "left" if i == 0 or bar else "right"
        table.add_column(Text(name), justify=justify, no_wrap=True, style="cyan" if bar else "")
    narrow = max(12, console.width - 62)
    for row in rows:
        cells = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row]
        cells[0] = cut_to(safe(cells[0]), max(narrow, 24), "middle")
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
