"""``--where``: a condition on columns, in the language of ``condition.py``.

    op == 'linear' and dir == 'bprop'        kernel like '*gemm*'        1e6 < sil and tc in (0, '?')
    'gemm' in kernel                         layer not like 'net:h.0*'   not (bound == 'memory' or flops == None)

A column is compared with numbers, texts or (numbers only) another column. ``like`` takes a glob (``*``, ``?``,
``[ab]``). ``in`` takes a list of values; with a text on its left, it tests whether the column contains that text. An
unknown number is ``None``: it equals nothing else and is neither less nor greater than anything.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyprof.command.suggestion import did_you_mean
from pyprof.prof.table.columns import COLUMN, Column, meant_column
from pyprof.prof.table.condition import FLIPPED, Condition, Not, Relation, Tree, Value, fold, parse, with_leaves

if TYPE_CHECKING:
    from pyprof.prof.table.cells import Data
    from pyprof.prof.work.annotate import Annotation
    from pyprof.table.columns import Bools, Table

COMPARE: dict[str, Any] = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
FEW = 8  # texts of a column that a message lists
NEGATED = {"!=": "==", "not in": "in", "not like": "like", "lacks": "holds"}


@dataclass(frozen=True, slots=True)
class Test:
    """A test of a column against a value, a tuple of values or another column."""

    column: str
    sign: str  # ==, <, <=, >, >=, in, like, holds (a part of the text)
    value: str | int | float | tuple[str | int | float | None, ...] | Column | None


@dataclass(frozen=True, slots=True)
class Where:
    """A condition whose names are columns and whose values fit them."""

    tree: Tree[Test]
    columns: tuple[Column, ...]  # the columns that it reads, in the order of their names


def parse_where(text: str, columns: Mapping[str, Column]) -> Where:
    """Parse a condition over columns with these names. Raises ConditionError.

    >>> parse_where("sil > 5", {"sil": Column("sil", "", "", "", lambda *_: None, kind="int")}).tree
    Test(column='sil', sign='>', value=5)
    """
    condition = parse(text)
    reader = _Reader(condition, columns)
    tree = with_leaves(condition.tree, reader.test)
    return Where(tree, tuple(columns[name] for name in sorted(reader.used)))


def checked_condition(text: str) -> str:
    """The text of a condition over the columns of ``prof.py``, after checking that it can be parsed."""
    parse_where(text, COLUMN)
    return text


class _Reader:
    """Turns comparisons into tests of columns, and rejects those that make no sense."""

    def __init__(self, condition: Condition, columns: Mapping[str, Column]) -> None:
        self.columns, self.refused = columns, condition.refused
        self.used: set[str] = set()

    def test(self, relation: Relation) -> Test | Not[Test]:
        left, sign, right = relation.left, relation.sign, relation.right
        if left.kind != "name":
            left, sign, right = self.turned(left, sign, right)
        column = self.column(left)
        value = self.value(column, sign, right)
        if sign in NEGATED:
            return Not(Test(column.name, NEGATED[sign], value))
        return Test(column.name, sign, value)

    def turned(self, left: Value, sign: str, right: Value) -> tuple[Value, str, Value]:
        """The comparison with the column on the left: ``5 < sil`` as ``sil > 5``, ``'x' in op`` as op holds 'x'."""
        if right.kind != "name":
            raise self.refused(left, "expected a column on one side of the comparison")
        if sign in FLIPPED:
            return right, FLIPPED[sign], left
        if left.kind != "text" or "like" in sign:
            raise self.refused(left, "expected a column before like, and a text in quotes before in")
        return right, "holds" if sign == "in" else "lacks", left

    def column(self, name: Value) -> Column:
        if name.value not in self.columns:
            raise self.refused(name, f"no column{meant_column(name.value, self.columns)}")
        self.used.add(name.value)
        return self.columns[name.value]

    def value(self, column: Column, sign: str, right: Value) -> Any:
        if sign in ("in", "not in"):
            if right.kind != "list":
                raise self.refused(right, "no list: write in ('a', 'b')")
            return tuple(self.constant(column, "==", value) for value in right.value)
        if right.kind == "name":
            if column.kind == "text" and right.value not in self.columns:
                raise self.refused(right, f"no column; a text is written in quotes: {right.value!r}")
            return self.other_column(column, sign, right)
        return self.constant(column, sign, right)

    def constant(self, column: Column, sign: str, value: Value) -> str | int | float | None:
        kind = "texts" if column.kind == "text" else "numbers"
        if value.kind not in ("number", "text", "none"):
            raise self.refused(value, "expected a number or a text in quotes")
        if value.kind == "none" and sign not in ("==", "!="):
            raise self.refused(value, "None is unknown: compare it with == or !=")
        if "like" in sign and (column.kind != "text" or value.kind != "text"):
            raise self.refused(value, f"like compares texts; {column.name} holds {kind}")
        if column.kind != "text" and value.kind == "text":
            raise self.refused(value, f"a text, where {column.name} holds numbers")
        if column.kind == "text" and sign in ("<", "<=", ">", ">="):
            raise self.refused(value, f"{sign} where {column.name} holds texts: use ==, !=, in, like")
        constant: str | int | float | None = value.value
        return constant

    def other_column(self, column: Column, sign: str, name: Value) -> Column:
        other = self.column(name)
        if "text" in (column.kind, other.kind) or sign not in FLIPPED:
            raise self.refused(name, "a column beside one that holds texts; compare it with a text in quotes")
        return other


# Condition -> rows


def rows_where(where: Where, data: Mapping[str, Data]) -> Bools:
    """The rows for which the condition is true. ``data``: the columns that it reads, by name."""
    import numpy as np

    empty = {column.name: column.empty for column in where.columns}

    def join(every: bool, parts: list[Bools]) -> Bools:
        both: Bools = np.logical_and.reduce(parts) if every else np.logical_or.reduce(parts)
        return both

    return fold(where.tree, lambda test: _test_rows(test, data, empty[test.column]), join, np.logical_not)


def absent_texts(where: Where, table: Table, annotation: Annotation) -> Iterator[str]:
    """A sentence for each text that the condition compares with a column in which no row has it."""
    from pyprof.table.columns import Coded

    leaves: list[Test] = fold(where.tree, lambda test: [test], lambda _, parts: [*chain(*parts)], lambda tests: tests)
    columns = {column.name: column for column in where.columns}
    for test in dict.fromkeys(test for test in leaves if test.sign in ("==", "in")):
        cells = columns[test.column].get(table, annotation)
        if not isinstance(cells, Coded):
            continue
        known = [cells.values[code] for code in sorted(set(cells.codes.tolist())) if code >= 0]
        for value in test.value if isinstance(test.value, tuple) else (test.value,):
            if value not in (None, "", columns[test.column].empty) and str(value) not in known:
                yield f"no row has {test.column} {str(value)!r}{_meant_text(str(value), known)}"


def _meant_text(text: str, known: Sequence[str]) -> str:
    holding = sum(text in name for name in known)
    if holding:
        return f"; {holding} {'name contains' if holding == 1 else 'names contain'} it: like '*{text}*'"
    few = f"; there are {', '.join(map(repr, known))}" if 0 < len(known) <= FEW else ""
    return did_you_mean(text, known) or few


def _test_rows(test: Test, data: Mapping[str, Data], empty: str) -> Bools:
    from pyprof.table.columns import Coded

    cells = data[test.column]
    if isinstance(cells, Coded):
        is_true = _text_test(test, empty)
        return cells.where(is_true) | (cells.among("") if is_true("") else False)
    return _number_rows(test, cells, data)


def _text_test(test: Test, empty: str) -> Callable[[str], bool]:
    """A test of a text. Numbers are compared as digits (``tc == 1``); a placeholder (`na`) matches an empty text."""
    if test.sign == "like":
        import fnmatch

        return re.compile(fnmatch.translate(str(test.value))).match  # type: ignore[return-value] # a match is true
    if test.sign == "holds":
        part = str(test.value)
        return lambda text: part in text
    listed: Sequence[Any] = test.value if isinstance(test.value, tuple) else (test.value,)
    texts = {"" if value is None or value == empty else str(value) for value in listed}
    return lambda text: text in texts


def _number_rows(test: Test, found: Any, data: Mapping[str, Data]) -> Bools:
    import numpy as np

    from pyprof.prof.table.cells import is_known

    known = is_known(found)
    if test.sign == "in" or test.value is None:
        values = test.value if isinstance(test.value, tuple) else (None,)
        equal = [~known if value is None else known & (found == value) for value in values]
        listed: Bools = np.logical_or.reduce([np.zeros(len(found), bool), *equal])
        return listed
    other: Any = test.value
    if isinstance(test.value, Column):
        other = data[test.value.name]
        known = known & is_known(other)
    result: Bools = known & COMPARE[test.sign](found, other)
    return result
