"""Find dtypes hidden by casts, using the corresponding op in the backward or forward pass.

The name of a kernel that casts on load shows the dtype of its arithmetic, not that of its operand. In training, another
kernel shows the operand's dtype, because a gradient has the dtype of its tensor (torch/csrc/autograd/engine.cpp:
validate_outputs casts the gradient if a node returned another dtype):

* a cast and its ``ToCopyBackward0`` are reverses of each other, linked by the sequence number;
* a sum or product of two dtypes (float32 and a narrower one) is followed, in the backward, by the engine's cast of a
  gradient to the narrower dtype, without a sequence number but with the forward op's names. If an op at one layer and
  code line has as many of these casts as calls, each call has one such operand: with two, the forward would not cast;
* the backward of that product multiplies the gradient, which has the output's dtype, by the saved narrower operand.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pyprof.prof.kernels.operand_dtypes import CONVERTING
from pyprof.prof.kernels.type_names import Dtypes
from pyprof.table.columns import NULL, Bools, Coded, Ints, Ragged, Table, distinct, distinct_texts, value_at

COPY = "aten::copy_"
BINARY = ("aten::add", "aten::sub", "aten::mul", "aten::div")
PLACE = ("op", "layer", "marker", "trace")  # columns that are equal for a forward op and the casts of its gradients


def uncover(table: Table, hint: Ints, hints: dict[Dtypes, int]) -> Ints:
    """Fill in hidden dtypes that the backward or forward reveals. ``hint``: each row's index into ``hints``."""
    rows = _Rows(table, hint.copy(), hints)
    for op in CONVERTING:
        _converted(rows, op)
    hidden = rows.where(lambda hint: hint.hides(0) or hint.hides(1))
    if hidden.any():
        copies = rows.of((COPY,))
        binary = rows.of(BINARY) & hidden
        _reversed_casts(rows, copies, hidden)
        _mixed(rows, copies, binary)
    return rows.hint


@dataclass(slots=True)
class _Rows:
    """The table's rows, and for each row the index into ``hints`` of the dtypes that its kernels' names reveal."""

    table: Table
    hint: Ints
    hints: dict[Dtypes, int]

    def where(self, says: Callable[[Dtypes], object]) -> Bools:
        """Mask of the rows whose hint satisfies ``says``."""
        return np.array([bool(says(hint)) for hint in self.hints])[self.hint]

    def of(self, names: tuple[str, ...]) -> Bools:
        """Mask of the rows of these aten ops that have a hint."""
        return self.table.coded("aten").among(*names) & (self.hint > 0)

    def directed(self, direction: str) -> Bools:
        return self.table.coded("dir").among(direction)

    def node(self, name: str) -> Bools:
        return self.table.coded("nodes").where(lambda text: name in text)

    def sequence(self) -> Ints:
        """The innermost autograd sequence number of each row, NULL without one. (That of a composite op is smaller.)"""
        return np.maximum(*(largest_numbers(self.table.ragged(key)) for key in ("seqId", "altSeqId")))

    def calls(self, rows: Ints | Bools) -> tuple[Ints, int]:
        """For each row a number that its call shares with the reverse call (other rows: 0), and how many there are."""
        keys = (self.table.ints("pid"), self.sequence(), self.table.coded("sizes").codes)
        found, numbers = distinct(*(key[rows] for key in keys))
        number = np.zeros(len(self.hint), np.int64)
        number[rows] = numbers
        return number, len(found)

    def replace(self, rows: Ints, others: Ints, new: Callable[[Dtypes, Dtypes], Dtypes]) -> None:
        """Replace the hint of each of ``rows`` by ``new(hint, the counterpart's hint in others)`` (0: none)."""
        rows, others = rows[others > 0], others[others > 0]
        pairs, pair = distinct(self.hint[rows], others)
        known = list(self.hints)
        results = [self.hints.setdefault(new(known[a], known[b]), len(self.hints)) for a, b in pairs]
        self.hint[rows] = np.array(results, np.int64)[pair]


def _only(groups: Ints, values: Ints, count: int) -> Ints:
    """The single value of each group; 0 if the group has none or several."""
    low, high = np.full(count, np.iinfo(np.int64).max), np.zeros(count, np.int64)
    np.minimum.at(low, groups, values)
    np.maximum.at(high, groups, values)
    return np.where(low == high, high, 0)


def _converted(rows: _Rows, op: str) -> None:
    """Drop uncertain hints: a reduction that converts its input runs ``to`` inside. If a capture has one such call, no
    call of that op on what ``to`` makes there is certain."""
    known, inside = list(rows.hints), rows.node(f'"aten::{op}", "aten::to"')
    made = {known[code].of(0) for code in np.unique(rows.hint[inside]).tolist()}  # empty: any type
    found = np.flatnonzero(rows.of((f"aten::{op}",)) & rows.where(lambda hint: "" in made or hint.of(0) in made))
    rows.replace(found, rows.hint[found], lambda hint, _: replace(hint, rest="", at=((0, ""),)))


def _reversed_casts(rows: _Rows, copies: Bools, hidden: Bools) -> None:
    """For copy_(self, src): the dtype that one of the two casts reads is the dtype that the other one writes."""
    number, count = rows.calls(copies)
    numbered = copies & (rows.sequence() != NULL)
    forward = np.flatnonzero(numbered & rows.directed("fprop"))
    backward = np.flatnonzero(numbered & rows.directed("bprop") & rows.node("ToCopyBackward0"))
    before, after = (_only(number[way], rows.hint[way], count) for way in (forward, backward))
    for way, mine, other in ((forward, before, after), (backward, after, before)):
        way = way[hidden[way]]
        alone = mine[number[way]] > 0  # ambiguous if several casts have the same number and shape
        rows.replace(way, np.where(alone, other[number[way]], 0), _reverse)


def _reverse(hint: Dtypes, other: Dtypes) -> Dtypes:
    fits = other.of(1) == hint.of(0) != other.of(0)
    return _with(hint, hint.of(0), other.of(0)) if fits else hint


def _with(hint: Dtypes, first: str, second: str) -> Dtypes:
    return replace(hint, at=((0, first), (1, second)))


def _mixed(rows: _Rows, copies: Bools, binary: Bools) -> None:
    """Resolve forward calls by the count of casts, then the backward's products by their forward call."""
    engines = copies & rows.directed("bprop") & ~rows.node("Backward")  # outside the node, in the engine's own range
    casts = engines & rows.where(lambda hint: hint.of(0) and hint.of(1))
    calls = binary & rows.directed("fprop") & rows.where(lambda hint: hint.out) & _own(rows) & _one_shape(rows)
    some = np.flatnonzero(casts | calls)
    sizes = rows.table.coded("sizes").take(some)
    shape = Coded.of(str(json.loads(text or "[]")[:1]) for text in [*sizes.values, ""]).codes[sizes.codes]
    wide = _wide(rows, casts)[some]
    place = (rows.table.coded(key).codes[some] for key in PLACE)
    groups, group = distinct(rows.table.ints("pid")[some], *place, shape, wide)
    is_call = calls[some]
    lesser = _only(group[~is_call], rows.hint[some[~is_call]], len(groups))
    as_many = np.bincount(group[is_call], minlength=len(groups)) == np.bincount(group[~is_call], minlength=len(groups))
    forward, other = some[is_call], np.where(as_many, lesser, 0)[group[is_call]]
    # both operands have the same shape, so which of them is narrower does not change any count
    rows.replace(forward, other, lambda hint, cast: _with(hint, hint.out, cast.of(0)))
    _products(rows, forward[other > 0], np.flatnonzero(binary & rows.of(("aten::mul",)) & rows.node("MulBackward0")))


def _products(rows: _Rows, forward: Ints, backward: Ints) -> None:
    """For the product of the gradient, which has the output's dtype, and the saved operand: the operand has the
    narrower dtype, otherwise there would be no cast."""
    number, count = rows.calls(np.concatenate([forward, backward]))
    before = _only(number[forward], rows.hint[forward], count)
    rows.replace(backward, before[number[backward]], lambda hint, call: _with(hint, call.out, call.of(1)))


def _wide(rows: _Rows, casts: Bools) -> Ints:
    """The number of the wide dtype, which a cast reads and a call returns."""
    types = {"": 0}
    reads = np.array([types.setdefault(hint.of(1), len(types)) for hint in rows.hints])
    returns = np.array([types.setdefault(hint.out, len(types)) for hint in rows.hints])
    return np.where(casts, reads[rows.hint], returns[rows.hint])


def _own(rows: _Rows) -> Bools:
    """Whether the aten op is the user's op itself, rather than one of several ops inside it."""
    pairs, pair = distinct_texts(rows.table.coded("op"), rows.table.coded("aten"))
    names = [(json.loads(op or "[]"), aten.removeprefix("aten::").strip("_")) for op, aten in pairs]
    return np.array([bool(ops and aten) and str(ops[-1]).strip("_") == aten for ops, aten in names] or [False])[pair]


def _one_shape(rows: _Rows) -> Bools:
    def same(text: str) -> bool:
        shapes = json.loads(text or "[]")
        return len(shapes) > 1 and bool(shapes[0]) and shapes[0] == shapes[1]

    return rows.table.coded("sizes").where(same)


def largest_numbers(column: Ragged) -> Ints:
    """Each row's last number, which is the largest because they ascend; NULL without one."""
    some = column.offsets[1:] > column.offsets[:-1]
    return value_at(column.values, np.where(some, column.offsets[1:] - 1, -1))
