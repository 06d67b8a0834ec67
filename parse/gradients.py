"""The tensors that an optimizer's op worked on, where the capture cut its lists.

Kineto leaves out lists of more than 30 tensors, nsys cuts very long texts. But each step's gradients are recorded one
by one, where autograd accumulates them: their shapes are the parameters', in an order that does not matter to a sum.
"""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.scope import Kind, Scope
from pyprof.table import Coded, Ints

_LISTS = re.compile(r"aten::(?:_foreach_|_fused_|_amp_foreach_)")


def takes_cut_lists(scope: Scope) -> bool:
    """Whether an op takes lists of tensors of which the capture says nothing."""
    return bool(_LISTS.match(scope.name)) and (not scope.sizes or "[]" in scope.dtypes)


def gradients(
    scopes: list[Scope], kind: Ints, scope: Ints, start: Ints, pid: Ints, op: Ints, rows_pid: Ints, time: Ints
) -> Coded:
    """Of each row whose op (its range ``op``, -1 for none) has cut lists: the step's gradients' shapes as JSON.

    ``kind`` to ``pid`` are the ranges'. A step's gradients are those accumulated since the optimizer's step before it.
    """
    cut = np.array([*(takes_cut_lists(s) for s in scopes), False])
    rows = np.flatnonzero(cut[np.append(scope, -1)[op]])
    shaped = np.array([s.name.endswith("AccumulateGrad") and bool(s.sizes) for s in scopes] or [False])
    found = Coded.empty(len(op))
    if not len(rows) or not shaped.any():
        return found
    stepping = np.array([s.name.startswith("Optimizer.step") for s in scopes])
    for process in np.unique(rows_pid[rows]).tolist():
        mine = rows[rows_pid[rows] == process]
        nodes = np.flatnonzero((kind == Kind.NODE) & shaped[scope] & (pid == process))
        steps = np.flatnonzero((kind == Kind.OPTIMIZER) & stepping[scope] & (pid == process))
        _fill(found, mine, time, scopes, scope[nodes], start[nodes], np.sort(start[steps]))
    return found


def _fill(
    found: Coded, rows: NDArray[np.intp], time: Ints, scopes: list[Scope], scope: Ints, start: Ints, steps: Ints
) -> None:
    """The gradients accumulated before each row and after the last step that began before them."""
    order = np.argsort(start, kind="stable")
    scope, start = scope[order], start[order]
    until = np.searchsorted(start, time[rows])  # gradients that came before the row
    edges = np.append(0, np.searchsorted(start, steps))
    for begin, end in sorted(set(pairwise([*edges.tolist(), len(start)]))):
        mine = rows[(until > begin) & (until <= end)]
        if len(mine):
            shapes = [scopes[s].sizes[1:-1] for s in scope[begin:end].tolist()]
            found.values.append(f"[{', '.join(shapes)}]")
            found.codes[mine] = len(found.values) - 1
