"""``--fail-if``: a condition on the difference of two captures, for CI.

    step > 3%           gpu > 0.5 ms        forward > 2% or backward > 2%       kernels > 10
    tc_lost > 0         flops > 1%          op:linear > 5% and step > 1%        layer:head > 1 ms

The language is that of ``--where`` (``prof/table/condition.py``). Names are those of ``QUANTITIES``, or a scope with a
pattern: ``op:``, ``layer:``, ``kind:`` or ``kernel:`` and a glob, in quotes where it has blanks or one of <>=!() in it.

The change (B minus A, per step) is compared, in % of A's value or in the quantity's unit. A change within the noise
counts as zero: ``step > 3%`` fails only for a real slowdown, and ``step > -5%`` (B should be at least 5% faster) fails
unless that gain is real. With ``strict`` every change counts.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

import numpy as np

from pyprof.errors import InputError
from pyprof.prof.diff.compare import Comparison
from pyprof.prof.diff.lines import Side
from pyprof.prof.diff.noise import Delta
from pyprof.prof.table.condition import FLIPPED, Condition, Relation, Tree, fold, parse, with_leaves
from pyprof.prof.timing.steps import PHASES
from pyprof.prof.work.layer_path import layer_parts
from pyprof.table.columns import Coded, Floats
from pyprof.table.schema import first_text

COVERAGE = 5  # percentage points by which the counted shares of the operations may differ
SIGNS = (operator.gt, operator.ge, operator.lt, operator.le, operator.eq, operator.ne)
COMPARE: Mapping[str, Callable[[float, float], bool]] = dict(zip("> >= < <= == !=".split(), SIGNS, strict=True))
SI = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
UNITS: Mapping[str, Mapping[str, float]] = {
    "time": {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9},
    "count": {"": 1.0},
    "flop": {"": 1.0, **{f"{p}FLOP": factor for p, factor in {"": 1.0, **SI}.items()}},
    "byte": {"": 1.0, **{f"{p}B": factor for p, factor in {"": 1.0, **SI}.items()}},
}
EXAMPLE = {"time": "3% or 0.5 ms", "count": "10 or 3%", "flop": "1% or 2 GFLOP", "byte": "1% or 2 GB"}
ALL_UNITS = frozenset({"%"}.union(*UNITS.values()) - {""})


@dataclass(frozen=True, slots=True)
class Quantity:
    kind: str  # of UNITS
    meaning: str
    get: Callable[[Comparison], Delta]


def _phase(name: str, found: Comparison) -> Delta:
    none = Delta(np.zeros(len(found.a.steps)), np.zeros(len(found.b.steps)))
    return next((change.ns for change in found.phases if change.name == name), none)


def _number(of: Callable[[Comparison], float]) -> Callable[[Comparison], Delta]:
    return lambda found: Delta(np.zeros(1), np.array([float(of(found))]))


QUANTITIES: Mapping[str, Quantity] = {
    "step": Quantity("time", "time of a step", lambda found: found.step),
    "gpu": Quantity("time", "time with an operation on the GPU (in a capture of the CPU: in an op)", lambda f: f.busy),
    "idle": Quantity("time", "time in which it does not", lambda found: found.idle),
    **{name: Quantity("time", f"time of the phase {name}, overlaps once", partial(_phase, name)) for name in PHASES},
    "kernels": Quantity("count", "GPU operations: kernels, copies, memsets", lambda found: found.rows),
    "tc_lost": Quantity(
        "count", "matrix products that ran on tensor cores in A and do not in B", _number(lambda found: found.tc_lost)
    ),
    "tc_gained": Quantity("count", "and the other way round", _number(lambda found: found.tc_gained)),
    "flops": Quantity("flop", "floating-point operations of the algorithm", lambda found: found.flop),
    "bytes": Quantity("byte", "bytes that the algorithm reads and writes", lambda found: found.nbytes),
}
SCOPES = {"op": "op or aten op", "layer": "layer", "kind": "kind of work", "kernel": "kernel"}


@dataclass(frozen=True, slots=True)
class Test:
    """The change of a quantity against a number."""

    text: str  # as it was written
    kind: str  # of UNITS: that of the measured quantity
    quantity: str  # one of QUANTITIES, or of SCOPES with a pattern
    pattern: str | None
    sign: str
    value: float  # a share if relative, or else a value in the unit of the quantity
    relative: bool


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition whose names are quantities and whose numbers have their units."""

    text: str
    tree: Tree[Test]


def parse_gate(text: str) -> Gate:
    """The condition in a text. Raises ConditionError, with the place.

    >>> parse_gate("step > 3%").tree.value, parse_gate("idle > 2 ms").tree.value
    (0.03, 2000000.0)
    """
    condition = parse(text, SCOPES, ALL_UNITS)
    return Gate(text.strip(), with_leaves(condition.tree, partial(_test, condition)))


def _test(condition: Condition, relation: Relation) -> Test:
    left, sign, right = relation.left, relation.sign, relation.right
    text = condition.text[left.start : right.end]
    if left.kind == "number" and sign in FLIPPED:
        left, sign, right = right, FLIPPED[sign], left
    if left.kind != "scoped" and left.value not in QUANTITIES:
        names = f"{', '.join(QUANTITIES)}, or {', '.join(f'{scope}:NAME' for scope in SCOPES)}"
        raise condition.refused(left, f"expected one of {names}")
    pattern = left.value if left.kind == "scoped" else None
    kind = "time" if pattern is not None else QUANTITIES[left.value].kind
    if sign not in COMPARE or right.kind != "number" or right.unit not in ("%", *UNITS[kind]):
        raise condition.refused(right, f"expected a change such as {EXAMPLE[kind]} after {' '.join(COMPARE)}")
    factor = 0.01 if right.unit == "%" else UNITS[kind][right.unit]
    return Test(text, kind, left.scope or left.value, pattern, sign, right.value * factor, right.unit == "%")


@dataclass(frozen=True, slots=True)
class Check:
    text: str
    kind: str  # of UNITS
    value: Delta
    fails: bool
    counts: bool  # whether the change is more than noise, or noise is ignored


@dataclass(frozen=True, slots=True)
class Verdict:
    text: str
    fails: bool
    checks: tuple[Check, ...]


def check(gate: Gate, found: Comparison, strict: bool = False) -> Verdict:
    """Whether the condition is true of the difference, with the numbers of every test.

    Raises InputError for a pattern that names nothing in either capture: a gate that can never fail is a mistake.
    """
    checks: list[Check] = []

    def test(one: Test) -> bool:
        value = _value(one, found)
        counts = value.counts or (strict and value.change != 0)
        change = (value.ratio if one.relative else value.change) if counts else 0.0
        fails = COMPARE[one.sign](0.0 if math.isnan(change) else change, one.value)
        checks.append(Check(one.text, one.kind, value, fails, counts))
        return fails

    fails = fold(gate.tree, test, lambda every, parts: all(parts) if every else any(parts), operator.not_)
    return Verdict(gate.text, fails, tuple(checks))


def _value(one: Test, found: Comparison) -> Delta:
    if one.pattern is None:
        if one.kind in ("flop", "byte"):
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
    """Raise InputError unless FLOPs (or bytes) are known for about the same share of the operations on both sides."""
    what = {"flop": "FLOPs", "byte": "bytes"}[one.kind]
    shares = [100 * (s.counted_rows if what == "FLOPs" else s.bytes_counted_rows) for s in (found.a, found.b)]
    if abs(shares[0] - shares[1]) > COVERAGE or not all(shares):
        raise InputError(
            f"{found.a.name}, {found.b.name}",
            f"{what} are known for {shares[0]:.0f}% and {shares[1]:.0f}% of the operations, which --fail-if "
            f"{one.text!r} cannot compare",
        )


def _scoped(side: Side, scope: str, pattern: str) -> Floats | None:
    """The time per step of the rows that match a pattern; None if no row matches."""
    rows = np.zeros(len(side.table), bool)
    for column, names in _columns(side, scope):
        like = [any(fnmatchcase(name, pattern) for name in names(value)) for value in column.values]
        rows |= np.array([*like, False])[column.codes]
    if not rows.any():
        return None
    sums: Floats = side.steps.sums(np.where(rows, 0, -1), 1, side.table.ints("kDuration"))[0]
    return sums


def _columns(side: Side, scope: str) -> Sequence[tuple[Coded, Callable[[str], Sequence[str]]]]:
    """The columns that a scope's pattern is compared with, and the names in each of their texts."""
    coded = side.table.coded
    if scope == "op":
        return (coded("op"), lambda text: [first_text(text)]), (coded("aten"), lambda t: [t, t.removeprefix("aten::")])
    if scope == "layer":
        return ((coded("layer"), _paths),)
    columns = [side.kind] if scope == "kind" else [coded("kShortName"), coded("kLongName")]
    return [(column, lambda text: [text]) for column in columns]


def _paths(text: str) -> list[str]:
    """A layer's path and all its contiguous parts, such as `attention` in GPT:h.0:attention:qkv."""
    parts = layer_parts(text)
    return [":".join(parts[i:j]) for i in range(len(parts)) for j in range(i + 1, len(parts) + 1)]
