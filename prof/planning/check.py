"""A plan held against a second capture: of the program after some of its changes were made."""

from __future__ import annotations

from dataclasses import dataclass

from pyprof.prof.edits.edit import Edit
from pyprof.prof.edits.forecast import Forecast, Forecaster
from pyprof.prof.edits.rules import EDIT_RULES
from pyprof.prof.edits.scenario import Scenario, apply, captured
from pyprof.prof.planning.search import Change, Plan


@dataclass(frozen=True, slots=True)
class Checked:
    """What was predicted of the changes that were made, and what the second capture has."""

    made: list[bool]  # per change of the plan: whether its rule no longer proposes it
    predicted: list[Forecast]  # per change: the step after those made so far
    found: Forecast  # the second capture's step without the profiler


def check(plan: Plan, forecaster: Forecaster, other: Forecaster) -> Checked:
    """Compare a plan with the capture of ``other``. A change counts as made if its rule proposes it no more there."""
    second = captured(other.base)
    made = [_proposed(change, second) is None for change in plan.changes]
    scenario, predicted = captured(forecaster.base), []
    for change, is_made in zip(plan.changes, made, strict=True):
        edit = _proposed(change, scenario) if is_made else None
        scenario = apply(edit, scenario) if edit is not None else scenario
        predicted.append(forecaster.forecast(scenario))
    return Checked(made, predicted, other.forecast(second))


def _proposed(change: Change, scenario: Scenario) -> Edit | None:
    """What the rule of a change proposes under the same title, if it does."""
    edits = (edit for edit in EDIT_RULES[change.edit.rule](scenario) if isinstance(edit, Edit))
    return next((edit for edit in edits if edit.title == change.edit.title), None)
