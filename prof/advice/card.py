"""What a rule finds, what the reader gets, and the registry of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from pyprof.errors import ModelError
from pyprof.table.columns import Floats, Ints

if TYPE_CHECKING:
    from pyprof.prof.advice.run import Run

__all__ = ["RULES", "Advice", "Confidence", "Finding", "rule"]

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class Advice:
    """A card: one change, and what it is worth. Times in ms a step (of the whole capture where it marks no steps)."""

    rule: str
    saved_ms: float  # by this change alone
    step_ms: float  # what a step takes now
    kernels: float  # a step
    time_ms: float  # GPU time of those kernels now
    op: str  # of the kernel with the greatest saving: what the user called
    layer: str
    trace: str
    why: str
    change: str
    confidence: Confidence
    shares: tuple[str, ...] = ()  # rules of better cards that concern some of the same kernels: savings do not add up


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """What a rule says of some rows. Amounts are of all steps together."""

    rows: Ints  # into the run's table
    saved_ns: Floats  # of each row; time that the change takes away from it
    why: str
    change: str
    confidence: Confidence
    idle_ns: float = 0.0  # saved besides, while the GPU did nothing
    launches: float = 0.0  # that the change takes away; negative: adds
    calls: float | None = None  # of the host, as launches where None: an op's further kernels cost it little


Rule = Callable[["Run"], Iterable[Finding]]
RULES: dict[str, Rule] = {}  # name -> function
F = TypeVar("F", bound=Rule)


def rule(name: str) -> Callable[[F], F]:
    """Register a rule under its public name; refuses a second of the same name, naming both functions."""

    def register(function: F) -> F:
        if name in RULES:
            raise ModelError(f"{name} has two rules: {RULES[name].__qualname__} and {function.__qualname__}")
        RULES[name] = function
        return function

    return register
