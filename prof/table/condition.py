"""The condition language of ``--where`` and ``--fail-if``: comparisons, joined by and, or, not and brackets.

    condition  = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | "(" condition ")" | comparison
    comparison = value sign value { sign value }          5 < sil <= 9 is 5 < sil and sil <= 9
    sign       = == != < <= > >= | is | is not | in | not in | like | not like
    value      = name | scope:pattern | [-]number[unit] | 'text' | None | list
    list       = "(" [value {"," value}] ")"              or in [ ] or { }

The callers (``where.py``, ``diff/gate.py``) define which names, scopes and units exist, and which comparisons are
allowed. Texts are only parsed with this grammar, never run as code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pyprof.errors import PyprofError

LONGEST = 4000  # characters
DEEPEST = 40  # levels of brackets and nots
DIGITS = 18  # most digits of an integer; longer ones become floats, since a column holds 64 bits
TEXT = r"'(?:[^'\\]|\\.)*'" + r'|"(?:[^"\\]|\\.)*"'
NUMBER = r"(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
WORD_SIGNS = frozenset(["is", "in", "like"])
OPENS = {"(": ")", "[": "]", "{": "}"}
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}  # sign after exchanging the sides
ESCAPE = re.compile(r"\\([\\'\"])")

Leaf = TypeVar("Leaf")
Other = TypeVar("Other")
Result = TypeVar("Result")


class ConditionError(PyprofError):
    """A text is not a valid condition, or compares incompatible values. The message gives the position. Bad usage."""


@dataclass(frozen=True, slots=True)
class Value:
    """One side of a comparison. ``value`` is a name, a text, a number, None, a pattern or a tuple of values."""

    kind: Literal["name", "scoped", "number", "text", "none", "list"]
    value: Any
    start: int
    end: int
    unit: str = ""  # if the value is a number
    scope: str = ""  # if the value is a pattern


@dataclass(frozen=True, slots=True)
class Relation:
    """A comparison: two values and the sign between them."""

    left: Value
    sign: str
    right: Value


@dataclass(frozen=True, slots=True)
class Not(Generic[Leaf]):
    inner: Leaf | Not[Leaf] | Joined[Leaf]


@dataclass(frozen=True, slots=True)
class Joined(Generic[Leaf]):
    """All of the parts (and), or any of them (or)."""

    every: bool
    parts: tuple[Leaf | Not[Leaf] | Joined[Leaf], ...]


Tree: TypeAlias = Leaf | Not[Leaf] | Joined[Leaf]


@dataclass(frozen=True, slots=True)
class Condition:
    """A parsed condition: its text, and the tree of its comparisons."""

    text: str
    tree: Tree[Relation]

    def refused(self, value: Value, why: str) -> ConditionError:
        """The error for a value that is not allowed at its position."""
        return _error(value.start, self.text[value.start : value.end], why)


def fold(
    tree: Tree[Any],
    leaf: Callable[[Any], Result],
    join: Callable[[bool, list[Result]], Result],
    negate: Callable[[Result], Result],
) -> Result:
    """Evaluate a tree from its leaves up. Every leaf is evaluated, even if the result is already certain."""
    if isinstance(tree, Not):
        return negate(fold(tree.inner, leaf, join, negate))
    if isinstance(tree, Joined):
        return join(tree.every, [fold(part, leaf, join, negate) for part in tree.parts])
    return leaf(tree)


def with_leaves(tree: Tree[Leaf], change: Callable[[Leaf], Tree[Other]]) -> Tree[Other]:
    """The tree with each leaf replaced by the result of ``change``."""
    if isinstance(tree, Not):
        return Not(with_leaves(tree.inner, change))
    if isinstance(tree, Joined):
        return Joined(tree.every, tuple(with_leaves(part, change) for part in tree.parts))
    return change(tree)


def parse(text: str, scopes: Collection[str] = (), units: Collection[str] = ()) -> Condition:
    """Parse a condition. Raises ConditionError, with the position of the wrong character.

    >>> parse("sil > 5 and op like 'l*'").tree.parts[0].sign
    '>'
    >>> parse("step > 3%", units=("%",)).tree.right.unit
    '%'
    """
    if len(text) > LONGEST:
        raise ConditionError(f"a condition of {len(text)} characters; at most {LONGEST} are read")
    if not text.strip():
        raise ConditionError("an empty condition; expected comparisons such as a > 1 and b == 'x'")
    parser = _Parser(text, scopes, units)
    tree = parser.either(0)
    if parser.token.kind != "end":
        raise parser.unexpected("expected and, or, or the end")
    return Condition(text, tree)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # text, number, name, scope, sign, other, end
    text: str
    start: int
    end: int


class _Parser:
    """A recursive descent parser for the grammar, with one token of look-ahead in ``token``."""

    def __init__(self, text: str, scopes: Collection[str], units: Collection[str]) -> None:
        scoped = rf"(?P<scope>(?:{'|'.join(scopes)}):\s*(?:{TEXT}|[^\s<>=!()\"']+))|" if scopes else ""
        self.pattern = re.compile(
            rf"\s*(?:{scoped}(?P<text>{TEXT})|(?P<number>{NUMBER})|(?P<name>[^\W\d]\w*)"
            r"|(?P<sign>==|!=|<=|>=|<|>)|(?P<other>\S))",
            re.DOTALL,
        )
        self.text, self.units = text, units
        self.token, self.end = self.read(0), 0  # the next token, and where the last one that was taken ends

    def read(self, at: int) -> _Token:
        found = self.pattern.match(self.text, at)
        if found is None:
            end = len(self.text.rstrip())
            return _Token("end", "", end, end)
        kind = str(found.lastgroup)
        return _Token(kind, found[kind], found.start(kind), found.end(kind))

    def take(self) -> _Token:
        taken = self.token
        self.token, self.end = self.read(taken.end), taken.end
        return taken

    def took(self, *texts: str) -> str:
        """The token's text, which is then taken, where it is one of these; else nothing."""
        return self.take().text if self.token.text in texts else ""

    def unexpected(self, why: str) -> ConditionError:
        return _error(self.token.start, self.text[self.token.start :].rstrip(), why)

    def either(self, depth: int) -> Tree[Relation]:
        return self.joined("or", lambda: self.joined("and", lambda: self.one(depth)))

    def joined(self, word: str, part: Callable[[], Tree[Relation]]) -> Tree[Relation]:
        parts = [part()]
        while self.took(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(word == "and", tuple(parts))

    def one(self, depth: int) -> Tree[Relation]:
        if depth > DEEPEST:
            raise self.unexpected(f"more than {DEEPEST} levels of brackets and nots")
        if self.took("not"):
            return Not(self.one(depth + 1))
        if not self.took("("):
            return self.comparison()
        inner = self.either(depth + 1)
        if not self.took(")"):
            at_end = self.token.kind == "end"
            raise self.unexpected("a bracket that is not closed" if at_end else "expected and, or, or )")
        return inner

    def comparison(self) -> Tree[Relation]:
        values, signs = [self.value()], [self.sign()]
        values.append(self.value())
        while self.token.kind == "sign" or self.token.text in WORD_SIGNS:
            signs.append(self.sign())
            values.append(self.value())
        tests = tuple(Relation(left, sign, right) for left, sign, right in zip(values, signs, values[1:], strict=False))
        return tests[0] if len(tests) == 1 else Joined(True, tests)

    def sign(self) -> str:
        if self.token.kind != "sign" and self.token.text not in (*WORD_SIGNS, "not"):
            meant = ": did you mean ==?" if self.token.text == "=" else ""
            raise self.unexpected(f"expected one of == != < <= > >= in like{meant}")
        sign = self.take().text
        if sign == "is":
            return "!=" if self.took("not") else "=="
        if sign != "not":
            return sign
        if self.token.text not in ("in", "like"):
            raise self.unexpected("expected in or like")
        return f"not {self.take().text}"

    def value(self) -> Value:
        token = self.token
        if token.text in OPENS:
            return self.list()
        if token.kind == "number" or token.text in ("-", "+"):
            return self.number()
        if token.text in ("'", '"'):
            raise self.unexpected("a quote that is not closed")
        if token.kind not in ("text", "scope", "name") or token.text in ("and", "or", "not", *WORD_SIGNS):
            raise self.unexpected("expected a name, a number or a text in quotes")
        self.take()
        if token.kind == "text":
            return Value("text", ESCAPE.sub(r"\1", token.text[1:-1]), token.start, token.end)
        if token.kind == "scope":
            scope, _, pattern = token.text.partition(":")
            return Value("scoped", pattern.strip().strip("\"'"), token.start, token.end, scope=scope)
        if token.text == "None":
            return Value("none", None, token.start, token.end)
        return Value("name", token.text, token.start, token.end)

    def number(self) -> Value:
        start = self.token.start
        negative = self.took("-", "+") == "-"
        if self.token.kind != "number":
            raise self.unexpected("expected a number")
        text = self.take().text.replace("_", "")
        amount = int(text) if text.isdecimal() and len(text) <= DIGITS else float(text)
        unit = self.took(*self.units)
        return Value("number", -amount if negative else amount, start, self.end, unit)

    def list(self) -> Value:
        opening, values = self.take(), []
        close = OPENS[opening.text]
        while not self.took(close):
            values.append(self.value())
            if values[-1].kind == "list":
                raise _error(values[-1].start, "(", "a list within a list")
            if not self.took(",") and self.token.text != close:
                raise self.unexpected(f"expected a comma or {close}")
        return Value("list", tuple(values), opening.start, self.end)


def _error(start: int, rest: str, why: str) -> ConditionError:
    shown = "".join(char if char.isprintable() else "?" for char in rest)
    shown = repr(shown if len(shown) <= 40 else f"{shown[:38]}..") if shown else "the end"
    return ConditionError(f"character {start + 1}: {shown}: {why}")
