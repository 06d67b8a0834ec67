"""Predictions of edits beside what the changes brought, and whether they are as good as they should be.

    PYTHONPATH=. python tools/plan_pairs.py [FOLDER ...] [--captured] [--errors]

Without FOLDER, the programs of tests/golden/advice, each with one change. A FOLDER has measured.json, as
tests/device/plan_truth.py writes it, and captures of programs with several (tests/golden/plan/held6): each change
alone, then after those before it. The time of the unchanged step is given, as by pyprof plan --step-ms; with
--captured, the capture alone says it. Measured times are steps in a row without a profiler on an H200, whose host is
faster at one time than at another, by half: so a saving is compared by its share of the step that it was measured
against, in turns, and the last step is what these shares leave of the first. A change that no rule of RULES stands for
is predicted to save nothing. --errors also prints what forecast.py has as ERRORS, made from these pairs, and how
many of the intervals hold the measured value if those of a program are made from the pairs of all others.

Savings were measured again, too: in measured.json by the step of the next change, which takes turns with the same
program later, and, where there is measured_again.json, by another GPU machine. How many savings repeat within 25% is
the most that any prediction could be right about.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pyprof.prof.changes.effect import forecast
from pyprof.prof.changes.effect.base_run import BaseRun
from pyprof.prof.changes.effect.edit import Edit
from pyprof.prof.changes.effect.forecast import ERRORS, Forecast, Forecaster
from pyprof.prof.changes.effect.scenario import Scenario, captured
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.changes.search import following
from pyprof.prof.planning.cli import load_base

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "advice"
# The changes of the programs with several faults, by the rules that propose them; others have no rule. After a colon:
# of the rule's proposals those whose change begins thus. With a plus: several rules' proposals, one after the other;
# with an exclamation mark: the first proposal alone, as a program makes one graph of a part of its step.
RULES = {
    "tf32": "tf32",
    "amp": "amp",
    "sdpa": "attention",
    "fused": "optimizer",
    "compile": "compile",
    "rnn": "cell_loop",
    "empty_cache": "allocator",
    "sgd": "parameter_loop:Update",
    "clip": "parameter_loop:Clip",
    "average": "parameter_loop:Update",
    "item": "item+size_sync:Do not wait",
    "zero_grad": "zero_grad",
    "bias": "conv_bias",
    "channels_last": "channels_last",
    "workers": "data_loader",
    "pinned": "pageable_copy",
    "copies": "pageable_copy",
    "half": "weight_casts",
    "graph": "cuda_graph+part_graph!",
    "static_cache": "static_cache",
    "sparse": "sparse_grad",
    "vocabulary": "alignment",
    "gelu": "fusion:Call F.gelu",
    "swish": "fusion:Call F.silu",
    "ema": "parameter_loop:Update",
    "lion": "parameter_loop:Update",
    "checkpoint": "kept_activations",
    "labels": "copy_to_host",
    "rms_norm": "fusion:Call F.rms_norm",
    "norm": "fusion:Call F.rms_norm",
    "sorted": "mask_loop",
    "qkv": "sibling_layers:Make one layer",
    "merged": "sibling_layers:Put tables",
    "window": "made_on_cpu",
    "pairs": "made_on_cpu",
    "vocab": "alignment",
    "heads": "sibling_layers:Make one layer",
    "end": "item",
    "meter": "item",
    "cache": "static_cache",
    "cells": "cell_loop",
    "mask": "made_on_cpu",
    "sort": "mask_loop",
    "causal": "attention_backend",
    "none": "zero_grad",
    "positions": "made_on_cpu",
    "tables": "made_on_cpu",
    "eye": "made_on_cpu",
    "grad": "inference_mode",
    "inference": "inference_mode",
    "inference_mode": "inference_mode",
    "static": "static_cache",
    "batch": "data_loader",
    "batched": "mask_loop+repeats",
    "two_passes": "repeats",
    "guidance": "repeats",
    "decoder": "repeats",
    "gru": "cell_loop",
    "silu": "fusion:Call F.silu",
    "decay": "parameter_loop:Leave",
    "lengths": "item",
    "teacher": "unused_gradients",
    "frozen": "unused_gradients",
    "rotary": "made_on_cpu",
    "masks": "made_on_cpu",
    "anchors": "made_on_cpu",
}
WORTH, NEAR, NEAR_END, NOTHING = 0.03, 0.25, 0.10, 0.01  # shares of a step, of a saving, of a final step, of a step
NONE = (0.0, 0.0, 0.0)


class Pair(NamedTuple):
    program: str
    changes: str
    step_ms: float  # measured before
    predicted: tuple[float, float, float]  # saving and its interval, ms
    measured: tuple[float, float, float]
    ruled: bool = True  # whether a rule stands for it

    @property
    def ratio(self) -> float:
        return self.predicted[0] / self.measured[0] if self.measured[0] else float("nan")

    @property
    def inside(self) -> bool:
        """Whether the measured saving lies in the predicted interval."""
        return self.predicted[1] <= self.measured[0] <= self.predicted[2]

    @property
    def is_step(self) -> bool:
        return self.changes.startswith("(")

    @property
    def matters(self) -> bool:
        """Whether a saving is beyond the noise and worth the share of a step that counts."""
        return not self.is_step and self.measured[1] > 0 and self.measured[0] >= WORTH * self.step_ms

    @property
    def is_near(self) -> bool:
        return abs(self.ratio - 1) <= NEAR

    @property
    def saves_nothing(self) -> bool:
        """Whether no measurement shows a saving worth naming."""
        return not self.is_step and self.measured[2] < NOTHING * self.step_ms


def base_of(path: Path) -> BaseRun:
    return load_base(str(path), None, lambda _: None)[1]


def after(scenario: Scenario, rule: str) -> Scenario:
    """The run with all that a rule proposes, as RULES names it."""
    one, _, more = rule.partition("+")
    scenario = _after(scenario, one)
    return after(scenario, more) if more else scenario


def _after(scenario: Scenario, rule: str) -> Scenario:
    name, _, begin = rule.rstrip("!").partition(":")
    taken: set[str] = set()
    while True:
        proposed = [e for e in EDIT_RULES[name](scenario) if isinstance(e, Edit) and e.change.startswith(begin)]
        edits = [e for e in proposed if e.title not in taken]
        if not edits or (taken and rule.endswith("!")):
            return scenario
        taken.add(edits[0].title)
        scenario = following(edits[0], scenario)


def saving(forecaster: Forecaster, before: Scenario, changed: Scenario) -> tuple[float, float, float]:
    """The saving in ms with its interval, both runs drawn together."""
    found = forecaster.difference(before, changed)
    return found.ns / 1e6, found.low / 1e6, found.high / 1e6


def golden(only: str = "") -> Iterator[Pair]:
    for row in json.loads((GOLDEN / "measured.json").read_text(encoding="utf-8")):
        rule = row["rule"]
        if rule not in EDIT_RULES or only not in ("", row["case"]):
            continue
        before = base_of(GOLDEN / f"{row['case']}.before.json.gz")
        start = captured(before)
        forecaster = Forecaster(before)
        found = saving(forecaster, start, after(start, rule))
        brought = row["before_ms"] - row["after_ms"]
        yield Pair(row["case"], rule, row["before_ms"], found, (brought, brought, brought))


def several(folder: Path, given: bool = True, only: str = "") -> Iterator[Pair]:
    """Each change alone, then after those before it. ``given``: the step's time as measured."""
    for row in json.loads((folder / "measured.json").read_text(encoding="utf-8")):
        name = row["program"]
        files = folder / "captures" / f"{name}.base.json.gz", folder / f"{name}.pyprof"
        capture = next((file for file in files if file.exists()), None)
        if capture is not None and only in ("", name):
            yield from _of_program(row, base_of(capture), given)


def repeated(folder: Path) -> Iterator[tuple[float, float]]:
    """(a saving, the same measured again), as shares of the step that each was measured against."""
    rows = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
    other = folder / "measured_again.json"
    if other.exists():
        again = {row["program"]: row["alone"] for row in json.loads(other.read_text(encoding="utf-8"))}
        for row in rows:
            second = {each["change"]: each for each in again.get(row["program"], [])}
            for each in row["alone"]:
                if each["change"] in second and _counts(each):
                    yield (
                        each["gain"] / _without(each),
                        second[each["change"]]["gain"] / _without(second[each["change"]]),
                    )
        return
    for row in rows:
        kept = [each for each in row["in_order"] if each.get("kept", True)]
        for each, later in pairwise(kept):
            if _counts(each) and later["on"][: len(each["on"])] == each["on"]:
                yield each["gain"] / _without(each), 1 - _without(later) / _without(each)


def _counts(change: dict[str, Any]) -> bool:
    """Whether a saving is beyond noise and worth the share of a step that counts, as of ``Pair.matters``."""
    return bool(change["gain_low"] > 0 and change["gain"] >= WORTH * _without(change))


def _of_program(row: dict[str, Any], base: BaseRun, given: bool) -> Iterator[Pair]:
    program = row["program"]
    known = [each for each in row["base"] if each.get("when") != "after"]
    step_ms = statistics.median(each["wall"] for each in known)
    forecaster = Forecaster(base, step_ms * 1e6 if given else None)
    now = forecaster.forecast(captured(base))
    spread = min(each["low"] for each in known), max(each["high"] for each in known)
    yield Pair(program, "(the step)", step_ms, _ms(now), (step_ms, *spread))
    for change in row["alone"]:
        yield _change(program, change, step_ms, forecaster)
    kept: list[dict[str, Any]] = []
    for change in row["in_order"]:
        pair = _change(program, change, step_ms, forecaster)
        yield pair
        if pair.ruled and change["kept"]:
            kept.append(change)
    if kept:
        yield _end(program, kept, row.get("together", []), step_ms, forecaster)


def _end(
    program: str, kept: Sequence[dict[str, Any]], together: Sequence[dict[str, Any]], step_ms: float, f: Forecaster
) -> Pair:
    """The step after all changes that were kept and that rules stand for; measured against the first, if it was."""
    for pair in together:
        if set(pair["on"]) <= RULES.keys():
            kept = [pair]
    end = captured(f.base)
    for name in kept[-1]["on"]:
        end = after(end, RULES[name])
    shares = [[each[key] / _without(each) for key in ("gain", "gain_high", "gain_low")] for each in kept]
    left = [step_ms * float(np.prod([1 - share[key] for share in shares])) for key in range(3)]
    if len(kept) > 1:
        left[1:] = min(left[0], kept[-1]["wall"]), max(left[0], kept[-1]["wall"])
    return Pair(program, "(the last step)", step_ms, _ms(f.forecast(end)), (left[0], left[1], left[2]))


def _without(change: dict[str, Any]) -> float:
    return float(change.get("without", change["wall"] + change["gain"]))


def _ms(found: Forecast) -> tuple[float, float, float]:
    return found.ns / 1e6, found.low / 1e6, found.high / 1e6


def _change(program: str, change: dict[str, Any], step_ms: float, forecaster: Forecaster) -> Pair:
    alone = "kept" not in change
    names = " ".join(change["on"]) if not alone or len(change["on"]) > 1 else change["change"]
    measured = (change["gain"], change["gain_low"], change["gain_high"])
    if not set(change["on"]) <= RULES.keys():
        return Pair(program, names, step_ms, NONE, measured, ruled=False)
    before = captured(forecaster.base)
    for name in () if alone else [each for each in change["on"] if each != change["change"]]:
        before = after(before, RULES[name])
    changed = before
    for name in change["on"] if alone else [change["change"]]:
        changed = after(changed, RULES[name])
    found = saving(forecaster, before, changed) if changed is not before else NONE
    now = forecaster.forecast(before).ns / 1e6
    without = change.get("without", now)
    middle, low, high = (amount * without / now for amount in found)
    return Pair(program, names, without, (middle, low, high), measured)


def judged(pairs: Sequence[Pair]) -> Iterator[str]:
    """A line for each of the statements that a plan is held to."""
    matter = [pair for pair in pairs if pair.matters]
    for kind, some in (("all", matter), ("those with a rule", [pair for pair in matter if pair.ruled])):
        near = sum(pair.is_near for pair in some)
        yield f"Savings beyond noise, worth {WORTH:.0%} of a step, {kind}: {near} of {len(some)} within {NEAR:.0%}"
    ends = [pair for pair in pairs if pair.changes == "(the last step)"]
    near = sum((1 - NEAR_END) * p.measured[1] <= p.predicted[0] <= (1 + NEAR_END) * p.measured[2] for p in ends)
    yield f"The step after all kept changes that rules stand for: {near} of {len(ends)} within {NEAR_END:.0%}"
    ruled = [pair for pair in pairs if pair.ruled and pair.predicted != NONE]
    inside = sum(pair.inside for pair in ruled)
    meet = sum(pair.predicted[1] <= pair.measured[2] and pair.measured[1] <= pair.predicted[2] for pair in ruled)
    silent = sum(pair.predicted == NONE for pair in pairs)
    yield f"No rule, or nothing that a rule proposes: {silent} of {len(pairs)}"
    yield f"80% intervals: {inside} of {len(ruled)} hold the measured value; {meet} meet the measured interval"
    none = [pair for pair in pairs if pair.saves_nothing]
    false = [f"{p.program} {p.changes}" for p in none if p.predicted[0] >= NOTHING * p.step_ms]
    told = f": {', '.join(false)}" if false else ""
    yield f"Of {len(none)} changes that measurably save less than {NOTHING:.0%}, {len(false)} are predicted more{told}"
    flat = sum(pair.predicted[1] == pair.predicted[2] != 0 for pair in ruled)
    yield f"{flat} intervals have no width"


def rule_of(pair: Pair) -> str:
    name = pair.changes.split(" ")[-1]
    return RULES.get(name, name).partition(":")[0].partition("+")[0]


def errors(pairs: Sequence[Pair]) -> dict[str, float]:
    """Per rule, the standard deviation of the logarithm of measured over predicted savings; "" for that of all.

    Two more pairs at the deviation of all go with those of a rule.
    """
    found: dict[str, list[float]] = {}
    for pair in pairs:
        if pair.matters and pair.ruled and pair.predicted[0] > 0:
            found.setdefault(rule_of(pair), []).append(math.log(pair.measured[0] / pair.predicted[0]) ** 2)
    every = [square for squares in found.values() for square in squares]
    whole = sum(every) / max(len(every), 1)
    shrunk = {name: (sum(squares) + 2 * whole) / (len(squares) + 2) for name, squares in found.items()}
    return {name: math.sqrt(square) for name, square in {"": whole, **shrunk}.items()}


def every_pair(folders: Sequence[Path], given: bool, only: str = "") -> Iterator[Pair]:
    """The pairs of all programs, or of one."""
    yield from chain.from_iterable(several(folder, given, only) for folder in folders) if folders else golden(only)


def cross_validated(folders: Sequence[Path], pairs: Sequence[Pair], given: bool) -> Iterator[str]:
    """The errors of rules by these pairs, and how many intervals hold if each program's are made without it."""
    known, known_all = dict(ERRORS), forecast.ERROR
    yield "Errors of rules: " + ", ".join(
        f"{name or 'all'} {error:.2f}" for name, error in sorted(errors(pairs).items())
    )
    again: list[Pair] = []
    for program in dict.fromkeys(pair.program for pair in pairs):
        found = errors([pair for pair in pairs if pair.program != program])
        forecast.ERROR = found.pop("")
        ERRORS.clear()
        ERRORS.update(found)
        again += every_pair(folders, given, program)
    forecast.ERROR = known_all
    ERRORS.update(known)
    ruled = [pair for pair in again if pair.ruled and pair.predicted != NONE]
    inside = sum(pair.inside for pair in ruled)
    yield f"80% intervals by the errors of other programs alone: {inside} of {len(ruled)} hold the measured value"


def main(words: Sequence[str]) -> None:
    print("| program | changes, the last one's saving | step, ms | predicted, ms | measured, ms | ratio |")
    print("|---|---|---|---|---|---|")
    pairs = []
    folders = [word for word in words if not word.startswith("--")]
    given, paths = "--captured" not in words, [Path(folder) for folder in folders]
    for pair in every_pair(paths, given):
        pairs.append(pair)
        amounts = [f"{a:.3g} ({b:.3g} to {c:.3g})" for a, b, c in (pair.predicted, pair.measured)]
        cells = [pair.program, pair.changes, f"{pair.step_ms:.3g}", *amounts, f"{pair.ratio:.2f}"]
        print(f"| {' | '.join(cells)} |" if pair.ruled else f"| {' | '.join([*cells[:3], 'no rule', cells[4], ''])} |")
    print()
    twice = [pair for path in paths for pair in repeated(path)]
    if twice:
        near = sum(abs(again / first - 1) <= NEAR for first, again in twice)
        print(f"Measured again, {near} of {len(twice)} savings are within 25% of the first measurement")
    for line in chain(judged(pairs), cross_validated(paths, pairs, given) if "--errors" in words else ()):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
