"""Recover the tensor lists of an optimizer's op that the capture truncated, if the kernel's launch proves them.

The parser records the shapes of the step's gradients (``grads``). PyTorch's multi-tensor kernels process 65,536
elements per block (kChunkSize, ATen/native/cuda/MultiTensorApply.cuh of 2.0 to 2.13). So the number of blocks that an
op launched shows whether its lists hold tensors of these shapes or step counters of one element each. Optimizers often
have two groups, one with weight decay for the tensors of two dimensions or more and one for the others: then the op
comes with the blocks of both. Otherwise lists stay unknown.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Set
from dataclasses import dataclass

import numpy as np

from pyprof.table.columns import Bools, Coded, Ints, Table, distinct

CHUNK = 65_536


def proven_lists(table: Table, op: Ints) -> Coded:
    """For each row with truncated lists, the shapes of a list's tensors as JSON; ``op``: the number of the row's call.

    If ``grads`` is not a list of shapes, nothing is proven.
    """
    grads = table.coded("grads")
    out = Coded.empty(len(table))
    rows = np.flatnonzero((grads.codes >= 0) & (table.coded("aten").codes >= 0))
    if not len(rows):
        return out
    blocks = np.bincount(op[rows], weights=blocks_along_x(table)[rows]).astype(np.int64)[op[rows]]
    names = table.coded("aten").codes[rows]
    found, of_row = distinct(grads.codes[rows], names, blocks)
    launches: dict[tuple[int, int], set[int]] = {}
    for code, name, launched in found:
        launches.setdefault((code, name), set()).add(launched)
    plain = _adds_a_number(table)
    known = {code: _Gradients.of(grads.values[code]) for code in {code for code, _ in launches}}
    for number, (code, name, launched) in enumerate(found):
        chosen = rows[of_row == number]
        for counter in (False, True):
            texts = _proven(known[code], launched, launches[code, name], counter)
            some = chosen[plain[chosen] == counter]
            if texts and len(some):
                out.values.append(texts)
                out.codes[some] = len(out.values) - 1
    return out


def blocks_along_x(table: Table) -> Ints:
    """The number of blocks along x of each row's launch; 0 for all kernels except multi-tensor kernels."""
    grid = table.coded("grid")
    along: Ints = np.array([*map(_along_x, grid.values), 0], np.int64)[grid.codes]
    return np.where(table.coded("kShortName").where(lambda name: "multi_tensor" in name), along, 0)


def _along_x(grid: str) -> int:
    """The first number of `[4, 1, 1]`; 0 for any other text."""
    found = re.match(r"\[(\d{1,10}),", grid, re.ASCII)
    return int(found[1]) if found else 0


def _adds_a_number(table: Table) -> Bools:
    """Rows of `_foreach_add_(list, number)`, with which optimizers count their steps (and Adam adds its eps)."""
    adds = table.coded("aten").where(lambda aten: aten.endswith("_foreach_add_"))
    both: Bools = adds & table.coded("dtypes").where(lambda dtypes: dtypes.replace(" ", "") == '[[],""]')
    return both


@dataclass(frozen=True)
class _Gradients:
    """The shapes of a step's gradients, and those of the two groups that its parameters may be in."""

    shapes: list[list[int]]
    blocks: int
    groups: list[tuple[list[list[int]], list[list[int]]]]  # matrices and the rest, for each way to repeat a part

    @classmethod
    def of(cls, text: str) -> _Gradients:
        shapes = shapes_of(text) or []
        parts = (shapes[: len(shapes) // times] for times in range(1, len(shapes) + 1) if not len(shapes) % times)
        repeated = (part for part in parts if shapes == part * (len(shapes) // len(part)))
        groups = [([s for s in part if len(s) > 1], [s for s in part if len(s) < 2]) for part in repeated]
        return cls(shapes, _blocks(shapes), groups)


def _proven(grads: _Gradients, launched: int, every: Set[int], may_count: bool) -> str:
    """The shapes proven by the number of ``launched`` blocks; empty if they prove none. ``every``: those of all calls
    of the op. ``may_count``: the op may instead have added to step counters; if the blocks fit both, nothing is proven.
    """
    shapes, whole = grads.shapes, grads.blocks
    if launched and whole and whole % launched == 0:
        times = whole // launched  # gradients accumulated over several backward passes come as often
        part = shapes[: len(shapes) // times]
        if shapes == part * times and not (may_count and launched == len(part)):
            return json.dumps(part)
    if may_count and launched == len(shapes) and whole != launched:
        return json.dumps([[] for _ in shapes])
    for pair in grads.groups:
        blocks = {*map(_blocks, pair)}
        if 0 in blocks or len(blocks) < 2 or not blocks <= every:  # the op is called for both groups
            continue
        for group in pair:
            if launched == _blocks(group) and not (may_count and launched == len(group)):
                return json.dumps(group)
    return ""


def _blocks(shapes: list[list[int]]) -> int:
    return sum(map(chunks, shapes))


def shapes_of(grads: str) -> list[list[int]] | None:
    """The shapes; None if the text is not a list of lists of sizes, because the file may come from any source."""
    try:
        shapes = json.loads(grads)
    except (ValueError, RecursionError):
        return None
    if not isinstance(shapes, list) or not all(isinstance(shape, list) for shape in shapes):
        return None
    return shapes if all(type(size) is int and size >= 0 for shape in shapes for size in shape) else None


def chunks(shape: list[int]) -> int:
    """Blocks that a multi-tensor kernel launches for a tensor; 0 for an empty one."""
    return max(1, -(-math.prod(shape) // CHUNK)) if 0 not in shape else 0
