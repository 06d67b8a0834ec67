"""Advice for captures of the CPU, held against the changes made: ms per step, predicted and measured.

    python tests/device/cpu_pairs.py            on any machine; takes two minutes

Each program runs with and without a change in turns, on one thread, and counts that thread's own CPU time, so that
other processes matter little: the least of the rounds counts. The prediction is that of the advice on a capture of the
program as it is, the fastest of three, scaled from the captured step to the measured one. `cpu_threads` counts wall
time.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import nn

WARM, ROUNDS = 3, 12


class Chain(nn.Module):
    """Element-wise ops between two layers, as activations written by hand have them."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 1024), nn.Linear(1024, 8)

    def forward(self, x):
        y = self.first(x)
        y = (y * 0.5 + 1.5) * y.clamp(-3, 3) - 0.1 * y
        return self.last(y.relu() + 0.25 * y)


def conv():
    body = [nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU()]
    for _ in range(3):
        body += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), torch.randn(4, 3, 112, 112)


class Block(nn.Module):
    """Two convolutions with batch norms, added to their input."""

    def __init__(self, channels):
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.last = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(x + self.last(self.second(torch.relu(self.norm(self.first(x))))))


def residual():
    body = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    body += [Block(64), Block(64), nn.Conv2d(64, 128, 3, 2, 1), Block(128), Block(128)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)), torch.randn(4, 3, 112, 112)


def depthwise():
    body = [nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU()]
    for _ in range(3):
        body += [nn.Conv2d(32, 128, 1), nn.BatchNorm2d(128), nn.ReLU()]
        body += [nn.Conv2d(128, 128, 3, padding=1, groups=128), nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, 32, 1)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)), torch.randn(4, 3, 112, 112)


class Gelu(nn.Module):
    """GPT-2's activation by its formula, between two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(128, 1024), nn.Linear(1024, 8)

    def forward(self, x):
        y = self.first(x)
        return self.last(0.5 * y * (1.0 + torch.tanh(0.79788456 * (y + 0.044715 * torch.pow(y, 3.0)))))


def gelu():
    return Gelu(), torch.randn(512, 128)


def linear():
    return nn.Sequential(
        nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    ), torch.randn(256, 512)


def encoder():
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(256 * 64, 10)), torch.randn(
        4, 64, 256
    )


def chain():
    return Chain(), torch.randn(512, 64)


PROGRAMS = {
    "conv": (conv, {"cpu_bf16": "amp", "cpu_channels_last": "channels_last", "cpu_threads": "threads"}),
    "residual": (residual, {"cpu_bf16": "amp", "cpu_channels_last": "channels_last"}),
    "depthwise": (depthwise, {"cpu_channels_last": "channels_last"}),
    "gelu": (gelu, {"cpu_fusion": "compile"}),
    "linear": (linear, {"cpu_bf16": "amp", "cpu_threads": "threads"}),
    "encoder": (encoder, {"cpu_bf16": "amp", "cpu_threads": "threads"}),
    "chain": (chain, {"cpu_fusion": "compile", "cpu_bf16": "amp"}),
}


def step_of(name, change):
    """A function that runs one training step with a change made by hand."""
    torch.manual_seed(0)
    model, x = PROGRAMS[name][0]()
    labels = torch.randint(0, 8, (len(x),))
    if change == "channels_last":
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    call = torch.compile(model) if change == "compile" else model

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=change == "amp"):
            loss = nn.functional.cross_entropy(call(x).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def captured(name, folder):
    """The cards of a capture of the program as it is, by rule, and the captured step in ms: the fastest of three."""
    return min((_captured(name, folder / f"{name}{turn}.json.gz") for turn in range(3)), key=lambda found: found[1])


def _captured(name, trace):
    run = [
        sys.executable,
        "-m",
        "pyprof",
        "run",
        "-q",
        "--warmup",
        "3",
        "--steps",
        "5",
        "-o",
        str(trace),
        __file__,
        name,
    ]
    subprocess.run(run, check=True)
    told = subprocess.run(
        [sys.executable, "-m", "pyprof", "prof", "--advise", "--json", str(trace)], capture_output=True, check=True
    )
    document = json.loads(told.stdout)
    return {card["rule"]: card["saved_ms"] for card in document["advice"]}, document["step_ms"]


def least(steps, clock, threads):
    """The least ms of a step of each function, run in turns."""
    found = [[] for _ in steps]
    for turn in range(WARM + ROUNDS):
        for mine, step, count in zip(found, steps, threads, strict=True):
            torch.set_num_threads(count)
            began = clock()
            step()
            if turn >= WARM:
                mine.append((clock() - began) * 1e3)
    return [min(mine) for mine in found]


def main():
    folder = Path(tempfile.mkdtemp())
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    print(f"{'program':9} {'rule':18} {'step':>7} {'after':>7} {'saved':>7} {'predicted':>9}  ms")
    for name, (_, rules) in PROGRAMS.items():
        cards, step_ms = captured(name, folder)
        for rule, change in rules.items():
            wall = change == "threads"
            cores = len(os.sched_getaffinity(0)) if wall else 1
            clock = time.perf_counter if wall else time.thread_time
            before, after = least([step_of(name, ""), step_of(name, change)], clock, [1, cores])
            predicted = cards.get(rule, 0.0) * before / step_ms
            print(f"{name:9} {rule:18} {before:7.2f} {after:7.2f} {before - after:7.2f} {predicted:9.2f}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        one = step_of(sys.argv[1], "")
        for _ in range(10):
            one()
    else:
        main()
