"""The plan: each time the change that brings most after those before it, until further ones bring little."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyprof.errors import UsageError
from pyprof.prof.edits.cards import EDIT_NAMES, proposed_again
from pyprof.prof.edits.edit import Abstained, Edit
from pyprof.prof.edits.forecast import Forecast, Forecaster
from pyprof.prof.edits.rules import EDIT_RULES
from pyprof.prof.edits.scenario import Scenario, apply, captured

LEAST = 0.01  # of the step after the changes before it: what a change must save to be in the plan
LONGEST = 30  # changes; no plan is read so far


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the plan: an edit, the run after it, and its time."""

    edit: Edit
    before: Scenario  # whose rows the edit names
    after: Scenario
    forecast: Forecast
    alone_ns: float  # what it would save in the run as it is, roughly; NaN: its rule does not propose it there
    needed_by: str = ""  # the title of the change that it was taken for, as it is what that one needs


@dataclass(frozen=True, slots=True)
class Plan:
    """The step as it is, the changes in order, what was not chosen, and the rules that propose nothing, at the end."""

    now: Forecast
    changes: list[Change]
    others: list[tuple[Edit, float]]  # with the ns that each would save after the plan
    abstained: list[Abstained]


def make_plan(
    forecaster: Forecaster, first: Sequence[str] = (), without: Sequence[str] = (), start: Scenario | None = None
) -> Plan:
    """The plan of a run. ``first``: rules whose changes begin the plan, in this order; ``without``: rules left out.

    ``start``: the run to begin with, where it is not the captured one, such as that on another GPU. Rules may also be
    given by their names in --advise. Raises UsageError for a rule that does not exist.
    """
    first, without = ([EDIT_NAMES.get(name, name) for name in names] for names in (first, without))
    for name in (*first, *without):
        if name not in EDIT_RULES:
            raise UsageError(f"expected rules among {', '.join(sorted(EDIT_RULES))}, found {name!r}")
    search = _Search(forecaster, frozenset(without), start or captured(forecaster.base))
    for name in first:
        search.take_all(name)
    while len(search.changes) < LONGEST and search.take_best():
        pass
    return Plan(search.now, search.changes, search.others, search.abstained)


class _Search:
    def __init__(self, forecaster: Forecaster, without: frozenset[str], start: Scenario) -> None:
        self.forecaster, self.without = forecaster, without
        self.scenario = self.start = start
        self.now = forecaster.forecast(self.scenario)
        self.time = self.begin = forecaster.roughly(self.scenario)
        self.changes: list[Change] = []
        self.others: list[tuple[Edit, float]] = []
        self.abstained: list[Abstained] = []

    def take_all(self, name: str) -> None:
        """Take what a rule proposes, whatever it brings."""
        while True:
            found = [edit for edit in self._proposed(name, self.scenario) if isinstance(edit, Edit)]
            if not found:
                return
            self._take([found[0]])

    def take_best(self) -> bool:
        """Take the change that brings most, with those that it needs; False if none brings enough."""
        candidates: list[tuple[float, list[Edit]]] = []
        self.abstained = []
        for name in EDIT_RULES:
            for proposal in self._proposed(name, self.scenario):
                if isinstance(proposal, Abstained):
                    self.abstained.append(proposal)
                chain = self._chain(proposal)
                if chain:
                    candidates.append((self.time - self._roughly_after(chain), chain))
        candidates.sort(key=lambda candidate: -candidate[0])
        if candidates and candidates[0][0] >= LEAST * self.time:
            self._take(candidates[0][1])
            return True
        self.others = [(chain[0], saved) for saved, chain in candidates if len(chain) == 1]
        return False

    def _proposed(self, name: str, scenario: Scenario) -> list[Edit | Abstained]:
        if name in self.without:
            return [Abstained(name, "left out (--without)")]
        taken = {(edit.rule, edit.title) for edit in scenario.edits}
        found = list(EDIT_RULES[name](scenario))
        kept = [p for p in found if isinstance(p, Abstained) or (p.rule, p.title) not in taken]
        silent = all(isinstance(p, Abstained) and not p.needs for p in kept)
        return [Abstained(name, "it is in the plan")] if silent and name in {rule for rule, _ in taken} else kept

    def _chain(self, proposal: Edit | Abstained) -> list[Edit]:
        """The changes to make for a proposal: itself, or what it needs and then itself; empty if it cannot be made."""
        if isinstance(proposal, Edit):
            return [proposal]
        scenario, chain = self.scenario, []
        while proposal.needs:
            needed = self._first(proposal.needs, scenario)
            if needed is None:
                return []
            chain.append(needed)
            scenario = apply(needed, scenario)
            proposals = self._proposed(proposal.rule, scenario)
            if isinstance(proposals[0], Edit):
                return [*chain, proposals[0]]
            proposal = proposals[0]
        return []

    def _first(self, name: str, scenario: Scenario) -> Edit | None:
        return next((edit for edit in self._proposed(name, scenario) if isinstance(edit, Edit)), None)

    def _roughly_after(self, chain: list[Edit]) -> float:
        scenario = self.scenario
        for edit in chain:
            scenario = apply(edit, scenario)
        return self.forecaster.roughly(scenario)

    def _alone_ns(self, edit: Edit) -> float:
        """What a change would save as the first one."""
        first = edit if not self.changes else proposed_again(edit, self.start)
        return math.nan if first is None else self.begin - self.forecaster.roughly(apply(first, self.start))

    def _take(self, chain: list[Edit]) -> None:
        for edit in chain:
            before = self.scenario
            self.scenario = apply(edit, before)
            applied = self.scenario.edits[-1]  # with measured durations, where there are
            forecast, last = self.forecaster.forecast(self.scenario), chain[-1]
            needed_by = last.title if edit is not last else ""
            self.changes.append(Change(applied, before, self.scenario, forecast, self._alone_ns(edit), needed_by))
        self.time = self.forecaster.roughly(self.scenario)
