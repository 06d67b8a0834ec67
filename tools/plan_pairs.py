"""Predictions of edits beside what the changes brought: python tools/plan_pairs.py [FOLDER [--measured]]

Without FOLDER, the programs of tests/golden/advice, each with one change. FOLDER has measured.json and captures/ of
programs with several (tests/device/plan_programs): each change alone, then after those before it, where all these have
rules. With --measured, the step's time without the profiler is given, as by pyprof plan --step-ms. Measured times are
steps in a row without a profiler on an H200.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyprof.prof.edits.base_run import BaseRun
from pyprof.prof.edits.edit import Edit
from pyprof.prof.edits.forecast import Forecaster
from pyprof.prof.edits.rules import EDIT_RULES
from pyprof.prof.edits.scenario import Scenario, apply, captured
from pyprof.prof.planning.cli import load_base

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "advice"
RENAMED = {"unfused_attention": "attention", "launch_bound": "cuda_graph", "sync_in_step": "item"}
# The changes of the programs with several faults, by the rules that propose them; others have no rule.
RULES = {
    "tf32": "tf32",
    "amp": "amp",
    "sdpa": "attention",
    "fused": "optimizer",
    "compile": "fusion",
    "empty_cache": "allocator",
    "sgd": "parameter_loop",
    "clip": "parameter_loop",
    "item": "item",
    "zero_grad": "zero_grad",
    "bias": "conv_bias",
    "channels_last": "channels_last",
    "workers": "data_loader",
    "pinned": "pageable_copy",
    "copies": "pageable_copy",
    "half": "weight_casts",
    "graph": "cuda_graph",
    "sparse": "sparse_grad",
    "vocabulary": "alignment",
}


class Pair(NamedTuple):
    program: str
    changes: str
    step_ms: float  # measured before
    predicted: tuple[float, float, float]  # saving and its interval, ms
    measured: tuple[float, float, float]

    @property
    def ratio(self) -> float:
        return self.predicted[0] / self.measured[0] if self.measured[0] else float("nan")

    @property
    def inside(self) -> bool:
        """Whether the measured saving lies in the predicted interval."""
        return self.predicted[1] <= self.measured[0] <= self.predicted[2]


def base_of(path: Path) -> BaseRun:
    return load_base(str(path), None, lambda _: None)[1]


def after(scenario: Scenario, rule: str) -> Scenario:
    """The run with all that a rule proposes."""
    taken: set[str] = set()
    while True:
        edits = [e for e in EDIT_RULES[rule](scenario) if isinstance(e, Edit) and e.title not in taken]
        if not edits:
            return scenario
        taken.add(edits[0].title)
        scenario = apply(edits[0], scenario)


def saving(forecaster: Forecaster, before: Scenario, changed: Scenario) -> tuple[float, float, float]:
    """The saving in ms with its interval, both runs drawn together."""
    found = forecaster.difference(before, changed)
    return found.ns / 1e6, found.low / 1e6, found.high / 1e6


def golden() -> Iterator[Pair]:
    for row in json.loads((GOLDEN / "measured.json").read_text(encoding="utf-8")):
        rule = RENAMED.get(row["rule"], row["rule"])
        if rule not in EDIT_RULES:
            continue
        before = base_of(GOLDEN / f"{row['case']}.before.json.gz")
        start = captured(before)
        forecaster = Forecaster(before)
        found = saving(forecaster, start, after(start, rule))
        brought = row["before_ms"] - row["after_ms"]
        yield Pair(row["case"], rule, row["before_ms"], found, (brought, brought, brought))


def several(folder: Path, given: bool = False) -> Iterator[Pair]:
    """Each change alone, then after those before it, where all have rules. ``given``: the step's time as measured."""
    for row in json.loads((folder / "measured.json").read_text(encoding="utf-8")):
        base = base_of(folder / "captures" / f"{row['program']}.base.json.gz")
        walls = [each["wall"] for each in row["base"]]
        middle = sum(walls) / len(walls)
        forecaster = Forecaster(base, middle * 1e6 if given else None)
        now = forecaster.forecast(captured(base))
        spread = min(each["low"] for each in row["base"]), max(each["high"] for each in row["base"])
        predicted = now.ns / 1e6, now.low / 1e6, now.high / 1e6
        yield Pair(row["program"], "(the step)", middle, predicted, (middle, *spread))
        for change in (*row["alone"], *row["in_order"][1:]):
            if set(change["on"]) <= RULES.keys():
                yield _change(row["program"], change, middle, forecaster)


def _change(program: str, change: dict[str, Any], step_ms: float, forecaster: Forecaster) -> Pair:
    alone = "kept" not in change
    before = captured(forecaster.base)
    for name in () if alone else [each for each in change["on"] if each != change["change"]]:
        before = after(before, RULES[name])
    changed = before
    for name in change["on"] if alone else [change["change"]]:
        changed = after(changed, RULES[name])
    names = " ".join(change["on"]) if not alone or len(change["on"]) > 1 else change["change"]
    measured = (change["gain"], change["gain_low"], change["gain_high"])
    return Pair(program, names, step_ms, saving(forecaster, before, changed), measured)


def main(words: Sequence[str]) -> None:
    print("| program | changes, the last one's saving | step, ms | predicted, ms | measured, ms | ratio |")
    print("|---|---|---|---|---|---|")
    pairs = []
    for pair in several(Path(words[0]), "--measured" in words) if words else golden():
        pairs.append(pair)
        amounts = [f"{a:.3g} ({b:.3g} to {c:.3g})" for a, b, c in (pair.predicted, pair.measured)]
        cells = (pair.program, pair.changes, f"{pair.step_ms:.3g}", *amounts, f"{pair.ratio:.2f}")
        print(f"| {' | '.join(cells)} |")
    sure = [pair for pair in pairs if pair.measured[1] > 0 and pair.measured[0] >= 0.03 * pair.step_ms]
    near = sum(abs(pair.ratio - 1) <= 0.25 for pair in sure)
    meet = sum(pair.predicted[1] <= pair.measured[2] and pair.measured[1] <= pair.predicted[2] for pair in pairs)
    print(
        f"\n{near} of {len(sure)} that are sure and worth 3% are within 25%. Of all {len(pairs)}, {meet} predicted "
        f"intervals meet the measured one, and {sum(pair.inside for pair in pairs)} hold its middle"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
