"""PyProf's columns of autograd sequence numbers: seqMarker, seqId, altSeqId and subSeqId.

The rules are PyProf's (parse/nvvp.py and parse/parse.py of 2021), and give what its golden net.dict says of every
forward kernel: markers in order of number and then of name, those left out whose name holds or is held by the name
before them under the same number (`dropout` beside `_fused_dropout`); the first's number is the kernel's own, the
others are alternatives: a composite op shows the number that the *next* node gets, and the backward may have either.

One thing differs: a kernel in a backward node has the node's number, also where it runs beside the node inside of
autograd's own range, or where nodes tree.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numpy as np

from pyprof.parse.attribute.range_tree import Mask, RangeTree, value_at
from pyprof.table.columns import NULL, Coded, Data, Ints, Ragged, numbered

Mark = tuple[int, str]  # sequence number, name
_NONE = 1 << 62  # no positive number around a launch


def sequence(tree: RangeTree, inner: Ints, node: Ints, recomputed: Mask, columns: dict[str, Data]) -> dict[str, Data]:
    """The four columns. ``inner``: each row's innermost range; ``node``: the backward node around it, -1 for none.

    A training loop repeats the same nests with ever higher numbers: a million nests have a few hundred patterns. So the
    rules are applied once a pattern, to numbers less the base, the one before the nest's smallest.
    """
    own = value_at(tree.numbers_of_nodes(), np.where(recomputed, -1, node), NULL)
    nests, rows = numbered(inner, own)
    around, number = inner[nests], own[nests]
    base = _base(tree, around, number)
    pattern, example = _patterns(tree, around, number, base)
    rules = [_rule(tree, *(int(column[i]) for column in (around, number, base))) for i in example.tolist()]
    first = np.array([NULL if rule.own is None else rule.own for rule in rules], np.int64)[pattern]
    numbers = np.where(first == NULL, NULL, first + base)
    return {
        "seqMarker": _texts(rules, pattern, base).take(rows),
        "seqId": Ragged(np.append(0, np.cumsum(first != NULL)), numbers[first != NULL]).take(rows),
        "altSeqId": _others(rules, pattern, base).take(rows),
        "subSeqId": _in_a_row(numbers[rows] if len(numbers) else own, columns),
    }


class _Rule(NamedTuple):
    """What the rules make of a pattern. Positive numbers are relative to the base; others stand for themselves."""

    marks: list[Mark]
    own: int | None
    others: list[int]


def _base(tree: RangeTree, around: Ints, number: Ints) -> Ints:
    """One less than the smallest positive number of the ranges around each, its node's included: none becomes 0."""
    least = np.where(number > 0, number, _NONE)
    climbing = around.copy()
    while (up := np.flatnonzero(climbing >= 0)).size:
        seq = tree.seq[climbing[up]]
        least[up] = np.minimum(least[up], np.where(seq > 0, seq, _NONE))
        climbing[up] = tree.parent[climbing[up]]
    return least - 1


def _patterns(tree: RangeTree, around: Ints, number: Ints, base: Ints) -> tuple[Ints, Ints]:
    """Number the nests by scopes and relative numbers of their numbered ranges, and give an example of each number."""
    _, pattern = numbered(np.where(number > 0, number - base, 0))
    room = len(pattern)
    climbing = around.copy()
    while (up := np.flatnonzero(climbing >= 0)).size:
        marked = up[tree.seq[climbing[up]] != NULL]
        at = climbing[marked]
        first, longer = numbered(pattern[marked], _relative(tree.seq[at], base[marked]), tree.scope[at])
        pattern[marked] = room + longer
        room += len(first)
        climbing[up] = tree.parent[climbing[up]]
    example, pattern = numbered(pattern)
    return pattern, example


def _relative(number: Ints, base: Ints) -> Ints:
    return np.where(number > 0, number - base, number)


def _rule(tree: RangeTree, around: int, number: int, base: int) -> _Rule:
    """Apply PyProf's rules to the ranges around a launch."""
    marks: list[Mark] = []
    while around >= 0:
        seq = int(tree.seq[around])
        if seq != NULL:
            marks.append((seq - base if seq > 0 else seq, tree.scopes[tree.scope[around]].name))
        around = int(tree.parent[around])
    kept = ordered(marks)
    return _Rule(kept, *_numbers(kept, number - base if number > 0 else 0))


def _texts(rules: list[_Rule], pattern: Ints, base: Ints) -> Coded:
    """seqMarker of each nest: JSON, made once a distinct pair of pattern and base."""
    templates = [
        json.dumps([f"{name.replace('%', '%%')}, seq = %d" for _, name in rule.marks], ensure_ascii=False)
        if rule.marks
        else ""
        for rule in rules
    ]
    numbers = [[number for number, _ in rule.marks] for rule in rules]
    pairs, rows = numbered(pattern, base)
    return Coded.of(
        templates[kind] % tuple([n + begin if n > 0 else n for n in numbers[kind]])
        for kind, begin in zip(pattern[pairs].tolist(), base[pairs].tolist(), strict=True)
    ).take(rows)


def _others(rules: list[_Rule], pattern: Ints, base: Ints) -> Ragged:
    """altSeqId of each tree."""
    relative = Ragged.of([rule.others for rule in rules]).take(pattern)
    shift = np.repeat(base, np.diff(relative.offsets))
    return Ragged(relative.offsets, np.where(relative.values > 0, relative.values + shift, relative.values))


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
