"""Micro-batches, as they are and as one batch: times without a profiler, GPU work of both, and captures of the former.

    python tests/device/repeats_measured.py FOLDER

Four programs accumulate the gradients of several micro-batches before each update. FOLDER gets NAME.before.json.gz and
repeats.json: medians of a step in a row, ms, and the GPU's work in a step by torch.profiler, ms.
"""

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from step_clock import in_a_row, wait

import pyprof

Step = Callable[[], None]
DEVICE = torch.device("cuda")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.other = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(-1, (-1, 64)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.other(x))))


def trained(model: nn.Module, batch: Callable[[int], torch.Tensor], size: int, parts: int, lr: float = 1e-4) -> Step:
    """A step of AdamW on ``size`` samples in so many micro-batches."""
    model.to(DEVICE).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    whole = batch(size).to(DEVICE)

    def step() -> None:
        for part in whole.chunk(parts):
            (model(part).float().square().mean() / parts).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def transformer(parts: int) -> Step:
    model = nn.Sequential(*(Block(512) for _ in range(12)))
    return trained(model, lambda n: torch.randn(n, 256, 512), 32, parts)


def large_transformer(parts: int) -> Step:
    model = nn.Sequential(*(Block(1024) for _ in range(8))).to(torch.bfloat16)
    return trained(model, lambda n: torch.randn(n, 1024, 1024, dtype=torch.bfloat16), 32, parts)


def convolutions(parts: int) -> Step:
    layers: list[nn.Module] = []
    for i in range(20):
        layers += [nn.Conv2d(3 if not i else 64, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.SiLU()]
    return trained(nn.Sequential(*layers), lambda n: torch.randn(n, 3, 32, 32), 256, parts)


def perceptron(parts: int) -> Step:
    layers = [layer for _ in range(30) for layer in (nn.Linear(256, 256), nn.ReLU(), nn.Dropout(0.1))]
    return trained(nn.Sequential(*layers), lambda n: torch.randn(n, 256), 1024, parts)


PROGRAMS: dict[str, tuple[Callable[[int], Step], int]] = {
    "transformer": (transformer, 4),
    "large_transformer": (large_transformer, 4),
    "convolutions": (convolutions, 8),
    "perceptron": (perceptron, 8),
}


def step_ms(step: Step) -> float:
    for _ in range(5):
        step()
    return statistics.median(statistics.mean(in_a_row(step, 12)[2:]) for _ in range(3))


def gpu_ms(step: Step) -> float:
    """The time of the GPU's operations in a step."""
    from torch.profiler import ProfilerActivity, profile

    step()
    wait()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(3):
            step()
        wait()
    return sum(event.device_time_total for event in found.events()) / 3e3


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, (make, parts) in PROGRAMS.items():
        before, after = make(parts), make(1)
        row = {"program": name, "parts": parts, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        row |= {"before_ms": step_ms(before), "after_ms": step_ms(after)}
        row |= {"before_gpu_ms": gpu_ms(before), "after_gpu_ms": gpu_ms(after), "again_ms": step_ms(before)}
        with pyprof.profile(folder / f"{name}.before.json.gz", force=True, trace=True, warmup=8, steps=2):
            for _ in range(10):
                before()
                pyprof.step()
            wait()
        rows.append(row)
    (folder / "repeats.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
