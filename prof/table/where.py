"""``--where``: a condition on columns, read with ``ast`` and never run as code.

    op == 'linear' and dir == 'bprop'        kernel like '*gemm*'        1e6 < sil and tc in (0, '?')
    'gemm' in kernel                         layer not like 'net:h.0*'   not (bound == 'memory' or flops == None)

Comparisons of a column with numbers, texts or (numbers only) another column, joined by and, or, not. ``like`` is a glob
(``*``, ``?``, ``[ab]``), ``in`` a list of values or, with a text on its left, a part of the column's text. An unknown
number is ``None``: it equals nothing else and is neither less nor greater than anything. Whatever is not in this list
is refused, with the place where it stands.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyprof.errors import PyprofError
from pyprof.prof.table.columns import Column

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pyprof.prof.table.cells import Data

    Mask = NDArray[np.bool_]

__all__ = ["Where", "WhereError", "parse_where", "rows_where"]

LONGEST = 4000  # characters
DEEPEST = 40  # levels of and, or, not and brackets
WIDEST = 10**18  # greater numbers are compared as floats

# `like` becomes an operator of Python that we have no other use for, as long as the words it replaces, so that
# places in the text stay what they are. What stands in quotes is passed over.
LIKE = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\b(not\s+like)\b|\b(like)\b""")
SYMBOL: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in",
    ast.NotIn: "not in", ast.Is: "==", ast.IsNot: "!=",
}  # fmt: skip
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
NEGATED = {"!=": "==", "not in": "in", "not like": "like", "lacks": "holds"}
KIND: Mapping[type[ast.AST], str] = {
    ast.Attribute: "an attribute", ast.Call: "a call", ast.Subscript: "an index", ast.Lambda: "a function",
    ast.JoinedStr: "a formatted text", ast.NamedExpr: "an assignment", ast.IfExp: "a conditional",
    ast.ListComp: "a comprehension", ast.GeneratorExp: "a comprehension", ast.Dict: "a dictionary",
    ast.BinOp: "arithmetic", ast.Name: "a column alone", ast.Constant: "a value alone",
}  # fmt: skip
WANTED = "expected comparisons of columns with values, and, or, not, in, like"

Value = str | int | float | None


class WhereError(PyprofError):
    """The condition is not one of ours; bad usage."""


@dataclass(frozen=True, slots=True)
class Test:
    """A column against a value, a list of them or another column."""

    column: str
    how: str  # ==, <, <=, >, >=, in, like, holds (a part of the text)
    value: Value | tuple[Value, ...] | Column


@dataclass(frozen=True, slots=True)
class Not:
    inner: Test | Not | Both


@dataclass(frozen=True, slots=True)
class Both:
    """All of them (and), or any (or)."""

    every: bool
    parts: tuple[Test | Not | Both, ...]


@dataclass(frozen=True, slots=True)
class Where:
    tree: Test | Not | Both
    columns: tuple[Column, ...]  # that it reads, in the order of their names


# Text -> condition


def parse_where(text: str, columns: Mapping[str, Column]) -> Where:
    """The condition in a text, over columns of these names. Raises WhereError.

    >>> parse_where("sil > 5", {"sil": Column("sil", "", "", "", lambda *_: None, kind="int")}).tree
    Test(column='sil', how='>', value=5)
    """
    parser = _Parser(" ".join(text.split("\n")).strip(), columns)
    tree = parser.condition(parser.read(), 0)
    return Where(tree, tuple(columns[name] for name in sorted(parser.used)))


class _Parser:
    def __init__(self, text: str, columns: Mapping[str, Column]) -> None:
        self.text = text
        self.columns = columns
        self.used: set[str] = set()

    def read(self) -> ast.expr:
        if not self.text:
            raise WhereError(f"an empty condition; {WANTED}")
        if "\0" in self.text:
            raise WhereError(f"character {self.text.index(chr(0)) + 1}: a NUL; {WANTED}")
        if len(self.text) > LONGEST:
            raise WhereError(f"a condition of {len(self.text)} characters; at most {LONGEST} are read")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of backslashes in texts
                return ast.parse(LIKE.sub(_operator, self.text), mode="eval").body
        except SyntaxError as error:
            place = error.offset - 1 if error.offset and error.lineno == 1 else len(self.text)
            rest = _short(self.text[place:])
            why = f"cannot be read from here on: {rest}" if rest else "more was expected"
            raise WhereError(f"character {place + 1}: {why}; {WANTED}") from None
        except (ValueError, MemoryError, RecursionError):
            raise WhereError(f"too deeply nested; {WANTED}") from None

    def condition(self, node: ast.expr, depth: int) -> Test | Not | Both:
        if depth > DEEPEST:
            raise self.refused(node, f"more than {DEEPEST} levels")
        if isinstance(node, ast.BoolOp):
            parts = tuple(self.condition(value, depth + 1) for value in node.values)
            return Both(isinstance(node.op, ast.And), parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return Not(self.condition(node.operand, depth + 1))
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.MatMult, ast.Mod)):
            return self.like(node)
        if isinstance(node, ast.Compare):
            return self.comparison(node)
        raise self.refused(node, KIND.get(type(node), "no comparison"))

    def comparison(self, node: ast.Compare) -> Test | Not | Both:
        sides = [node.left, *node.comparators]
        tests = [
            self.test(left, SYMBOL[type(op)], right)
            for left, op, right in zip(sides, node.ops, sides[1:], strict=False)
        ]
        return tests[0] if len(tests) == 1 else Both(True, tuple(tests))

    def test(self, left: ast.expr, how: str, right: ast.expr) -> Test | Not:
        if not isinstance(left, ast.Name):
            if not isinstance(right, ast.Name):
                raise self.refused(left, f"{KIND.get(type(left), 'this')} where a column should be")
            left, right, how = right, left, self.turned(how, left)
        column = self.column(left)
        if how in ("in", "not in"):
            value: Any = self.values(right, column)
        elif isinstance(right, ast.Name):
            value = self.number_column(right, column)
        else:
            value = self.value(right)
            self.check(right, column, how, value)
        return self.made(column, how, value)

    def turned(self, how: str, value: ast.expr) -> str:
        """The same comparison with its sides changed: ``5 < sil`` is ``sil > 5``, ``'x' in op`` its own kind."""
        if how not in ("in", "not in"):
            return FLIPPED.get(how, how)
        if not isinstance(self.value(value), str):
            raise self.refused(value, "a number in a text; put it in quotes")
        return "holds" if how == "in" else "lacks"

    def like(self, node: ast.BinOp) -> Test | Not:
        words = self.text[self.end(node.left) : self.place(node.right)]
        if "like" not in words:
            raise self.refused(node, "arithmetic")
        if not isinstance(node.left, ast.Name):
            raise self.refused(node.left, "no column before like")
        column, pattern = self.column(node.left), self.value(node.right)
        if column.kind != "text" or not isinstance(pattern, str):
            raise self.refused(node.right, f"like compares texts; {column.name} holds {_holds(column)}")
        return self.made(column, "not like" if "not" in words else "like", pattern)

    def made(self, column: Column, how: str, value: Any) -> Test | Not:
        if how in NEGATED:
            return Not(Test(column.name, NEGATED[how], value))
        return Test(column.name, how, value)

    def column(self, node: ast.Name) -> Column:
        if node.id not in self.columns:
            raise self.refused(node, f"no column; there are {', '.join(self.columns)}")
        self.used.add(node.id)
        return self.columns[node.id]

    def number_column(self, node: ast.Name, left: Column) -> Column:
        right = self.column(node)
        if "text" in (left.kind, right.kind):
            raise self.refused(node, "a column beside one that holds texts; compare it with a text in quotes")
        return right

    def values(self, node: ast.expr, column: Column) -> tuple[Value, ...]:
        if not isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            raise self.refused(node, "no list: write in ('a', 'b')")
        values = tuple(self.value(item) for item in node.elts)
        for item, value in zip(node.elts, values, strict=True):
            self.check(item, column, "==", value)
        return values

    def value(self, node: ast.expr) -> Value:
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node, sign = node.operand, -1
        if isinstance(node, ast.Constant):
            found = node.value
            if isinstance(found, (int, float)) and not isinstance(found, bool):
                return sign * (found if abs(found) <= WIDEST else _float(found))
            if sign == 1 and (found is None or isinstance(found, str)):
                return found
        raise self.refused(node, f"{KIND.get(type(node), 'this')} where a number or a text in quotes should be")

    def check(self, node: ast.expr, column: Column, how: str, value: Value) -> None:
        if value is None and how not in ("==", "!="):
            raise self.refused(node, "None is unknown: compare it with == or !=")
        if column.kind != "text" and isinstance(value, str):
            raise self.refused(node, f"a text, where {column.name} holds {_holds(column)}")
        if column.kind == "text" and how not in ("==", "!=", "holds", "lacks"):
            raise self.refused(node, f"{how} where {column.name} holds texts: use ==, !=, in, like")

    def refused(self, node: ast.expr, why: str) -> WhereError:
        place = self.place(node)
        return WhereError(f"character {place + 1}: {_short(self.text[place : self.end(node)])}: {why}; {WANTED}")

    def place(self, node: ast.expr) -> int:
        return len(self.text.encode()[: node.col_offset].decode(errors="replace"))

    def end(self, node: ast.expr) -> int:
        return len(self.text.encode()[: node.end_col_offset].decode(errors="replace"))


def _operator(match: re.Match[str]) -> str:
    if match[1]:
        return match[1]
    return ("%" if match[2] else "@").ljust(len(match[0]))


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _short(text: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return repr(shown if len(shown) <= 40 else f"{shown[:38]}..") if shown else ""


def _holds(column: Column) -> str:
    return "texts" if column.kind == "text" else "numbers"


# Condition -> rows


def rows_where(where: Where, data: Mapping[str, Data]) -> Mask:
    """Which rows the condition is true of. ``data``: the columns that it reads, by name."""
    return _rows(where.tree, data, {column.name: column for column in where.columns})


def _rows(tree: Test | Not | Both, data: Mapping[str, Data], columns: Mapping[str, Column]) -> Mask:
    import numpy as np

    if isinstance(tree, Not):
        return ~_rows(tree.inner, data, columns)
    if isinstance(tree, Both):
        parts = [_rows(part, data, columns) for part in tree.parts]
        both: Mask = np.logical_and.reduce(parts) if tree.every else np.logical_or.reduce(parts)
        return both
    from pyprof.table.columns import Coded

    found = data[tree.column]
    if isinstance(found, Coded):
        is_true = _text_test(tree, columns[tree.column].empty)
        return np.array([*map(is_true, found.values), is_true("")], bool)[found.codes]
    return _numbers(tree, found, data)


def _text_test(test: Test, empty: str) -> Callable[[str], bool]:
    """A number beside a text is its digits (``tc == 1``); what is printed for nothing (`na`, `-`) is nothing."""
    if test.how == "like":
        import fnmatch

        return re.compile(fnmatch.translate(str(test.value))).match  # type: ignore[return-value] # a match is true
    if test.how == "holds":
        part = str(test.value)
        return lambda text: part in text
    listed: Sequence[Any] = test.value if isinstance(test.value, tuple) else (test.value,)
    texts = {"" if value is None or value == empty else str(value) for value in listed}
    return lambda text: text in texts


def _numbers(test: Test, found: Any, data: Mapping[str, Data]) -> Mask:
    import numpy as np

    known = _known(found)
    if test.how == "in" or test.value is None:
        values = test.value if isinstance(test.value, tuple) else (None,)
        equal = [~known if value is None else known & (found == value) for value in values]
        listed: Mask = np.logical_or.reduce([np.zeros(len(found), bool), *equal])
        return listed
    other = data[test.value.name] if isinstance(test.value, Column) else test.value
    if isinstance(test.value, Column):
        known = known & _known(other)
    compare: dict[str, Any] = {
        "==": np.equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
    }  # fmt: skip
    result: Mask = known & compare[test.how](found, other)
    return result


def _known(found: Any) -> Mask:
    import numpy as np

    from pyprof.table.columns import NULL

    known: Mask = ~np.isnan(found) if found.dtype.kind == "f" else found != NULL
    return known
