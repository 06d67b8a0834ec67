"""A plan held against a second capture, of the program after some of its changes were made.

What a change saved is said by the GPU's time at the places that it concerns: layers, or ops where layers do not lead to
the same places in both captures, or else whole phases. Where several changes concern a place, what is found there is
said of the one that was to save most in it. A change is not measured if its places are not in the second capture, or if
it has none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np

from pyprof.command.json_schema import Record, doc
from pyprof.prof.changes.effect.edit import Edit, proposed, proposed_again
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.effect.run_columns import Texts
from pyprof.prof.changes.effect.scenario import Scenario, apply, captured
from pyprof.prof.changes.find_changes import step_time
from pyprof.prof.changes.records import StepTime
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.changes.search import LEAST, Plan, following
from pyprof.table.columns import Floats

Retimed = Callable[[Run, Edit], Edit]
FEWER = 0.5  # of the kernels or waits that a change concerned, at most so many are left where it counts as made
# The columns whose values, with the phase, are places; empty: the phase alone
LEVELS = ("layer", "op", "")


class CheckedChange(Record):
    """A change of the plan in the second capture."""

    rule: Annotated[str, doc("its name")]
    title: Annotated[str, doc("what it was to do")]
    made: Annotated[bool, doc("whether its rule no longer proposes it there, or for half of the kernels at most")]
    planned: Annotated[bool, doc("whether it is in the plan")]
    predicted: Annotated[StepTime, doc("the step after the changes that were made so far, predicted from the first")]
    predicted_ms: Annotated[
        float, doc("what it saves after those made before it; of one that was not made: in the second capture", "ms")
    ]
    measured_ms: Annotated[
        float | None,
        doc(
            "what it saved, by the durations of the second capture's kernels at its places, replayed; null: not made, "
            "or it shortens no kernels of its own",
            "ms",
        ),
    ]


class PlanChecked(Record):
    """The plan beside a second capture, of the program after some of the changes."""

    now: Annotated[StepTime, doc("the second capture's step without a profiler")]
    predicted: Annotated[StepTime, doc("what was predicted for it, after all changes that were made")]
    changes: Annotated[list[CheckedChange], doc("those of the plan in order, then others that were made")]
    difference: Annotated[float, doc("the prediction / the second capture's step - 1")]


class Concerned(NamedTuple):
    """A change and the run that it was proposed for."""

    run: Run
    edit: Edit


def check(plan: Plan, forecaster: Forecaster, other: Forecaster) -> PlanChecked:
    """Compare a plan with the capture of ``other``.

    A change that was made saved what the kernels of the second capture say: at the same places, their durations take
    the place of the predicted ones (``found_durations``), and both are replayed.
    """
    second, now = captured(other.base), captured(forecaster.base)
    planned = {change.edit.key: change.edit for change in plan.changes}
    left = {key: proposed_again(edit, second) for key, edit in planned.items()}
    todo = [edit for key, edit in planned.items() if _is_made(edit, now, left[key], second)]
    made, concerned, scenario = dict[tuple[str, str], Edit](), list[Concerned](), now
    while todo or (todo := _besides(scenario, planned.keys() | made.keys(), forecaster, second)):
        edit = todo.pop(0)
        again = proposed_again(edit, scenario)
        made[edit.key] = edit
        concerned.append(Concerned(scenario.run, again or Edit(edit.rule, edit.change, edit.why, edit.cost)))
        scenario = scenario if again is None else following(again, scenario)
    timed = dict(zip(made, found_durations(concerned, other.base.run), strict=True))
    changes, said, found = list[CheckedChange](), now, now
    for key, edit in {**planned, **made}.items():
        remains, retimed, measured = left.get(key), timed.get(key), None
        if key in made:
            said, saves = _step(edit, said, forecaster)
            found, shown = _step(edit, found, forecaster, retimed)
            measured = None if retimed is None else round(shown / 1e6, 6)
        else:
            saves = 0.0 if remains is None else other.difference(second, apply(remains, second)).ns
        time, saved = step_time(forecaster.forecast(said)), round(saves / 1e6, 6)
        changes.append(CheckedChange(edit.rule, edit.title, key in made, key in planned, time, saved, measured))
    last, step = forecaster.forecast(said), other.forecast(second)
    difference = round(last.ns / step.ns - 1, 6) if step.ns else 0.0
    return PlanChecked(step_time(step), step_time(last if changes else plan.now), changes, difference)


def _is_made(edit: Edit, now: Scenario, left: Edit | None, second: Scenario) -> bool:
    """Whether the second capture has a change. Its rule's silence shows it only if the rule spoke of the first one."""
    first = proposed_again(edit, now)
    if left is None:
        return first is not None
    return second.run.count(_size(left)) <= FEWER * now.run.count(_size(first or edit))


def _size(edit: Edit) -> int:
    """How many kernels a change concerns, or calls, if it is about the host alone."""
    return len(edit.rows) or len(edit.released) or len(edit.prompt)


def _besides(
    scenario: Scenario, known: Collection[tuple[str, str]], forecaster: Forecaster, second: Scenario
) -> list[Edit]:
    """The change, if any, that the plan does without, but which someone made: it is no longer proposed there."""
    time = forecaster.roughly(scenario)
    gone = [
        (time - forecaster.roughly(following(edit, scenario)), edit)
        for rule in EDIT_RULES
        for edit in proposed(rule, scenario)
        if edit.key not in known and proposed_again(edit, second) is None
    ]
    saved, best = max(gone, key=lambda pair: pair[0], default=(0.0, None))
    return [] if best is None or saved < LEAST * time else [best]


def _step(
    edit: Edit, scenario: Scenario, forecaster: Forecaster, retimed: Retimed | None = None
) -> tuple[Scenario, float]:
    """The run after a change, and what the change saves, ns; nothing if its rule does not propose it there."""
    again = proposed_again(edit, scenario)
    if again is None:
        return scenario, 0.0
    after = apply(retimed(scenario.run, again) if retimed is not None else again, scenario)
    return after, forecaster.difference(scenario, after).ns


def found_durations(changes: Sequence[Concerned], second: Run) -> list[Retimed | None]:
    """Per change, a function that gives its edit the second capture's durations; None where they do not show it."""
    found: list[Retimed | None] = [None] * len(changes)
    for level in LEVELS:
        time = sums(places(second, level), second.dur / second.steps / second.lanes)
        saved = [saved_at(level, each) for each in changes]
        for number, mine in enumerate(saved):
            own = {place for place, ns in mine.items() if all(ns >= each.get(place, 0.0) for each in saved)}
            alone = level or all(place not in each for each in saved if each is not mine for place in mine)
            known = own and all(place in time or not _remains(level, changes[number], place) for place in mine)
            if found[number] is None and known and alone:
                found[number] = partial(_retimed, level, {place: time.get(place, 0.0) for place in own})
    return found


def places(run: Run, level: str) -> Texts:
    """The place of each row; empty if it is not known."""
    names = run.texts(level) if level else run.phase
    found: Texts = np.where(names == "", "", names + "\n" + run.phase) if level else names
    return found


def sums(at: Texts, ns: Floats) -> dict[str, float]:
    """The time at each place."""
    names, place = np.unique(at, return_inverse=True)
    return dict(zip(names.tolist(), np.bincount(place, ns).tolist(), strict=True))


def saved_at(level: str, change: Concerned) -> dict[str, float]:
    """What a change saves at each place, in ns; empty for one that cannot be told by places, such as a graph."""
    run, edit = change
    less = run.dur[edit.rows] - edit.ns
    at = places(run, level)[edit.rows][less > 0]
    return {} if edit.graph or bool((at == "").any()) else sums(at, less[less > 0])


def _remains(level: str, change: Concerned, place: str) -> bool:
    """Whether a change leaves anything at a place."""
    run, edit = change
    after = run.dur.copy()
    after[edit.rows] = edit.ns
    return bool((after[places(run, level) == place] > 0).any())


def _retimed(level: str, time: dict[str, float], run: Run, edit: Edit) -> Edit:
    """The edit with these times per step of all that is at each place; rows that it does not change keep theirs."""
    names, ns, after = places(run, level), edit.ns.copy(), run.dur.copy()
    after[edit.rows] = edit.ns
    at = names[edit.rows]
    for place, each in time.items():
        theirs = at == place
        said = float(edit.ns[theirs].sum())
        wanted = max(each * run.steps * run.lanes - float(after[names == place].sum()) + said, 0.0)
        ns[theirs] = edit.ns[theirs] * (wanted / said) if said else wanted / max(int(theirs.sum()), 1)
    return replace(edit, ns=ns)
