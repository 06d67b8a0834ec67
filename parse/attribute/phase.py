"""Find the phase of a training step to which a launch belongs: forward, backward, optimizer, data or other.

The ranges around the launch determine the phase, with two exceptions. A batch's copy to the GPU is in the same range as
a cast (`aten::to`), so the copy's direction decides. Gradient clipping and GradScaler's unscaling are plain ops between
the backward pass and the optimizer's step, so ops there that autograd does not record belong to the optimizer.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.attribute.steps import is_update
from pyprof.table.columns import NULL, Coded, Ints, value_at

TRANSFERS = ("", "in", "out")  # no copy, a copy from host to GPU, a copy from GPU to host
# the names of a copy in nsys and nvprof, and in Kineto
_IN, _OUT = re.compile(r"Host-to-Device|HtoD"), re.compile(r"Device-to-Host|DtoH")
MOVES = frozenset(("to", "cuda", "cpu", "copy_", "type_as", "_to_copy"))  # the user's calls that move a tensor
# calls that return a tensor's value to Python
READS = frozenset("item is_nonzero tolist numpy _local_scalar_dense __bool__ __float__ __int__ __index__".split())
# GradScaler's own kernels, and torch.nn.utils.clip_grad's functions if they are marked
UPDATES = re.compile(
    r"_amp_(?:foreach_non_finite_check_and_unscale|update_scale)_|clip_grads?_(?:norm|value|with_norm)_"
)


def phase_of(own: Sequence[Scope], ops: Sequence[str], transfer: str, updating: bool) -> str:
    """The phase of a launch.

    ``own``: the ranges around it. ``ops``: the user's calls, outermost first; empty for communication. ``transfer``:
    "in" for a copy to the GPU, "out" for a copy from it. ``updating``: whether it is between the backward pass and the
    optimizer's step.
    """
    kinds = {scope.kind for scope in own}
    if Kind.OPTIMIZER in kinds:
        return "optimizer"
    if Kind.DATA in kinds:
        return "data"
    if kinds & {Kind.NODE, Kind.ENGINE}:
        return "backward"
    if ops and (updating or any(UPDATES.fullmatch(op) for op in ops)):
        return "optimizer"
    if not ops or ops[0] in READS or (ops[0] in MOVES and transfer == "out"):
        return "other"
    if ops[0] in MOVES and transfer == "in" and not kinds & {Kind.LAYER, Kind.MODULE}:
        return "other" if any(scope.name.startswith("FSDP::") for scope in own) else "data"  # FSDP copies parameters
    return "forward"


def transfers(capture: Capture) -> Ints:
    """The direction of each row's copy, found by the row's name: an index into ``TRANSFERS``."""
    names = capture.columns.get("kShortName")
    kind = capture.columns.get("kind")
    if not isinstance(names, Coded) or not isinstance(kind, Coded):
        return np.zeros(capture.rows, np.int64)
    directions = np.array([*map(_direction, names.values), 0], np.int64)
    return np.where(kind.among("memcpy"), directions[names.codes], 0)


def _direction(name: str) -> int:
    if _IN.search(name):
        return TRANSFERS.index("in")
    return TRANSFERS.index("out") if _OUT.search(name) else 0


def updating(capture: Capture, tree: RangeTree, inner: Ints) -> NDArray[np.bool_]:
    """A mask of the rows launched between a backward pass and an optimizer's step, outside ops that autograd records.

    For such a row, the last event before the launch, among the process's backward nodes and recorded ops, is a node.
    The next event after it, among these and the optimizer's steps, is a step.
    """
    mask = np.zeros(capture.rows, bool)
    steps = np.flatnonzero(tree.scopes_where(Kind.OPTIMIZER, is_update)[tree.scope])
    rows = np.flatnonzero((inner >= 0) & ~value_at(tree.recorded, inner, missing=False))
    rows = rows[capture.launch_time[rows] != NULL]
    for pid in np.unique(tree.pid[steps]).tolist():
        of_process = rows[tree.pid[inner[rows]] == pid]
        here = tree.pid == pid
        nodes = np.sort(tree.start[here & np.isin(tree.kind, (Kind.NODE, Kind.ENGINE))], kind="stable")
        ops = np.sort(tree.start[here & tree.has_number], kind="stable")
        update = np.sort(tree.start[steps[tree.pid[steps] == pid]])
        time = capture.launch_time[of_process]
        after_node = _before(nodes, time) > _before(ops, time)
        next_update = _next(update, time)
        mask[of_process] = after_node & (next_update < _next(nodes, time)) & (next_update < _next(ops, time))
    return mask


def _before(times: Ints, at: Ints) -> Ints:
    """For each item of ``at``: the last of ``times`` at or before it."""
    return np.append(times, NULL)[np.searchsorted(times, at, "right") - 1]


def _next(times: Ints, at: Ints) -> Ints:
    """For each item of ``at``: the first of ``times`` after it."""
    return np.append(times, np.iinfo(np.int64).max)[np.searchsorted(times, at, "right")]
