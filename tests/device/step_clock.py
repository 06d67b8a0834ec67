"""Times of a program's step without a profiler: alone on an idle GPU, and in a row as in a training loop."""

import time
from itertools import pairwise

import torch
from advice_case import ON_GPU, Step


def wait() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def alone(step: Step) -> tuple[float, float]:
    """From its first call on an idle GPU until the GPU is done, and until its last call returned, in ms."""
    wait()
    start = time.perf_counter()
    step()
    called = time.perf_counter()
    wait()
    return (time.perf_counter() - start) * 1e3, (called - start) * 1e3


def in_a_row(step: Step, steps: int) -> list[float]:
    """Between the GPU's ends of two steps, in ms, where nothing waits for the GPU but the steps themselves."""
    if not ON_GPU:
        return [alone(step)[0] for _ in range(steps)]
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    wait()
    return [a.elapsed_time(b) for a, b in pairwise(marks)]
