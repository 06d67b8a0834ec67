"""A table's times by another clock: those of a rank of a job by that of another rank."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from pyprof.table.columns import NULL, Coded, Columns, Ints

TIMES = ("start", "apiStart", "markStart", "markEnd", "stepStart", "stepEnd")
LISTS = ("emptySteps", "batches")  # columns of lists, each of a number, a start and an end


def moved(table: Columns, ns: int) -> Columns:
    """The table with ``ns`` added to every point in time. Durations stay."""
    if not ns:
        return table
    for key in TIMES:
        if key in table.columns:
            table = table.with_column(key, _moved(table.ints(key), ns))
    for key in LISTS:
        if key in table.columns:
            lists = table.coded(key)
            table = table.with_column(key, Coded(lists.codes, [_moved_lists(text, ns) for text in lists.values]))
    samples = [replace(gpu, time_ns=_moved(gpu.time_ns, ns)) for gpu in table.samples]
    return type(table)(len(table), table.columns, samples, table.measured, table.cpu)


def _moved(times: Ints, ns: int) -> Ints:
    return np.where(times == NULL, NULL, times + ns)


def _moved_lists(text: str, ns: int) -> str:
    """A number, a start and an end in each list; anything else stays as it is."""
    found = json.loads(text) if text else None
    if not isinstance(found, list) or any(not isinstance(mark, list) or len(mark) != 3 for mark in found):
        return text
    return json.dumps([[number, begin + ns, end + ns] for number, begin, end in found])
