"""The GPU's work that a change removes, as predicted from the capture before it, beside the capture after it.

    PYTHONPATH=. python tools/gpu_pairs.py

Of the programs of tests/golden/advice that were captured before and after one change, where it changes that work by 3%
or more.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from pyprof.prof.changes.effect.edit import EDIT_RULES, Edit
from pyprof.prof.changes.effect.forecast import Forecaster
from pyprof.prof.changes.effect.scenario import Scenario, captured
from pyprof.prof.changes.search import EDIT_NAMES, following
from pyprof.prof.planning.cli import load_base

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden"
WITHIN = 0.15
LEAST = 0.03  # of the GPU's work before the change


def work_ms(file: Path) -> float:
    """The GPU's work in a step of a capture, ms."""
    base = load_base(str(file), None, lambda _: None)[1]
    marked = base.steps[0] if len(base.steps[0]) else base.counted
    return float(captured(base).ns[marked].sum()) / base.step_count / 1e6


def predicted_ms(file: Path, rule: str) -> tuple[float, float]:
    """The GPU's work in a step as it is, and after all that a rule proposes, ms."""
    base = load_base(str(file), None, lambda _: None)[1]
    forecaster, start = Forecaster(base), captured(base)
    after, taken = start, set[str]()
    while True:
        edits = [each for each in EDIT_RULES[rule](after) if isinstance(each, Edit) and each.title not in taken]
        if not edits:
            break
        taken.add(edits[0].title)
        after = following(edits[0], after)
    return _gpu_ms(forecaster, start), _gpu_ms(forecaster, after)


def _gpu_ms(forecaster: Forecaster, scenario: Scenario) -> float:
    return float(forecaster.work(scenario)[0]) / 1e6


def main() -> int:
    rows = [(row["case"], row["rule"]) for row in json.loads((GOLDEN / "advice" / "measured.json").read_text("utf-8"))]
    ratios = []
    head = ("program", "rule", "before, ms", "removed, predicted, ms", "removed, captured, ms", "ratio")
    sys.stdout.write(f"| {' | '.join(head)} |\n|---|---|--:|--:|--:|--:|\n")
    for case, name in rows:
        rule = EDIT_NAMES.get(name, name)
        if rule not in EDIT_RULES:
            continue
        before, after = predicted_ms(GOLDEN / "advice" / f"{case}.before.json.gz", rule)
        found = work_ms(GOLDEN / "advice" / f"{case}.after.json.gz")
        if abs(before - found) < LEAST * before:
            continue  # a change of the host's work
        ratios.append((before - after) / (before - found))
        sys.stdout.write(
            f"| {case} | {rule} | {before:.3f} | {before - after:.3f} | {before - found:.3f} | {ratios[-1]:.2f} |\n"
        )
    good = sum(abs(ratio - 1) <= WITHIN for ratio in ratios)
    sys.stdout.write(f"\n{good} of {len(ratios)} within {WITHIN:.0%}; median {np.median(ratios):.2f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
