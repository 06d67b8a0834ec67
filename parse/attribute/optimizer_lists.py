"""The tensors that an optimizer worked on, where the capture does not have its lists.

Kineto leaves out lists of more than 30 tensors, nsys cuts very long texts, and apex's and DeepSpeed's optimizers launch
their kernels from Python extensions that are no ops. But each step's gradients are recorded one
by one, where autograd accumulates them: their shapes are the parameters', in an order that does not matter to a sum.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.attribute.steps import is_update
from pyprof.table.columns import NULL, Coded, Ints

if TYPE_CHECKING:
    from pyprof.parse.attribute.correlate import Nest

_LISTS = re.compile(r"aten::(?:_foreach_|_fused_|_amp_foreach_)")


def takes_cut_lists(scope: Scope) -> bool:
    """Whether an op takes lists of tensors of which the capture says nothing."""
    return bool(_LISTS.match(scope.name)) and (not scope.sizes or "[]" in scope.dtypes)


def is_bare(names: Coded, op: Ints) -> NDArray[np.bool_]:
    """Which rows are multi-tensor kernels outside of any op (``op`` is -1). ``names``: the kernels' short ones."""
    multi = np.array([*("multi_tensor_apply_kernel" in name for name in names.values), False])
    found: NDArray[np.bool_] = multi[names.codes] & (op < 0)
    return found


def gradients(nest: Nest, op: Ints, pid: Ints, time: Ints, bare: NDArray[np.bool_]) -> Coded:
    """The step's gradients' shapes as JSON, of each row whose op (its range ``op``, -1 for none) has cut lists, and of
    the ``bare`` ones.

    ``pid`` and ``time``: the rows' processes and launches. A step's gradients are those accumulated since the
    optimizer's step before it.
    """
    found = Coded.empty(len(op))
    cut = nest.scopes_where(Kind.OP, takes_cut_lists)[np.append(nest.scope, -1)[op]]
    rows = np.flatnonzero((cut | bare) & (time != NULL))
    shaped = nest.scopes_where(Kind.NODE, lambda s: s.name.endswith("AccumulateGrad") and bool(s.sizes))
    if not len(rows) or not shaped.any():
        return found
    stepping = nest.scopes_where(Kind.OPTIMIZER, is_update)
    for process in np.unique(pid[rows]).tolist():
        mine = rows[pid[rows] == process]
        nodes = np.flatnonzero(shaped[nest.scope] & (nest.pid == process))
        steps = np.flatnonzero(stepping[nest.scope] & (nest.pid == process))
        _fill(found, mine, time, nest.scopes, nest.scope[nodes], nest.start[nodes], np.sort(nest.start[steps]))
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
