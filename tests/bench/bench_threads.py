"""What a capture of all threads costs a server, beside PyTorch's profiler with the same settings, on a CPU.

    python tests/bench/bench_threads.py [ROUNDS]

Four threads, which started before, take requests from a queue and run a model in inference mode. The ways of running
take turns: without a profiler, under torch.profiler (shapes recorded) of one thread and of all, under pyprof.profile,
without and with lines of code. Each value is the median of ROUNDS rounds (default 15) of 200 requests, in ms per
request: of time, and of the process's processor time, which other programs disturb less. To begin and to end a profiler
is not in it.
"""

from __future__ import annotations

import queue
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import pyprof
from pyprof.capture.collector import all_threads

THREADS, REQUESTS = 4, 200
MODELS = {
    "a transformer layer, 64 tokens of 256": (
        lambda: nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, norm_first=True),
        (1, 64, 256),
    ),
    "20 linear layers of 512, 32 samples": (
        lambda: nn.Sequential(*(nn.Linear(512, 512) for _ in range(20))),
        (32, 512),
    ),
    "20 linear layers of 8, 1 sample": (lambda: nn.Sequential(*(nn.Linear(8, 8) for _ in range(20))), (1, 8)),
}


class Server:
    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for _ in range(THREADS):
            threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            x = self.inbox.get()
            with torch.inference_mode():
                self.outbox.put(self.model(x))

    def ms_per_request(self, x: Any) -> tuple[float, float]:
        begun, cpu_begun = time.perf_counter(), time.process_time()
        for _ in range(REQUESTS):
            self.inbox.put(x)
        for _ in range(REQUESTS):
            self.outbox.get()
        took, of_cpu = time.perf_counter() - begun, time.process_time() - cpu_begun
        return took / REQUESTS * 1e3, of_cpu / REQUESTS * 1e3


@contextmanager
def profiled(name: str, folder: Path) -> Iterator[None]:
    torchs: dict[str, Any] = {"activities": [ProfilerActivity.CPU], "record_shapes": True, "acc_events": False}
    if name == "no profiler":
        yield
    elif name.startswith("torch.profiler"):
        with profile(**torchs, **(all_threads() if "all" in name else {})):
            yield
    else:
        with pyprof.profile(folder / "net.json", force=True, trace="lines" in name):
            yield


WAYS = ("no profiler", "torch.profiler", "torch.profiler, all threads", "pyprof.profile", "pyprof.profile, lines")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        for title, (make, shape) in MODELS.items():
            server, x = Server(make()), torch.ones(shape)
            server.ms_per_request(x)
            times: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
            for number in range(rounds * len(WAYS)):
                way = WAYS[number % len(WAYS)]
                with profiled(way, Path(folder)):
                    server.ms_per_request(x)
                    times[way].append(server.ms_per_request(x))
            medians = {
                way: [statistics.median(part) for part in zip(*taken, strict=True)] for way, taken in times.items()
            }
            base = medians["torch.profiler, all threads"]
            print(title)
            for way, found in medians.items():
                told = (f"{ms:8.4f} ms {ms / of_base - 1:+7.1%}" for ms, of_base in zip(found, base, strict=True))
                print(f"    {way:28} {'   '.join(told)} of processor time")


if __name__ == "__main__":
    main()
