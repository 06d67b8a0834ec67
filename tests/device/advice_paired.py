"""What changes with several parts bring, on a GPU: python tests/device/advice_paired.py FOLDER [--part loops|whole]

Programs without and with the change take turns in blocks of steps without a profiler, because the host's speed drifts.
Then each is captured: two steps, after six that are timed without the profiler. FOLDER gets NAME.before.json.gz,
NAME.after.json.gz and times-PART.json, whose gain is the median of neighbouring blocks' differences.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import advice_loops  # noqa: F401 (each registers its cases)
import advice_whole  # noqa: F401
import torch
from advice_case import CASES, ON_GPU, Case, Step
from step_clock import alone, wait

import pyprof

WARM_UP, BLOCKS, BLOCK_S, FEWEST, MOST = 6, 5, 0.12, 3, 40
CAPTURED, TIMED = 2, 6


def block(step: Step, steps: int) -> float:
    """ms of one of these steps in a row."""
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - start) * 1e3 / steps


def captured(step: Step, path: Path) -> None:
    with pyprof.profile(path, force=True, trace=True, warmup=TIMED, steps=CAPTURED):
        for _ in range(TIMED + CAPTURED):
            step()
            pyprof.step()
        wait()


def prepared(case: Case, changed: bool) -> tuple[Step, int, float]:
    """The step, how many are a block, and the seconds until the first one had run: what compiling takes."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    begin = time.perf_counter()
    step = case.make(changed)
    alone(step)
    first = time.perf_counter() - begin
    took = [alone(step)[0] for _ in range(WARM_UP)][-1]
    return step, max(FEWEST, min(MOST, int(1e3 * BLOCK_S / took))), first


def run(case: Case, folder: Path) -> dict[str, Any]:
    before, steps_before, _ = prepared(case, changed=False)
    after, steps_after, first_s = prepared(case, changed=True)
    without, changed, gains = [block(before, steps_before)], [], []
    for _ in range(BLOCKS):
        changed.append(block(after, steps_after))
        without.append(block(before, steps_before))
        gains.append((without[-2] + without[-1]) / 2 - changed[-1])
    hosts = [statistics.median(alone(step)[1] for _ in range(5)) for step in (before, after)]
    captured(before, folder / f"{case.name}.before.json.gz")
    captured(after, folder / f"{case.name}.after.json.gz")
    return {
        "case": case.name,
        "rule": case.rule,
        "before_ms": round(statistics.median(without), 4),
        "after_ms": round(statistics.median(changed), 4),
        "gain": round(statistics.median(gains), 4),
        "gain_low": round(min(gains), 4),
        "gain_high": round(max(gains), 4),
        "host_ms": [round(ms, 4) for ms in hosts],
        "first_s": round(first_s, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="measure what changes with several parts bring")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", default="", choices=["", "loops", "whole"])
    parser.add_argument("--only", nargs="+", default=[], choices=sorted(CASES))
    parser.add_argument("--until-s", type=float, default=1e9, help="begin no further case after this many seconds")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    begun, rows = time.perf_counter(), []
    for case in CASES.values():
        late = time.perf_counter() - begun > options.until_s
        if late or options.part not in ("", case.part) or (options.only and case.name not in options.only):
            continue
        begin = time.perf_counter()
        try:
            row = run(case, options.folder)
        except (RuntimeError, ImportError, TypeError, pyprof.PyprofError) as error:
            row = {"case": case.name, "rule": case.rule, "error": str(error)[:300]}
        row["took_s"] = round(time.perf_counter() - begin, 1)
        rows.append(row)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        (options.folder / f"times-{options.part or 'all'}.json").write_text(json.dumps(rows, indent=1))
        gc.collect()
        if ON_GPU:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
