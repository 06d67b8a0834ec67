"""The plan: each time the change that brings most after those before it, until further ones bring little."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

from pyprof.errors import UsageError
from pyprof.prof.changes.effect.edit import Abstained, Edit, proposals, proposed_again
from pyprof.prof.changes.effect.forecast import Forecast, Forecaster
from pyprof.prof.changes.effect.scenario import Scenario, apply, captured
from pyprof.prof.changes.rules import EDIT_RULES

# Names that rules had in --advise before 2.0, which are accepted for one version.
EDIT_NAMES = {"unfused_attention": "attention", "sync_in_step": "item", "launch_bound": "cuda_graph"}
IN_PLAN = "it is in the plan"
LEAST = 0.01  # of the step as it is: what a change must save to be in the list, unless a later one needs it
# Rules that change the precision. Their ratios are those of kernels as captured, while those of memory formats,
# attention and fusion are known per type. Measured on an H200, channels last and bf16 on four convolutional networks:
# what the GPU does takes 27 to 46 ms; in this order it is predicted as 0.88 to 1.05 of that, in the other as 1.00 to
# 1.25.
PRECISION = ("tf32", "amp")
PAIRS = 3  # of changes that together seemed to save most: as many are looked at with all draws
LONGEST = 30  # changes; no plan is read so far


@dataclass(frozen=True, slots=True)
class PlannedEdit:
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
    changes: list[PlannedEdit]
    others: list[tuple[Edit, float]]  # with the ns that each would save after the plan
    abstained: list[Abstained]
    at_first: frozenset[str]  # rules that proposed something for the run as it was


def make_plan(
    forecaster: Forecaster, first: Sequence[str] = (), without: Sequence[str] = (), start: Scenario | None = None
) -> Plan:
    """The plan of a run. ``first``: rules whose changes begin the plan, in this order; ``without``: rules left out.

    ``start``: the run to begin with, where it is not the captured one, such as that on another GPU. Rules may also be
    given by the names that they had in --advise before 2.0. Raises UsageError for a rule that does not exist.
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
    search = search.without_superseded(first)
    at_first = frozenset(rule for rule, _ in search.alone)
    return Plan(search.now, search.changes, search.others, search.abstained, at_first)


def following(edit: Edit, scenario: Scenario) -> Scenario:
    """The run after one more change, which a rule proposed for this scenario.

    A change of the precision comes before all others: they are proposed again for the run that has it. If one of them
    is not, all stay in their order.
    """
    first, later = scenario, [edit]
    while edit.rule in PRECISION and first.before and not (first.edits[-1].rule in PRECISION or first.edits[-1].device):
        later.insert(1, first.edits[-1])
        first = first.before
    if len(later) == 1:
        return apply(edit, scenario)
    for each in later:
        again = proposed_again(each, first)
        if again is None:
            return apply(edit, scenario)
        first = apply(again, first)
    return first


class _Candidate(NamedTuple):
    """Changes that a plan may take, and the run after them, whose times are known as long as it is kept."""

    saved: float  # ns, roughly
    chain: list[Edit]
    after: Scenario


class _Search:
    def __init__(self, forecaster: Forecaster, without: frozenset[str], start: Scenario) -> None:
        self.forecaster, self.without = forecaster, without
        self.scenario = self.start = start
        self.now = forecaster.forecast(self.scenario)
        self.time = self.begin = forecaster.roughly(self.scenario)
        self.least = LEAST * self.begin
        self.changes: list[PlannedEdit] = []
        self.alone: dict[tuple[str, str], float] = {}  # by a change's key: what it saves as the first one, ns
        self.others: list[tuple[Edit, float]] = []
        # Rules that proposed nothing when they were last asked. What goes and gets shorter hardly gives them more to
        # propose, so they are asked again only once the others bring nothing more, or where precisions have changed.
        self.silent: set[str] = set()
        self.abstained: list[Abstained] = []
        # Runs with another precision, as the next ones have it before all other changes, too: they begin with the same.
        self.kept: list[Scenario] = []

    def take_all(self, name: str) -> None:
        """Take what a rule proposes, whatever it brings."""
        while found := [edit for edit in self._proposed(name, self.scenario) if isinstance(edit, Edit)]:
            self._take(found[:1])

    def without_superseded(self, wanted: Sequence[str]) -> _Search:
        """The same with mixed precision in the place of TF32, where it came later and the step ends as with both."""
        rules = [change.edit.rule for change in self.changes]
        if not {"tf32", "amp"} <= set(rules) or "tf32" in wanted:
            return self
        other = _Search(self.forecaster, self.without, self.start)
        other.alone, other.others, other.abstained = self.alone, self.others, self.abstained
        amp = self.changes[rules.index("amp")]
        rest = [change for change in self.changes if change is not amp]
        for change in [amp if each.edit.rule == "tf32" else each for each in rest]:
            again = proposed_again(change.edit, other.scenario)
            if again is None:
                return self
            other._take([again])
            other.changes[-1] = replace(other.changes[-1], needed_by=change.needed_by)
        if other.time > self.time + self.least:
            return self
        other.abstained = [each for each in self.abstained if each.rule != "tf32"]
        other.abstained.append(Abstained("tf32", "mixed precision takes its place"))
        return other

    def take_best(self) -> bool:
        """Take the change that brings most, with those that it needs; False if none brings enough."""
        found = self._candidates(self.silent)
        if self._take_one(found):
            return True
        asked = self._candidates(set())
        if self._take_one(asked) or self._take_pair([each.chain for each in asked]):
            return True
        # By all draws, too, where the few by which changes are compared would have it
        others = [
            (each.chain[0], each.saved if each.saved < self.least else self._saved(each.chain))
            for each in asked
            if len(each.chain) == 1
        ]
        self.others = sorted(others, key=lambda other: -other[1])
        return False

    def _candidates(self, silent: set[str]) -> list[_Candidate]:
        """What all rules but these propose now, the greatest saving first."""
        found, self.abstained = list[_Candidate](), []
        for name in EDIT_RULES:
            if name in silent:
                continue
            proposed = self._proposed(name, self.scenario)
            self.abstained += [each for each in proposed if isinstance(each, Abstained)]
            self.silent = {*self.silent, name}
            if any(isinstance(each, Edit) or each.needs for each in proposed):
                self.silent.remove(name)
            for chain in filter(None, map(self._chain, proposed)):
                after = self._after(chain)
                found.append(_Candidate(self.time - self.forecaster.roughly(after), chain, after))
        self.kept = [each.after for each in found if any(edit.rule in PRECISION for edit in each.chain)]
        if not self.changes:  # of several of one title, the first
            self.alone = {each.chain[0].key: each.saved for each in reversed(found) if len(each.chain) == 1}
        return sorted(found, key=lambda each: -each.saved)

    def _take_one(self, candidates: list[_Candidate]) -> bool:
        return any(self._take_if_worth(each.chain) for each in candidates if each.saved >= self.least)

    def _saved(self, chain: list[Edit]) -> float:
        """What changes save, in ns, by all draws."""
        return self.forecaster.difference(self.scenario, self._after(chain)).ns

    def _take_if_worth(self, chain: list[Edit]) -> bool:
        """Take changes that save enough by all draws, too, not only by the few by which changes are compared."""
        worth = self._saved(chain) >= self.least
        if worth:
            self._take(chain)
        return worth

    def _take_pair(self, chains: list[list[Edit]]) -> bool:
        """Take a change for the host and one for the GPU that save enough together, though neither does alone.

        A step takes as long as the slower of both, and a change may make one of them faster and the other slower:
        autocast's casts are launches, too.
        """
        host, gpu = self.forecaster.limits(self.scenario)
        limits = [self.forecaster.limits(self._after(chain)) for chain in chains]
        for_host = [chain for chain, (after, _) in zip(chains, limits, strict=True) if after <= host - self.least]
        for_gpu = [chain for chain, (_, after) in zip(chains, limits, strict=True) if after <= gpu - self.least]
        pairs = [both for one in for_host for other in for_gpu if one is not other and (both := self._both(one, other))]
        pairs.sort(key=lambda chain: self.forecaster.roughly(self._after(chain)))
        return any(self._take_if_worth(chain) for chain in pairs[:PAIRS])

    def _both(self, first: list[Edit], second: list[Edit]) -> list[Edit]:
        """Both chains, the second as its rules propose it after the first; empty if they do not."""
        scenario, chain = self._after(first), [*first]
        for edit in second:
            again = proposed_again(edit, scenario)
            if again is None:
                return []
            chain.append(again)
            scenario = following(again, scenario)
        return chain

    def _proposed(self, name: str, scenario: Scenario) -> list[Edit | Abstained]:
        if name in self.without:
            return [Abstained(name, "left out (--without)")]
        taken = {edit.key for edit in scenario.edits}
        kept = [p for p in proposals(name, scenario) if isinstance(p, Abstained) or p.key not in taken]
        silent = all(isinstance(p, Abstained) and not p.needs for p in kept)
        return [Abstained(name, IN_PLAN)] if silent and name in {rule for rule, _ in taken} else kept

    def _chain(self, proposal: Edit | Abstained) -> list[Edit]:
        """The changes to make for a proposal: itself, or what it needs and then itself; empty if it cannot be made."""
        if isinstance(proposal, Edit):
            return [proposal]
        scenario, chain = self.scenario, []
        while proposal.needs:
            asked = self._proposed(proposal.needs, scenario)
            needed = next((edit for edit in asked if isinstance(edit, Edit)), None)
            if needed is None:
                return []
            chain.append(needed)
            scenario = following(needed, scenario)
            again = self._proposed(proposal.rule, scenario)[0]
            if isinstance(again, Edit):
                return [*chain, again]
            proposal = again
        return []

    def _after(self, chain: list[Edit]) -> Scenario:
        return reduce(lambda scenario, edit: following(edit, scenario), chain, self.scenario)

    def _alone_ns(self, edit: Edit) -> float:
        """What a change would save as the first one."""
        if edit.key in self.alone:
            return self.alone[edit.key]
        first = edit if not self.changes else proposed_again(edit, self.start)
        return math.nan if first is None else self.begin - self.forecaster.roughly(following(first, self.start))

    def _take(self, chain: list[Edit]) -> None:
        for edit in chain:
            before, last = self.scenario, chain[-1]
            self.scenario = following(edit, before)
            made = next(each for each in self.scenario.edits if each.key == edit.key)  # with measured durations, if any
            change = PlannedEdit(
                edit=replace(edit, timed=made.timed),
                before=before,
                after=self.scenario,
                forecast=self.forecaster.forecast(self.scenario),
                alone_ns=self._alone_ns(edit),
                needed_by=last.title if edit is not last else "",
            )
            self.changes.append(change)
        self.time = self.forecaster.roughly(self.scenario)
        if any(len(edit.retyped) or edit.device for edit in chain):
            self.silent = set()
