"""The cards of --advise through the replay: one number for cards, plan and page; reasons where nothing is said."""

import numpy as np
import pytest

from pyprof.prof.advice import RULES
from pyprof.prof.edits.cards import CARD_NAMES, _card, advise_capture, name_of
from pyprof.prof.edits.edit import Edit
from pyprof.prof.edits.forecast import Forecast
from pyprof.prof.edits.rules import EDIT_RULES
from pyprof.prof.load import load_table
from pyprof.prof.planning.search import make_plan
from pyprof.prof.replay.replayed_steps import MOST_ROWS, step_window
from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import NULL, HostTable, Table
from tests.paths import GOLDEN
from tests.prof.advice.advice_rows import run


def advised(name):
    loaded = load_table(GOLDEN / name, host=True)
    return advise_capture(loaded.table, annotate(loaded.table), loaded.host, name=name)


@pytest.fixture(scope="module")
def gpt2():
    return advised("h200_gpt2_bf16.json.gz")


def test_the_first_change_of_the_plan_saves_what_its_card_says(gpt2):
    found, forecaster = gpt2
    first = make_plan(forecaster).changes[0]
    best = found.cards[0]
    assert best.rule == name_of(first.edit.rule) and best.change == first.edit.change
    plan = make_plan(forecaster)
    assert best.saved_ms == pytest.approx((plan.now.ns - first.forecast.ns) / 1e6, rel=1e-6)
    assert best.step_ms == pytest.approx(plan.now.ns / 1e6, rel=1e-6)


def test_where_there_is_no_card_the_plan_begins_with_what_is_unsure():
    found, forecaster = advised("h200_resnet50_bf16.json.gz")
    plan = make_plan(forecaster)
    first = plan.changes[0]
    assert not found.cards and found.unsure[0].rule == name_of(first.edit.rule)
    assert found.unsure[0].saved_ms == pytest.approx((plan.now.ns - first.forecast.ns) / 1e6, rel=1e-5)


def test_each_card_has_an_interval_around_its_saving(gpt2):
    found, _ = gpt2
    assert found.not_replayed == "" and found.now is not None
    for card in found.cards:
        assert card.source == "replay" and card.low_ms <= card.saved_ms <= card.high_ms
    alone = [card.saved_ms for card in found.cards]
    assert alone == sorted(alone, reverse=True)
    assert max(alone) <= found.together_ms <= sum(alone) + 1e-6


def test_every_rule_has_a_card_or_says_why_not(gpt2):
    found, _ = gpt2
    said = {card.rule for card in found.cards} | {each.rule for each in found.abstained}
    assert said == {name_of(rule) for rule in EDIT_RULES} | set(RULES)
    assert all(each.why for each in found.abstained)
    assert set(CARD_NAMES.values()) <= set(RULES) and set(CARD_NAMES) <= set(EDIT_RULES)


def test_a_rule_without_an_edit_keeps_its_sum():
    """All-reduces of two ranks, of which half of the exposed time is counted: no edit says what is left of it."""
    found, _ = advised("h200x4_collectives_rank0.json.gz")
    sums = {card.rule for card in found.cards if card.source == "sum"}
    assert sums <= {"communication", "small_collectives"}
    assert all(np.isnan(card.low_ms) for card in found.cards if card.source == "sum")


def test_a_kernel_table_has_sums_and_says_so():
    loaded = load_table(GOLDEN / "h200_gpt2_bf16.json.gz", host=True)
    found, forecaster = advise_capture(loaded.table, annotate(loaded.table), None)
    assert forecaster is None and found.now is None
    assert "a kernel table has no calls of the host" in found.not_replayed
    assert found.cards and all(card.source == "sum" for card in found.cards)


def test_a_capture_that_lost_its_launches_is_not_replayed():
    """Without one in ten of the calls that launch, the rest would run at the wrong times."""
    loaded = load_table(GOLDEN / "h200_gpt2_bf16.json.gz", host=True)
    launches = np.flatnonzero(loaded.host.coded("kind").among("launch"))
    kept = np.setdiff1d(np.arange(len(loaded.host)), launches[::10])
    host = loaded.host.take(kept)
    for key in ("record", "after"):
        host = host.with_column(key, np.full(len(host), NULL, np.int64))
    found, forecaster = advise_capture(loaded.table, annotate(loaded.table), host)
    assert forecaster is None and "has no launch in the capture" in found.not_replayed


def repeated(table, times, gap):
    """A table's rows over and over, each time later, with steps, calls and links of their own."""
    kind = type(table)
    parts = []
    for k in range(times):
        part = table
        shifts = {"start": k * gap, "apiStart": k * gap, "stepStart": k * gap, "stepEnd": k * gap, "markStart": k * gap}
        shifts |= {"markEnd": k * gap, "step": 1000 * k, "corr": 1_000_000 * k, "opId": 1_000_000 * k}
        shifts |= {"record": k * len(table), "after": k * len(table)} if kind is HostTable else {}
        for key, shift in shifts.items():
            if key in part.columns and isinstance(part.columns[key], np.ndarray):
                values = part.ints(key)
                part = part.with_column(key, np.where(values == NULL, NULL, values + shift))
        parts.append(part)
    return kind.concat(parts)


def test_of_a_long_capture_some_steps_are_replayed():
    """GPT-2's five steps forty times: 38,400 rows, of which a window is replayed.

    The savings are to the digit those of a capture of the window alone. Beside those of the five steps, which begin
    with an empty queue and end the capture, large ones differ by less than 3%; small ones lie within their intervals.
    """
    loaded = load_table(GOLDEN / "h200_diff_eager.json.gz", host=True)
    span = int((loaded.table.ints("start") + loaded.table.ints("kDuration")).max()) + 1_000_000
    table, host = repeated(loaded.table, 40, span), repeated(loaded.host, 40, span)
    window = step_window(table, annotate(table), host)
    assert isinstance(window.table, Table) and len(window.table) <= MOST_ROWS
    for key in ("record", "after"):
        links = window.host.ints(key)
        assert (links[links != NULL] < len(window.host)).all() and (links[links != NULL] >= 0).all()
    found, _ = advise_capture(table, annotate(table), host)
    short, _ = advise_capture(loaded.table, annotate(loaded.table), loaded.host)
    assert found.not_replayed == ""
    assert [card.rule for card in found.cards] == [card.rule for card in short.cards]
    alone, _ = advise_capture(window.table, window.annotation, window.host)
    assert [(card.rule, card.saved_ms, card.low_ms, card.high_ms) for card in found.cards] == [
        (card.rule, card.saved_ms, card.low_ms, card.high_ms) for card in alone.cards
    ]
    for long_card, card in zip(found.cards, short.cards, strict=True):
        if card.saved_ms > 0.05 * card.step_ms:
            assert long_card.saved_ms == pytest.approx(card.saved_ms, rel=0.03)
        assert card.low_ms < long_card.saved_ms < card.high_ms
    for rows, few in zip(found.rows, short.rows, strict=True):
        assert len(rows) >= 40 * len(few)  # all steps' rows, not those of the window


def test_a_short_capture_is_replayed_whole():
    loaded = load_table(GOLDEN / "h200_diff_eager.json.gz", host=True)
    assert len(step_window(loaded.table, annotate(loaded.table), loaded.host).rows) == len(loaded.table)


def test_a_card_says_what_its_change_saves_and_of_which_kernel():
    """2 ms of 8; the first of two kernels gains 0.9 ms, the second one none, and the third one is not concerned."""
    names = ("relu", "tanh", "neg")
    rows = [{"kShortName": "k", "aten": f"aten::{name}", "op": [name], "ns": 1_000_000} for name in names]
    edit = Edit("zero_grad", "Change it.", "", "", np.arange(2), np.array([100_000.0, 1_000_000.0]), np.ones(2))
    card = _card(run(*rows), edit, Forecast(2e6, 1e6, 3e6), Forecast(8e6, 7e6, 9e6), measured=True)
    assert (card.saved_ms, card.step_ms, card.kernels, card.time_ms, card.op) == (2.0, 8.0, 2, 2.0, "relu")
