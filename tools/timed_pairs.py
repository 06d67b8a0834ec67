"""Measured durations against the changed programs of tests/golden/advice.

    python tools/timed_pairs.py TIMINGS [--measure] [--captured]

For each program that has calls to measure: the step's saving as predicted with the durations of TIMINGS and as
measured, and the GPU's time that it saves, as predicted and between the captures before and after. With --measure,
calls that the file lacks are timed on this machine's GPU and added to it. The time of the unchanged step is given, as
by pyprof plan --step-ms; with --captured, the capture alone says it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pyprof.prof.changes.effect.forecast import Forecast, Forecaster
from pyprof.prof.changes.effect.scenario import Scenario, captured
from pyprof.prof.changes.measured.retimer import Retimer, with_measured
from pyprof.prof.changes.measured.timed_call import TimedCall
from pyprof.prof.changes.measured.timings_file import CallTime, load_timings, timings_of, timings_text
from pyprof.prof.changes.rules import EDIT_RULES
from tools.plan_pairs import GOLDEN, after, base_of

SECONDS = 60.0  # of measuring, per program
NEAR, SHARE = 0.1, 0.5  # of a saving; of the new durations that must have been measured


class Timed(NamedTuple):
    """One program and its change. Times in ms."""

    program: str
    rule: str
    predicted: Forecast
    measured_ms: float
    gpu: tuple[float, float]  # the saving of the GPU's time: predicted, and between the captures
    share: float  # of the new durations that was measured

    @property
    def ratios(self) -> tuple[float, float]:
        """Predicted / measured: of the step, and of the GPU's time."""
        return self.predicted.ns / 1e6 / self.measured_ms, self.gpu[0] / self.gpu[1]

    @property
    def inside(self) -> bool:
        return self.predicted.low <= self.measured_ms * 1e6 <= self.predicted.high


def timed_pairs(
    times: dict[str, CallTime], measure: Callable[[list[TimedCall]], list[CallTime]], given: bool
) -> Iterator[Timed]:
    for row in json.loads((GOLDEN / "measured.json").read_text(encoding="utf-8")):
        rule = row["rule"]
        if rule not in EDIT_RULES:
            continue
        base, start_ms = base_of(GOLDEN / f"{row['case']}.before.json.gz"), row["before_ms"]
        base.retime = Retimer(times)
        changed = with_measured(base.retime, lambda base=base, rule=rule: after(captured(base), rule), measure)
        forecaster = Forecaster(base, start_ms * 1e6 if given else None)
        end = captured(base_of(GOLDEN / f"{row['case']}.after.json.gz"))
        now = gpu_ms(captured(base))
        yield Timed(
            row["case"],
            rule,
            forecaster.difference(captured(base), changed),
            start_ms - row["after_ms"],
            (now - gpu_ms(changed), now - gpu_ms(end)),
            max((edit.timed for edit in changed.edits), default=0.0),
        )


def gpu_ms(scenario: Scenario) -> float:
    """The sum of the durations of a step."""
    return float(scenario.run.dur.sum()) / scenario.run.steps / 1e6


def measured_here(file: Path, times: dict[str, CallTime]) -> Callable[[list[TimedCall]], list[CallTime]]:
    """A function that times calls on this machine's GPU and writes them to the file."""
    import torch

    from pyprof.benchmark.device_facts import facts
    from pyprof.benchmark.time_edits import time_edits

    device = torch.device("cuda")

    def measure(calls: list[TimedCall]) -> list[CallTime]:
        found = time_edits(calls, device, time.monotonic() + SECONDS, lambda _: None)
        file.write_bytes(timings_text(timings_of(facts(device), [*times.values(), *found])))
        return found

    return measure


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Measured durations against the changed programs.")
    parser.add_argument("timings", type=Path)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--captured", action="store_true")
    args = parser.parse_args(words)
    times = load_timings(args.timings).by_call if args.timings.exists() else {}
    measure = measured_here(args.timings, times) if args.measure else lambda _: []
    print("| program | rule | saving predicted, ms | measured | ratio | of the GPU's time | measured share |")
    print("|---|---|---|---|---|---|---|")
    pairs = []
    for pair in timed_pairs(times, measure, not args.captured):
        if pair.share <= SHARE:
            continue
        pairs.append(pair)
        found, (step, gpu) = pair.predicted, pair.ratios
        saving = f"{found.ns / 1e6:.3g} ({found.low / 1e6:.3g} to {found.high / 1e6:.3g})"
        cells = (pair.program, f"`{pair.rule}`", saving, f"{pair.measured_ms:.3g}", f"{step:.2f}", f"{gpu:.3f}")
        print(f"| {' | '.join(cells)} | {pair.share:.0%} |")
    near, gpu_near = (sum(abs(pair.ratios[i] - 1) <= NEAR for pair in pairs) for i in (0, 1))
    inside = sum(pair.inside for pair in pairs)
    print(
        f"\nOf {len(pairs)}, {near} are within 10% (of the GPU's time, {gpu_near}), and {inside} inside their interval"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
