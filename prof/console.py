"""Prose on a terminal or in a pipe."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

from pyprof.prof.table.write_plain import safe

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["prose"]

WIDEST = 110  # characters of a line of prose: longer ones are hard to read
UNIT = re.compile(r"(\d) (?=(?:ms|[kMGTP]?(?:B|FLOP)(?:/s)?)\b)")


def prose(console: Console, words: str, style: str, hang: int = 0) -> None:
    """Print a text, cleaned of what could drive the terminal, in lines that are not too long."""
    from rich.text import Text

    whole = UNIT.sub("\\1\xa0", safe(words))  # a number stays with its unit
    for line in textwrap.wrap(whole, min(console.width, WIDEST), subsequent_indent=" " * hang, break_on_hyphens=False):
        console.print(Text(line.replace("\xa0", " "), style), no_wrap=True, overflow="ignore", crop=False)
