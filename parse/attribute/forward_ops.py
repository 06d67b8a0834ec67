"""Find the forward op of a backward node.

It is the last op of the process that has the node's sequence number and began before the node. Outer ops that only call
other ops have the same number, but began earlier; the innermost op, which began last, made the node. If a forward pass
is recomputed, the node belongs to the second, later run. Each thread counts its own sequence numbers. If the profiler
names the forward op's thread, only ops of that thread are considered. If the profiler names the forward op itself, that
op is taken. Nodes of C++ autograd Functions need additional rules: see ``cpp_functions``.

A backward pass may record a graph itself (``create_graph=True``, ``torch.func.grad``). Then the forward op of a second
derivative's node is an op of a node, and stands for that node's forward op.
"""

import numpy as np

from pyprof.gc_pause import given_back
from pyprof.parse.attribute.contexts import Contexts
from pyprof.parse.attribute.cpp_functions import made_by
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind
from pyprof.table.columns import NULL, Bools, Indices, Ints, value_at


def backward_nodes(tree: RangeTree, contexts: Contexts, inner: Ints) -> tuple[Ints, Bools]:
    """Per row: the backward node around it (-1: none), and whether the row re-runs a forward op inside that node."""
    levels = contexts.levels_to("node", inner)
    node = tree.ancestor(inner, levels)
    return node, _rerun(tree, np.where(levels > 0, inner, -1), node)


def _rerun(tree: RangeTree, ranges: Ints, node: Ints) -> Bools:
    """Whether these ranges (-1: none) belong to checkpointing's second forward pass. ``node``: the one around each.

    The ops that a node runs are not recorded for autograd, so they have no sequence number. If an op inside a node has
    one, it belongs to a second forward pass, unless the node records a graph. Layers run again in such a pass only.
    """
    found = tree.inside(ranges, tree.has_number)
    if not found.any():
        return found
    recording = np.append(_recording(tree), False)[node]
    layers: Bools = np.isin(tree.kind, (Kind.LAYER, Kind.MODULE))
    return found & (~recording | tree.inside(ranges, layers))


def _recording(tree: RangeTree) -> Bools:
    """Which backward nodes record a graph of what they run.

    With ``create_graph=True`` all of a node's ops have numbers. Checkpointing re-runs a forward pass before the node's
    own ops, which have none, or before the nodes of the part that ran again. So the last op or node in a node decides.
    """
    recording = np.zeros(len(tree), bool)
    chosen = np.flatnonzero((tree.kind == Kind.OP) | tree.is_backward)
    around = tree.parent[chosen].astype(np.int64)
    known = np.zeros(len(tree) + 1, bool)  # the last item stands for no range
    known[chosen] = known[-1] = True
    while (up := np.flatnonzero(~known[around])).size:
        around[up] = tree.parent[around[up]]
    in_node = np.flatnonzero((around >= 0) & tree.is_backward[np.maximum(around, 0)])
    recording[around[in_node]] = tree.has_number[chosen[in_node]]  # in order of start: the last one stays
    return recording


@given_back()
def forward_ops(tree: RangeTree, node: Ints, recomputed: Bools, inner: Ints) -> Ints:
    """The forward op's range of each row that runs in a backward node, or in a backward pass that compiled autograd
    traced; -1 for none. ``inner``: the innermost range around each row."""
    forward = np.full(len(node), -1, np.int64)
    if tree.compiled_from is not None:
        at = inner.astype(np.int64)
        while (up := np.flatnonzero((at >= 0) & (tree.compiled_from[np.maximum(at, 0)] < 0))).size:
            at[up] = tree.parent[at[up]]
        forward = value_at(tree.compiled_from, at, -1).astype(np.int64)
    rows = np.flatnonzero((node >= 0) & ~recomputed)
    nodes, number = np.unique(node[rows], return_inverse=True)
    if len(nodes):
        forward[rows] = _first_forward(tree, nodes)[number.reshape(-1)]
    return forward


def _first_forward(tree: RangeTree, nodes: Ints) -> Ints:
    """The forward op of each node; of a second derivative's, that of the node whose op it comes from, and so on."""
    forward = _forward_of_nodes(tree, nodes)
    asked = np.arange(len(nodes))
    while len(asked):
        node = _node_around(tree, forward[asked])
        derived = (node >= 0) & ~_rerun(tree, forward[asked], node)
        asked = asked[derived]
        forward[asked] = _forward_of_nodes(tree, node[derived])
    return forward


def _node_around(tree: RangeTree, ranges: Ints) -> Ints:
    """The backward node around each range; -1: none. Each began before the range, so that following them ends."""
    node = value_at(tree.parent, ranges, -1).astype(np.int64)
    while (up := np.flatnonzero((node >= 0) & ~tree.is_backward[np.maximum(node, 0)])).size:
        node[up] = tree.parent[node[up]]
    return node


def _forward_of_nodes(tree: RangeTree, nodes: Ints) -> Ints:
    seq = tree.numbers_of_nodes(nodes)
    forward = np.full(len(nodes), -1, np.int64)
    ops = np.flatnonzero(tree.has_number)
    if len(ops):
        before = (seq, tree.start[nodes])
        forward = _last_before(tree, ops, tree.pid[ops], tree.pid[nodes], *before)
        if tree.forward_thread is not None:
            thread = tree.forward_thread[nodes]
            on_thread = _last_before(tree, ops, tree.thread[ops], thread, *before)
            forward = np.where(thread >= 0, on_thread, forward)
    if tree.forward_range is not None:
        named = tree.forward_range[nodes]
        forward = np.where(named >= 0, named, forward)
    return made_by(tree, nodes, seq, forward)


def _last_before(tree: RangeTree, ops: Ints, owners: Indices, owner: Indices, seq: Ints, before: Ints) -> Ints:
    """The last of ``ops`` with each (owner, sequence number) that starts before a time; -1 if no op does.

    ``owners``: the process or thread of each op.
    """
    found = np.full(len(owner), -1, np.int64)
    op_seq, op_start = tree.seq[ops], tree.start[ops]
    order = np.lexsort((op_start, op_seq, owners))
    for value in np.unique(owner).tolist():
        low, high = np.searchsorted(owners[order], [value, value + 1])
        asked = np.flatnonzero((owner == value) & (seq != NULL))
        if low == high or not len(asked):
            continue
        rows = order[low:high]
        times = np.sort(op_start[rows])
        span = len(rows) + 1
        # One integer key combines the number and the rank of the time, so that a single binary search is enough.
        key = op_seq[rows] * span + np.searchsorted(times, op_start[rows], "right")
        wanted = seq[asked] * span + np.searchsorted(times, before[asked], "left")
        at = np.searchsorted(key, wanted, "right") - 1
        same_number = (at >= 0) & (op_seq[rows[np.maximum(at, 0)]] == seq[asked])
        found[asked[same_number]] = ops[rows[at[same_number]]]
    return found
