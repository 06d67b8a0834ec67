"""Backward nodes of C++ autograd Functions -> the ops that made them.

A library writes its own backward as a ``torch::autograd::Function``, whose node is called
``torch::autograd::CppNode<Name>`` (FBGEMM's embedding tables, torchvision's ops). Two things make its forward op hard
to find by sequence number alone. Where the op is registered below autograd, the profiler records it without a number;
the ops recorded before it then show the number that its node is about to get. And where it has one, the ops that it
calls have the same.

So the op that made the node has to be kin to it by name, and to have run when the node's number was drawn: after the
last op that shows this number (or a smaller one), and before the first that shows a greater one. Several nodes of one
name and one such while belong to as many kin ops, in order. Where that does not fit, sequence numbers decide alone.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyprof.parse.attribute.scope import CPP_NODE, Kind, Scope
from pyprof.table.columns import Ints

if TYPE_CHECKING:
    from pyprof.parse.attribute.correlate import Nest

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# words that tell nothing of what a Function or an op is
_COMMON = frozenset("function fn op autograd auto grad torch cuda gpu cpu forward backward impl pt".split())  # noqa: SIM905
_END = np.iinfo(np.int64).max


def is_function(scope: Scope) -> bool:
    """Whether a range is a C++ Function's node, or autograd's own range around one."""
    return scope.name.startswith(CPP_NODE)


@lru_cache(maxsize=4096)
def words(name: str) -> frozenset[str]:
    """What a Function's or an op's name speaks of.

    >>> sorted(words("torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute> >"))
    ['embs', 'permute', 'pooled']
    """
    bare = name.removeprefix(CPP_NODE).replace("(anonymous namespace)::", "").partition("<")[0].rstrip("> ")
    found = _WORD.findall(bare.rpartition("::")[2])
    return frozenset(word.lower() for word in found if not word.isdigit()) - _COMMON


def kinship(node: str, op: str) -> float:
    """The share of a C++ Function's words that an op's name has; 0 for PyTorch's own ops, and for less than half."""
    if not node.startswith(CPP_NODE) or op.startswith("aten::") or "::" not in op:
        return 0.0
    mine = words(node)
    share = len(mine & words(op)) / len(mine) if mine else 0.0
    return share if share >= 1 / 2 else 0.0


def made_by(nest: Nest, nodes: Ints, seq: Ints, forward: Ints) -> Ints:
    """``forward`` with the ops that made the C++ Functions' nodes among ``nodes``.

    ``nodes``: backward nodes' ranges. ``seq``: every range's sequence number. ``forward``: of each node the op that its
    number alone tells, -1 for none.
    """
    function = np.array([*map(is_function, nest.scopes), False])
    mine = np.flatnonzero(function[nest.scope[nodes]])
    if not len(mine):
        return forward
    found = forward.copy()
    lost = []
    for place in mine.tolist():
        kin = _kin_around(nest, int(forward[place]), name_of(nest, nodes[place]))
        if kin >= 0:
            found[place] = kin
        elif seq[nodes[place]] > 0:
            lost.append(place)
    for pid in np.unique(nest.pid[nodes[lost]]).tolist():
        _search(nest, nodes, seq, [place for place in lost if nest.pid[nodes[place]] == pid], pid, found)
    return found


def name_of(nest: Nest, place: int) -> str:
    """The name of a range."""
    return nest.scopes[int(nest.scope[place])].name


def _kin_around(nest: Nest, op: int, node: str) -> int:
    """The op or the innermost around it that is kin to the node; -1 for none."""
    while op >= 0 and not kinship(node, name_of(nest, op)):
        op = int(nest.parent[op])
    return op


def _search(nest: Nest, nodes: Ints, seq: Ints, lost: list[int], pid: int, found: Ints) -> None:
    """Write into ``found`` the kin ops that ran while the numbers of a process's nodes were drawn."""
    here = nest.pid == pid
    numbered = np.flatnonzero(here & nest.numbered)
    order = numbered[np.lexsort((nest.start[numbered], nest.seq[numbered]))]
    starts = {thread: np.sort(nest.start[numbered[nest.thread[numbered] == thread]])
              for thread in np.unique(nest.thread[numbered]).tolist()}  # fmt: skip
    whiles: dict[tuple[int, int, int, str], list[int]] = defaultdict(list)
    for place in sorted(lost, key=lambda place: int(seq[nodes[place]])):
        last = int(np.searchsorted(nest.seq[order], seq[nodes[place]], "right")) - 1
        while last >= 0 and nest.start[order[last]] >= nest.start[nodes[place]]:
            last -= 1
        if last >= 0:
            thread, since = int(nest.thread[order[last]]), int(nest.start[order[last]])
            later = starts[thread][np.searchsorted(starts[thread], since, "right") :]
            until = min(int(later[0]) if len(later) else _END, int(nest.start[nodes[place]]))
            whiles[thread, since, until, name_of(nest, nodes[place])].append(place)
    kin = {name: _kin(nest, here, name) for name in {name for *_, name in whiles}}
    for (thread, since, until, name), places in whiles.items():
        ops, share = kin[name]
        ran = (nest.thread[ops] == thread) & (nest.start[ops] < until) & (nest.end[ops] > since)
        ops, share = ops[ran], share[ran]
        ops = ops[share == share.max(initial=0)]
        if len(ops) == len(places):
            found[places] = ops[np.argsort(nest.start[ops], kind="stable")]


def _kin(nest: Nest, here: NDArray[np.bool_], name: str) -> tuple[Ints, NDArray[np.float64]]:
    """The ops without a number that are kin to a node, and how much."""
    share = np.array([kinship(name, scope.name) for scope in nest.scopes])[nest.scope]
    ops = np.flatnonzero(here & (nest.kind == Kind.OP) & (nest.seq <= 0) & (share > 0))  # NULL, too
    return ops, share[ops]
