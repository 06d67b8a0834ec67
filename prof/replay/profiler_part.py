"""Which part of the host's work between two calls is the profiler's, where its share of all of it is known or assumed.

The profiler works at each range (op, layer, backward node) and each call of the GPU's API, and longest at pyprof's
markers, which describe a call's arguments and where it stands in the program. So work with many markers, such as an
optimizer's loop in Python, is slowed more than the backward pass, which has none. Of 12 runs of programs on an H200
whose steps were timed without the profiler (docs/explanation/replay.md), the difference to the captured time is
explained by 35 µs for a marker and 5 µs for another range: the ratio is taken from there, the amount from the run.
"""

from __future__ import annotations

import numpy as np

from pyprof.prof.timing.profiler_cost import of_torch_profiler
from pyprof.table.columns import Floats, HostTable, Ints, Table

MARKER = 3.0  # what torch.profiler and pyprof take for a marker, by what they take for another range
MOST_NS = 25_000  # a range or call does not cost a profiler more on average
KEPT = 0.6  # of the part that its work would have at an equal share for all, a call keeps at least this much
ROUNDS = 40


def costs(table: Table, host: HostTable, rows: Ints) -> Floats:
    """Per row of the table of host calls: what the profiler does in the work before it, in units of a range."""
    ranges, markers = (np.clip(host.ints(key)[rows], 0, 1 << 31).astype(np.float64) for key in ("ranges", "markers"))
    return 1.0 + ranges + ((MARKER - 1) * markers if of_torch_profiler(table) else 0.0)


def without(work: Floats, cost: Floats, most: Floats, share: float) -> Floats:
    """Each piece of ``work`` (ns) without the profiler, if this share of all is the program's own.

    ``cost``: from ``costs``; ``most``: the most that the profiler takes in each piece, ns, so that pauses stay.
    """
    removed = float(np.minimum((1 - share) * work, most).sum())
    limit = np.minimum((1 - KEPT * share) * work, most * MARKER)
    low, high = 0.0, float((limit / cost).max(initial=0.0))
    for _ in range(ROUNDS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(np.minimum(middle * cost, limit).sum()) < removed else (low, middle)
    found: Floats = work - np.minimum(high * cost, limit)
    return found
