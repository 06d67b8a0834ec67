"""What limits a step, against what a person judged from the raw files before the code existed (golden/README.md).

Where a person found two answers defensible, either is right. The shares are compared in test_raw_verdicts.
"""

import json
from pathlib import Path

import pytest

from pyprof.errors import InputError
from pyprof.prof.load import load_table
from pyprof.prof.step.run_step import run_step
from pyprof.prof.work.annotate import annotate
from tests.paths import GOLDEN, ROOT

BY_HAND = json.loads((GOLDEN / "verdicts_by_hand.json").read_text(encoding="utf-8"))
WORDS = {"launch_latency": "latency"}  # pyprof's word for it
RIGHT = 23  # of 25 at least
WITHIN = 0.1  # of the step's time
# A step that the person took from a range of the user's or from the host's marks while the GPU was behind, and one
# capture of which the last step's length is not known.
MISSED = 3


def path_of(capture: str, data: Path) -> Path:
    return data / capture.removeprefix("data:") if capture.startswith("data:") else ROOT / capture


def judged(data: Path):
    """Each capture with pyprof's record of its step; None where it refuses the file."""
    for each in BY_HAND:
        try:
            table = load_table(path_of(each["capture"], data)).table
            yield each, run_step(table, annotate(table))
        except InputError:  # noqa: PERF203 (a file that pyprof refuses is one of those that are judged)
            yield each, None


@pytest.fixture(scope="module")
def verdicts(data: Path):
    return list(judged(data))


def test_the_limit_is_that_of_the_person(verdicts):
    wrong = []
    for each, step in verdicts:
        right = {WORDS.get(word, word) for word in (each["limit"], *each["also"])}
        found = "incomplete" if step is None else step.limit
        if found not in right:
            wrong.append((each["capture"], found, sorted(right)))
    assert len(verdicts) - len(wrong) >= RIGHT * len(verdicts) / 25, wrong


def test_the_steps_time_is_that_of_the_person(verdicts):
    wrong = []
    for each, step in verdicts:
        given = [ms for ms in (each["step_wall_ms"], *each["also_step_wall_ms"]) if ms is not None]
        known = bool(given) and step is not None and step.limit != "incomplete"
        if known and not any(step.captured_ns / 1e6 == pytest.approx(ms, rel=WITHIN) for ms in given):
            wrong.append((each["capture"], round(step.captured_ns / 1e6, 2), given))
    assert len(wrong) <= MISSED, wrong
