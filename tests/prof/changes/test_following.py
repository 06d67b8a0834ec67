"""One change after others: the precision comes first, whenever it is chosen."""

import pytest

from pyprof.prof.changes.effect.edit import EDIT_RULES, Edit
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.effect.scenario import Scenario, apply, captured
from pyprof.prof.changes.search import following
from tools.plan_pairs import GOLDEN, base_of


def first(rule: str, scenario: Scenario) -> Edit:
    return next(each for each in EDIT_RULES[rule](scenario) if isinstance(each, Edit))


def rules(scenario: Scenario) -> list[str]:
    return [edit.rule for edit in scenario.edits]


@pytest.fixture(scope="module")
def start() -> Scenario:
    return captured(base_of(GOLDEN / "mixed.before.json.gz"))


@pytest.fixture(scope="module")
def compiled(start: Scenario) -> Scenario:
    return following(first("compile", start), start)


def test_mixed_precision_comes_before_what_was_chosen_before_it(start: Scenario, compiled: Scenario) -> None:
    after = following(first("amp", compiled), compiled)
    assert rules(after) == ["amp", "compile"]
    narrow = apply(first("amp", start), start)
    other = apply(first("compile", narrow), narrow)
    assert after.ns.tolist() == other.ns.tolist()


def test_other_changes_stay_in_their_order(compiled: Scenario) -> None:
    graph = first("cuda_graph", compiled)
    assert rules(following(graph, compiled)) == ["compile", "cuda_graph"]


def test_of_two_precisions_the_one_chosen_first_comes_first(start: Scenario) -> None:
    """TF32 for what autocast leaves, or autocast for what is in TF32: neither is moved."""
    fast = following(first("tf32", start), start)
    assert rules(following(first("amp", fast), fast)) == ["tf32", "amp"]


def test_all_stay_in_their_order_where_one_is_not_proposed_again(start: Scenario) -> None:
    """TF32 has nothing to change after autocast. Nor has a change that no rule proposes."""
    unknown = Edit("compile", "Do what no rule proposes.", "", "")
    after = apply(unknown, start)
    assert rules(following(first("amp", after), after)) == ["compile", "amp"]


def test_the_difference_is_that_of_the_edits_that_came_in(start: Scenario, compiled: Scenario) -> None:
    """By name and not by place, since autocast now stands before what was there."""
    forecaster = Forecaster(start.base)
    after = following(first("amp", compiled), compiled)
    saved = forecaster.difference(compiled, after)
    assert saved.ns == pytest.approx(forecaster.forecast(compiled).ns - forecaster.forecast(after).ns)
    assert saved.low < saved.ns < saved.high
