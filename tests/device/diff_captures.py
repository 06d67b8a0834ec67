"""Captures for `pyprof diff`, made on a GPU: the same training step in several forms, five steps each.

    python tests/device/diff_captures.py FOLDER             all of them, by pyprof's own collector
    python tests/device/diff_captures.py --nsys NAME        one of them, for nsys to record

| name | what differs |
|---|---|
| eager | GPT-2 of two layers, a vocabulary of 50257, bf16 autocast, fused AdamW |
| again | nothing: the same program in another process |
| padded | the vocabulary is 50304: rows of the logits are aligned |
| compiled | eager's, under torch.compile |
| float32 | eager's without autocast: no tensor cores |

Each capture is made in a process of its own, for autotuning, clocks and memory are a process's own, too.
"""

import argparse
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import gpt2
import torch
import torch.nn.functional as F
from torch import Tensor

import pyprof

WARM_UP_STEPS, STEPS, BATCH = 4, 5, 8
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
NAMES = ("eager", "again", "padded", "compiled", "float32")


def training(name: str, small: bool) -> Callable[[], Tensor]:
    """What makes one training step and returns the loss."""
    torch.manual_seed(0)
    vocabulary = 50304 if name == "padded" else 50257
    config = gpt2.Config(layers=2, vocabulary=vocabulary)
    if small:
        config = gpt2.Config(2, 32, 2, 16, vocabulary // 64)
    model = gpt2.Gpt2(config).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    text = torch.randint(50257 // (64 if small else 1), (BATCH, config.context + 1), device=DEVICE)
    ids, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    if name == "compiled":
        model.compile()
    mixed = name != "float32"

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(DEVICE, torch.bfloat16) if mixed else nullcontext():
            logits = model(ids)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return step


def wait() -> None:
    if ON_GPU:
        torch.cuda.synchronize()


def run(step: Callable[[], Tensor]) -> None:
    """The warm-up, then the steps that `pyprof.profile` collects."""
    for number in range(WARM_UP_STEPS + STEPS):
        step()
        if number in (WARM_UP_STEPS - 1, WARM_UP_STEPS + STEPS - 1):
            wait()  # no kernel of one runs into the other
        pyprof.step()


def record(name: str, file: Path, small: bool) -> None:
    """One capture by pyprof's own collector."""
    step = training(name, small)
    with pyprof.profile(file, force=True, warmup=WARM_UP_STEPS, steps=STEPS):
        run(step)


def mark(name: str, small: bool) -> None:
    """The same for nsys: NVTX ranges around the steps, and the range to capture."""
    step = training(name, small)
    pyprof.init(trace=True)
    for _ in range(WARM_UP_STEPS):
        step()
    with torch.autograd.profiler.emit_nvtx(record_shapes=True) if ON_GPU else nullcontext():
        pyprof.start()
        pyprof.step()
        for _ in range(STEPS):
            step()
            pyprof.step()
        pyprof.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--nsys", metavar="NAME", choices=NAMES)
    parser.add_argument("--only", metavar="NAME", choices=NAMES)
    parser.add_argument("--small", action="store_true", help="a model for trying this script out on a CPU")
    options = parser.parse_args()
    if options.nsys:
        mark(options.nsys, options.small)
    elif options.folder is None:
        parser.error("a folder for the captures is missing")
    elif options.only:
        record(options.only, options.folder / f"h200_diff_{options.only}.json.gz", options.small)
    else:
        options.folder.mkdir(parents=True, exist_ok=True)
        for name in NAMES:  # each in a process of its own
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--only", name], check=True)


if __name__ == "__main__":
    main()
