"""What a parameter is the cause of outside of its layer: its part of loops over tensors, as of optimizers."""

from __future__ import annotations

from collections import Counter

import numpy as np

from pyprof.prof.changes.effect.base_run import LISTS
from pyprof.prof.changes.effect.run import Run

FILLS = frozenset(("fill_", "zero_"))
Shape = tuple[int, ...]
# (step, shape) -> how many parameters of that shape; as steps may differ
Counts = Counter[tuple[int, Shape]]


def in_loops(run: Run, counts: Counts) -> list[list[int]]:
    """Per line, op and kernel that goes over tensors one by one, the rows that are due to these parameters.

    Zeroing, the sum of gradients, clipping, and the ops of an optimizer. Of tensors of one shape, which are not told
    apart, the first ones are taken; none of a line that has fewer than there are parameters.
    """
    outside = np.isin(run.phase, ("optimizer", "other", "", "forward", "data"))
    single = (outside & np.isin(run.aten, tuple(LISTS | FILLS))) | ((run.phase == "backward") & (run.aten == "add_"))
    steps, kind = run.table.ints("step"), run.texts("kind")
    places: dict[tuple[int, Shape, str, str, str], list[int]] = {}
    for row in np.flatnonzero(single).tolist():
        shape = tuple(run.first_shape(row))
        if (int(steps[row]), shape) in counts:
            places.setdefault((int(steps[row]), shape, str(run.aten[row]), str(kind[row]), run.trace(row)), []).append(
                row
            )
    return [rows[: counts[key[:2]]] for key, rows in places.items() if len(rows) >= counts[key[:2]]]
