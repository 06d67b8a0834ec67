"""Text for a terminal: pages, without control sequences, texts cut to a width, prose wrapped at a readable length."""

from __future__ import annotations

import io
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, Literal

from pyprof.files import Name, is_standard
from pyprof.text import clean

if TYPE_CHECKING:
    from rich.console import Console

Cut = Literal["right", "middle", "left"]  # where characters are removed from a text that is too long

DOTS = ".."
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")  # includes text direction marks

NO_TERMINAL = 100  # characters per line in a file or a pipe
WIDEST = 110  # characters per line of prose: longer lines are hard to read
UNIT = re.compile(r"(\d) (?=(?:ms|[kMGTP]?(?:B|FLOP)(?:/s)?)\b)")


def output_width(output: Name, wanted: int | None) -> tuple[int, bool]:
    """Characters per line (``wanted``, or else the terminal's, or else 100), and whether the output is a terminal."""
    terminal = is_standard(output) and sys.stdout is not None and sys.stdout.isatty()
    return wanted or (shutil.get_terminal_size().columns if terminal else NO_TERMINAL), terminal


@contextmanager
def page(out: BinaryIO, width: int, terminal: bool) -> Iterator[Console]:
    """A console whose text is written to ``out`` at the end: lines of at most ``width`` characters, but at least 40,
    without blanks at their ends. ``terminal``: with colours.
    """
    from rich.console import Console

    text = io.StringIO()
    yield Console(
        file=text,
        width=max(width, 40),
        height=25,  # has no effect itself, but without a height TERM=dumb has a width of 80
        force_terminal=terminal,
        force_jupyter=False,  # in a notebook rich would otherwise show each line instead of writing it
        highlight=False,
        markup=False,
        emoji=False,
    )
    lines = text.getvalue().split("\n")
    out.write("\n".join(line.rstrip() for line in lines).encode("utf-8", "replace"))


def cut_to(text: str, size: int, cut: Cut = "right") -> str:
    """The text in at most ``size`` characters, with dots where some are left out.

    A kernel name is most informative at both ends (library and type, tile and layout), a module or path at its end.

    >>> cut_to("nvjet_sm90_tst_192x128_64x5_bias_NNT", 20, "middle")
    'nvjet_sm9.._bias_NNT'
    """
    if shown_width(text) <= size:
        return text
    if not text.isascii():  # replace wide and combining characters, so that each character takes one column
        text = "".join("?" if unicodedata.east_asian_width(c) in "WF" or unicodedata.combining(c) else c for c in text)
    if len(text) <= size:
        return text
    keep = size - len(DOTS)
    if keep < 1:
        return text[:size]
    head = {"right": keep, "middle": (keep + 1) // 2, "left": 0}[cut]
    return text[:head] + DOTS + text[len(text) - (keep - head) :]


def shown_width(text: str) -> int:
    """The number of terminal columns that the text takes: two per East Asian wide character, none per combining one."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def safe(text: str) -> str:
    """The text with terminal control sequences replaced by "?"."""
    return text if text.isascii() and text.isprintable() else CONTROL.sub("?", clean(text))


def wrapped(words: str, width: int, first: str = "", hang: str = "") -> list[str]:
    """A text in lines of at most ``width`` and ``WIDEST`` characters, terminal control sequences removed."""
    whole = UNIT.sub("\\1\xa0", safe(words))  # keeps a number and its unit on one line
    lines = textwrap.wrap(
        whole, min(width, WIDEST), initial_indent=first, subsequent_indent=hang, break_on_hyphens=False
    )
    return [line.replace("\xa0", " ") for line in lines]


def prose(console: Console, words: str, style: str, hang: int = 0) -> None:
    """Print a text, with terminal control sequences removed, in lines of at most ``WIDEST`` characters."""
    from rich.text import Text

    for line in wrapped(words, console.width, hang=" " * hang):
        console.print(Text(line, style), no_wrap=True, overflow="ignore", crop=False)
