"""What ``--nvml`` costs a program: python tests/device/clock_cost.py [--blocks N] [--seconds S] [--out FILE.json]

Four cases: a step whose pace the GPU sets and one whose pace Python sets, each without and under PyTorch's profiler.
Each runs in blocks without and with the sampler, in the order A B B A, so that a drift hits both. From the same steps:

* pairs: the median over neighbouring blocks of how much longer the one with the sampler took;
* readings: the time by which a step is longer that a reading falls into (and one of the energy counter), times the
  readings in a second. Steps of one block are compared, so slow changes of the host cancel; what does not happen at a
  reading is not in it. Anything falls into long steps more often, so the same is subtracted for times half a period
  later, at which nothing is read.

Intervals are 95%, from resampled pairs or blocks.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import gpt2
import numpy as np
import torch

import pyprof
from pyprof.clock_reader import ENERGY_EACH
from pyprof.clock_sampler import PERIOD, ClockSampler

Step = Callable[[], Any]
DRAWS = 4000


class Block(NamedTuple):
    """Steps one after the other; Unix times in ns."""

    times: np.ndarray  # (steps + 1): where each begins, and the last one ends
    readings: np.ndarray
    of_energy: np.ndarray  # the readings of the energy counter


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=48, help="of each case; a multiple of four")
    parser.add_argument("--seconds", type=float, default=ENERGY_EACH * PERIOD, help="of a block")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from torch.profiler import ProfilerActivity, profile

    say(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, CUDA {torch.version.cuda}")
    cases = {
        "the GPU sets the pace": gpt2.training("cuda", gpt2.Config(), 16),
        "Python sets the pace": gpt2.training("cuda", gpt2.Config(12, 64, 2, 32, 101), 1),
    }
    sampler, found = ClockSampler(), {}
    for profiled in (False, True):
        if profiled:
            pyprof.init()
            activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
            profile(activities=activities, record_shapes=True, acc_events=False).__enter__()
        for name, step in cases.items():
            label = f"{name}, under PyTorch's profiler" if profiled else name
            blocks = measured(step, sampler, options.blocks, options.seconds)
            found[label] = {**by_pairs(blocks), **by_readings(blocks)}
            say(f"{label}: {json.dumps(found[label])}")
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sampler.close()
    sys.stdout.flush()
    os._exit(0)  # without the minutes in which PyTorch's profiler would sort millions of events


def measured(step: Step, sampler: ClockSampler, blocks: int, seconds: float) -> list[Block]:
    for _ in range(20):
        step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(5):
        step()
        torch.cuda.synchronize()
    steps = max(2, round(seconds * 5 / (time.perf_counter() - began)))
    return [block(step, steps, sampler if number % 4 in (1, 2) else None) for number in range(blocks)]


def block(step: Step, steps: int, sampler: ClockSampler | None) -> Block:
    if sampler is not None:
        sampler.begin()
    time.sleep(0.02)  # the sampler's first reading, which has the energy counter, is over
    times = [time.time_ns()]
    for _ in range(steps):
        step()
        torch.cuda.synchronize()
        times.append(time.time_ns())
    record = None if sampler is None else sampler.end()
    if record is None:
        return Block(np.array(times), np.empty(0), np.empty(0))
    (gpu,) = record["gpus"]
    readings = gpu["begin_unix_ns"] + 1000 * np.array(gpu["time_us"])
    counted = np.array([value is not None for value in gpu.get("energy_mj", [None] * len(readings))])
    return Block(np.array(times), readings, readings[counted])


def by_pairs(blocks: list[Block]) -> dict[str, Any]:
    """Neighbours: (A, B), (B, A), .. in percent."""
    lasted = np.array([(each.times[-1] - each.times[0]) / (len(each.times) - 1) for each in blocks]).reshape(-1, 2)
    first_has_it = np.arange(len(lasted)) % 2 == 1
    without, with_it = np.where(first_has_it, lasted[:, ::-1].T, lasted.T)
    ratios = 100 * (with_it / without - 1)
    drawn = np.random.default_rng(0).choice(ratios, (DRAWS, len(ratios)))
    return {
        "step_ms": round(float(np.median(without)) / 1e6, 3),
        "steps": len(blocks[0].times) - 1,
        "pairs": len(ratios),
        "median_percent": round(float(np.median(ratios)), 3),
        "interval": _interval(np.median(drawn, axis=1)),
        "quartiles": [round(float(each), 3) for each in np.quantile(ratios, (0.25, 0.75))],
    }


def by_readings(blocks: list[Block]) -> dict[str, Any]:
    """Least squares of a step's duration on its readings, about each block's own mean."""
    rows = [_centred(each) for each in blocks if len(each.readings)]

    def slopes(chosen: list[np.ndarray]) -> np.ndarray:
        table = np.concatenate(chosen)
        reading, energy, not_read, not_energy = np.linalg.lstsq(table[:, 1:], table[:, 0], rcond=None)[0]
        return np.array([reading - not_read, energy - not_energy])

    a_second = np.array([1, 1 / ENERGY_EACH]) / PERIOD
    drawn = np.random.default_rng(0).integers(len(rows), size=(DRAWS // 4, len(rows)))
    percents = np.array([100 * slopes([rows[at] for at in each]) @ a_second / 1e9 for each in drawn])
    reading, energy = slopes(rows)
    return {
        "reading_us": round(reading / 1e3, 2),
        "of_energy_us": round(energy / 1e3, 2),
        "readings_percent": round(100 * float(slopes(rows) @ a_second) / 1e9, 3),
        "readings_interval": _interval(percents),
    }


def _centred(each: Block) -> np.ndarray:
    """(steps, 5): duration, readings, readings of the energy counter, and both half a period later."""
    later = PERIOD * 0.5e9
    kinds = (each.readings, each.of_energy, each.readings + later, each.of_energy + later)
    counts = (np.histogram(times, each.times)[0] for times in kinds)
    table = np.stack([np.diff(each.times), *counts], axis=1).astype(float)
    return np.asarray(table - table.mean(axis=0))


def _interval(drawn: np.ndarray) -> list[float]:
    return [round(float(each), 3) for each in np.quantile(drawn, (0.025, 0.975))]


if __name__ == "__main__":
    main()
