"""Rows of a capture grouped by a text: how many there are and how long they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from pyprof.command.json_schema import doc
from pyprof.table.columns import Coded, Ints

__all__ = ["Part", "parts_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the rows."""

    name: Annotated[str, doc("its name")]
    rows: Annotated[int, doc("number of rows")]
    ns: Annotated[int, doc("their time")]
    idle_ns: Annotated[int, doc("idle time before them")] = 0


def parts_of(column: Coded, weight: Ints, rows: Ints | None = None, empty: str = "") -> tuple[Part, ...]:
    """Rows and time per text of the column, the longest first; ``empty`` replaces the empty text."""
    codes = column.codes if rows is None else column.codes[rows]
    weight = weight if rows is None else weight[rows]
    size = len(column.values)
    counts = np.bincount(codes + 1, minlength=size + 1).tolist()  # code -1 first
    totals = np.zeros(size + 1, np.int64)
    np.add.at(totals, codes + 1, weight)
    sums: dict[str, list[int]] = {}
    for value, count, ns in zip(["", *column.values], counts, totals.tolist(), strict=True):
        if count:
            sum_of_text = sums.setdefault(value or empty, [0, 0])
            sum_of_text[0] += count
            sum_of_text[1] += ns
    parts = [Part(name, count, ns) for name, (count, ns) in sums.items()]
    return tuple(sorted(parts, key=lambda part: -part.ns))
