"""What the advice's changes bring, on a GPU; what was predicted of them is judged later, without one.

    python tests/device/advice_measured.py FOLDER [--part PART] [--only NAME ...]

PART is products, memory, compiled, host, more, held or probes. Each case (advice_products.py, ..._memory.py, ...) is a
program that deserves advice and the same program changed as advised. Both are timed without a profiler and then
captured: two steps, after two others.
FOLDER gets NAME.before.json.gz, NAME.after.json.gz and times-PART.json; `python tests/device/advice_judged.py FOLDER`
sets predictions beside.

Three times of a step, medians in ms: *row*, between the GPU's ends of two steps in a loop that never waits, as a
training loop's; *alone*, from its first call on an idle GPU to the GPU's end; *python*, from first call to last.
"""

import argparse
import gc
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import advice_held  # noqa: F401 (each registers its cases)
import advice_host  # noqa: F401
import advice_memory  # noqa: F401
import advice_more  # noqa: F401
import advice_products  # noqa: F401
import torch
from advice_case import CASES, ON_GPU, Case, Step
from advice_probe import PROBES
from step_clock import alone, in_a_row, wait

import pyprof

WARM_UP, STEPS, CAPTURED = 5, 20, 2
LONG_S = 1.0  # of a measurement; a slow program has fewer steps


def measured(step: Step, steps: int = 0) -> dict[str, float]:
    """Times of a step; ``steps``: how many, as many as take a second without."""
    first = [alone(step) for _ in range(WARM_UP)][-1][0]
    steps = steps or max(3, min(STEPS, int(1e3 * LONG_S / first)))
    each = [alone(step) for _ in range(steps)]
    row = [statistics.mean(in_a_row(step, steps + 2)[2:]) for _ in range(3)]
    return {
        "row_ms": statistics.median(row),
        "alone_ms": statistics.median(a for a, _ in each),
        "python_ms": statistics.median(p for _, p in each),
        "row_spread_ms": max(row) - min(row),
    }


def captured(step: Step, path: Path) -> None:
    with pyprof.profile(path, force=True, trace=True, warmup=2, steps=CAPTURED):
        for _ in range(2 + CAPTURED):
            step()
            pyprof.step()
        wait()


def run(case: Case, folder: Path) -> dict[str, Any]:
    row: dict[str, Any] = {"case": case.name, "rule": case.rule}
    for state, changed in (("before", False), ("after", True)):
        torch.manual_seed(0)
        step = case.make(changed)
        row[state] = measured(step)
        captured(step, folder / f"{case.name}.{state}.json.gz")
        del step
        gc.collect()
        if ON_GPU:
            torch.cuda.empty_cache()
    return row


def probes(folder: Path) -> None:
    for name, function in PROBES.items():
        function()
        with pyprof.profile(folder / f"{name}.json.gz", force=True):
            function()
            wait()
        print(name, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="measure what the advice's changes bring")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", default="")
    parser.add_argument("--only", nargs="+", default=[], choices=sorted(CASES))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.part == "probes":
        probes(options.folder)
        return
    rows = []
    for case in CASES.values():
        if options.part not in ("", case.part) or (options.only and case.name not in options.only):
            continue
        begin = time.perf_counter()
        try:
            row = run(case, options.folder)
        except (RuntimeError, ImportError, pyprof.PyprofError) as error:
            row = {"case": case.name, "rule": case.rule, "error": str(error)[:300]}
        row["took_s"] = round(time.perf_counter() - begin, 1)
        rows.append(row)
        print(json.dumps(row), flush=True)
        name = options.part or "all"
        (options.folder / f"times-{name}.json").write_text(json.dumps(rows, indent=1))
    sys.exit(0 if rows else "no such case")


if __name__ == "__main__":
    main()
