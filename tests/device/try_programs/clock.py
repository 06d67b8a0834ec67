"""For programs that know nothing of pyprof: their changes by hand (HAND=amp,compile) and their own measurement.

GPU_LOCK names a file: the program waits for it before it uses the GPU, so that several can prepare side by side. In a
process of turns.py (try_in_turns.py) it waits for its turn instead, there and every ten steps.
CLOCK names a file that gets the step's time and the first losses.
"""

import fcntl
import json
import os
import sys
import time
from statistics import median

import torch

HAND = {name for name in os.environ.get("HAND", "").split(",") if name}
WARM, STEPS, PART = 10, int(os.environ.get("TRY_STEPS", "20")), int(os.environ.get("TRY_PART", "10"))
locks = []


def begin():
    """Set seeds and what HAND asks for of flags."""
    if "tf32" in HAND:
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(5)


def turn():
    """Wait for the GPU. A program calls this before its first work there."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()  # makes PyTorch's context, which takes a second
    wait()
    if os.environ.get("GPU_LOCK"):
        locks.append(os.open(os.environ["GPU_LOCK"], os.O_RDWR | os.O_CREAT))  # held until closed, or the process ends
        fcntl.flock(locks[0], fcntl.LOCK_EX)


def wait():
    """Let another process go on, if this one takes turns."""
    if "turns" in sys.modules:
        sys.modules["turns"].wait()


class Clock:
    """`step(loss)` at the end of each step. A step's time is that between two CUDA events; on a CPU, the host's."""

    def __init__(self):
        self.count, self.losses, self.marks, self.ms = 0, [], [], []

    def step(self, loss=None):
        self.count += 1
        if loss is not None and self.count <= 5:
            self.losses.append(loss.detach().clone())
        if WARM <= self.count <= WARM + STEPS:
            self.marks.append(_now())
        if self.count % PART == 0:
            wait()
        if self.count == WARM + STEPS:
            self.ms = [_between(*pair) for pair in zip(self.marks, self.marks[1:], strict=False)]

    def end(self):
        losses = [float(loss) for loss in self.losses]
        print("losses", *(f"{loss:.4f}" for loss in losses))
        if os.environ.get("CLOCK"):
            with open(os.environ["CLOCK"], "w") as out:
                json.dump({"ms": median(self.ms), "steps_ms": self.ms, "losses": losses}, out)
        for lock in locks:
            os.close(lock)


def _now():
    if not torch.cuda.is_available():
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(first, last):
    if isinstance(first, float):
        return (last - first) * 1e3
    last.synchronize()
    return first.elapsed_time(last)
