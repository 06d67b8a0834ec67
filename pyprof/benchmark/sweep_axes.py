"""The options of a sweep: a name and the values that it takes in turn.

M=1:4096:*2              1, 2, 4, ... 4096: the end is included
M=64:1024:+64            64, 128, ... 1024
M=1,17,4096              these
dtype=bf16,fp32          one of the names in DTYPES
layout=row,column        how ``rand`` strides a tensor
align=16,2               by how many bytes ``rand`` aligns it
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pyprof.errors import PyprofError

MOST_VALUES = 10_000  # of an axis, and of all combinations
LAYOUTS = ("row", "column", "channels_last")
ALIGNMENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DTYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "int8": "int8",
    "int32": "int32",
    "int64": "int64",
}
_WORDS = {"dtype": tuple(DTYPES), "layout": LAYOUTS}
_RANGE = re.compile(r"(\d{1,15}):(\d{1,15}):([*+])(\d{1,15})", re.ASCII)


class Axis(NamedTuple):
    """A variable of the statement and its values: whole numbers, or words for a dtype or layout."""

    name: str
    values: tuple[int | str, ...]


def parse_axis(text: str) -> Axis:
    """An axis from an option's text.

    >>> parse_axis("M=1:6:*2"), parse_axis("dtype=bf16,fp32")
    (Axis(name='M', values=(1, 2, 4)), Axis(name='dtype', values=('bf16', 'fp32')))
    """
    name, equals, listed = text.partition("=")
    if not equals or not name.isidentifier() or not name.isascii():
        raise PyprofError(f"expected NAME=VALUES such as M=1:4096:*2, found {text[:60]!r}")
    values = tuple(_values(name, listed))
    if len(values) > MOST_VALUES:
        raise PyprofError(f"{name}: at most {MOST_VALUES:,} values, found {len(values):,}")
    return Axis(name, tuple(dict.fromkeys(values)))


def _values(name: str, listed: str) -> Iterator[int | str]:
    if name in _WORDS:
        for word in listed.split(","):
            if word not in _WORDS[name]:
                raise PyprofError(f"{name}: expected some of {', '.join(_WORDS[name])}, found {word[:40]!r}")
            yield word
        return
    found = _RANGE.fullmatch(listed)
    if found:
        yield from _range(name, int(found[1]), int(found[2]), found[3], int(found[4]))
        return
    for word in listed.split(","):
        if not word.isascii() or not word.isdecimal() or len(word) > 15:
            expected = "first:last:*factor, first:last:+step, or whole numbers with commas"
            raise PyprofError(f"{name}: expected {expected}, found {listed[:60]!r}")
        if name == "align" and int(word) not in ALIGNMENTS:
            raise PyprofError(f"align: expected some of {', '.join(map(str, ALIGNMENTS))} bytes, found {word}")
        yield int(word)


def _range(name: str, first: int, last: int, sign: str, step: int) -> Iterator[int]:
    if first > last or (sign == "*" and (step < 2 or first < 1)) or (sign == "+" and step < 1):
        raise PyprofError(f"{name}: {first}:{last}:{sign}{step} does not rise from its first value to its last")
    if sign == "+" and (last - first) // step >= MOST_VALUES:
        raise PyprofError(f"{name}: at most {MOST_VALUES:,} values, found {(last - first) // step + 1:,}")
    while first <= last:
        yield first
        first = first * step if sign == "*" else first + step


def points(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Every combination of the axes' values; the last axis changes fastest. One empty point if there are no axes."""
    names = [axis.name for axis in axes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PyprofError(f"--sweep {twice} was given twice")
    total = 1
    for axis in axes:
        total *= len(axis.values)
    if total > MOST_VALUES:
        raise PyprofError(f"at most {MOST_VALUES:,} combinations, found {total:,}")
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(axis.values for axis in axes))]
