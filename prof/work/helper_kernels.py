"""Write the work of helper kernels into the table, computed once per distinct kernel of a distinct call."""

import json

import numpy as np

# These modules register the rules; if two patterns match, the one registered first is used.
import pyprof.prof.work.helpers.attention
import pyprof.prof.work.helpers.convolutions
import pyprof.prof.work.helpers.experts
import pyprof.prof.work.helpers.products
import pyprof.prof.work.helpers.recurrent
import pyprof.prof.work.helpers.sorting  # noqa: F401
from pyprof.prof.work.calls import Calls
from pyprof.prof.work.helpers.registry import NO_GRID, Grid, HelperCall, Launch, helper_work
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct


def fill_helpers(table: Table, calls: Calls, aux: Bools, flops: Ints, nbytes: Ints) -> None:
    """Fill in unknown ``flops`` and ``nbytes`` for which there is a rule.

    ``aux``: the rows with the role "aux". If the op's model counts its FLOPs, helper kernels get only bytes.
    """
    bare = calls.where([not op.parts for op in calls.counted])  # the op has no model, or its model fails
    kernel = table.coded("kind").among("kernel")
    names = calls.names
    rows = np.flatnonzero(kernel & (nbytes == NULL) & (aux | bare) & (names.codes >= 0))
    if not len(rows):
        return
    grid, block = table.coded("grid"), table.coded("block")
    before = _kernel_before(calls.number, kernel)[rows]
    of_kernel = (calls.signature[rows], names.codes[rows], grid.codes[rows], block.codes[rows])
    of_previous = (np.where(before >= 0, column.codes[before], -1) for column in (names, grid))
    keys, number = distinct(*of_kernel, *of_previous)
    order = np.argsort(number, kind="stable")
    rows_of_key = np.split(rows[order], np.cumsum(np.bincount(number))[:-1])
    for of_key, (signature, name, at, by, last, last_at) in zip(rows_of_key, keys, strict=True):
        op = calls.counted[signature]
        kernel_launch = Launch(names.values[name], _triple(grid, at), _triple(block, by))
        previous = Launch(names.values[last], _triple(grid, last_at)) if last >= 0 else None
        work = helper_work(HelperCall(kernel_launch, previous, op.name, op.arguments, op.outputs))
        if work is not None:
            nbytes[of_key] = round(work.nbytes)
            flops[of_key] = np.where(flops[of_key] == NULL, work.flop, flops[of_key])


def _kernel_before(number: Ints, kernel: Bools) -> Ints:
    """The kernel that precedes each row in the same call, -1 if there is none; copies and memsets are skipped."""
    rows = np.flatnonzero(kernel)
    order = rows[np.argsort(number[rows], kind="stable")]
    before = np.full(len(number), -1, np.int64)
    same = number[order][1:] == number[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _triple(column: Coded, code: int) -> Grid:
    """The three sizes of a grid or block; ``NO_GRID`` if the text holds none."""
    sizes = json.loads(column.values[code]) if code >= 0 else None
    if not isinstance(sizes, list) or len(sizes) != 3 or not all(type(n) is int and n >= 0 for n in sizes):
        return NO_GRID
    return (sizes[0], sizes[1], sizes[2])
