"""Predictions of edits beside what the changes brought.

    python tools/plan_pairs.py [FOLDER] [--measured] [--timings FILE [--measure]]

Without FOLDER, the programs of tests/golden/advice, each with one change. FOLDER has measured.json and captures/ of
programs with several (tests/device/plan_programs): each change alone, then after those before it, where all these have
rules. With --measured, the step's time without the profiler is given, as by pyprof plan --step-ms. With --timings, new
durations come from FILE; with --measure, too, calls that it lacks are timed on this machine's GPU and added to it.
Measured times are steps in a row without a profiler on an H200.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pyprof.prof.edits.base_run import BaseRun
from pyprof.prof.edits.edit import Edit
from pyprof.prof.edits.forecast import Forecaster
from pyprof.prof.edits.rules import EDIT_RULES
from pyprof.prof.edits.scenario import Scenario, apply, captured
from pyprof.prof.planning.cli import load_base
from pyprof.prof.timings.retimer import Retimer, with_measured
from pyprof.prof.timings.timed_call import TimedCall
from pyprof.prof.timings.timings_file import CallTime, load_timings, timings_of, timings_text

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

Found = TypeVar("Found")


class Pair(NamedTuple):
    program: str
    changes: str
    step_ms: float  # measured before
    predicted: tuple[float, float, float]  # saving and its interval, ms
    measured: tuple[float, float, float]
    timed: float = 0.0  # the share of the new durations that was measured alone

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


class Timed:
    """Measured durations for the edits: those of a file, and with ``measure`` those that it lacks, which are added."""

    def __init__(self, file: str, measure: bool) -> None:
        self.file, self.measure = Path(file), measure
        self.known = load_timings(file) if self.file.exists() else None
        self.times = self.known.by_call if self.known else {}

    def of(self, base: BaseRun, find: Callable[[], Found]) -> Found:
        retimer = Retimer(self.times)
        base.retime = retimer
        return with_measured(retimer, find, self._missing if self.measure else lambda _: [])

    def _missing(self, calls: list[TimedCall]) -> list[CallTime]:
        import torch

        from pyprof.benchmark.device_facts import facts
        from pyprof.benchmark.time_edits import time_edits

        device = torch.device("cuda")
        found = time_edits(calls, device, time.monotonic() + 60, lambda _: None)
        content = timings_of(facts(device), [*self.times.values(), *found])
        self.file.write_bytes(timings_text(content))
        return found


def _as_it_is(base: BaseRun, find: Callable[[], Found]) -> Found:
    return find()


def golden(timed: Timed | None = None, given: bool = False) -> Iterator[Pair]:
    for row in json.loads((GOLDEN / "measured.json").read_text(encoding="utf-8")):
        rule = RENAMED.get(row["rule"], row["rule"])
        if rule not in EDIT_RULES:
            continue
        before = base_of(GOLDEN / f"{row['case']}.before.json.gz")
        find = partial(_alone, before, rule, row["before_ms"] * 1e6 if given else None)
        found, share = (timed.of if timed else _as_it_is)(before, find)
        brought = row["before_ms"] - row["after_ms"]
        yield Pair(row["case"], rule, row["before_ms"], found, (brought, brought, brought), share)


def _alone(before: BaseRun, rule: str, step_ns: float | None) -> tuple[tuple[float, float, float], float]:
    start = captured(before)
    changed = after(start, rule)
    timed = max((edit.timed for edit in changed.edits), default=0.0)
    return saving(Forecaster(before, step_ns), start, changed), timed


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
    print("| program | changes, the last one's saving | step, ms | predicted, ms | measured, ms | ratio | timed |")
    print("|---|---|---|---|---|---|---|")
    pairs = []
    options = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    options.add_argument("folder", nargs="?", type=Path)
    options.add_argument("--measured", action="store_true")
    options.add_argument("--timings")
    options.add_argument("--measure", action="store_true")
    args = options.parse_args(words)
    timed = Timed(args.timings, args.measure) if args.timings else None
    for pair in several(args.folder, args.measured) if args.folder else golden(timed, args.measured):
        pairs.append(pair)
        amounts = [f"{a:.3g} ({b:.3g} to {c:.3g})" for a, b, c in (pair.predicted, pair.measured)]
        cells = (pair.program, pair.changes, f"{pair.step_ms:.3g}", *amounts, f"{pair.ratio:.2f}", f"{pair.timed:.0%}")
        print(f"| {' | '.join(cells)} |")
    sure = [pair for pair in pairs if pair.measured[1] > 0 and pair.measured[0] >= 0.03 * pair.step_ms]
    near, tenth = (sum(abs(pair.ratio - 1) <= bound for pair in sure) for bound in (0.25, 0.1))
    meet = sum(pair.predicted[1] <= pair.measured[2] and pair.measured[1] <= pair.predicted[2] for pair in pairs)
    timed_alone = [pair for pair in sure if pair.timed > 0.5]
    if timed_alone:
        close = sum(abs(pair.ratio - 1) <= 0.1 for pair in timed_alone)
        print(f"\n{close} of {len(timed_alone)} whose new durations were measured are within 10%")
    inside = sum(pair.inside for pair in pairs)
    print(
        f"\n{near} of {len(sure)} that are sure and worth 3% are within 25%, {tenth} within 10%. Of all "
        f"{len(pairs)}, {meet} predicted intervals meet the measured one, and {inside} hold its middle"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
