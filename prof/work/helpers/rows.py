"""Fills in what single kernels do on their own (``own``): once a distinct kernel of a distinct call, not once a row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

import pyprof.prof.work.helpers.recurrent
import pyprof.prof.work.helpers.sorting  # noqa: F401 (both fill the rules)
from pyprof.prof.work.helpers.rules import NO_GRID, Call, Grid, Launch, own_work
from pyprof.table.columns import NULL, Bools, Coded, Ints, Table, distinct

if TYPE_CHECKING:
    from pyprof.prof.work.count import Counted


def fill_own(
    table: Table, op: Ints, signature: Ints, counted: Sequence[Counted], names: Coded, roles: Sequence[str],
    flops: Ints, nbytes: Ints,
) -> None:  # fmt: skip
    """Write into ``flops`` and ``nbytes`` what is not known yet and a kernel tells of itself.

    ``op`` numbers the ops' calls. An op whose model knows its FLOPs keeps them: its chores get bytes only.
    """
    aux = np.array([r == "aux" for r in roles], bool)
    bare = np.array([not c.parts for c in counted] or [True])[signature]  # the op has no model, or one that fails
    kernel = np.array([*(kind == "kernel" for kind in table.coded("kind").values), False])[table.coded("kind").codes]
    rows = np.flatnonzero(kernel & (nbytes == NULL) & (aux | bare) & (names.codes >= 0))
    if not len(rows):
        return
    grid, block = table.coded("grid"), table.coded("block")
    before = _before(op, kernel)[rows]
    there = before >= 0
    columns = (
        signature[rows], names.codes[rows], grid.codes[rows], block.codes[rows],
        np.where(there, names.codes[before], -1), np.where(there, grid.codes[before], -1),
    )  # fmt: skip
    keys, number = distinct(*columns)
    order = np.argsort(number, kind="stable")
    each = np.split(rows[order], np.cumsum(np.bincount(number))[:-1])
    for mine, (call, name, at, by, last, last_at) in zip(each, keys, strict=True):
        found = own_work(
            Call(
                Launch(names.values[name], _triple(grid, at), _triple(block, by)),
                Launch(names.values[last], _triple(grid, last_at)) if last >= 0 else None,
                counted[call].name or "",
                counted[call].arguments,
                counted[call].outputs,
            )
        )
        if found is not None:
            nbytes[mine] = round(found.nbytes)
            flops[mine] = np.where(flops[mine] == NULL, found.flop, flops[mine])


def _before(op: Ints, kernel: Bools) -> Ints:
    """The kernel before each row in the same call of an op, -1 where there is none; copies and memsets are none."""
    rows = np.flatnonzero(kernel)
    order = rows[np.argsort(op[rows], kind="stable")]
    before = np.full(len(op), -1, np.int64)
    same = op[order][1:] == op[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    return before


def _triple(column: Coded, code: int) -> Grid:
    numbers = json.loads(column.values[code]) if code >= 0 else None
    if not isinstance(numbers, list) or len(numbers) != 3 or not all(type(n) is int and n >= 0 for n in numbers):
        return NO_GRID
    return (numbers[0], numbers[1], numbers[2])
