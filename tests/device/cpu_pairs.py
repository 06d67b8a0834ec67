"""Advice for captures of the CPU, held against the changes made: ms per step, predicted and measured.

    python tests/device/cpu_pairs.py OUT [conv linear ...] [--rules cpu_bf16 ...]     on any machine; takes four minutes

Each program runs with and without a change in turns, on one thread, and counts that thread's own CPU time, so that
other processes matter little: the least of the rounds counts. The prediction is that of the advice on a capture of the
program as it is, the fastest of three, scaled from the captured step to the measured one. `cpu_threads` and
`cpu_data_loader` count wall time, which needs a machine that does nothing else; of the latter the mean, since a worker
may be ahead of one step. OUT gets the captures and pairs.json.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

WARM, ROUNDS = 3, 12
LOADER_THREADS = 2  # of the program that prepares data; more cores are to be there


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


class Mixer(nn.Module):
    """A block of MLP-Mixer: linear layers over patches, then over channels, with layer norms and GELU."""

    def __init__(self, patches, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(patches, 256), nn.GELU(), nn.Linear(256, patches))
        self.channels = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.tokens(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.second(x))


def mixer():
    blocks = [Mixer(196, 192) for _ in range(3)]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(196 * 192, 10)), torch.randn(4, 196, 192)


class Inverted(nn.Module):
    """MobileNet's inverted residual."""

    def __init__(self, channels):
        super().__init__()
        wide = 6 * channels
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(True)),
            *(nn.Conv2d(wide, wide, 3, 1, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(True)),
            *(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels)),
        )

    def forward(self, x):
        return x + self.body(x)


def mobile():
    body = [nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6(True)]
    body += [Inverted(24) for _ in range(3)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10)), torch.randn(4, 3, 96, 96)


class UNet(nn.Module):
    """Down, up and a skip connection, without norms."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), nn.LeakyReLU(0.1), nn.Conv2d(32, 32, 3, 1, 1), nn.ReLU())
        self.low = nn.Sequential(nn.Conv2d(32, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU())
        self.up = nn.ConvTranspose2d(64, 32, 2, 2)
        self.last = nn.Sequential(nn.Conv2d(64, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 8, 1), nn.AdaptiveAvgPool2d(1))

    def forward(self, x):
        x = self.first(x)
        return self.last(torch.cat([x, self.up(self.low(x))], 1)).flatten(1)


def unet():
    return UNet(), torch.randn(2, 3, 96, 96)


class Gated(nn.Module):
    """A gate and a root mean square spelled out, between two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(96, 1024), nn.Linear(1024, 8)

    def forward(self, x):
        y = self.first(x)
        y = y * torch.sigmoid(1.702 * y) + 0.1 * y.abs()
        return self.last((y - 0.5) * 2.0 / (1.0 + y * y))


def gated():
    return Gated(), torch.randn(768, 96)


class Waves(torch.utils.data.Dataset):
    """Samples that NumPy prepares."""

    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        wave = np.random.default_rng(index).standard_normal(16384, dtype=np.float32)
        return torch.from_numpy(np.abs(np.fft.rfft(wave))[:4096].astype(np.float32)), index % 8


def loader():
    model = nn.Sequential(nn.Linear(4096, 1024), nn.ReLU(), nn.Linear(1024, 10))
    return model, torch.utils.data.DataLoader(Waves(), batch_size=32)


PROGRAMS = {
    "conv": (conv, {"cpu_bf16": "amp", "cpu_channels_last": "channels_last", "cpu_threads": "threads"}),
    "residual": (residual, {"cpu_bf16": "amp", "cpu_channels_last": "channels_last"}),
    "depthwise": (depthwise, {"cpu_channels_last": "channels_last"}),
    "gelu": (gelu, {"cpu_fusion": "compile"}),
    "linear": (linear, {"cpu_bf16": "amp", "cpu_threads": "threads"}),
    "encoder": (encoder, {"cpu_bf16": "amp", "cpu_threads": "threads"}),
    "chain": (chain, {"cpu_fusion": "compile", "cpu_bf16": "amp"}),
    "mixer": (mixer, {"cpu_bf16": "amp", "cpu_threads": "threads"}),
    "mobile": (mobile, {"cpu_bf16": "amp", "cpu_channels_last": "channels_last"}),
    "unet": (unet, {"cpu_bf16": "amp", "cpu_channels_last": "channels_last", "cpu_threads": "threads"}),
    "gated": (gated, {"cpu_fusion": "compile"}),
    "loader": (loader, {"cpu_data_loader": "workers"}),
}


def step_of(name, change):
    """A function that runs one training step with a change made by hand."""
    torch.manual_seed(0)
    model, x = PROGRAMS[name][0]()
    if name == "loader":
        return _loaded(model, x.dataset, 2 if change == "workers" else 0)
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


def _loaded(model, dataset, workers):
    """A step with the next batch of a DataLoader."""
    more = {"num_workers": workers, "persistent_workers": True} if workers else {}
    batches = iter(torch.utils.data.DataLoader(dataset, batch_size=32, **more))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step():
        x, labels = next(batches)
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def captured(name, folder, times):
    """The changes of a capture of the program as it is, by rule, and its step in ms: the fastest of ``times``."""
    return min((_captured(name, folder / f"{name}{turn}.json.gz") for turn in range(times)), key=lambda found: found[1])


def _captured(name, trace):
    pyprof = [sys.executable, "-m", "pyprof"]
    run = [*pyprof, "run", "-q", "--warmup", "3", "--steps", "5", "-o", str(trace), __file__]
    subprocess.run([*run, str(trace.parent), name, "--one"], check=True)
    told = subprocess.run([*pyprof, "prof", "--advise", "--json", str(trace)], capture_output=True, check=True)
    document = json.loads(told.stdout)
    return {change["rule"]: change["saved_ms"] for change in document["changes"]}, document["captured_ms"]


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


def mean(steps):
    """The mean wall time of a step of each function, ms, of steps in a row."""
    found = []
    for step in steps:
        for _ in range(WARM):
            step()
        began = time.perf_counter()
        for _ in range(ROUNDS):
            step()
        found.append((time.perf_counter() - began) / ROUNDS * 1e3)
    return found


def measured(name, rule, change):
    """ms per step without and with the change."""
    steps = [step_of(name, ""), step_of(name, change)]
    if rule == "cpu_data_loader":
        return mean(steps)
    wall = rule == "cpu_threads"
    cores = len(os.sched_getaffinity(0)) if wall else 1
    return least(steps, time.perf_counter if wall else time.thread_time, [1, cores])


def pairs(args):
    """A row per program and rule."""
    for name, (_, rules) in PROGRAMS.items():
        wanted = {rule: change for rule, change in rules.items() if not args.rules or rule in args.rules}
        if not wanted or (args.programs and name not in args.programs):
            continue
        threads = LOADER_THREADS if name == "loader" else 1
        os.environ["OMP_NUM_THREADS"] = str(threads)
        torch.set_num_threads(threads)
        changes, step_ms = captured(name, args.out, args.captures)
        for rule, change in wanted.items():
            before, after = measured(name, rule, change)
            predicted = changes.get(rule, 0.0) * before / step_ms
            print(f"{name:9} {rule:18} {before:7.2f} {after:7.2f} {before - after:7.2f} {predicted:9.2f}", flush=True)
            row = {"program": name, "rule": rule, "before_ms": before, "after_ms": after, "captured_ms": step_ms}
            yield {**row, "predicted_ms": predicted, "threads": threads, "cores": len(os.sched_getaffinity(0))}


def main():
    parser = argparse.ArgumentParser(description="Advice for captures of the CPU, held against the changes made.")
    parser.add_argument("out", type=Path)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--rules", nargs="*", default=[])
    parser.add_argument("--captures", type=int, default=3)
    parser.add_argument("--one", action="store_true", help="run steps of the program as it is, to capture them")
    args = parser.parse_args()
    if args.one:
        one = step_of(args.programs[0], "")
        for _ in range(10):
            one()
        return
    args.out.mkdir(parents=True, exist_ok=True)
    print(f"{'program':9} {'rule':18} {'step':>7} {'after':>7} {'saved':>7} {'predicted':>9}  ms")
    rows = []
    for row in pairs(args):
        rows.append(row)
        (args.out / "pairs.json").write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
