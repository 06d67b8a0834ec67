"""What launches in a CUDA graph cost, and what a graph needs: steps of equal sizes."""

from __future__ import annotations

import numpy as np

from pyprof.prof.changes.effect.run import Run
from pyprof.table.columns import NULL, numbered

MANY = 30  # fewer launches per step do not limit a step
EQUAL = 0.02  # steps may differ by this share of their launches, and be the same program
# In a CUDA graph: small kernels take a tenth longer than launched one by one, and follow each other after 0.25 µs
# (three programs of 80 to 1,100 kernels on an H200).
IN_GRAPH, AFTER_NS = 1.1, 250.0


def sizes_differ(run: Run) -> bool:
    """Whether more of a marked step's launches than ``EQUAL`` have no equal of the same op and sizes in another one."""
    steps, op = run.table.ints("step"), run.table.coded("aten").codes
    call = numbered(op, run.table.coded("sizes").codes)[1]
    each = [np.bincount(call[steps == step], minlength=int(call.max()) + 1) for step in np.unique(steps[steps != NULL])]
    return any(np.abs(other - each[0]).sum() / 2 > EQUAL * each[0].sum() for other in each[1:])
