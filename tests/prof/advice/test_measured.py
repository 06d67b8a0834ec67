"""Savings predicted from captures of an H200, against what the changes brought there (tests/device/advice_measured.py).

``held_`` programs are those that no rule was made with. Times are medians of steps in a row, without a profiler.
"""

import json

import pytest

from pyprof.prof.advice import Run, advise
from pyprof.prof.edits.cards import advise_capture
from pyprof.prof.load import load_table
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN

FOLDER = GOLDEN / "advice"
MEASURED = {row["case"]: row for row in json.loads((FOLDER / "measured.json").read_text(encoding="utf-8"))}
WITHIN = 0.25


# Steps of few launches in which the host is the limit (docs/explanation/advice.md).
MISSES = {"checked", "held_embedding", "recurrent", "fixed_positions"}


def cards_of(case, state):
    """The cards, and those by the rules' own sums."""
    loaded = load_table(FOLDER / f"{case}.{state}.json.gz", host=True)
    annotation = annotate(loaded.table)
    advised, _ = advise_capture(loaded.table, annotation, loaded.host)
    assert advised.not_replayed == ""
    return advised.cards, advise(Run(loaded.table, annotation))


def saved(cards, rule):
    return sum(card.saved_ms for card in cards if card.rule == rule)


@pytest.mark.parametrize("case", [case for case, row in MEASURED.items() if row["rule"]])
def test_the_saving_is_what_the_change_brought(case):
    """By the replay, but for those of ``MISSES``; and by the rule's own sum, which tables without calls have."""
    row = MEASURED[case]
    replayed, summed = cards_of(case, "before")
    measured = row["before_ms"] - row["after_ms"]
    assert (saved(replayed, row["rule"]) == pytest.approx(measured, rel=WITHIN)) or case in MISSES
    assert saved(summed, row["rule"]) == pytest.approx(measured, rel=WITHIN)


@pytest.mark.parametrize("case", MEASURED)
def test_a_program_that_follows_the_advice_does_not_get_it_again(case):
    """``checked`` still reads one value at the end of a step, which costs the next step's begin a little."""
    replayed, summed = cards_of(case, "after")
    rule = MEASURED[case]["rule"]
    again = [card for card in (*replayed, *summed) if card.rule == rule]
    assert all(case == "checked" and card.saved_ms < 0.03 * card.step_ms for card in again)


def test_at_least_fourteen_rules_were_measured():
    assert len({row["rule"] for row in MEASURED.values()} - {""}) >= 14


CLEAN = [
    "lm_head", "attention", "causal_attention", "math_attention", "efficient_attention", "flash_attention",
    "adam_foreach", "activation_inferred", "vocabulary_loss", "checked", "pageable", "zeroed", "autocast_inference",
    "left_in_training", "small_products", "small_long_products", "medium_layers", "held_vocabulary", "held_backend",
    "held_adamw", "held_norm", "held_loss", "held_bias", "held_cell",
]  # fmt: skip


@pytest.mark.parametrize("case", CLEAN)
def test_programs_that_follow_it_all_get_no_advice(case):
    """All that were changed and have nothing else to advise (the cards of the others: docs/explanation/advice.md)."""
    found = [card for cards in cards_of(case, "after") for card in cards if card.rule != MEASURED[case]["rule"]]
    if case == "held_backend":  # 7 element-wise kernels of 0.41 in 2.14 ms; it was not compiled, so it is not known
        (card,) = found
        assert (card.rule, card.confidence) == ("compile", "medium") and card.saved_ms < 0.12 * card.step_ms
    else:
        assert found == []


def test_the_host_was_the_limit_where_nothing_is_said():
    """A CUDA graph brought nothing (2.89 and 2.99 ms): the GPU is the slower one, though less so than captured."""
    assert cards_of("medium_layers", "before") == ([], [])
