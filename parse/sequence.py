"""PyProf's columns of autograd sequence numbers: seqMarker, seqId, altSeqId and subSeqId.

The rules are PyProf's (parse/nvvp.py and parse/parse.py of 2021), and give what its golden net.dict says of every
forward kernel: markers in order of number and then of name, those left out whose name holds or is held by the name
before them under the same number (`dropout` beside `_fused_dropout`); the first's number is the kernel's own, the
others are alternatives: a composite op shows the number that the *next* node gets, and the backward may have either.

One thing differs: a kernel in a backward node has the node's number, also where it runs beside the node inside of
autograd's own range, or where nodes nest.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from pyprof.table import NULL, Coded, Data, Ints, Ragged, distinct

if TYPE_CHECKING:
    from pyprof.parse.correlate import Nest

Mark = tuple[int, str]  # sequence number, name


def sequence(nest: Nest, inner: Ints, node: Ints, recomputed: Ints, columns: dict[str, Data]) -> dict[str, Data]:
    """The four columns. ``inner``: each row's innermost range; ``node``: the backward node around it, -1 for none."""
    own = np.append(nest.node_seq(), NULL)[np.where(recomputed, -1, node)]
    used, rows = _pairs(inner, own)
    patterns = _Patterns([scope.name for scope in nest.scopes])
    found = [
        patterns.fill(marks, number) for marks, number in zip(_marks(nest, used[0]), used[1].tolist(), strict=True)
    ]
    numbers = np.array([NULL if first is None else first for _, first, _ in found], np.int64)
    return {
        "seqMarker": Coded.of(text for text, _, _ in found).take(rows),
        "seqId": Ragged.of([[first] if first is not None else [] for _, first, _ in found]).take(rows),
        "altSeqId": Ragged.of([others for _, _, others in found]).take(rows),
        "subSeqId": _in_a_row(numbers[rows] if len(numbers) else own, columns),
    }


class _Patterns:
    """What the rules make of a nest of numbered ranges, once for all that differ in where their numbers start.

    A training loop repeats the same nests with ever higher numbers: a million nests have a few hundred patterns.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.known: dict[tuple[tuple[int, int], ...], tuple[list[tuple[str, int]], int | None, list[int]]] = {}

    def fill(self, marks: list[tuple[int, int]], node: int) -> tuple[str, int | None, list[int]]:
        """seqMarker, seqId and altSeqId of one nest: ``marks`` are (sequence number, scope)."""
        if not marks and node <= 0:
            return "", None, []
        base = min(n for n in (*(number for number, _ in marks), node, 1 << 62) if n > 0) - 1  # so that none becomes 0
        key = (*((n - base if n > 0 else n, scope) for n, scope in marks), (node - base if node > 0 else 0, -1))
        pattern = self.known.get(key)
        if pattern is None:
            pattern = self.known[key] = self._pattern(key)
        pieces, first, others = pattern
        text = ", ".join([f'{name}{n + base if n > 0 else n}"' for name, n in pieces])
        return (
            f"[{text}]" if text else "",
            None if first is None else first + base,
            [n + base if n > 0 else n for n in others],
        )

    def _pattern(self, key: tuple[tuple[int, int], ...]) -> tuple[list[tuple[str, int]], int | None, list[int]]:
        *marks, (node, _) = key
        kept = ordered([(number, self.names[scope]) for number, scope in marks])
        first, others = _numbers(kept, node)
        pieces = [(f"{json.dumps(name, ensure_ascii=False)[:-1]}, seq = ", number) for number, name in kept]
        return pieces, first, others


def ordered(marks: list[Mark]) -> list[Mark]:
    """In PyProf's order, without those that repeat the name before them.

    >>> ordered([(119, "dropout"), (119, "_fused_dropout"), (118, "add")])
    [(118, 'add'), (119, '_fused_dropout')]
    """
    kept: list[Mark] = []
    for number, name in sorted(marks):
        before, other = kept[-1] if kept else (NULL, "")
        similar = name.lower() in other.lower() or other.lower() in name.lower()
        if number != before or not similar:
            kept.append((number, name))
    return kept


def _pairs(inner: Ints, own: Ints) -> tuple[tuple[Ints, Ints], Ints]:
    """The distinct (innermost range, number of the node), and each row's place among them."""
    found, rows = distinct(inner, own)
    first, second = np.array(found, np.int64).reshape(-1, 2).T
    return (first, second), rows


def _marks(nest: Nest, used: Ints) -> list[list[tuple[int, int]]]:
    """(sequence number, scope) of the numbered ranges around each of the ranges ``used``."""
    marks: list[list[tuple[int, int]]] = [[] for _ in used]
    climbing = used.copy()
    while (up := np.flatnonzero(climbing >= 0)).size:
        numbered = up[nest.seq[climbing[up]] != NULL]
        at = climbing[numbered]
        for index, scope, seq in zip(numbered.tolist(), nest.scope[at].tolist(), nest.seq[at].tolist(), strict=True):
            marks[index].append((seq, scope))
        climbing[up] = nest.parent[climbing[up]]
    return marks


def _numbers(marks: list[Mark], node: int) -> tuple[int | None, list[int]]:
    """The row's own number and the others. 0 says that PyTorch counted none: never a row's own, as in PyProf."""
    found = list(dict.fromkeys(number for number, _ in marks if number > 0))
    own = node if node > 0 else found[0] if found else None
    return own, [number for number in found if number != own] if found else sorted({number for number, _ in marks})


def _in_a_row(seq: Ints, columns: dict[str, Data]) -> Ints:
    """How many kernels with the same number, direction and op came right before each, in its process.

    Copies and memsets, which PyProf left out, have 0 and end no such row of kernels.
    """
    direction, op, kind, pid = (columns[key] for key in ("dir", "op", "kind", "pid"))
    assert isinstance(direction, Coded) and isinstance(op, Coded) and isinstance(kind, Coded)
    assert isinstance(pid, np.ndarray)
    counted = np.array([value in ("kernel", "cpu") for value in [*kind.values, ""]])[kind.codes]
    rows = np.flatnonzero(counted)
    rows = rows[np.argsort(pid[rows], kind="stable")]
    keys = np.stack([pid, seq, direction.codes, op.codes], axis=1)[rows]
    new = np.ones(len(rows), bool)
    new[1:] = np.any(keys[1:] != keys[:-1], axis=1)
    at = np.arange(len(rows))
    count = np.zeros(len(seq), np.int64)
    count[rows] = at - np.maximum.accumulate(np.where(new, at, 0))
    return count
