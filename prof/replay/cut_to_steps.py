"""Some steps in a row of a long capture: as many as a replay needs to say what changes bring.

A replay takes as long as it has calls and operations, and a plan takes hundreds of them, so a capture of a thousand
steps would take minutes, to say of each step the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof.prof.timing.steps import slowest_steps
from pyprof.prof.timing.warmup import warm_up
from pyprof.table.columns import NULL, HostTable, Ints, Table, numbered

if TYPE_CHECKING:
    from pyprof.prof.work.annotate import Annotation

MOST_ROWS = 6000  # of a window, where it has more than the least steps
LEAST_STEPS = 4  # the first of them fills the GPU's queue


class Window(NamedTuple):
    """A part of a capture, and the rows of its table that it has."""

    table: Table
    annotation: Annotation
    host: HostTable
    rows: Ints


def step_window(table: Table, annotation: Annotation, host: HostTable) -> Window:
    """Those steps in a row whose mean time is nearest to that of all; the whole capture if it is not long.

    Steps are those that count: after the warm-up.
    """
    numbers, spans = _steps(table)
    count, found = max(LEAST_STEPS, MOST_ROWS * len(numbers) // max(len(table), 1)), None
    if count < len(numbers):
        means = np.convolve(spans, np.ones(count) / count, "valid")
        first = int(np.abs(means - spans.mean()).argmin())
        found = cut_to_steps(table, host, numbers[first : first + count])
    if found is None:
        return Window(table, annotation, host, np.arange(len(table)))
    rows, calls = found
    return Window(table.take(rows), annotation.take(rows), calls, rows)


def cut_to_steps(table: Table, host: HostTable, steps: Ints) -> tuple[Ints, HostTable] | None:
    """The rows of some steps in a row with those launched between them, and the host's calls of that time.

    None if no launch of theirs is known.
    """
    inside = np.isin(table.ints("step"), steps)
    launched, took = table.ints("apiStart"), table.ints("apiDuration")
    known = inside & (launched != NULL)
    if not known.any():
        return None
    begin, end = int(launched[known].min()), int((launched + np.maximum(took, 0))[known].max())
    between = (table.ints("step") == NULL) & (launched != NULL) & (launched >= begin) & (launched <= end)
    rows = np.flatnonzero(inside | between)
    last = max(end, int((table.ints("start") + table.ints("kDuration"))[rows].max()))
    return rows, _calls_between(host, begin, last)


def _steps(table: Table) -> tuple[Ints, Ints]:
    """The numbers of the steps that count, in order of time, and how long each takes, ns."""
    steps = slowest_steps(table)
    left_out = warm_up(table, steps)[1]
    kept = set(np.unique(table.ints("step")[~left_out]).tolist())
    order = sorted((step.start_ns, number, step.span_ns) for number, step in steps.items() if number in kept)
    found = np.array(order, np.int64).reshape(-1, 3)
    return found[:, 1], found[:, 2]


def _calls_between(host: HostTable, begin: int, end: int) -> HostTable:
    """The calls that begin within a time, whose links lead to each other or nowhere."""
    start = host.ints("start")
    rows = np.flatnonzero((start >= begin) & (start <= end))
    place = np.full(len(host) + 1, NULL, np.int64)
    place[rows] = np.arange(len(rows))
    taken = host.take(rows)
    for key in ("record", "after"):
        link = taken.ints(key)
        taken = taken.with_column(key, np.where(link == NULL, NULL, place[np.clip(link, -1, len(host))]))
    return taken


def rows_alike(table: Table, rows: Ints) -> Ints:
    """All rows of a table that have kernel, op, layer and line of one of these rows."""
    keys = [table.coded(key).codes for key in ("kLongName", "kShortName", "op", "layer", "trace", "phase")]
    _, number = numbered(*keys)
    return np.flatnonzero(np.isin(number, np.unique(number[rows])))
