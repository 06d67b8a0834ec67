"""How large an op's result is, as far as its recorded arguments tell."""

from __future__ import annotations

import math

import numpy as np

from pyprof.dtypes import ITEM_BYTES
from pyprof.prof.changes.effect.product import weight_shape
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import numel

READS = ("embedding", "indexing")  # families of kernels that fetch elements
COMPUTES = ("gemm", "conv")  # families of products


def results(run: Run, row: int) -> tuple[int, ...]:
    """The elements of each of an op's results, or what they may be; none if that is not known."""
    return run.once(_results, row)


def _results(run: Run, row: int) -> tuple[int, ...]:
    outs = [numel(shape) for shape in run.listed("outs", row) if isinstance(shape, list)]
    if any(outs):
        return tuple(filter(None, outs))
    family, shapes = run.family[row], [shape for shape in run.shapes(row) if numel(shape)]
    found = [int(run.largest[row])]
    if family == "gemm" and len(shapes) > 1:
        found = [numel([*shapes[-2][:-1], shapes[-1][-1]])]
    elif family == "conv":
        weight = weight_shape(run, row)
        known = len(weight) > 2 and run.flop[row] > 0 and "conv" in run.aten[row]
        found = [round(run.flop[row] / 2 / numel(weight[1:])) if known else 0]
    elif family in READS and len(shapes) > 1:  # indices of the result's shape, or one for each vector
        found = [numel(shapes[-1]), numel(shapes[-1]) * shapes[0][-1]]
    elif family == "pointwise" and len(shapes) > 1:
        try:
            found = [math.prod(np.broadcast_shapes(*map(tuple, shapes)))]
        except ValueError:
            found = []
    elif family == "reduction" and shapes:
        found = list({numel(shapes[0]) // size for size in shapes[0]} | {1})
    elif run.aten[row] in ("cat", "stack") and run.nbytes[row] > 0:
        found = [round(run.nbytes[row] / 2 / ITEM_BYTES.get(run.dtype[row], 4))]
    elif not shapes and run.shapes(row) and family not in COMPUTES:
        found = [1]  # made of numbers alone
    return tuple(filter(None, found))
