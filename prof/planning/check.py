"""A plan held against a second capture: of the program after some of its changes were made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pyprof.prof.changes.effect.edit import Edit, proposed, proposed_again
from pyprof.prof.changes.effect.forecast import Forecast, Forecaster
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.scenario import Scenario, apply, captured
from pyprof.prof.changes.effect.sequence import following
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.changes.search import LEAST, Plan
from pyprof.prof.planning.found_durations import Concerned, found_durations

Retimed = Callable[[Run, Edit], Edit]
Saved = tuple[Scenario, float]
FEWER = 0.5  # of the kernels or waits that a change concerned, at most so many are left where it counts as made


@dataclass(frozen=True, slots=True)
class CheckedEdit:
    """A change and the second capture. Times in ns; NaN: not known."""

    edit: Edit
    made: bool  # whether its rule no longer proposes it there, or for half of the kernels at most
    planned: bool  # whether it is in the plan
    predicted: Forecast  # the step after the changes that were made so far
    predicted_ns: float  # what it saves after those made before it; of one that was not made: in the second capture
    measured_ns: float  # the same with the durations that the second capture's kernels have at its places


@dataclass(frozen=True, slots=True)
class Checked:
    """What was predicted of the changes that were made, and what the second capture has."""

    edits: list[CheckedEdit]  # those of the plan in order, then those that were made besides
    found: Forecast  # the second capture's step without the profiler

    @property
    def last(self) -> Forecast | None:
        """The step that was predicted after all that was made; None if there is nothing to make."""
        return self.edits[-1].predicted if self.edits else None


def check(plan: Plan, forecaster: Forecaster, other: Forecaster) -> Checked:
    """Compare a plan with the capture of ``other``.

    A change that was made saved what the kernels of the second capture say: at the same places, their durations take
    the place of the predicted ones (``found_durations``), and both are replayed.
    """
    second, now = captured(other.base), captured(forecaster.base)
    planned = [change.edit for change in plan.changes]
    left = {edit.key: proposed_again(edit, second) for edit in planned}
    done = [edit for edit in planned if _is_made(edit, now, left[edit.key], second)]
    besides = list(_besides(_after(done, now), planned, forecaster, second))
    concerned = [Concerned(before.run, edit) for edit, before in _chain([*done, *besides], now)]
    timed = dict(zip((each.key for each in (*done, *besides)), found_durations(concerned, other.base.run), strict=True))
    edits, said, found = [], now, now
    for edit in (*planned, *besides):
        remains = left.get(edit.key)
        if edit.key not in timed:
            saves = 0.0 if remains is None else other.difference(second, apply(remains, second)).ns
            edits.append(CheckedEdit(edit, False, True, forecaster.forecast(said), saves, math.nan))
            continue
        retimed = timed[edit.key]
        said, predicted = _step(edit, said, forecaster)
        found, measured = _step(edit, found, forecaster, retimed)
        measured = measured if retimed is not None else math.nan
        edits.append(CheckedEdit(edit, True, edit in planned, forecaster.forecast(said), predicted, measured))
    return Checked(edits, other.forecast(second))


def _is_made(edit: Edit, now: Scenario, left: Edit | None, second: Scenario) -> bool:
    """Whether the second capture has a change. Its rule's silence shows it only if the rule spoke of the first one."""
    first = proposed_again(edit, now)
    if left is None:
        return first is not None
    return second.run.count(_size(left)) <= FEWER * now.run.count(_size(first or edit))


def _size(edit: Edit) -> int:
    """How many kernels a change concerns, or calls, if it is about the host alone."""
    return len(edit.rows) or len(edit.released) or len(edit.prompt)


def _chain(edits: Sequence[Edit], scenario: Scenario) -> Iterator[tuple[Edit, Scenario]]:
    """Each change as its rule proposes it after those before it, and the run that it is proposed for."""
    for edit in edits:
        again = proposed_again(edit, scenario)
        yield again if again is not None else Edit(edit.rule, edit.change, edit.why, edit.cost), scenario
        scenario = following(again, scenario) if again is not None else scenario


def _after(edits: Sequence[Edit], scenario: Scenario) -> Scenario:
    for edit in edits:
        again = proposed_again(edit, scenario)
        scenario = following(again, scenario) if again is not None else scenario
    return scenario


def _besides(scenario: Scenario, planned: Sequence[Edit], forecaster: Forecaster, second: Scenario) -> Iterator[Edit]:
    """Changes of which the plan does without, but which someone made: they are no longer proposed there."""
    known = {edit.key for edit in planned}
    while True:
        time = forecaster.roughly(scenario)
        gone = (
            edit
            for rule in EDIT_RULES
            for edit in proposed(rule, scenario)
            if edit.key not in known and proposed_again(edit, second) is None
        )
        pairs = [(time - forecaster.roughly(following(edit, scenario)), edit) for edit in gone]
        saved, best = max(pairs, key=lambda pair: pair[0], default=(0.0, None))
        if best is None or saved < LEAST * time:
            return
        yield best
        known.add(best.key)
        scenario = following(best, scenario)


def _step(edit: Edit, scenario: Scenario, forecaster: Forecaster, retimed: Retimed | None = None) -> Saved:
    """The run after a change, and what the change saves; nothing if its rule does not propose it there."""
    again = proposed_again(edit, scenario)
    if again is None:
        return scenario, 0.0
    after = apply(retimed(scenario.run, again) if retimed is not None else again, scenario)
    return after, forecaster.difference(scenario, after).ns
