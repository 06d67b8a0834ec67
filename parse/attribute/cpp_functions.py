"""Find the forward ops of C++ autograd Functions' backward nodes.

A library defines its own backward as a ``torch::autograd::Function``, whose node is called
``torch::autograd::CppNode<Name>`` (FBGEMM's embedding tables, torchvision's ops). The sequence number alone does not
identify the node's forward op, for two reasons. If the op is registered below autograd, the profiler records it without
a number, and the ops recorded before it show the number that its node is about to get. If the op does have a number,
the ops that it calls have the same number.

So the forward op must have a name similar to the node's, and must have run when the node got its number: after the last
op that shows this number (or a smaller one), and before the first op that shows a greater one. If several nodes of one
name got their numbers in the same period, the same number of similarly named ops must have run in it, and nodes and ops
are paired in order. If the counts differ, sequence numbers alone decide.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import CPP_NODE, Kind, is_cpp_node
from pyprof.table.columns import Ints

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# words that do not describe what a Function or an op does
_COMMON = frozenset("function fn op autograd auto grad torch cuda gpu cpu forward backward impl pt".split())


@lru_cache(maxsize=4096)
def words(name: str) -> frozenset[str]:
    """The words in a Function's or an op's name.

    >>> sorted(words("torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute> >"))
    ['embs', 'permute', 'pooled']
    """
    bare = name.removeprefix(CPP_NODE).replace("(anonymous namespace)::", "").partition("<")[0].rstrip("> ")
    found = _WORD.findall(bare.rpartition("::")[2])
    return frozenset(word.lower() for word in found if not word.isdigit()) - _COMMON


def kinship(node: str, op: str) -> float:
    """The share of a C++ Function's words that occur in an op's name; 0 if below half, and for PyTorch's own ops."""
    if not node.startswith(CPP_NODE) or op.startswith("aten::") or "::" not in op:
        return 0.0
    node_words = words(node)
    share = len(node_words & words(op)) / len(node_words) if node_words else 0.0
    return share if share >= 1 / 2 else 0.0


def made_by(tree: RangeTree, nodes: Ints, seq: Ints, forward: Ints) -> Ints:
    """``forward``, corrected for those ``nodes`` that belong to C++ Functions.

    ``nodes``: the ranges of backward nodes. ``seq``: their sequence numbers. ``forward``: per node, the forward
    op according to the sequence number alone, -1 for none.
    """
    is_cpp = np.array([*map(is_cpp_node, tree.scopes), False])
    cpp_nodes = np.flatnonzero(is_cpp[tree.scope[nodes]])
    if not len(cpp_nodes):
        return forward
    found = forward.copy()
    lost = []
    for index in cpp_nodes.tolist():
        kin = _kin_around(tree, int(forward[index]), tree.name(nodes[index]))
        if kin >= 0:
            found[index] = kin
        elif seq[index] > 0:
            lost.append(index)
    for pid in np.unique(tree.pid[nodes[lost]]).tolist():
        here = [index for index in lost if tree.pid[nodes[index]] == pid]
        for index, op in _kin_by_time(tree, nodes, seq, here, pid):
            found[index] = op
    return found


def _kin_around(tree: RangeTree, op: int, node: str) -> int:
    """The innermost op, among ``op`` and the ops around it, whose name is similar to the node's; -1 for none."""
    while op >= 0 and not kinship(node, tree.name(op)):
        op = int(tree.parent[op])
    return op


class _Period(NamedTuple):
    """The period in which some nodes got their sequence numbers, and the nodes' name."""

    thread: int
    since: int
    until: int
    name: str


def _kin_by_time(tree: RangeTree, nodes: Ints, seq: Ints, lost: list[int], pid: int) -> Iterator[tuple[int, int]]:
    """Pairs (index of a node, op of similar name that ran when the node got its number), in one process."""
    here = tree.pid == pid
    periods = _periods(tree, nodes, seq, lost, here)
    kin = {name: _kin(tree, here, name) for name in {period.name for period in periods}}
    for period, indices in periods.items():
        ops, share = kin[period.name]
        ran = (tree.thread[ops] == period.thread) & (tree.start[ops] < period.until) & (tree.end[ops] > period.since)
        ops, share = ops[ran], share[ran]
        ops = ops[share == share.max(initial=0)]
        if len(ops) == len(indices):
            yield from zip(indices, ops[np.argsort(tree.start[ops], kind="stable")].tolist(), strict=True)


def _periods(
    tree: RangeTree, nodes: Ints, seq: Ints, lost: list[int], here: NDArray[np.bool_]
) -> dict[_Period, list[int]]:
    """The lost nodes in order of their sequence numbers, grouped by the period in which they got them.

    A node gets its number after the beginning of the last op that shows the number (or a smaller one), and before the
    beginning of the thread's next op with a number.
    """
    numbered = np.flatnonzero(here & tree.has_number)
    order = numbered[np.lexsort((tree.start[numbered], tree.seq[numbered]))]
    starts = {
        thread: np.sort(tree.start[numbered[tree.thread[numbered] == thread]])
        for thread in np.unique(tree.thread[numbered]).tolist()
    }
    found: dict[_Period, list[int]] = defaultdict(list)
    for index in sorted(lost, key=lambda index: int(seq[index])):
        node_start = int(tree.start[nodes[index]])
        last = int(np.searchsorted(tree.seq[order], seq[index], "right")) - 1
        while last >= 0 and tree.start[order[last]] >= node_start:
            last -= 1
        if last >= 0:
            thread, since = int(tree.thread[order[last]]), int(tree.start[order[last]])
            later = starts[thread][np.searchsorted(starts[thread], since, "right") :]
            until = min(int(later[0]), node_start) if len(later) else node_start
            found[_Period(thread, since, until, tree.name(nodes[index]))].append(index)
    return found


def _kin(tree: RangeTree, here: NDArray[np.bool_], name: str) -> tuple[Ints, NDArray[np.float64]]:
    """The ops without a sequence number whose names are similar to a node's, and their similarity."""
    share = np.array([kinship(name, scope.name) for scope in tree.scopes])[tree.scope]
    ops = np.flatnonzero(here & (tree.kind == Kind.OP) & (tree.seq <= 0) & (share > 0))  # seq <= 0 includes NULL
    return ops, share[ops]
