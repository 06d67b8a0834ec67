"""No card promises more than the time of the rows that it changes plus the idle time around them.

The bound is computed again here, row by row, in plain Python.
"""

from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from pyprof.errors import PyprofError
from pyprof.prof.advice import Run, advise, together_ms
from pyprof.prof.advice.card import RULES, Finding
from pyprof.prof.advice.rank import findings
from tests.paths import GOLDEN
from tests.prof.advice.advice_rows import run
from tests.tables import annotated

US = 1000


def most_ms(of: Run, rows: set[int]) -> float:
    """ms per step: the rows' time, each gap that one of them ends or begins, no more than the step."""
    whole = sum(float(of.dur[row]) for row in rows)
    step = of.table.ints("step").tolist()
    for lane in range(of.lanes):
        mine = [row for row in range(of.rows) if of.lane[row] == lane]
        marks = sum(step[a] != step[b] for a, b in pairwise(mine))
        last = mine[0]  # the row that ended last so far
        for row in mine[1:]:
            gap = max(int(of.start[row]) - int(of.end[last]), 0)
            if step[row] != step[row - 1]:
                gap *= (marks + 1) / marks  # a step's time counts one pause for each step, too
            if row in rows or last in rows:
                whole += gap
            if of.end[row] >= of.end[last]:
                last = row
    return min(whole / of.steps / of.lanes, of.step_ns) / 1e6


def check(of: Run) -> None:
    found = findings(of)
    cards = advise(of, found)
    assert [card.rule for card in cards] == [name for name, _ in found]
    for card, (_, finding) in zip(cards, found, strict=True):
        assert card.saved_ms <= most_ms(of, set(finding.rows.tolist())) + 1e-5, card
        assert card.saved_ms <= card.step_ms
    assert together_ms(of, found) <= of.step_ns / 1e6 + 1e-5


@pytest.mark.parametrize(
    "name", sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*.gz") if ".csv" not in path.name)
)
def test_of_golden_captures(name: str) -> None:
    check(Run(*annotated(GOLDEN / name)))


def test_of_every_capture(data: Path) -> None:
    checked = 0
    for file in sorted(path for folder in ("kineto", "nsys", "round2") for path in (data / folder).glob("*.gz")):
        with suppress(PyprofError):  # not a capture of GPU work
            check(Run(*annotated(file)))
            checked += 1
    assert checked > 40


def kernel(start: int, ns: int, **more: object) -> dict[str, object]:
    return {"kShortName": "reduce_kernel", "start": start * US, "ns": ns * US, **more}


def test_the_bound_by_hand() -> None:
    # gaps: 10 before row 1, none before row 2 (covered by row 1), 20 from row 1's end to row 3, 5 before row 4
    of = run(kernel(0, 10), kernel(20, 50), kernel(30, 10), kernel(90, 5), kernel(100, 10))
    assert of.most_ns(np.array([2])) == 10 * US
    assert of.most_ns(np.array([1])) == (10 + 50 + 20) * US
    assert of.most_ns(np.array([0])) == (10 + 10) * US
    assert of.most_ns(np.array([3, 4])) == (20 + 5 + 5 + 10) * US  # the gap between them once
    assert of.most_ns(np.array([1, 1])) == (10 + 50 + 20) * US
    assert of.most_ns(np.arange(5)) == 110 * US  # all: the step, though rows overlap
    assert of.most_ns(np.array([], np.int64)) == 0


def test_gaps_are_of_one_gpu() -> None:
    of = run(kernel(0, 10), kernel(100, 10), kernel(50, 10, device=1), kernel(60, 10, device=1))
    assert of.most_ns(np.array([0])) == 100 * US and of.most_ns(np.array([2])) == 10 * US


def test_the_gap_between_steps_counts_once_for_each_step() -> None:
    # three steps of 10 µs, 30 apart, without marks: 40, 40 and 10, since the capture ends before the third pause
    of = run(*(kernel(at, 10, step=step) for step, at in enumerate((0, 40, 80))))
    assert of.step_ns == 30 * US
    assert of.most_ns(np.arange(3)) == 90 * US  # the steps' time
    assert of.most_ns(np.array([0])) == (10 + 45) * US  # 30 of pause, and half of the one that is not captured


def test_a_rule_that_promises_more_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def boast(of: Run) -> list[Finding]:
        return [Finding(np.array([1]), of.dur[1:2] * 9, "why", "Change it.", "low", idle_ns=5e9, launches=1e6)]

    monkeypatch.setattr("pyprof.prof.advice.rank.RULES", {"boast": boast})
    of = run(kernel(0, 100), kernel(110, 50), kernel(180, 100))
    (card,) = advise(of)
    assert card.saved_ms == pytest.approx(0.010 + 0.050 + 0.020)
    assert together_ms(of) == pytest.approx(card.saved_ms)
    assert RULES  # the others are still registered
