"""An edit: what one change to the program makes of the run; and the registry of the rules that propose edits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from pyprof.errors import ModelError
from pyprof.table.columns import Floats, Ints

if TYPE_CHECKING:
    from pyprof.prof.changes.effect.scenario import Scenario

NOTHING_FOUND = "nothing in the run is what it looks for, or what it needs is not known (docs/explanation/advice.md)"


def _none() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Edit:
    """One change. ``rows`` are rows of the run that it was proposed for (``Scenario.run``), calls those of its replay.

    An operation of 0 ns vanishes. ``left`` is the share of the host's work for the launch that remains: 0 where the
    launch vanishes, too.
    """

    rule: str
    change: str  # begins with a short imperative sentence, the title
    why: str
    cost: str  # what it costs: numerics, memory, code
    rows: Ints = field(default_factory=_none)
    ns: Floats = field(default_factory=lambda: np.zeros(0))  # per row: its duration afterwards
    left: Floats = field(default_factory=lambda: np.zeros(0))
    keeps_views: bool = False  # ops around the launches that go, which launch nothing themselves, such as views, remain
    # Per row: launches that come before it, such as casts. Less than 0: host's work before it that goes, in launches.
    added: Floats = field(default_factory=lambda: np.zeros(0))
    deviation: float = 0.0  # standard deviation of the logarithm of ``ns``
    dtype: str = ""  # of the operands of ``retyped`` that were float32
    retyped: Ints = field(default_factory=_none)  # rows
    unit: str = ""  # precision in which the products among ``retyped`` run
    released: Ints = field(default_factory=_none)  # calls that no longer wait for the GPU
    prompt: Ints = field(default_factory=_none)  # calls before which the host no longer pauses
    loads: bool = False  # whether a DataLoader's calls before them go, too: no other change makes batches sooner
    graph: bool = False  # the rows are launched together by a CUDA graph
    place: str = ""  # where, of a rule that proposes the same for several places
    device: str = ""  # the GPU, from data/devices.csv, that the run is then on
    timed: float = 0.0  # the share of ``ns`` that was measured (prof/changes/measured), by time

    def __post_init__(self) -> None:
        if not len(self.ns) == len(self.left) == len(self.rows) or len(self.added) not in (0, len(self.rows)):
            raise ModelError(f"{self.rule}: expected an amount for each of {len(self.rows)} rows")

    @property
    def title(self) -> str:
        return first_sentence(self.change)

    @property
    def key(self) -> tuple[str, str]:
        """What tells a change from others, in whatever run it is proposed."""
        return self.rule, f"{self.title} at {self.place}" if self.place else self.title


def first_sentence(change: str) -> str:
    """The title of a card: the change up to the first full stop, semicolon or colon outside of parentheses."""
    for match in re.finditer(r"[.;:](?=\s)", change):
        before = change[: match.start()]
        if before.count("(") == before.count(")"):
            return before
    return change.rstrip(".;:")


class Abstained(NamedTuple):
    """A rule that proposes nothing, and why."""

    rule: str
    why: str
    needs: str = ""  # the rule whose change would have to be made first


Proposal = Edit | Abstained
EditRule = Callable[["Scenario"], Iterator[Proposal]]
EDIT_RULES: dict[str, EditRule] = {}
R = TypeVar("R", bound=Callable[..., Any])


def proposals(rule: str, scenario: Scenario) -> list[Proposal]:
    """What a rule proposes for a run; it is asked once."""
    if rule not in scenario.proposals:
        scenario.proposals[rule] = list(EDIT_RULES[rule](scenario))
    return scenario.proposals[rule]


def proposed(rule: str, scenario: Scenario) -> Iterator[Edit]:
    """The edits that a rule proposes for a run."""
    return (each for each in proposals(rule, scenario) if isinstance(each, Edit))


def proposed_again(edit: Edit, scenario: Scenario) -> Edit | None:
    """What a change's rule proposes under the same title for another run, if it does."""
    return next((each for each in proposed(edit.rule, scenario) if each.key == edit.key), None)


def registering(rules: dict[str, R]) -> Callable[[str], Callable[[R], R]]:
    """A decorator that registers a rule under its public name; if that is taken, it raises ModelError with both."""

    def named(name: str) -> Callable[[R], R]:
        def register(function: R) -> R:
            if name in rules:
                raise ModelError(f"{name} has two rules: {rules[name].__qualname__} and {function.__qualname__}")
            rules[name] = function
            return function

        return register

    return named


edit_rule = registering(EDIT_RULES)
