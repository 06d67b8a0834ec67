"""The printed table as text: fields separated by blanks for awk, or columns aligned to a terminal's width.

Names in a trace are untrusted: control characters, which could affect the terminal, are shown as "?".
"""

import re
from functools import partial
from typing import BinaryIO

from pyprof.command.terminal_text import Cut, cut_to, safe, shown_width
from pyprof.errors import UsageError
from pyprof.prof.table.cells import Cells, Data, widths
from pyprof.prof.table.columns import Column
from pyprof.table.columns import Coded

BLANK = re.compile(r"\s+")
NARROWEST = 8  # smallest width, in characters, to which a text column may shrink


def write_plain(cells: Cells, out: BinaryIO) -> None:
    """Write fields separated by single blanks: blanks inside a field become "_", an empty field "-"."""
    out.write((" ".join(_word(column.name) for column in cells.columns) + "\n").encode())
    for block in cells.blocks([_word] * len(cells.columns)):
        out.write("".join(f"{line}\n" for line in map(" ".join, block)).encode())


def write_words(cells: Cells, out: BinaryIO) -> None:
    """Write the fields of ``write_plain`` side by side: whole, one word each, numbers to the right."""
    pairs = list(zip(cells.columns, cells.data, strict=True))
    sizes = [max(len(c.name), *(shown_width(_word(text)) for text in widths(c, data)), 1) for c, data in pairs]
    right = [not isinstance(data, Coded) for data in cells.data]
    out.write(
        (" ".join(map(_padded, (column.name for column in cells.columns), sizes, right)).rstrip() + "\n").encode()
    )
    changes = [partial(_padded_word, size=n, right=r) for n, r in zip(sizes, right, strict=True)]
    for block in cells.blocks(changes):
        out.write("".join(f"{line.rstrip()}\n" for line in map(" ".join, block)).encode())


def write_aligned(cells: Cells, out: BinaryIO, width: int) -> None:
    """Write columns side by side in at most ``width`` characters per line; long texts are cut, other cells are not."""
    columns = list(zip(cells.columns, cells.data, fit(cells, width), strict=True))
    changes = [partial(_cell, size=n, cut=column.cut, right=not isinstance(data, Coded)) for column, data, n in columns]
    header = " ".join(_padded(column.name, n, not isinstance(data, Coded)) for column, data, n in columns)
    out.write((header.rstrip() + "\n").encode())
    for block in cells.blocks(changes):
        out.write("".join(f"{line.rstrip()}\n" for line in map(" ".join, block)).encode())


def fit(cells: Cells, width: int) -> list[int]:
    """The columns' widths: as much as they need, headers included; if the line is too long, long texts are shortened.

    Raises UsageError if the columns still do not fit.
    """
    needs, least = _needs(cells), _least(cells)
    room = width - (len(needs) - 1)  # one blank between columns
    if sum(least) > room:
        needed = least_width(cells)
        raise UsageError(f"-w {width}: these columns need {needed} characters; choose fewer with -c or leave -w out")
    return _shrunk(needs, least, [column.share for column in cells.columns], room)


def least_width(cells: Cells) -> int:
    """The characters per line that the columns need if all long texts are cut."""
    least = _least(cells)
    return sum(least) + len(least) - 1


def _shrunk(sizes: list[int], least: list[int], shares: list[float], room: int) -> list[int]:
    """Repeatedly shrink the column that is widest relative to its share, until all fit."""
    sizes = list(sizes)
    while sum(sizes) > room:
        able = [i for i, size in enumerate(sizes) if size > least[i]]
        sizes[max(able, key=lambda i: (sizes[i] / shares[i], i))] -= 1
    return sizes


def _needs(cells: Cells) -> list[int]:
    """The width of each column's widest cell or header."""
    return [_widest(column, data) for column, data in zip(cells.columns, cells.data, strict=True)]


def _widest(column: Column, data: Data) -> int:
    return max(len(column.name), *(shown_width(safe(text)) for text in widths(column, data)), 0)


def _least(cells: Cells) -> list[int]:
    """The smallest width of each column: texts may be cut, but neither headers nor numbers."""
    pairs = zip(_needs(cells), cells.columns, cells.data, strict=True)
    return [max(min(n, NARROWEST), len(c.name)) if isinstance(data, Coded) else n for n, c, data in pairs]


def _cell(text: str, size: int, cut: Cut, right: bool) -> str:
    return _padded(cut_to(safe(text), size, cut), size, right)


def _padded_word(text: str, size: int, right: bool) -> str:
    return _padded(_word(text), size, right)


def _padded(text: str, size: int, right: bool) -> str:
    pad = " " * (size - shown_width(text))
    return pad + text if right else text + pad


def _word(text: str) -> str:
    return safe(BLANK.sub("_", text.strip())) or "-"
