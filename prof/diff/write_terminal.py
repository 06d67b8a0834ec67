"""The difference on a terminal or in a pipe: the change in a sentence, its sources, and tables that sum to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from pyprof.command.terminal_text import cut_to, page, prose, safe, shown_width
from pyprof.prof.diff import sentences as say
from pyprof.prof.diff.compare import IDLE, OVERLAP, Comparison
from pyprof.prof.diff.gate import Verdict
from pyprof.prof.diff.table_rows import Row, contributions, table_rows

if TYPE_CHECKING:
    from rich.console import Console

TOP = 12  # entries in the first table
MOST = 8  # rows in the other tables
SWAPS = 6  # changes of kernels that are shown
WIDE = 96  # characters per line from which noise has a column
NAME = 18  # the least number of characters for names
PHASE = {"forward": "fwd", "backward": "bwd", "optimizer": "opt", "prefill": "pre", "decode": "dec"}
FRAME = {OVERLAP: "overlap, counted once", IDLE: "idle"}


def write_terminal(
    found: Comparison, verdicts: Sequence[Verdict], out: BinaryIO, width: int, terminal: bool, top: int | None = TOP
) -> None:
    with page(out, max(width, 60), terminal) as console:
        _print(console, found, verdicts, top)


def _print(console: Console, found: Comparison, verdicts: Sequence[Verdict], top: int | None) -> None:
    places = say.digits(found)
    unit = 10.0 ** (6 - places)
    if other_clocks := say.clock_words(found):
        prose(console, other_clocks, "bold yellow")
    prose(console, say.headline(found), "bold")
    for letter, side in (("A", found.a), ("B", found.b)):
        prose(console, f"{letter}: {side.name} ({say.side_words(side)})", "dim", hang=3)
    for sentence in say.sentences(found):
        prose(console, f"• {sentence}", "", hang=2)
    for warning in say.warnings(found):
        prose(console, f"! {warning}.", "yellow", hang=2)
    _table(
        console, f"Where the difference comes from, ms per {say.unit(found)}", contributions(found, unit, top), places
    )
    _swaps(console, found, places)
    cut = None if top is None else MOST
    if len(found.phases) > 1:
        _table(console, "By phase (overlaps count once)", table_rows(found, found.phases, unit, None, False), places)
    _table(console, "By kind of work", table_rows(found, found.kinds, unit, cut, True), places)
    if len(found.layers) > 1:
        _table(console, "By layer", table_rows(found, found.layers, unit, cut, True), places)
    if verdicts:
        console.print()
    for verdict in verdicts:
        for line in say.verdict_words(verdict):
            prose(console, line, "bold red" if line.startswith("failed") else "green", hang=2)


def _table(console: Console, title: str, rows: Sequence[Row], places: int) -> None:
    """Print a table: names are cut to the room that is left, numbers are whole."""
    from rich.text import Text

    noise = console.width >= WIDE and any(row.entry for row in rows) and not math.isnan(rows[-1].ns.band)
    numbers = [[*row.cells(places), *([row.noise(places)] if noise else [])] for row in rows]
    head = ["A", "B", "B - A", "%", *(["noise"] if noise else [])]
    widths = [max(len(cell) for cell in column) for column in zip(head, *numbers, strict=True)]
    notes = [say.tally(row.entry) if row.entry else "" for row in rows]
    phases = [PHASE.get(row.entry.phase, cut_to(safe(row.entry.phase), 5)) if row.entry else "" for row in rows]
    phase_width = max(map(len, phases))
    fixed = sum(widths) + 2 * len(widths) + max(map(len, notes)) + phase_width + 4
    room = max(NAME, console.width - fixed)
    labels = [row.label if row.entry else FRAME.get(row.name, row.name) for row in rows]
    names = [cut_to(safe(text), room, "left" if row.entry else "right") for row, text in zip(rows, labels, strict=True)]
    wide = max(shown_width(name) for name in names)
    console.print()
    prose(console, title, "bold")
    padded = "  ".join(f"{cell:>{size}}" for cell, size in zip(head, widths, strict=True))
    gap = " " * (phase_width + 2 if phase_width else 0)
    console.print(Text(f"{'':{wide}}{gap}  {padded}", "dim"), no_wrap=True, overflow="ignore", crop=False)
    for row, name, phase, cells, note in zip(rows, names, phases, numbers, notes, strict=True):
        line = Text(name + " " * (wide - shown_width(name)), "bold" if row.total else "")
        if phase_width:
            line.append(f"  {phase:{phase_width}}", "dim")
        for i, (cell, size) in enumerate(zip(cells, widths, strict=True)):
            line.append(f"  {cell:>{size}}", _colour(row) if i in (2, 3) else "")
        line.append(f"  {note}" if note else "", "dim")
        line.rstrip()
        console.print(line, no_wrap=True, overflow="ignore", crop=False)


def _colour(row: Row) -> str:
    if not row.change or (not row.total and not row.ns.counts):
        return ""
    return "red" if row.change > 0 else "green"


def _swaps(console: Console, found: Comparison, places: int) -> None:
    from rich.text import Text

    swaps = found.swaps
    if not swaps:
        return
    console.print()
    title = "Kernels that changed" + (f": the {SWAPS} greatest of {len(swaps)}" if len(swaps) > SWAPS else "")
    prose(console, title, "bold")
    for swap in swaps[:SWAPS]:
        prose(console, say.swap_words(swap, places, found.gpus), "", hang=2)
        before, after = say.replaced(swap)
        for arrow, kernels in (("  " if swap.b else "no longer", before), ("->" if swap.a else "also", after)):
            if kernels:
                names = cut_to(safe(kernels), console.width - 3 - len(arrow), "middle")
                console.print(Text(f"  {arrow} {names}", "dim"), no_wrap=True, overflow="ignore", crop=False)
