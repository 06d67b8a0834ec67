"""``--fail-if``: a condition on the difference, for CI. Read by its own grammar; nothing of it is run as code.

    step > 3%           gpu > 0.5 ms        forward > 2% or backward > 2%       kernels > 10
    tc_lost > 0         flops > 1%          op:linear > 5% and step > 1%        layer:head > 1 ms

    condition  = all { "or" all }
    all        = test { "and" test }
    test       = "(" condition ")" | quantity ( ">" | ">=" | "<" | "<=" | "==" | "!=" ) number [ unit ]
    quantity   = a name of QUANTITIES | scope ":" pattern      (op, layer, kind, kernel; a glob, in quotes where it
                                                                has blanks or one of <>=!() in it)

What is compared is the change, B less A, a step: in % of A's value, or in the quantity's unit. A change that noise
explains counts as none, so that ``step > 3%`` fails only for a slowdown that is real, and ``step > -5%`` (B should be
5% faster at least) fails unless the gain is; ``strict`` takes every change as it is.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from pyprof.errors import InputError, PyprofError
from pyprof.prof.diff.compare import Comparison
from pyprof.prof.diff.lines import Side
from pyprof.prof.diff.noise import Delta
from pyprof.prof.limits.occupancy import Floats
from pyprof.prof.timing.steps import PHASES
from pyprof.prof.work.layer_path import layer_parts
from pyprof.table.columns import Coded
from pyprof.table.json_lists import first_text

__all__ = ["QUANTITIES", "Check", "Gate", "GateError", "Verdict", "check", "parse_gate"]

LONGEST = 4000  # characters
COVERAGE = 5  # % of the operations by which what is counted may differ
DEEPEST = 40  # brackets
COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
SI = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
UNITS: Mapping[str, Mapping[str, float]] = {
    "time": {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "count": {"": 1.0},
    "flop": {"": 1.0, **{f"{p}FLOP": factor for p, factor in {"": 1.0, **SI}.items()}},
    "byte": {"": 1.0, **{f"{p}B": factor for p, factor in {"": 1.0, **SI}.items()}},
}
EXAMPLE = {"time": "3% or 0.5 ms", "count": "10 or 3%", "flop": "1% or 2 GFLOP", "byte": "1% or 2 GB"}
UNIT = "|".join(sorted({re.escape(unit) for units in UNITS.values() for unit in units if unit}, key=len, reverse=True))
TOKEN = re.compile(
    rf"""\s*(?:(?P<scope>op|layer|kind|kernel):\s*(?P<pattern>"[^"]*"|'[^']*'|[^\s<>=!()"']+)
    |(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?P<unit>%|(?:{UNIT})?\b|)
    |(?P<name>[A-Za-z_]+)|(?P<sign>>=|<=|==|!=|>|<)|(?P<bracket>[()]))""",
    re.VERBOSE,
)


class GateError(PyprofError):
    """The condition is not one of ours; bad usage."""


@dataclass(frozen=True, slots=True)
class Quantity:
    kind: str  # of UNITS
    meaning: str
    get: Callable[[Comparison], Delta]


def _phase(name: str) -> Callable[[Comparison], Delta]:
    def get(found: Comparison) -> Delta:
        none = Delta(np.zeros(len(found.a.steps)), np.zeros(len(found.b.steps)))
        return next((change.ns for change in found.phases if change.name == name), none)

    return get


def _number(of: Callable[[Comparison], float]) -> Callable[[Comparison], Delta]:
    return lambda found: Delta(np.zeros(1), np.array([float(of(found))]))


QUANTITIES: Mapping[str, Quantity] = {
    "step": Quantity("time", "time of a step", lambda found: found.step),
    "gpu": Quantity("time", "time with an operation on the GPU (in a capture of the CPU: in an op)", lambda f: f.busy),
    "idle": Quantity("time", "time in which it does not", lambda found: found.idle),
    **{name: Quantity("time", f"time of the phase {name}, overlaps once", _phase(name)) for name in PHASES},
    "kernels": Quantity("count", "GPU operations: kernels, copies, memsets", lambda found: found.rows),
    "tc_lost": Quantity("count", "matrix products that ran on tensor cores in A and do not in B",
                        _number(lambda found: found.tc_lost)),
    "tc_gained": Quantity("count", "and the other way round", _number(lambda found: found.tc_gained)),
    "flops": Quantity("flop", "floating-point operations of the algorithm", lambda found: found.flop),
    "bytes": Quantity("byte", "bytes that the algorithm reads and writes", lambda found: found.nbytes),
}  # fmt: skip
SCOPES = {"op": "op or aten op", "layer": "layer", "kind": "kind of work", "kernel": "kernel"}


@dataclass(frozen=True, slots=True)
class Test:
    text: str
    quantity: str  # of QUANTITIES, or of SCOPES with a pattern
    pattern: str | None
    sign: str
    value: float  # a share where relative, else in the unit of the quantity
    relative: bool


@dataclass(frozen=True, slots=True)
class Gate:
    """All of the parts (and), or any (or)."""

    text: str
    every: bool
    parts: tuple[Test | Gate, ...]

    def tests(self) -> Iterator[Test]:
        for part in self.parts:
            if isinstance(part, Test):
                yield part
            else:
                yield from part.tests()


# Text -> condition


def parse_gate(text: str) -> Gate:
    """The condition in a text. Raises GateError, with the place.

    >>> [(test.quantity, test.sign, test.value) for test in parse_gate("step > 3% or idle > 2 ms").tests()]
    [('step', '>', 0.03), ('idle', '>', 2000000.0)]
    """
    parser = _Parser(text)
    found = parser.either(0)
    parser.end()
    return found if isinstance(found, Gate) else Gate(text.strip(), True, (found,))


class _Parser:
    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise GateError(f"a condition of {len(text)} characters; at most {LONGEST} are read")
        self.text = text
        self.at = 0

    def peek(self) -> re.Match[str] | None:
        return TOKEN.match(self.text, self.at)

    def word(self) -> str:
        found = self.peek()
        return (found["name"] or found["bracket"] or "") if found else ""

    def either(self, depth: int) -> Test | Gate:
        return self.joined("or", False, lambda: self.all(depth))

    def all(self, depth: int) -> Test | Gate:
        return self.joined("and", True, lambda: self.one(depth))

    def joined(self, word: str, every: bool, part: Callable[[], Test | Gate]) -> Test | Gate:
        start = self.at
        parts = [part()]
        while self.word() == word:
            self.take()
            parts.append(part())
        return parts[0] if len(parts) == 1 else Gate(self.text[start : self.at].strip(), every, tuple(parts))

    def one(self, depth: int) -> Test | Gate:
        if depth > DEEPEST:
            raise self.refused(f"more than {DEEPEST} brackets")
        if self.word() == "(":
            self.take()
            found = self.either(depth + 1)
            if self.word() != ")":
                raise self.refused("a bracket that is not closed")
            self.take()
            return found
        return self.test()

    def test(self) -> Test:
        start = self.at
        quantity, pattern = self.quantity()
        sign = self.take("sign", "one of > >= < <= == !=")["sign"]
        here = self.at
        number = self.take("number", "a number")
        kind = QUANTITIES[quantity].kind if pattern is None else "time"
        unit, value = number["unit"], float(number["number"])
        if unit != "%" and unit not in UNITS[kind]:
            self.at = here
            raise self.refused(f"expected a change such as {EXAMPLE[kind]}")
        factor = 0.01 if unit == "%" else UNITS[kind][unit]
        return Test(self.text[start : self.at].strip(), quantity, pattern, sign, value * factor, unit == "%")

    def quantity(self) -> tuple[str, str | None]:
        found = self.peek()
        if found and found["scope"]:
            self.take()
            return found["scope"], found["pattern"].strip("\"'")
        if not found or found["name"] not in QUANTITIES:
            raise self.refused(f"expected one of {', '.join(QUANTITIES)}, or {', '.join(f'{s}:NAME' for s in SCOPES)}")
        self.take()
        return found["name"], None

    def take(self, group: str = "", wanted: str = "") -> re.Match[str]:
        found = self.peek()
        if found is None or (group and found[group] is None):
            raise self.refused(f"expected {wanted}")
        self.at = found.end()
        return found

    def end(self) -> None:
        if self.text[self.at :].strip():
            raise self.refused("expected and, or, or the end")

    def refused(self, why: str) -> GateError:
        rest = self.text[self.at :].strip()
        shown = "".join(c if c.isprintable() else "?" for c in rest)
        shown = repr(shown if len(shown) <= 40 else f"{shown[:38]}..") if shown else "the end"
        return GateError(f"character {len(self.text) - len(self.text[self.at :].lstrip()) + 1}: {shown}: {why}")


# Condition -> verdict


@dataclass(frozen=True, slots=True)
class Check:
    """A test and what it found."""

    text: str
    kind: str  # of UNITS
    value: Delta
    fails: bool
    counts: bool  # the change is more than noise, or noise does not matter


@dataclass(frozen=True, slots=True)
class Verdict:
    text: str
    fails: bool
    checks: tuple[Check, ...]


def check(gate: Gate, found: Comparison, strict: bool = False) -> Verdict:
    """Whether the condition is true of the difference, with every test's numbers. Raises InputError for a pattern that
    names nothing in either capture: a gate that can never fail is a mistake."""
    checks: list[Check] = []

    def test(one: Test) -> bool:
        value = _value(one, found)
        counts = value.counts or (strict and value.change != 0)
        change = (value.ratio if one.relative else value.change) if counts else 0.0
        fails = COMPARE[one.sign](0.0 if math.isnan(change) else change, one.value)
        kind = QUANTITIES[one.quantity].kind if one.pattern is None else "time"
        checks.append(Check(one.text, kind, value, fails, counts))
        return fails

    def both(part: Test | Gate) -> bool:
        if isinstance(part, Test):
            return test(part)
        results = [both(inner) for inner in part.parts]  # all of them: each one's numbers are shown
        return all(results) if part.every else any(results)

    return Verdict(gate.text, both(gate), tuple(checks))


def _value(one: Test, found: Comparison) -> Delta:
    if one.pattern is None:
        if QUANTITIES[one.quantity].kind in ("flop", "byte"):
            _same_coverage(one, found)
        return QUANTITIES[one.quantity].get(found)
    sides = [_scoped(side, one.quantity, one.pattern) for side in (found.a, found.b)]
    if all(side is None for side in sides):
        raise InputError(
            f"{found.a.name}, {found.b.name}",
            f"no {SCOPES[one.quantity]} in either is like {one.pattern!r}, which --fail-if {one.text!r} asks for",
        )
    a, b = (np.zeros(len(s.steps)) if ns is None else ns for ns, s in zip(sides, (found.a, found.b), strict=True))
    return Delta(a, b)


def _same_coverage(one: Test, found: Comparison) -> None:
    """Sums of what is counted compare only where as much of either side is."""
    shares = [100 * side.counted_rows for side in (found.a, found.b)]
    if abs(shares[0] - shares[1]) > COVERAGE or not all(shares):
        raise InputError(
            f"{found.a.name}, {found.b.name}",
            f"FLOPs and bytes are known for {shares[0]:.0f}% and {shares[1]:.0f}% of the operations, which --fail-if "
            f"{one.text!r} cannot compare",
        )


def _scoped(side: Side, scope: str, pattern: str) -> Floats | None:
    """The time of the rows that a pattern names, a number a step; None where it names none."""
    columns = _columns(side, scope)
    rows = np.zeros(len(side.table), bool)
    for column, names in columns:
        like = [any(fnmatchcase(name, pattern) for name in names(value)) for value in column.values]
        rows |= np.array([*like, False])[column.codes]
    if not rows.any():
        return None
    sums: Floats = side.steps.sums(np.where(rows, 0, -1), 1, side.table.ints("kDuration"))[0]
    return sums


def _columns(side: Side, scope: str) -> Sequence[tuple[Coded, Callable[[str], Sequence[str]]]]:
    table = side.table
    if scope == "op":
        return (
            (table.coded("op"), lambda text: (first_text(text),)),
            (table.coded("aten"), lambda text: (text, text.removeprefix("aten::"))),
        )
    if scope == "layer":
        return ((table.coded("layer"), _paths),)
    if scope == "kind":
        return ((side.kind, lambda text: (text,)),)
    return ((table.coded("kShortName"), lambda text: (text,)), (table.coded("kLongName"), lambda text: (text,)))


def _paths(text: str) -> list[str]:
    """A layer's path, and every stretch of it: `attention` is in GPT:h.0:attention:qkv."""
    parts = layer_parts(text)
    return [":".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1)]
