"""What pyprof.init() adds to a training step of GPT-2 small on a GPU: python tests/device/step_time.py [--batch 4]

Run it alone, and under `nsys profile -t cuda,nvtx`. The ways to capture take turns, round after round, so that a
drifting clock hits all of them. Three times of a step, in ms:

* in a row: between the GPU's ends of two steps, when nothing waits for the GPU, as in a training loop;
* alone: from its first call until the GPU is done, where the GPU is idle at first and waits for Python;
* Python: from its first call to its last.
"""

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from statistics import median
from typing import Any

import gpt2
import torch
from torch.autograd.profiler import emit_nvtx

import pyprof
from pyprof.capture.sinks import Nvtx

WARM_UP = 3
ON_GPU = torch.cuda.is_available()
Times = tuple[float, float, float]  # in a row, alone, Python
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
    device = "cuda" if ON_GPU else "cpu"
    config = gpt2.Config(2, 32, 2, 16, 101) if options.small else gpt2.Config()
    step = gpt2.training(device, config, options.batch)
    attached = Nvtx.listening()
    ways = [(name, emit, "auto") for emit in (False, True) for name in INITS]
    if not attached:
        ways += [(name, False, "nvtx") for name in INITS if INITS[name] is not None]
    times: dict[Any, list[Times]] = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way in ways:
            times[way] += timed(step, options.steps, *way)
    title = f"batch {options.batch} x {config.context}, {'nsys attached' if attached else 'no tool attached'}"
    report(title, times)


def timed(step: Callable[[], Any], steps: int, name: str, emit: bool, sink: str) -> list[Times]:
    init = INITS[name]
    if init is not None:
        pyprof.init(**init, sink=sink, autograd=False)  # emit_nvtx is a way of its own here
    ranges: AbstractContextManager[Any] = emit_nvtx(record_shapes=True) if emit and ON_GPU else nullcontext()
    with ranges:
        alone = [one(step) for _ in range(WARM_UP + steps)][WARM_UP:]
        row = in_a_row(step, WARM_UP + steps)[WARM_UP:]
    pyprof.deinit()
    return [(a, *b) for a, b in zip(row, alone, strict=True)]


def one(step: Callable[[], Any]) -> tuple[float, float]:
    start = time.perf_counter()
    step()
    called = time.perf_counter()
    if ON_GPU:
        torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e3, (called - start) * 1e3


def in_a_row(step: Callable[[], Any], steps: int) -> list[float]:
    if not ON_GPU:
        return [one(step)[0] for _ in range(steps)]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in pairwise(marks)]


def report(title: str, times: dict[Any, list[Times]]) -> None:
    lines = [title, "", "| | in a row | added | alone | added | Python | added |", "|---|---|---|---|---|---|---|"]
    for (name, emit, sink), rows in times.items():
        base = times["without pyprof", emit, "auto"]
        words = name + (", emit_nvtx" if emit else "") + (", sink nvtx" if sink == "nvtx" else "")
        cells = []
        for part in range(3):
            ms, plain = (median(row[part] for row in these) for these in (rows, base))
            cells += [f"{ms:.2f}", "" if rows is base else f"{100 * (ms / plain - 1):+.1f}%"]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    sys.stdout.write("\n".join([*lines, f"medians of {len(rows)} steps", ""]))


if __name__ == "__main__":
    main()
