"""The tensors that an optimizer's op worked on, where the capture cut its lists.

Kineto leaves out lists of more than 30 tensors, nsys cuts very long texts. But each step's gradients are recorded one
by one, where autograd accumulates them: their shapes are the parameters', in an order that does not matter to a sum.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.scope import Kind, Scope
from pyprof.parse.steps import is_update
from pyprof.table import Coded, Ints

if TYPE_CHECKING:
    from pyprof.parse.correlate import Nest

_LISTS = re.compile(r"aten::(?:_foreach_|_fused_|_amp_foreach_)")


def takes_cut_lists(scope: Scope) -> bool:
    """Whether an op takes lists of tensors of which the capture says nothing."""
    return bool(_LISTS.match(scope.name)) and (not scope.sizes or "[]" in scope.dtypes)


def gradients(nest: Nest, op: Ints, pid: Ints, time: Ints) -> Coded:
    """Of each row whose op (its range ``op``, -1 for none) has cut lists: the step's gradients' shapes as JSON.

    ``pid`` and ``time``: the rows' processes and launches. A step's gradients are those accumulated since the
    optimizer's step before it.
    """
    found = Coded.empty(len(op))
    rows = np.flatnonzero(nest.scopes_where(Kind.OP, takes_cut_lists)[np.append(nest.scope, -1)[op]])
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
