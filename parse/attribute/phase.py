"""Find the phase of a training step to which a launch belongs: forward, backward, optimizer, data or other.

The ranges around the launch determine the phase, with two exceptions. A batch's copy to the GPU is in the same range as
a cast (`aten::to`), so the copy's direction decides. Gradient clipping, GradScaler's unscaling and updates written by
hand are plain ops after the backward pass. So ops that autograd does not record belong to the optimizer from the end of
a backward pass to the last update before autograd records again. An update is an optimizer's step, or ops that change
tensors of all gradients' shapes in place or take their norms. Without a backward pass there is no optimizer.
"""

import re
from collections.abc import Sequence

import numpy as np

from pyprof.gc_pause import given_back
from pyprof.parse.attribute.capture import Capture
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.parse.attribute.steps import updates_of
from pyprof.table.columns import NULL, Bools, Ints

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

# Ops that change parameters or gradients, or measure gradients. A copy is not one: servers and FSDP copy lists, too.
_CHANGES = re.compile(
    r"aten::(?:add|sub|mul|div|neg|addcmul|addcdiv|lerp|sqrt|sign|clamp|clamp_min|clamp_max|zero)_"
    r"|aten::_foreach_(?!copy)\w+_|aten::_fused_(?:adam|adamw|sgd|adagrad)_"
    r"|aten::(?:norm|linalg_vector_norm|_foreach_norm)"
)
_LISTS = ("aten::_foreach_", "aten::_fused_")


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
    names = capture.coded("kShortName")
    directions = np.array([*map(_direction, names.values), 0], np.int64)
    return np.where(capture.coded("kind").among("memcpy"), directions[names.codes], 0)


def _direction(name: str) -> int:
    if _IN.search(name):
        return TRANSFERS.index("in")
    return TRANSFERS.index("out") if _OUT.search(name) else 0


@given_back()
def updating(capture: Capture, tree: RangeTree, inner: Ints) -> Bools:
    """A mask of the rows launched between a backward pass and an update, outside ops that autograd records.

    For such a row, the last event before the launch, among the process's backward nodes and recorded ops, is a node.
    The next event after it, among these and the updates, is an update.
    """
    mask = np.zeros(capture.rows, bool)
    if not tree.is_backward.any():
        return mask
    recorded = _recorded(tree)
    rows = np.flatnonzero((inner >= 0) & ~tree.inside(inner, recorded))
    rows = rows[capture.launch_time[rows] != NULL]
    steps, changes = updates_of(tree), _changes(tree)
    for pid in np.unique(tree.pid[np.append(steps, changes)]).tolist():
        of_process = rows[tree.pid[inner[rows]] == pid]
        here = tree.pid == pid
        nodes = np.sort(tree.start[here & tree.is_first & tree.is_backward], kind="stable")
        ops = np.sort(tree.start[here & tree.is_first & recorded], kind="stable")
        by_hand = _of_gradients(tree, changes[tree.pid[changes] == pid], nodes, ops)
        # An update by hand counts from its end, because its own launch is part of it.
        update = np.sort(np.append(tree.start[steps[tree.pid[steps] == pid]], tree.whole_end[by_hand]))
        time = capture.launch_time[of_process]
        after_node = _before(nodes, time) > _before(ops, time)
        next_update = _next(update, time)
        mask[of_process] = after_node & (next_update < _next(nodes, time)) & (next_update < _next(ops, time))
    return mask


def _recorded(tree: RangeTree) -> Bools:
    """Which ops autograd records: those during which their thread's sequence number grows.

    An op on tensors that need no gradient, such as a gradient itself, shows the number, too, but leaves it as it is.
    After a thread's last op nothing shows it; it is taken for one that is not recorded.
    """
    numbered = np.flatnonzero(tree.has_number & tree.is_first)  # by thread and start
    recorded = np.zeros(len(tree), bool)
    for thread in np.unique(tree.thread[numbered]).tolist():
        ops = numbered[tree.thread[numbered] == thread]
        after = np.searchsorted(tree.start[ops], tree.whole_end[ops])  # the first op that starts when each has ended
        recorded[ops] = np.append(tree.seq[ops], tree.seq[ops[-1]])[after] != tree.seq[ops]
    return recorded[tree.place[tree.source]]  # the pieces of an op as its first one


def _changes(tree: RangeTree) -> Ints:
    """The user's ops that change tensors in place, or take their norm: in no op, backward node or optimizer's range."""
    named = tree.scopes_where(Kind.OP, lambda scope: bool(_CHANGES.fullmatch(scope.name)))
    changes = np.flatnonzero(tree.is_first & named[tree.scope])
    around = np.isin(tree.kind, (Kind.OP, Kind.NODE, Kind.ENGINE, Kind.OPTIMIZER))
    return changes[~tree.inside(tree.parent[changes], around)]


def _of_gradients(tree: RangeTree, changes: Ints, nodes: Ints, ops: Ints) -> Ints:
    """Those of a process's ``changes`` that follow a backward pass and are, together, an update of all parameters.

    That is what they are if they have the shapes of all gradients that autograd accumulates, or take lists of tensors,
    which captures cut. A metric or a buffer has one of these shapes at most. ``nodes``, ``ops``: as in ``updating``;
    without ops that autograd records, nothing shows where a backward pass is followed by the next forward pass.
    """
    start = tree.start[changes]
    changes = changes[(_before(nodes, start) > _before(ops, start)) & (len(ops) > 0)]
    accumulating = (s for s in tree.scopes if s.kind == Kind.NODE and s.name.endswith("AccumulateGrad"))
    gradients = {_first_shape(scope.sizes) for scope in accumulating} - {""}
    kept = [changes[:0]]
    backward = np.searchsorted(nodes, tree.start[changes], "right")
    for number in np.unique(backward).tolist():
        together = changes[backward == number]
        scopes = [tree.scopes[code] for code in np.unique(tree.scope[together]).tolist()]
        lists = any(scope.name.startswith(_LISTS) for scope in scopes)
        if lists or (gradients and gradients <= {_first_shape(scope.sizes) for scope in scopes}):
            kept.append(together)
    return np.concatenate(kept)


def _first_shape(sizes: str) -> str:
    """The first shape of a JSON list of shapes.

    >>> _first_shape("[[2, 3], [3], []]")
    '[2, 3]'
    """
    return sizes[1 : sizes.find("]") + 1]


def _before(times: Ints, at: Ints) -> Ints:
    """For each item of ``at``: the last of ``times`` at or before it."""
    return np.append(times, NULL)[np.searchsorted(times, at, "right") - 1]


def _next(times: Ints, at: Ints) -> Ints:
    """For each item of ``at``: the first of ``times`` after it."""
    return np.append(times, np.iinfo(np.int64).max)[np.searchsorted(times, at, "right")]
