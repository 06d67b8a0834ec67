"""The order in which a trace's events are written: by time, and at one time so that slices nest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pyprof.prof.perfetto.tracks import Slices
from pyprof.table.columns import Ints

__all__ = ["in_order"]


def in_order(parts: Sequence[Slices]) -> tuple[Ints, Ints, Ints]:
    """(time, slice, 1 where it begins and 0 where it ends) of every event; slices count through all parts.

    At one time, slices that began earlier end first, the innermost before the others; then slices begin, the longest
    first, and one of 0 ns ends as soon as it begins.
    """
    start = np.concatenate([part.start for part in parts])
    end = start + np.concatenate([part.duration for part in parts])
    count = len(start)
    place = np.empty(count, np.int64)  # an outer slice before the inner ones
    place[np.lexsort((np.arange(count), -end, start))] = np.arange(count)
    empty = end == start
    time = np.concatenate([start, end])
    late = np.concatenate([np.ones(count, np.int64), empty.astype(np.int64)])
    tie = np.concatenate([2 * place, np.where(empty, 2 * place + 1, -place)])
    order = np.lexsort((tie, late, time))
    begins = np.concatenate([np.ones(count, np.int64), np.zeros(count, np.int64)])
    return time[order], order % count, begins[order]
