"""The summary on a terminal or in a pipe: sentences, advice, tables.

Names in a trace are untrusted: control characters are removed, and they are never read as markup. Colour and width are
used only if the output is a terminal, or as requested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from pyprof.command.terminal_text import cut_to, page, prose, safe, shown_width
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.sentences import assumptions, incomplete_lines, sentences, what_ran
from pyprof.prof.summary.step_sentences import step_sentences
from pyprof.prof.summary.tables import SummaryTable, summary_tables

if TYPE_CHECKING:
    from rich.console import Console

BAR = 24  # characters of the longest bar
GAP = "  "  # between columns
NAME = 24  # characters that are available for a row's name wherever there is room for them beside the figures
LEAST_NAME = 8  # characters of it that are shown in any case
OTHER_COLUMNS = 62  # characters of the columns other than the name


def write_summary(
    summary: Summary, out: BinaryIO, width: int, terminal: bool = False, advice: Sequence[str] = ()
) -> None:
    """Write the summary; ``advice`` is a heading and lines about changes, from ``pyprof.prof.changes.say.brief``."""
    with page(out, width, terminal) as console:
        _print(console, summary, advice)


def _print(console: Console, summary: Summary, advice: Sequence[str]) -> None:
    for line in (*incomplete_lines(summary), what_ran(summary)):
        prose(console, line, "bold")
    first = list(step_sentences(summary))
    _bullets(console, first)
    if advice:
        title, *pieces = advice
        console.print()
        prose(console, title, "bold")
        for number, piece in enumerate(pieces, 1):
            prose(console, f"{number}. {piece}", "", hang=3)
        console.print()
    _bullets(console, [sentence for sentence in sentences(summary) if sentence not in first])
    for table in summary_tables(summary):
        print_table(console, table)
    console.print()
    for line in assumptions(summary):
        prose(console, line, "dim")


def _bullets(console: Console, texts: Sequence[str]) -> None:
    for text in texts:
        prose(console, f"• {text}", "", hang=2)


def print_table(console: Console, table: SummaryTable, fitted: bool = False) -> None:
    """Print a table under its title. ``fitted``: names get all the room that the other columns leave.

    On short lines names lose their middles, and where those would be too short, the bars go; figures are never cut.
    """
    from rich.text import Text

    rows = [(safe(name), *cells) for name, *cells in table.rows]
    head, *columns = ([shown_width(cell) for cell in column] for column in zip(table.head, *rows, strict=True))
    sizes = [max(column) for column in columns]
    room = console.width - sum(size + len(GAP) for size in sizes)
    for bar in (BAR + len(GAP), 0) if table.bars else (0,):
        longest = min(max(head), max(NAME, room - bar if fitted else console.width - OTHER_COLUMNS))
        if longest + bar <= room:
            break
    longest = min(longest, max(room, LEAST_NAME))

    def line(name: str, *cells: str) -> str:
        cut = cut_to(name, longest, "middle")
        padded = (" " * (size - shown_width(cell)) + cell for size, cell in zip(sizes, cells, strict=True))
        return GAP.join([cut + " " * (longest - shown_width(cut)), *padded])

    console.print()
    prose(console, table.title, "bold")
    lines = [Text(line(*table.head), "dim")] if any(table.head) else []
    for i, row in enumerate(rows):
        length = math.ceil(BAR * table.bars[i]) if bar else 0
        lines.append(Text.assemble(line(*row), (GAP + "█" * length, "cyan")))
    for each in lines:
        console.print(each, no_wrap=True, overflow="ignore", crop=False)
