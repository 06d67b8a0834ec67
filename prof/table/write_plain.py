"""The printed table as text: fields between blanks for awk, or columns aligned to a terminal's width.

Names in a trace are anybody's: control characters, which could drive the terminal, are shown as "?".
"""

from __future__ import annotations

import re
import unicodedata
from functools import partial
from typing import BinaryIO

from pyprof.prof.table.cells import Cells, Data, widths
from pyprof.prof.table.columns import Column, Cut, TooNarrow
from pyprof.table.columns import Coded
from pyprof.text import clean

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")  # and what turns text round
BLANK = re.compile(r"\s+")
NARROWEST = 8  # characters to which a column of texts may shrink
DOTS = ".."


def write_plain(cells: Cells, out: BinaryIO) -> None:
    """Write fields between single blanks: blanks in a field become "_", an empty field "-"."""
    out.write((" ".join(_word(column.header) for column in cells.columns) + "\n").encode())
    for block in cells.blocks([_word] * len(cells.columns)):
        out.write("".join(f"{line}\n" for line in map(" ".join, block)).encode())


def write_aligned(cells: Cells, out: BinaryIO, width: int) -> None:
    """Write columns side by side in at most ``width`` characters a line; numbers whole, long texts cut."""
    widths = fit(cells, width)
    changes = [
        partial(_cell, size=size, cut=column.cut, right=not isinstance(data, Coded))
        for column, data, size in zip(cells.columns, cells.data, widths, strict=True)
    ]
    header = " ".join(
        f"{c.header[:size]:{'<' if isinstance(data, Coded) else '>'}{size}}"
        for c, data, size in zip(cells.columns, cells.data, widths, strict=True)
    )
    out.write((header.rstrip() + "\n").encode())
    for block in cells.blocks(changes):
        out.write("".join(f"{line.rstrip()}\n" for line in map(" ".join, block)).encode())


def fit(cells: Cells, width: int) -> list[int]:
    """The columns' widths: what they need, less what the headers and then the longest texts must give.

    Raises TooNarrow where that is not enough.
    """
    pairs = list(zip(cells.columns, cells.data, strict=True))
    needs = [_needs(column, data) for column, data in pairs]
    least = [min(n, NARROWEST) if isinstance(data, Coded) else n for n, (_, data) in zip(needs, pairs, strict=True)]
    room = width - (len(pairs) - 1)  # a blank between columns
    if sum(least) > room:
        needed = sum(least) + len(pairs) - 1
        raise TooNarrow(f"-w {width}: these columns need {needed} characters; choose fewer with -c or leave -w out")
    whole = [max(n, len(column.header)) for n, (column, _) in zip(needs, pairs, strict=True)]
    if sum(whole) <= room:
        return whole
    shares = [column.share for column in cells.columns]
    return _shrunk(needs, least, shares, room)


def _shrunk(sizes: list[int], least: list[int], shares: list[float], room: int) -> list[int]:
    """Take from the column that is largest for its share until all fit."""
    sizes = list(sizes)
    while sum(sizes) > room:
        able = [i for i, size in enumerate(sizes) if size > least[i]]
        sizes[max(able, key=lambda i: (sizes[i] / shares[i], i))] -= 1
    return sizes


def _needs(column: Column, data: Data) -> int:
    """The width of the column's widest cell, and of its header as far as that must be read."""
    widest = max((shown_width(safe(text)) for text in widths(column, data)), default=0)
    if isinstance(data, Coded):
        return widest or min(3, len(column.header))
    return max(widest, min(7, len(column.header)))


def _cell(text: str, size: int, cut: Cut, right: bool) -> str:
    text = cut_to(safe(text), size, cut)
    pad = " " * (size - shown_width(text))
    return pad + text if right else text + pad


def cut_to(text: str, size: int, cut: Cut = "right") -> str:
    """The text in at most ``size`` characters, with dots where some are left out.

    A kernel's name tells most at both ends (library and type, tile and layout), a module or path at its end.

    >>> cut_to("nvjet_sm90_tst_192x128_64x5_bias_NNT", 20, "middle")
    'nvjet_sm9.._bias_NNT'
    """
    if shown_width(text) <= size:
        return text
    if not text.isascii():
        text = _narrow(text)
    if len(text) <= size:
        return text
    keep = size - len(DOTS)
    if keep < 1:
        return text[:size]
    head = {"right": keep, "middle": (keep + 1) // 2, "left": 0}[cut]
    return text[:head] + DOTS + text[len(text) - (keep - head) :]


def shown_width(text: str) -> int:
    """Characters that a terminal takes: two for East Asian wide ones, none for combining ones."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def _narrow(text: str) -> str:
    """A text that must be cut, its wide and combining characters replaced so that each takes one."""
    return "".join("?" if unicodedata.east_asian_width(c) in "WF" or unicodedata.combining(c) else c for c in text)


def safe(text: str) -> str:
    """The text without what could drive the terminal."""
    return text if text.isascii() and text.isprintable() else CONTROL.sub("?", clean(text))


def _word(text: str) -> str:
    return safe(BLANK.sub("_", text.strip())) or "-"
