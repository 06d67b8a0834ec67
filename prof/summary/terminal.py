"""The summary on a terminal or in a pipe: sentences, advice, tables.

Names in a trace are untrusted: control characters are removed, and they are never read as markup. Colour and width are
used only if the output is a terminal, or as requested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from pyprof.command.terminal_text import cut_to, page, prose, safe
from pyprof.prof.summary.capture_numbers import Summary
from pyprof.prof.summary.sentences import assumptions, incomplete_lines, sentences, what_ran
from pyprof.prof.summary.tables import SummaryTable, summary_tables

if TYPE_CHECKING:
    from rich.console import Console

BAR = 24  # characters of the longest bar
NAME = 24  # characters that are always available for a row's name
OTHER_COLUMNS = 62  # characters of the columns other than the name


def write_summary(
    summary: Summary, out: BinaryIO, width: int, terminal: bool = False, advice: Sequence[str] = ()
) -> None:
    """Write the summary; ``advice`` is a title and pieces of advice from ``pyprof.prof.advice.report.brief``."""
    with page(out, width, terminal) as console:
        _print(console, summary, advice)


def _print(console: Console, summary: Summary, advice: Sequence[str]) -> None:
    for line in (*incomplete_lines(summary), what_ran(summary)):
        prose(console, line, "bold")
    for sentence in sentences(summary):
        prose(console, f"• {sentence}", "", hang=2)
    if advice:
        title, *pieces = advice
        console.print()
        prose(console, title, "bold")
        for number, piece in enumerate(pieces, 1):
            prose(console, f"{number}. {piece}", "", hang=3)
    for table in summary_tables(summary):
        print_table(console, table)
    console.print()
    for line in assumptions(summary):
        prose(console, line, "dim")


def print_table(console: Console, table: SummaryTable, fitted: bool = False) -> None:
    """Print a table under its title. ``fitted``: names get all the room that the other columns leave."""
    from rich.table import Table
    from rich.text import Text

    console.print()
    prose(console, table.title, "bold")
    grid = Table(box=None, show_header=any(table.head), header_style="dim", padding=(0, 2, 0, 0), pad_edge=False)
    for i, name in enumerate(table.head):
        grid.add_column(Text(name), justify="right" if i else "left", no_wrap=True)
    if table.bars:
        grid.add_column("", no_wrap=True, style="cyan")
    longest = max(NAME, console.width - (_others(table) if fitted else OTHER_COLUMNS))
    bars = ["█" * math.ceil(BAR * bar) for bar in table.bars]
    for i, (name, *cells) in enumerate(table.rows):
        row = [cut_to(safe(name), longest, "middle"), *cells, *bars[i : i + 1]]
        grid.add_row(*(Text(cell) for cell in row))
    console.print(grid)


def _others(table: SummaryTable) -> int:
    """The characters that a table's columns take, but for the first one."""
    columns = zip(table.head, *table.rows, strict=True)
    return sum(max(map(len, column)) + 2 for column in list(columns)[1:]) + (BAR + 2 if table.bars else 2)
