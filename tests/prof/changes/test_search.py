"""Which changes the plan takes, in runs of a few tasks whose times are worked out by hand."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pyprof.prof.changes.effect.edit import EDIT_RULES, Abstained, Edit, Proposal
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.effect.scenario import Scenario
from pyprof.prof.changes.search import make_plan
from tests.parse.kineto.kineto_file import call, kernel
from tests.prof.changes.effect.test_scenario import base

COUNT = 10


def change(rule: str, title: str, rows: slice, ns: float | None, left: float, scenario: Scenario) -> Iterator[Proposal]:
    """Rows that take ``ns`` (None: as before) with this share of the host's work, in one change."""
    if rule in {edit.rule for edit in scenario.edits}:
        yield Abstained(rule, "it is done")
        return
    found = np.arange(scenario.run.rows)[rows]
    durations = scenario.run.dur[found].astype(float) if ns is None else np.full(len(found), ns)
    yield Edit(rule, title, "", "", found, durations, np.full(len(found), left))


@pytest.fixture
def forecaster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Forecaster:
    """µs: a launch of 5 every 100, and kernels of 98 that begin 10 after it: the step takes 9 * 100 + 98 = 998.

    `gpu` makes all kernels but the last one 20 long, which saves nothing: the last one is launched as late. `host`
    leaves three tenths of the host's work but for the first launch: kernels then run back to back, 998 to 980 and the
    gaps between them, of which each is at most 1.1: less than 1% is saved. Both: 9 * 30 or so, and 98.
    """
    launches = [call(100 * n, n + 1) for n in range(COUNT)]
    kernels = [kernel(100 * n + 10, 98, n + 1) for n in range(COUNT)]
    rules = {
        "gpu": lambda scenario: change("gpu", "Shorten.", slice(0, COUNT - 1), 20_000.0, 1.0, scenario),
        "host": lambda scenario: change("host", "Launch.", slice(1, COUNT), None, 0.3, scenario),
    }
    for name in list(EDIT_RULES):
        monkeypatch.delitem(EDIT_RULES, name)
    for name, rule in rules.items():
        monkeypatch.setitem(EDIT_RULES, name, rule)
    found = Forecaster(base(tmp_path, *launches, *kernels))
    found.shares = np.ones(len(found.shares))  # the host's time as it was captured
    return found


def test_changes_for_host_and_gpu_are_taken_together_where_neither_saves_alone(forecaster: Forecaster) -> None:
    plan = make_plan(forecaster)
    assert plan.now.ns == pytest.approx(998_000, rel=0.001)
    assert {made.edit.rule for made in plan.changes} == {"gpu", "host"}
    assert plan.changes[-1].forecast.ns == pytest.approx(9 * 30_000 + 98_000, rel=0.1)


@pytest.mark.parametrize("left_out", ["gpu", "host"])
def test_neither_is_taken_without_the_other(forecaster: Forecaster, left_out: str) -> None:
    plan = make_plan(forecaster, without=[left_out])
    assert plan.changes == []
    [(_, saved)] = plan.others
    assert saved < 0.01 * 998_000


def test_tf32_gives_way_to_mixed_precision(forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch) -> None:
    """TF32 makes the kernels 60 long, mixed precision 40, and its casts take the host 8 more before each launch. So
    TF32 comes first (38 for the last kernel), then launches at 30, and then mixed precision: 400 or so. Without TF32
    the step ends as well.
    """

    def tf32(scenario: Scenario) -> Iterator[Proposal]:
        if "amp" in {edit.rule for edit in scenario.edits}:
            return iter([Abstained("tf32", "mixed precision is on")])
        return change("tf32", "Allow.", slice(0, COUNT), 60_000.0, 1.0, scenario)

    monkeypatch.delitem(EDIT_RULES, "gpu")
    monkeypatch.setitem(EDIT_RULES, "tf32", tf32)
    amp = lambda scenario: change("amp", "Narrow.", slice(0, COUNT), 40_000.0, 1.08, scenario)  # noqa: E731
    monkeypatch.setitem(EDIT_RULES, "amp", amp)
    plan = make_plan(forecaster)
    assert [made.edit.rule for made in plan.changes] == ["amp", "host"]
    assert plan.changes[-1].forecast.ns == pytest.approx(400_000, rel=0.1)
    assert [each.why for each in plan.abstained if each.rule == "tf32"] == ["mixed precision takes its place"]
    kept = make_plan(forecaster, first=["tf32"])
    assert "tf32" in [made.edit.rule for made in kept.changes]  # as it was asked for


def test_a_rule_that_proposed_nothing_is_asked_again_at_the_end(
    forecaster: Forecaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`first` makes all kernels 78 long: the step takes 9 * 100 + 78. Only then, `last` makes the last one 48 long:
    9 * 100 + 48. It is asked at first, once `first` is taken and nothing else remains, and once both are.
    """
    asked: list[tuple[str, ...]] = []

    def last(scenario: Scenario) -> Iterator[Proposal]:
        asked.append(tuple(edit.rule for edit in scenario.edits))
        if not scenario.edits:
            yield Abstained("last", "the other kernels are long")
            return
        yield from change("last", "End.", slice(COUNT - 1, COUNT), 48_000.0, 1.0, scenario)

    def first(scenario: Scenario) -> Iterator[Proposal]:
        yield from change("first", "Begin.", slice(0, COUNT), 78_000.0, 1.0, scenario)

    for name in ("gpu", "host"):
        monkeypatch.delitem(EDIT_RULES, name)
    for name, rule in (("first", first), ("last", last)):
        monkeypatch.setitem(EDIT_RULES, name, rule)
    plan = make_plan(forecaster)
    assert [made.edit.rule for made in plan.changes] == ["first", "last"]
    assert [round(made.forecast.ns) for made in plan.changes] == [978_000, 948_000]
    assert asked == [(), ("first",), ("first", "last")]
