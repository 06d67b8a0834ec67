"""What hides behind a cast, from autograd's counterpart of the op.

A kernel that casts on load names its arithmetic's type and not its operand's. In training another kernel tells it,
for a gradient has the dtype of the tensor it is the gradient of (torch/csrc/autograd/engine.cpp, validate_outputs casts
it where a node returned another):

* a cast and its ``ToCopyBackward0`` are each other's reverse, joined by the sequence number;
* a sum or product of two types (float32 and less) is followed, in the backward, by the engine's cast of a gradient to
  the lesser type, without a sequence number but with the forward op's names. Where an op of one layer and code line has
  as many of these casts as calls, each call has one such operand: two would have needed no cast in the forward;
* the backward of that product multiplies the gradient, which has the output's type, with the saved lesser operand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np

from pyprof.prof.dtypes import CONVERTING, Dtypes
from pyprof.table import NULL, Ints, Table

__all__ = ["uncover"]

COPY = "aten::copy_"
BINARY = ("aten::add", "aten::sub", "aten::mul", "aten::div")


def uncover(table: Table, told: Ints, hints: dict[Dtypes, int]) -> Ints:
    """``told``, each row's number in ``hints``, with hidden types filled in where backward or forward tells them."""
    rows = _Rows(table, told.copy(), list(hints), hints)
    _converted(rows)
    hidden = np.array([hint.hides(0) or hint.hides(1) for hint in rows.known])[rows.told]
    if not hidden.any():
        return rows.told
    copies = rows.of((COPY,))
    _reversed_casts(rows, copies, copies[hidden[copies]])
    binary = rows.of(BINARY)
    _mixed(rows, copies, binary[hidden[binary]])
    return rows.told


@dataclass(slots=True)
class _Rows:
    """The columns that the rules read."""

    table: Table
    told: Ints
    known: list[Dtypes]
    hints: dict[Dtypes, int]

    def of(self, names: tuple[str, ...]) -> Ints:
        """Rows of these aten ops whose kernels told something."""
        aten = self.table.coded("aten")
        wanted = np.array([*(name in names for name in aten.values), False])
        return np.flatnonzero(wanted[aten.codes] & (self.told > 0))

    def hint(self, row: int) -> Dtypes:
        return self.known[int(self.told[row])]

    def tell(self, row: int, hint: Dtypes) -> None:
        number = self.hints.setdefault(hint, len(self.hints))
        if number == len(self.known):
            self.known.append(hint)
        self.told[row] = number

    def text(self, key: str, row: int) -> str:
        column = self.table.coded(key)
        return column.values[column.codes[row]] if column.codes[row] >= 0 else ""

    def sequence(self, row: int) -> int:
        """The innermost autograd sequence number, NULL without one."""
        column = self.table.ragged("seqId")
        first, last = column.offsets[row], column.offsets[row + 1]
        return int(column.values[last - 1]) if last > first else NULL

    def key(self, row: int) -> tuple[int, int, int]:
        """The call and its reverse have the same."""
        return int(self.table.ints("pid")[row]), self.sequence(row), int(self.table.coded("sizes").codes[row])


def _converted(rows: _Rows) -> None:
    """A reduction that converts its input runs ``to`` within: where a capture has such a call, none of that op is sure."""
    within = rows.table.coded("nodes").values
    unsure = tuple(f"aten::{op}" for op in CONVERTING if any(f'"aten::{op}", "aten::to"' in text for text in within))
    for row in rows.of(unsure).tolist():
        hint = rows.hint(row)
        rows.tell(row, replace(hint, rest="", at=((0, ""),)))


def _reversed_casts(rows: _Rows, copies: Ints, hidden: Ints) -> None:
    """copy_(self, src): what one reads the other writes."""
    if not len(hidden):
        return
    ways: dict[tuple[str, tuple[int, int, int]], set[Dtypes]] = {}
    for row in copies.tolist():
        direction = rows.text("dir", row)
        if direction == "fprop" or "ToCopyBackward0" in rows.text("nodes", row):
            ways.setdefault((direction, rows.key(row)), set()).add(rows.hint(row))
    found = [(row, _reverse(rows, ways, row)) for row in hidden.tolist()]
    for row, source in found:
        if source:
            rows.tell(row, _with(rows.hint(row), rows.hint(row).of(0), source))


def _reverse(rows: _Rows, ways: dict[tuple[str, tuple[int, int, int]], set[Dtypes]], row: int) -> str:
    """The type that a cast reads: what its one counterpart writes."""
    direction = rows.text("dir", row)
    if rows.sequence(row) == NULL or (direction == "bprop" and "ToCopyBackward0" not in rows.text("nodes", row)):
        return ""
    others = ways.get(("bprop" if direction == "fprop" else "fprop", rows.key(row)), set())
    mine = ways.get((direction, rows.key(row)), set())
    if len(others) != 1 or len(mine) != 1:
        return ""
    other = next(iter(others))
    return other.of(0) if other.of(1) == rows.hint(row).of(0) and other.of(0) != rows.hint(row).of(0) else ""


def _with(hint: Dtypes, first: str, second: str) -> Dtypes:
    return replace(hint, at=((0, first), (1, second)))


Group = tuple[object, ...]


def _mixed(rows: _Rows, copies: Ints, hidden: Ints) -> None:
    """Forward calls by count, then the backward's products by their forward call."""
    told: dict[tuple[int, int, int], Dtypes] = {}
    lesser = _engine_casts(rows, copies)
    for group, calls in _forward_calls(rows, hidden).items():
        types = lesser.get(group, [])
        if len(types) == len(calls) and len(set(types)) == 1:
            # Both operands have one shape: which of them is the lesser matters to nothing that is counted.
            hint = _with(rows.hint(calls[0]), rows.hint(calls[0]).out, types[0])
            for row in calls:
                rows.tell(row, hint)
                told[rows.key(row)] = hint
    for row in hidden.tolist():
        before = told.get(rows.key(row))
        if before and rows.text("aten", row) == "aten::mul" and "MulBackward0" in rows.text("nodes", row):
            rows.tell(row, _with(rows.hint(row), before.out, before.of(1)))


def _engine_casts(rows: _Rows, copies: Ints) -> dict[Group, list[str]]:
    """The types to which the engine cast gradients, by what their forward calls share with them."""
    found: dict[Group, list[str]] = {}
    for row in copies.tolist():
        if rows.text("dir", row) == "bprop" and rows.sequence(row) == NULL and rows.hint(row).of(0):
            found.setdefault(_group(rows, row, rows.hint(row).of(1)), []).append(rows.hint(row).of(0))
    return found


def _forward_calls(rows: _Rows, hidden: Ints) -> dict[Group, list[int]]:
    found: dict[Group, list[int]] = {}
    for row in hidden.tolist():
        if rows.text("dir", row) == "fprop" and _names_its_op(rows, row) and _one_shape(rows, row):
            found.setdefault(_group(rows, row, rows.hint(row).out), []).append(row)
    return found


def _group(rows: _Rows, row: int, wide: str) -> Group:
    """What a forward op and the casts of its gradients share: its names and place, the shape, and the wide type."""
    place = (int(rows.table.coded(key).codes[row]) for key in ("op", "layer", "marker", "trace"))
    shapes = json.loads(rows.text("sizes", row))
    return int(rows.table.ints("pid")[row]), *place, str(shapes[0]), wide


def _names_its_op(rows: _Rows, row: int) -> bool:
    """Did the user's op run this aten op, and not one of several that make it up?"""
    names = json.loads(rows.text("op", row) or "[]")
    return bool(names) and str(names[-1]).strip("_") == rows.text("aten", row).removeprefix("aten::").strip("_")


def _one_shape(rows: _Rows, row: int) -> bool:
    shapes = json.loads(rows.text("sizes", row))
    return len(shapes) > 1 and bool(shapes[0]) and shapes[0] == shapes[1]
