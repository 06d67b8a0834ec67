"""What pyprof.init() adds to a training step of GPT-2 small on a GPU: python tests/device/step_time.py [--batch 4]

Run it alone, and under `nsys profile -t cuda,nvtx`. The ways to capture take turns, round after round, so that a
drifting clock hits all of them. A step's time is from its first call until the GPU is done, the CPU's from the first
call to the last: where the two are close, the GPU waits for Python, and what a marker costs is seen in full.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from statistics import median
from typing import Any

import gpt2
import torch
from torch.autograd.profiler import emit_nvtx

import pyprof
from pyprof.sinks import Nvtx

WARM_UP = 3
INITS: dict[str, dict[str, Any] | None] = {
    "without pyprof": None,
    "init()": {},
    "init(trace=True)": {"trace": True},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=10, help="of one way to capture, a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="a model for trying this script out on a CPU")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = gpt2.Config(2, 32, 2, 16, 101) if options.small else gpt2.Config()
    step = gpt2.training(device, config, options.batch)
    attached = Nvtx.listening()
    ways = [(name, emit, "auto") for emit in (False, True) for name in INITS]
    if not attached:
        ways += [(name, False, "nvtx") for name in INITS if INITS[name] is not None]
    times: dict[Any, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way in ways:
            times[way] += timed(step, options.steps, *way)
    title = f"batch {options.batch} x {config.context}, {'nsys attached' if attached else 'no tool attached'}"
    report(title, times)


def timed(step: Callable[[], Any], steps: int, name: str, emit: bool, sink: str) -> list[tuple[float, float]]:
    """(step, its CPU part) in ms."""
    init = INITS[name]
    if init is not None:
        pyprof.init(**init, sink=sink)
    on_gpu = torch.cuda.is_available()
    ranges: AbstractContextManager[Any] = emit_nvtx(record_shapes=True) if emit and on_gpu else nullcontext()
    with ranges:
        rows = [one(step) for _ in range(WARM_UP + steps)]
    pyprof.deinit()
    return rows[WARM_UP:]


def one(step: Callable[[], Any]) -> tuple[float, float]:
    start = time.perf_counter()
    step()
    called = time.perf_counter()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3, (called - start) * 1e3


def report(title: str, times: dict[Any, list[tuple[float, float]]]) -> None:
    lines = [title, "", "| | step, ms | added | CPU's part, ms | added |", "|---|---|---|---|---|"]
    for (name, emit, sink), rows in times.items():
        base = times["without pyprof", emit, "auto"]
        words = name + (", emit_nvtx" if emit else "") + (", sink nvtx" if sink == "nvtx" else "")
        cells = []
        for part in (0, 1):
            ms, plain = (median(row[part] for row in these) for these in (rows, base))
            cells += [f"{ms:.2f}", "" if rows is base else f"{100 * (ms / plain - 1):+.1f}%"]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    sys.stdout.write("\n".join([*lines, f"medians of {len(rows)} steps", ""]))


if __name__ == "__main__":
    main()
