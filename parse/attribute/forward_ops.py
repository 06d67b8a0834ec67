"""Find the forward op of a backward node.

It is the last op of the process that has the node's sequence number and began before the node. Outer ops that only call
other ops have the same number, but began earlier; the innermost op, which began last, made the node. If a forward pass
is recomputed, the node belongs to the second, later run. Each thread counts its own sequence numbers. If the profiler
names the forward op's thread, only ops of that thread are considered. If the profiler names the forward op itself, that
op is taken. Nodes of C++ autograd Functions need additional rules: see ``cpp_functions``.
"""

import numpy as np

from pyprof.gc_pause import given_back
from pyprof.parse.attribute.contexts import Contexts
from pyprof.parse.attribute.cpp_functions import made_by
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.table.columns import NULL, Bools, Indices, Ints


def backward_nodes(tree: RangeTree, contexts: Contexts, inner: Ints) -> tuple[Ints, Bools]:
    """Per row: the backward node around it (-1: none), and whether the row re-runs a forward op inside that node.

    The ops that a node runs are not recorded for autograd, so they have no sequence number. If an op inside a node has
    one, it belongs to the second forward pass of checkpointing.
    """
    levels = contexts.levels_to("node", inner)
    return tree.ancestor(inner, levels), tree.inside(np.where(levels > 0, inner, -1), tree.has_number)


@given_back()
def forward_ops(tree: RangeTree, node: Ints, recomputed: Bools) -> Ints:
    """The forward op's range of each row that runs in a backward node, -1 for none."""
    forward = np.full(len(node), -1, np.int64)
    rows = np.flatnonzero((node >= 0) & ~recomputed)
    nodes, number = np.unique(node[rows], return_inverse=True)
    if len(nodes):
        forward[rows] = _forward_of_nodes(tree, nodes)[number.reshape(-1)]
    return forward


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
