"""Find the forward op of a backward node.

It is the last op of the process that has the node's sequence number and began before the node. Outer ops that only call
other ops have the same number, but began earlier; the innermost op, which began last, made the node. If a forward pass
is recomputed, the node belongs to the second, later run. Each thread counts its own sequence numbers. If the profiler
names the forward op's thread, only ops of that thread are considered. If the profiler names the forward op itself, that
op is taken. Nodes of C++ autograd Functions need additional rules: see ``cpp_functions``.
"""

from typing import NamedTuple

import numpy as np

from pyprof.parse.attribute.contexts import Contexts
from pyprof.parse.attribute.cpp_functions import made_by
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.table.columns import NULL, Bools, Ints, value_at


def backward_nodes(tree: RangeTree, contexts: Contexts, inner: Ints) -> tuple[Ints, Bools]:
    """Per row: the backward node around it (-1: none), and whether the row re-runs a forward op inside that node.

    The ops that a node runs are not recorded for autograd, so they have no sequence number. If an op inside a node has
    one, it belongs to the second forward pass of checkpointing.
    """
    levels = contexts.levels_to("node", inner)
    return tree.ancestor(inner, levels), (levels > 0) & value_at(tree.recorded, inner, missing=False)


def forward_ops(tree: RangeTree, node: Ints, recomputed: Bools) -> Ints:
    """The forward op's range of each row that runs in a backward node, -1 for none."""
    forward = np.full(len(node), -1, np.int64)
    rows = np.flatnonzero((node >= 0) & ~recomputed)
    nodes, number = np.unique(node[rows], return_inverse=True)
    if len(nodes):
        forward[rows] = _forward_of_nodes(tree, nodes)[number.reshape(-1)]
    return forward


def _forward_of_nodes(tree: RangeTree, nodes: Ints) -> Ints:
    seq = tree.numbers_of_nodes()
    forward = np.full(len(nodes), -1, np.int64)
    ops = np.flatnonzero(tree.has_number)
    if len(ops):
        times = (seq[nodes], tree.start[nodes])
        in_process = _last_before(_Numbered(tree.pid[ops], tree.seq[ops], tree.start[ops]), tree.pid[nodes], *times)
        forward = value_at(ops, in_process, -1)
        if tree.forward_thread is not None:
            thread = tree.forward_thread[nodes]
            on_thread = _last_before(_Numbered(tree.thread[ops], tree.seq[ops], tree.start[ops]), thread, *times)
            forward = np.where(thread >= 0, value_at(ops, on_thread, -1), forward)
    if tree.forward_range is not None:
        named = tree.forward_range[nodes]
        forward = np.where(named >= 0, named, forward)
    return made_by(tree, nodes, seq, forward)


class _Numbered(NamedTuple):
    """Ops with a sequence number."""

    owner: Ints  # each op's process or thread
    seq: Ints
    start: Ints


def _last_before(ops: _Numbered, owner: Ints, seq: Ints, before: Ints) -> Ints:
    """The last of the ops with each (owner, sequence number) that starts before a time; -1 if no op does."""
    found = np.full(len(owner), -1, np.int64)
    order = np.lexsort((ops.start, ops.seq, ops.owner))
    for value in np.unique(owner).tolist():
        low, high = np.searchsorted(ops.owner[order], [value, value + 1])
        asked = np.flatnonzero((owner == value) & (seq != NULL))
        if low == high or not len(asked):
            continue
        rows = order[low:high]
        times = np.sort(ops.start[rows])
        span = len(rows) + 1
        # One integer key combines the number and the rank of the time, so that a single binary search is enough.
        key = ops.seq[rows] * span + np.searchsorted(times, ops.start[rows], "right")
        wanted = seq[asked] * span + np.searchsorted(times, before[asked], "left")
        at = np.searchsorted(key, wanted, "right") - 1
        same_number = (at >= 0) & (ops.seq[rows[np.maximum(at, 0)]] == seq[asked])
        found[asked[same_number]] = rows[at[same_number]]
    return found
