"""For programs that know nothing of pyprof: their changes by hand (HAND=amp,compile) and their own measurement.

GPU_LOCK names a file: the program waits for it before it uses the GPU, so that several can import side by side.
CLOCK names a file that gets the step's time and the first losses.
"""

import fcntl
import json
import os
import time

import torch

HAND = {name for name in os.environ.get("HAND", "").split(",") if name}
WARM, STEPS = 10, 20


def begin():
    """Wait for the GPU, set seeds and what HAND asks for of flags."""
    if os.environ.get("GPU_LOCK"):
        lock = os.open(os.environ["GPU_LOCK"], os.O_RDWR | os.O_CREAT)  # held until the process ends
        fcntl.flock(lock, fcntl.LOCK_EX)
    if "tf32" in HAND:
        torch.set_float32_matmul_precision("high")
    torch.manual_seed(5)


class Clock:
    """`step(loss)` at the end of each step."""

    def __init__(self):
        self.count, self.losses, self.began, self.ms = 0, [], 0.0, None

    def step(self, loss=None):
        self.count += 1
        if loss is not None and self.count <= 5:
            self.losses.append(loss.detach().clone())
        if self.count in (WARM, WARM + STEPS):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            now = time.perf_counter()
            if self.count == WARM:
                self.began = now
            else:
                self.ms = (now - self.began) / STEPS * 1e3

    def end(self):
        losses = [float(loss) for loss in self.losses]
        print("losses", *(f"{loss:.4f}" for loss in losses))
        if os.environ.get("CLOCK"):
            with open(os.environ["CLOCK"], "w") as out:
                json.dump({"ms": self.ms, "losses": losses}, out)
