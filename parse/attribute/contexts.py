"""The distinct contexts of launches. A context is the sequence of scopes around a launch, outermost first.

A million launches have a few thousand distinct contexts. So every text is made once per context, or, for backward
launches, once per pair of the launch's context and its forward op's context. It is never made once per row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pyprof.gc_pause import given_back
from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.parse.attribute.scope import Kind, Scope
from pyprof.table.columns import Bools, Indices, Ints, distinct, value_at

Path = tuple[Scope, ...]  # outermost first

# Collectives and DDP's reducer. A launch inside them has them as its op, wherever they run.
COMMUNICATION = ("c10d::", "torch.distributed.", "torch::distributed::")
_NAMES_ITS_WORK = ("FSDP::", *COMMUNICATION)  # users' and libraries' ranges whose names describe the work inside


@dataclass(frozen=True, slots=True)
class LevelsUp:
    """For some enclosing ranges: the number of levels above a context's innermost range (0); -1 if it has none."""

    op: int = -1  # the innermost op around the launch, but not an op around the launch's backward node
    node: int = -1  # the backward node, or autograd's range around it
    call: int = -1  # the range that numbers the call: a collective with a record, else innermost op, marker or node
    message: int = -1  # the collective with a record of its message


class Contexts:
    """The numbered contexts of all ranges that are needed for rows.

    These are the ranges around launches, and the ranges around ops that may be the forward op of a backward node.
    Other ranges are skipped: a thread that launches nothing may have a million of them, each with a different text.
    """

    @given_back()
    def __init__(self, tree: RangeTree, inner: Ints) -> None:
        """``inner``: each row's innermost range, -1 for none."""
        self.tree = tree
        self.of_range = np.full(len(tree), -1, np.int32)
        self.paths: list[Path] = []
        self.levels_up: list[LevelsUp] = []
        asked = self._asked(inner)
        for depth, ranges in enumerate(tree.levels):
            self._number(ranges[asked[ranges]], outermost=depth == 0)

    def _asked(self, inner: Ints) -> Bools:
        tree = self.tree
        asked: Bools = tree.has_number.copy()
        asked[inner[inner >= 0]] = True
        for named in (tree.forward_range, tree.compiled_from):
            if named is not None:
                asked[named[named >= 0]] = True
        for level in tree.levels[:0:-1]:  # innermost level first; the outermost ranges have no parent
            asked[tree.parent[level[asked[level]]]] = True
        return asked

    def _number(self, ranges: Indices, outermost: bool) -> None:
        """Number the contexts of the ranges of one depth. A context is a pair: the parent's context, the own scope."""
        tree = self.tree
        around = np.full(len(ranges), -1) if outermost else self.of_range[tree.parent[ranges]].astype(np.int64)
        keys, number = distinct((around + 1) * len(tree.scopes) + tree.scope[ranges])
        self.of_range[ranges] = number + len(self.paths)
        for (key,) in keys:
            outer, code = divmod(key, len(tree.scopes))
            scope = tree.scopes[code]
            self.paths.append(_extended(self.paths[outer - 1] if outer else (), scope))
            self.levels_up.append(_levels_up(self.levels_up[outer - 1] if outer else LevelsUp(), scope))

    def of(self, ranges: Ints) -> Ints:
        """The context of each range; -1 for no range."""
        return value_at(self.of_range, ranges, -1).astype(np.int64)

    def path(self, context: int) -> Path:
        return self.paths[context] if context >= 0 else ()

    def levels_to(self, what: Literal["op", "node", "call"], ranges: Ints) -> Ints:
        """The number of levels from each range up to its op, node or call; -1 if it has none."""
        by_context = np.array([getattr(levels, what) for levels in self.levels_up], np.int64)
        return value_at(by_context, self.of(ranges), -1)

    def enclosing(self, what: Literal["op", "node", "call"], ranges: Ints) -> Ints:
        """The op, node or call that contains each range or is the range itself; -1 if it has none."""
        return self.tree.ancestor(ranges, self.levels_to(what, ranges))


def _levels_up(around: LevelsUp, scope: Scope) -> LevelsUp:
    """The levels of a context, computed from the levels of the context around it and its own scope."""
    if scope.kind in (Kind.NODE, Kind.ENGINE):
        return LevelsUp(-1, 0, 0)
    is_op = scope.kind == Kind.OP
    op = 0 if is_op else _one_more(around.op)
    message = 0 if scope.comm else _one_more(around.message)
    if is_op and not scope.comm:
        message = -1  # an op inside a collective, such as a copy, is its own call
    call = 0 if scope.kind in (Kind.MARKER, Kind.COMM) else _one_more(around.call)
    first = next((level for level in (message, op) if level >= 0), call)
    return LevelsUp(op, _one_more(around.node), first, message)


def _one_more(levels: int) -> int:
    return levels + 1 if levels >= 0 else -1


def _extended(around: Path, scope: Scope) -> Path:
    """The path of a context: the path of the context around it and its own scope, without a user range between them.

    Of directly nested user ranges, only the innermost range's name is used, so the others are dropped. Ranges that a
    program never closes, for example after an exception, contain all later ranges. If all of them stayed in the path,
    a few thousand took minutes.
    """
    last = around[-1:]
    if last and last[0].kind == Kind.USER and not last[0].name.startswith(_NAMES_ITS_WORK):
        around = around[:-1]
    return (*around, scope)


def inside_node(path: Path) -> Path:
    """A context's scopes inside the innermost backward node, or all of its scopes if there is no such node."""
    for at in range(len(path) - 1, -1, -1):
        if path[at].kind in (Kind.NODE, Kind.ENGINE):
            return path[at + 1 :]
    return path
