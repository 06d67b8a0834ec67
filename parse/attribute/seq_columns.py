"""PyProf's columns of autograd sequence numbers: seqMarker, seqId, altSeqId and subSeqId.

The rules are PyProf's (parse/nvvp.py and parse/parse.py of 2021). For every forward kernel, they give the values of
PyProf's golden net.dict. The ranges around a launch that have a number are its marks, sorted by number and then by
name. A mark is left out if the previous mark has the same number and one of the two names contains the other (`dropout`
and `_fused_dropout`). The first mark's number is the kernel's own number; the others are alternatives. An op that only
calls other ops shows the number of the *next* node, so the backward pass may have either.

There is one difference from PyProf: a kernel in a backward node has the node's number, even if it runs beside the node
inside autograd's own range, or if nodes nest.
"""

import json
from typing import NamedTuple

import numpy as np

from pyprof.parse.attribute.range_tree import RangeTree
from pyprof.table.columns import NULL, Bools, Coded, Codes, Data, Ints, Ragged, coded_of, ints_of, numbered

Mark = tuple[int, str]  # sequence number, name
Template = tuple[str, tuple[int, ...]]  # a text with ``%d`` in place of each number, and the numbers
ROWS, TOGETHER = 1 << 17, 4096  # rows whose stacks are looked at, and texts that are formatted, at once
_NONE = 1 << 62  # stands for "no positive number around the launch"


class Sequence(NamedTuple):
    """The sequence numbers of the rows, before their texts are made, which take more memory than all other columns."""

    own: Ints  # seqId; ``NULL`` for none
    others: Ragged  # altSeqId
    templates: list[Template]
    template: Codes  # of each row's text: index into ``templates``
    base: Ints  # of each row's text

    def columns(self, columns: dict[str, Data]) -> dict[str, Data]:
        """The four columns of the kernel table. ``columns``: its others."""
        known = self.own != NULL
        return {
            "seqMarker": _texts(self.templates, self.template, self.base),
            "seqId": Ragged(np.append(0, np.cumsum(known)), self.own[known]),
            "altSeqId": self.others,
            "subSeqId": _in_a_row(self.own, columns),
        }


def sequence(tree: RangeTree, inner: Ints, node: Ints, recomputed: Bools) -> Sequence:
    """The numbers of the rows. ``inner``: each row's innermost range; ``node``: the backward node around it, or -1.

    A training loop repeats the same ranges with ever higher numbers: a million stacks of ranges have a few hundred
    patterns. So the rules are applied once per pattern, to numbers relative to a base: one less than the smallest
    number in the stack. A part of the rows at a time, since this takes more memory than its result.
    """
    number = tree.numbers_of_nodes(np.where(recomputed, -1, node))
    known: dict[Template, int] = {}
    parts = [slice(begin, begin + ROWS) for begin in range(0, max(len(number), 1), ROWS)]
    found = (_of_rows(tree, inner[rows], number[rows], known) for rows in parts)
    own, others, template, base = zip(*found, strict=True)
    return Sequence(
        np.concatenate(own), Ragged.concat(others), list(known), np.concatenate(template), np.concatenate(base)
    )


def _of_rows(tree: RangeTree, inner: Ints, own: Ints, known: dict[Template, int]) -> tuple[Ints, Ragged, Codes, Ints]:
    """``Sequence.own``, ``others``, ``template`` and ``base`` of some rows.

    ``own``: the number of the node around each; ``known``: the templates so far, to which new ones are added.
    """
    first_rows, stack_of_row = numbered(inner, own)
    around, number = inner[first_rows], own[first_rows]
    base = _base(tree, around, number)
    pattern, example = _patterns(tree, around, number, base)
    marks = [_marks(tree, int(around[i]), int(number[i]), int(base[i])) for i in example.tolist()]
    relative = np.array([NULL if found.own is None else found.own for found in marks], np.int64)[pattern]
    numbers = np.where(relative == NULL, NULL, relative + base)
    template, text_base = _templates(marks, pattern, base, known)
    return (
        numbers[stack_of_row],
        _others(marks, pattern, base).take(stack_of_row),
        template[stack_of_row],
        text_base[stack_of_row],
    )


class _Marks(NamedTuple):
    """The marks of a pattern. Positive numbers are relative to the base; other numbers are absolute."""

    marks: list[Mark]
    own: int | None
    others: list[int]


def _base(tree: RangeTree, around: Ints, number: Ints) -> Ints:
    """Per stack, one less than the smallest positive number, including the node's number; 0 if there is no number."""
    least = np.where(number > 0, number, _NONE)
    climbing = around.copy()
    while (up := np.flatnonzero(climbing >= 0)).size:
        seq = tree.seq[climbing[up]]
        least[up] = np.minimum(least[up], np.where(seq > 0, seq, _NONE))
        climbing[up] = tree.parent[climbing[up]]
    return least - 1


def _patterns(tree: RangeTree, around: Ints, number: Ints, base: Ints) -> tuple[Ints, Ints]:
    """The index of each stack's pattern (its scopes and relative numbers), and one example stack per pattern."""
    _, pattern = numbered(np.where(number > 0, number - base, 0))
    room = len(pattern)
    climbing = around.copy()
    while (up := np.flatnonzero(climbing >= 0)).size:
        marked = up[tree.seq[climbing[up]] != NULL]
        at = climbing[marked]
        seq = tree.seq[at]
        first, longer = numbered(pattern[marked], np.where(seq > 0, seq - base[marked], seq), tree.scope[at])
        pattern[marked] = room + longer
        room += len(first)
        climbing[up] = tree.parent[climbing[up]]
    example, pattern = numbered(pattern)
    return pattern, example


def _marks(tree: RangeTree, around: int, number: int, base: int) -> _Marks:
    """Apply PyProf's rules to the ranges around a launch."""
    marks: list[Mark] = []
    while around >= 0:
        seq = int(tree.seq[around])
        if seq != NULL:
            marks.append((seq - base if seq > 0 else seq, tree.scopes[tree.scope[around]].name))
        around = int(tree.parent[around])
    kept = ordered(marks)
    return _Marks(kept, *_numbers(kept, number - base if number > 0 else 0))


def _templates(marks: list[_Marks], pattern: Ints, base: Ints, known: dict[Template, int]) -> tuple[Codes, Ints]:
    """The template of each stack's text, by its number in ``known``, and the base of the text's positive numbers.

    Each mark ends in its number, so texts differ if their templates or numbers do. Patterns that differ in their base
    only are therefore one template, whose least positive number is 1.
    """
    least = [min((number for number, _ in found.marks if number > 0), default=0) for found in marks]
    templates = [_template(found.marks, low) for found, low in zip(marks, least, strict=True)]
    template = np.array([known.setdefault(each, len(known)) for each in templates], np.int32)[pattern]
    shift = np.array(least, np.int64)[pattern]
    return template, np.where(shift > 0, base + shift - 1, 0)


def _texts(templates: list[Template], template: Codes, base: Ints) -> Coded:
    """The seqMarker text of each row, as JSON, made once per distinct text."""
    first, text_of_row = numbered(template, base)  # in order of template
    template, base = template[first], base[first]
    codes, texts = np.full(len(first), -1, np.int32), list[str]()
    for kind, (text, numbers) in enumerate(templates):
        begin, end = np.searchsorted(template, [kind, kind + 1]).tolist()
        if text:
            codes[begin:end] = np.arange(len(texts), len(texts) + end - begin)
            texts += _filled(text, np.array(numbers, np.int64), base[begin:end])
    return Coded(codes[text_of_row], texts)


def _template(marks: list[Mark], least: int) -> Template:
    """The marks as JSON with ``%d`` in place of each number, and the numbers: the ``least`` positive one becomes 1."""
    texts = [f"{name.replace('%', '%%')}, seq = %d" for _, name in marks]
    numbers = tuple(number - least + 1 if number > 0 else number for number, _ in marks)
    return json.dumps(texts, ensure_ascii=False) if texts else "", numbers


def _filled(template: str, numbers: Ints, bases: Ints) -> list[str]:
    """The template with its numbers, the positive ones after each base. JSON has no newline, so many are one text."""
    values, texts = numbers + np.where(numbers > 0, bases[:, None], 0), list[str]()
    for begin in range(0, len(bases), TOGETHER):
        some = values[begin : begin + TOGETHER]
        texts += ("\n".join([template] * len(some)) % tuple(some.reshape(-1).tolist())).split("\n")
    return texts


def _others(marks: list[_Marks], pattern: Ints, base: Ints) -> Ragged:
    """The altSeqId list of each stack."""
    relative = Ragged.of([found.others for found in marks]).take(pattern)
    shift = np.repeat(base, np.diff(relative.offsets))
    return Ragged(relative.offsets, np.where(relative.values > 0, relative.values + shift, relative.values))


def ordered(marks: list[Mark]) -> list[Mark]:
    """The marks in PyProf's order, without those that repeat the name before them.

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
    """The row's own number and the other numbers. As in PyProf, 0 (PyTorch did not count) is never a row's own."""
    positive = list(dict.fromkeys(number for number, _ in marks if number > 0))
    own = next((number for number in (node, *positive) if number > 0), None)
    if not positive:
        return own, sorted({number for number, _ in marks})
    return own, [number for number in positive if number != own]


def _in_a_row(seq: Ints, columns: dict[str, Data]) -> Ints:
    """Per row, the number of kernels directly before it in its process with the same number, direction and op.

    Copies and memsets, which PyProf left out, have 0 and do not interrupt the count.
    """
    direction, op, kind = (coded_of(columns, key, len(seq)) for key in ("dir", "op", "kind"))
    pid = ints_of(columns, "pid", len(seq))
    rows = np.flatnonzero(kind.among("kernel", "cpu"))
    if any(pid.strides):  # of several processes
        rows = rows[np.argsort(pid[rows], kind="stable")]
    new = np.ones(len(rows), bool)
    new[1:] = False
    for key in (pid, seq, direction.codes, op.codes):
        of_rows = key[rows]
        new[1:] |= of_rows[1:] != of_rows[:-1]
    at = np.arange(len(rows), dtype=np.int32)
    count = np.zeros(len(seq), np.int64)
    count[rows] = at - np.maximum.accumulate(np.where(new, at, np.int32(0)))
    return count
