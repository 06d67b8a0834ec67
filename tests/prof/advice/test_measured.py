"""Savings predicted from captures of an H200, against what the changes brought there (tests/device/advice_measured.py).

``held_`` programs are those that no rule was made with. Times are medians of steps in a row, without a profiler.
"""

import json

import pytest

from pyprof.parse.detect import reader
from pyprof.parse.tables.correlate import correlate
from pyprof.prof.advice import Run, advise
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN

FOLDER = GOLDEN / "advice"
MEASURED = {row["case"]: row for row in json.loads((FOLDER / "measured.json").read_text(encoding="utf-8"))}
WITHIN = 0.25


def found(case, state):
    path = FOLDER / f"{case}.{state}.json.gz"
    table = correlate(reader(path)(path))
    return advise(Run(table, annotate(table)))


@pytest.mark.parametrize("case", [case for case, row in MEASURED.items() if row["rule"]])
def test_the_saving_is_what_the_change_brought(case):
    row = MEASURED[case]
    predicted = sum(card.saved_ms for card in found(case, "before") if card.rule == row["rule"])
    assert predicted == pytest.approx(row["before_ms"] - row["after_ms"], rel=WITHIN)


@pytest.mark.parametrize("case", MEASURED)
def test_a_program_that_follows_the_advice_does_not_get_it_again(case):
    assert MEASURED[case]["rule"] not in {card.rule for card in found(case, "after")}


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
    assert found(case, "after") == []


def test_the_host_was_the_limit_where_nothing_is_said():
    """A CUDA graph brought nothing (2.89 and 2.99 ms): the GPU is the slower one, though less so than captured."""
    assert found("medium_layers", "before") == []
