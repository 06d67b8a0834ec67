"""The condition language of ``--where`` and ``--fail-if``: comparisons, joined by and, or, not and brackets.

    condition  = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | "(" condition ")" | comparison
    comparison = value sign value { sign value }          5 < sil <= 9 is 5 < sil and sil <= 9
    sign       = == != < <= > >= | is | is not | in | not in | like | not like
    value      = name | scope:pattern | [-]number[unit] | 'text' | None | list
    list       = "(" [value {"," value}] ")"              or in [ ] or { }

What names, scopes and units there are, and what may be compared with what, is for the caller to say (``where.py``,
``diff/gate.py``). Texts are read by this grammar alone: nothing of them is run as code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pyprof.errors import PyprofError

LONGEST = 4000  # characters
DEEPEST = 40  # levels of brackets and nots
DIGITS = 18  # of an integer: longer ones become floats, since a column holds 64 bits
TEXT = r"'(?:[^'\\]|\\.)*'" + r'|"(?:[^"\\]|\\.)*"'
NUMBER = r"(?:\d[\d_]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
WORD_SIGNS = frozenset(["is", "in", "like"])
OPENS = {"(": ")", "[": "]", "{": "}"}
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}  # the sign with its sides exchanged
ESCAPE = re.compile(r"\\([\\'\"])")

Leaf = TypeVar("Leaf")
Other = TypeVar("Other")
Result = TypeVar("Result")


class ConditionError(PyprofError):
    """A text is no condition, or compares what cannot be compared. The message names the place. Wrong usage."""


@dataclass(frozen=True, slots=True)
class Value:
    """One side of a comparison. ``value`` is a name, a text, a number, None, a pattern or a tuple of values."""

    kind: Literal["name", "scoped", "number", "text", "none", "list"]
    value: Any
    start: int
    end: int
    unit: str = ""  # of a number
    scope: str = ""  # of a pattern


@dataclass(frozen=True, slots=True)
class Relation:
    """Two values and the sign between them."""

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
    """A condition as it was read: its text, and the tree of its relations."""

    text: str
    tree: Tree[Relation]

    def refused(self, value: Value, why: str) -> ConditionError:
        """The error for a value that cannot stand where it does."""
        return _error(value.start, self.text[value.start : value.end], why)


def fold(
    tree: Tree[Any],
    leaf: Callable[[Any], Result],
    join: Callable[[bool, list[Result]], Result],
    negate: Callable[[Result], Result],
) -> Result:
    """Compute a tree from its leaves up. Every leaf is computed, also where the result is known before."""
    if isinstance(tree, Not):
        return negate(fold(tree.inner, leaf, join, negate))
    if isinstance(tree, Joined):
        return join(tree.every, [fold(part, leaf, join, negate) for part in tree.parts])
    return leaf(tree)


def with_leaves(tree: Tree[Leaf], change: Callable[[Leaf], Tree[Other]]) -> Tree[Other]:
    """The tree with each leaf replaced by what ``change`` makes of it."""
    if isinstance(tree, Not):
        return Not(with_leaves(tree.inner, change))
    if isinstance(tree, Joined):
        return Joined(tree.every, tuple(with_leaves(part, change) for part in tree.parts))
    return change(tree)


def parse(text: str, scopes: Collection[str] = (), units: Collection[str] = ()) -> Condition:
    """Read a condition. Raises ConditionError, with the number of the character that is wrong.

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
    if not parser.token.at_end:
        raise parser.unexpected("expected and, or, or the end")
    return Condition(text, tree)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # text, number, name, scope, sign, other, end
    text: str
    start: int
    end: int

    @property
    def at_end(self) -> bool:
        return self.kind == "end"


class _Parser:
    """Reads the grammar by recursive descent, with one token of look-ahead in ``token``."""

    def __init__(self, text: str, scopes: Collection[str], units: Collection[str]) -> None:
        scoped = rf"(?P<scope>(?:{'|'.join(scopes)}):\s*(?:{TEXT}|[^\s<>=!()\"']+))|" if scopes else ""
        self.pattern = re.compile(
            rf"\s*(?:{scoped}(?P<text>{TEXT})|(?P<number>{NUMBER})|(?P<name>[^\W\d]\w*)"
            r"|(?P<sign>==|!=|<=|>=|<|>)|(?P<other>\S))",
            re.DOTALL,
        )
        self.text, self.units = text, units
        self.token = self.read(0)

    def read(self, at: int) -> _Token:
        found = self.pattern.match(self.text, at)
        if found is None:
            end = len(self.text.rstrip())
            return _Token("end", "", end, end)
        kind = str(found.lastgroup)
        return _Token(kind, found[kind], found.start(kind), found.end(kind))

    def take(self) -> _Token:
        taken = self.token
        self.token = self.read(taken.end) if not taken.at_end else taken
        return taken

    def unexpected(self, why: str) -> ConditionError:
        return _error(self.token.start, self.text[self.token.start :].rstrip(), why)

    def either(self, depth: int) -> Tree[Relation]:
        return self.joined("or", lambda: self.joined("and", lambda: self.one(depth)))

    def joined(self, word: str, part: Callable[[], Tree[Relation]]) -> Tree[Relation]:
        parts = [part()]
        while self.token.text == word:
            self.take()
            parts.append(part())
        return parts[0] if len(parts) == 1 else Joined(word == "and", tuple(parts))

    def one(self, depth: int) -> Tree[Relation]:
        if depth > DEEPEST:
            raise self.unexpected(f"more than {DEEPEST} levels of brackets and nots")
        if self.token.text == "not":
            self.take()
            return Not(self.one(depth + 1))
        if self.token.text != "(":
            return self.comparison()
        self.take()
        inner = self.either(depth + 1)
        if self.token.text != ")":
            raise self.unexpected("a bracket that is not closed" if self.token.at_end else "expected and, or, or )")
        self.take()
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
        word = self.token.text
        if self.token.kind == "sign":
            return self.take().text
        if word not in (*WORD_SIGNS, "not"):
            raise self.unexpected("expected one of == != < <= > >= in like")
        self.take()
        if word == "is":
            if self.token.text != "not":
                return "=="
            self.take()
            return "!="
        if word == "not":
            if self.token.text not in ("in", "like"):
                raise self.unexpected("expected in or like")
            return f"not {self.take().text}"
        return word

    def value(self) -> Value:
        token = self.token
        if token.kind == "text":
            self.take()
            return Value("text", _unquoted(token.text), token.start, token.end)
        if token.kind == "number" or token.text in ("-", "+"):
            return self.number()
        if token.kind == "scope":
            self.take()
            scope, _, pattern = token.text.partition(":")
            return Value("scoped", pattern.strip().strip("\"'"), token.start, token.end, scope=scope)
        if token.kind == "name" and token.text not in ("and", "or", "not", *WORD_SIGNS):
            self.take()
            kind, name = ("none", None) if token.text == "None" else ("name", token.text)
            return Value(kind, name, token.start, token.end)  # type: ignore[arg-type] # mypy widens the tuple's texts
        if token.text in OPENS:
            return self.list()
        if token.text in ("'", '"'):
            raise self.unexpected("a quote that is not closed")
        raise self.unexpected("expected a name, a number or a text in quotes")

    def number(self) -> Value:
        start, negative = self.token.start, False
        if self.token.text in ("-", "+"):
            negative = self.take().text == "-"
        if self.token.kind != "number":
            raise self.unexpected("expected a number")
        token = self.take()
        amount = _number(token.text.replace("_", ""))
        unit, end = "", token.end
        if self.token.text in self.units:
            unit, end = self.token.text, self.token.end
            self.take()
        return Value("number", -amount if negative else amount, start, end, unit)

    def list(self) -> Value:
        opening = self.take()
        close, values = OPENS[opening.text], []
        while self.token.text != close:
            values.append(self.value())
            if values[-1].kind == "list":
                raise _error(values[-1].start, "(", "a list within a list")
            if self.token.text == ",":
                self.take()
            elif self.token.text != close:
                raise self.unexpected(f"expected a comma or {close}")
        return Value("list", tuple(values), opening.start, self.take().end)


def _number(text: str) -> int | float:
    if text.isdecimal() and len(text) <= DIGITS:
        return int(text)
    return float(text)


def _unquoted(text: str) -> str:
    return ESCAPE.sub(r"\1", text[1:-1])


def _error(start: int, rest: str, why: str) -> ConditionError:
    shown = "".join(char if char.isprintable() else "?" for char in rest)
    shown = repr(shown if len(shown) <= 40 else f"{shown[:38]}..") if shown else "the end"
    return ConditionError(f"character {start + 1}: {shown}: {why}")
