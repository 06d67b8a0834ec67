"""A rule's finding, and the registry of rules."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pyprof.errors import ModelError
from pyprof.table.columns import Floats, Ints

if TYPE_CHECKING:
    from pyprof.prof.advice.run import Run


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """The result of a rule for some rows. Amounts are sums over all steps.

    ``change`` begins with the change as a short imperative sentence, the title of the card (``first_sentence``).
    """

    rows: Ints  # into the run's table
    saved_ns: Floats  # per row: the time that the change removes
    why: str
    change: str
    idle_ns: float = 0.0  # idle time that the change saves in addition; of CPU_RULES alone
    launches: float = 0.0  # number of launches that the change removes; negative if it adds launches
    calls: float | None = None  # number of host calls that the change removes; None: equal to launches


Rule = Callable[["Run"], Iterable[Finding]]
RULES: dict[str, Rule] = {}  # name -> function; of runs on GPUs
CPU_RULES: dict[str, Rule] = {}  # of runs on CPUs alone
F = TypeVar("F", bound=Rule)


def rule(name: str) -> Callable[[F], F]:
    """Register a rule under its public name. If the name is taken, raises ModelError, which names both functions."""
    return _registering(RULES, name)


def cpu_rule(name: str) -> Callable[[F], F]:
    """``rule`` for captures of programs that ran on the CPU alone."""
    return _registering(CPU_RULES, name)


def _registering(rules: dict[str, Rule], name: str) -> Callable[[F], F]:
    def register(function: F) -> F:
        if name in rules:
            raise ModelError(f"{name} has two rules: {rules[name].__qualname__} and {function.__qualname__}")
        rules[name] = function
        return function

    return register


def first_sentence(change: str) -> str:
    """The title of a card: the change up to the first full stop, semicolon or colon outside of parentheses."""
    for match in re.finditer(r"[.;:](?=\s)", change):
        before = change[: match.start()]
        if before.count("(") == before.count(")"):
            return before
    return change.rstrip(".;:")
