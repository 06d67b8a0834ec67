"""The tensors that an optimizer worked on, for captures that lack the optimizer's tensor lists.

Kineto leaves out lists of more than 30 tensors, nsys cuts very long texts, and apex's and DeepSpeed's optimizers launch
their kernels from Python extensions that are not ops. But each step's gradients are recorded one by one when autograd
accumulates them. They have the shapes of the parameters; their order does not matter for a sum.
"""

import re
from itertools import pairwise

import numpy as np

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.attribute.steps import updates_of
from pyprof.table.columns import NULL, Coded, Ints, value_at

_LISTS = re.compile(r"aten::(?:_foreach_|_fused_|_amp_foreach_)")


def takes_cut_lists(scope: Scope) -> bool:
    """Whether an op takes lists of tensors that are missing in the capture."""
    return bool(_LISTS.match(scope.name)) and (not scope.sizes or "[]" in scope.dtypes)


def gradients(capture: Capture, tree: RangeTree, op: Ints) -> Coded:
    """The shapes of the step's gradients, as JSON, for rows whose op has cut lists or whose kernel no op launched.

    ``op``: each row's op's range, -1 for none. A step's gradients are the gradients accumulated since the previous
    optimizer step.
    """
    time, pid, names = capture.launch_time, capture.ints("pid"), capture.coded("kShortName")
    found = Coded.empty(len(op))
    cut = tree.scopes_where(Kind.OP, takes_cut_lists)[value_at(tree.scope, op, -1)]
    outside_ops = names.where(lambda name: "multi_tensor_apply_kernel" in name) & (op < 0)
    rows = np.flatnonzero((cut | outside_ops) & (time != NULL))
    accumulates = tree.scopes_where(Kind.NODE, lambda s: s.name.endswith("AccumulateGrad") and bool(s.sizes))
    if not len(rows) or not accumulates.any():
        return found
    updates = updates_of(tree)
    for process in np.unique(pid[rows]).tolist():
        nodes = np.flatnonzero(tree.is_first & accumulates[tree.scope] & (tree.pid == process))
        nodes = nodes[np.argsort(tree.start[nodes], kind="stable")]
        steps = np.sort(tree.start[updates[tree.pid[updates] == process]])
        _fill(found, rows[pid[rows] == process], time, tree, nodes, steps)
    return found


def _fill(found: Coded, rows: Ints, time: Ints, tree: RangeTree, nodes: Ints, steps: Ints) -> None:
    """Set each row's text to the shapes of the gradients that were accumulated for its optimizer step.

    ``nodes``: the accumulating nodes' ranges, by start; ``steps``: the start times of the optimizer's steps.
    """
    start = tree.start[nodes]
    before_row = np.searchsorted(start, time[rows])  # the number of gradients accumulated before each row
    edges = [0, *np.searchsorted(start, steps).tolist(), len(start)]
    for begin, end in sorted(set(pairwise(edges))):
        in_step = rows[(before_row > begin) & (before_row <= end)]
        if len(in_step):
            shapes = [tree.scopes[code].sizes[1:-1] for code in tree.scope[nodes[begin:end]].tolist()]
            found.values.append(f"[{', '.join(shapes)}]")
            found.codes[in_step] = len(found.values) - 1
