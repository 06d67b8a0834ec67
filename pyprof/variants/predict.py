"""What pyprof plan predicts of changes, from a capture of the script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyprof.variants.changes import CHANGES, change_of_rule

if TYPE_CHECKING:
    from pyprof.prof.changes.effect.base_run import BaseRun
    from pyprof.prof.changes.effect.forecast import Forecast
    from pyprof.prof.changes.effect.scenario import Scenario


class Predictor:
    """Forecasts of one capture; ``step_ns``: the step of the script as it is, measured, which sets the host's pace."""

    def __init__(self, base: BaseRun, step_ns: float) -> None:
        from pyprof.prof.changes.effect.forecast import Forecaster

        self._forecaster = Forecaster(base, step_ns)

    def step(self, changes: Sequence[str]) -> Forecast | None:
        """The step after these changes; None if the plan's rules propose nothing of the kind for one of them."""
        from pyprof.prof.changes.effect.scenario import captured

        scenario = captured(self._forecaster.base)
        for name in changes:
            before = len(scenario.edits)
            for rule in CHANGES[name].rules:
                if len(scenario.edits) == before:  # the rules of a change are alternatives
                    scenario = _with_all(rule, scenario)
            if len(scenario.edits) == before:
                return None
        return self._forecaster.forecast(scenario)

    def plan(self) -> tuple[list[str], list[str]]:
        """The changes of the plan in its order, and the titles of those that cannot be made from outside."""
        from pyprof.prof.changes.search import make_plan

        chosen: list[str] = []
        others: list[str] = []
        for planned in make_plan(self._forecaster).changes:
            name = change_of_rule(planned.edit.rule)
            if name is None:
                others.append(planned.edit.title)
            elif name not in chosen:
                chosen.append(name)
        return chosen, others


def _with_all(rule: str, scenario: Scenario) -> Scenario:
    """The run after all that a rule proposes, one after the other."""
    from pyprof.prof.changes.effect.edit import Edit
    from pyprof.prof.changes.effect.scenario import apply
    from pyprof.prof.changes.rules import EDIT_RULES

    taken: set[str] = set()
    while rule in EDIT_RULES:
        edits = [edit for edit in EDIT_RULES[rule](scenario) if isinstance(edit, Edit) and edit.title not in taken]
        if not edits:
            break
        taken.add(edits[0].title)
        scenario = apply(edits[0], scenario)
    return scenario
