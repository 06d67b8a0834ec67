"""Ranges whose texts are read one by one: the ranges of the smaller formats, whose captures have few of them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pyprof.parse.attribute.capture import Ranges
from pyprof.parse.attribute.scope import Scope, classify, split
from pyprof.table.columns import NULL, Ints, distinct

Threads = dict[tuple[int, int], int]  # (process, thread) -> its number


class TextRange(NamedTuple):
    """A range or a call of a thread."""

    pid: int
    tid: int
    start: int  # ns
    end: int
    text: str


def ranges_of(ranges: Sequence[TextRange], threads: Threads, origin: int) -> tuple[Ranges, list[Scope]]:
    """The ranges as columns, and their scopes. New threads are added to ``threads``; ``origin`` becomes time 0."""
    scopes: dict[tuple[str, bool, str], int] = {}
    known: dict[str, tuple[int, int, int]] = {}  # text -> scope, sequence number, op id
    rows = []
    for pid, tid, start, end, text in ranges:
        if text not in known:
            name, seq, op_id, sizes = split(text)
            scope = scopes.setdefault((name, seq is not None or op_id is not None, sizes), len(scopes))
            known[text] = scope, NULL if seq is None else seq, NULL if op_id is None else op_id
        rows.append((threads.setdefault((pid, tid), len(threads)), start - origin, end - origin, *known[text]))
    columns: list[Ints] = list(np.array(rows, np.int64).reshape(-1, 6).T.copy())
    return Ranges(*columns), [classify(*key) for key in scopes]


def thread_numbers(pid: Ints, tid: Ints, threads: Threads) -> Ints:
    """The number of each row's thread. New threads are added to ``threads``."""
    owners, row = distinct(pid, tid)
    numbers = [threads.setdefault((pid, tid), len(threads)) for pid, tid in owners]
    return np.array(numbers, np.int64)[row] if owners else row
