"""Activation checkpointing, predicted and measured: peak memory and step time of four programs with and without it.

    python tests/device/checkpointing.py OUT

Writes for each program OUT/NAME.json.gz, a step without checkpointing as ``pyprof.profile(memory=True)`` collects it,
and OUT/measured.json: torch.cuda.max_memory_allocated() and the time of a step, unprofiled, without and with
torch.utils.checkpoint (use_reentrant=False) of the layers that it names, and what recording memory costs.
tests/prof/memory/test_measured.py compares.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import pyprof

sys.path.insert(0, str(Path(__file__).parent))
STEPS = 10  # timed, after as many others
Step = Callable[[], Any]


def checkpointed(modules: list[nn.Module]) -> None:
    """Let the modules run under torch.utils.checkpoint."""
    for module in modules:
        forward = module.forward
        module.forward = lambda *args, f=forward, **kw: checkpoint(f, *args, use_reentrant=False, **kw)  # type: ignore


def trained(model: nn.Module, optimizer: Any, loss_of: Step) -> Step:
    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of()
        loss.backward()
        optimizer.step()

    return step


def gpt2(layers: int = 12, batch: int = 16) -> tuple[Step, list[nn.Module], str]:
    from gpt2 import Config, Gpt2

    config = Config(layers=layers)
    model = Gpt2(config).cuda()
    text = torch.randint(config.vocabulary, (batch, config.context + 1), device="cuda")
    ids, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    step = trained(model, optimizer, lambda: F.cross_entropy(model(ids).flatten(0, 1), targets.flatten()))
    return step, list(model.blocks), "Gpt2:blocks.*"


def resnet_stage(batch: int = 256) -> tuple[Step, list[nn.Module], str]:
    import torchvision

    model = torchvision.models.resnet50().to("cuda", memory_format=torch.channels_last)
    images = torch.randn(batch, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = trained(model, optimizer, lambda: F.cross_entropy(model(images), labels))
    return step, [model.layer1], "ResNet:layer1"


def resnet_blocks() -> tuple[Step, list[nn.Module], str]:
    step, (stage,), _ = resnet_stage()
    return step, list(stage), "ResNet:layer1:*"


class Encoder(nn.Module):
    """PyTorch's own encoder layers, with dropout, and a classifier."""

    def __init__(self, width: int = 1024, layers: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 16, 4 * width, 0.1, F.gelu, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


def encoder(batch: int = 64, length: int = 512) -> tuple[Step, list[nn.Module], str]:
    model = Encoder().cuda()
    x = torch.randn(batch, length, 1024, device="cuda")
    labels = torch.randint(10, (batch,), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    step = trained(model, optimizer, lambda: F.cross_entropy(model(x), labels))
    return step, list(model.layers), "Encoder:layers.*"


def lstm(batch: int = 64, length: int = 256) -> tuple[Step, list[nn.Module], str]:
    model = nn.Sequential(nn.Embedding(10000, 1024), nn.LSTM(1024, 1024, 2, batch_first=True)).cuda()
    head = nn.Linear(1024, 10000).cuda()
    ids = torch.randint(10000, (batch, length), device="cuda")
    optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], fused=True)
    step = trained(model, optimizer, lambda: F.cross_entropy(head(model(ids)[0]).flatten(0, 1), ids.flatten()))
    return step, [model[1]], "Sequential:1"


def tiny() -> tuple[Step, list[nn.Module], str]:
    """A small model, whose capture is small enough for the repository."""
    from gpt2 import Config, Gpt2

    model = Gpt2(Config(layers=3, width=128, heads=4, context=64, vocabulary=1000)).cuda()
    ids = torch.randint(1000, (4, 64), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    step = trained(model, optimizer, lambda: F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()))
    return step, list(model.blocks), "Gpt2:blocks.*"


PROGRAMS = {
    "tiny": tiny,
    "gpt2": gpt2, "resnet_stage": resnet_stage, "resnet_blocks": resnet_blocks, "encoder": encoder, "lstm": lstm,
}  # fmt: skip


def measure(step: Step) -> dict[str, float]:
    """Peak and median time of a step, unprofiled."""
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - begin))
    return {"peak_bytes": torch.cuda.max_memory_allocated(), "step_ms": statistics.median(times)}


def collect(step: Step, file: Path, memory: bool, steps: int = 1) -> dict[str, float]:
    """The peak while a step is collected, and its time."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    with pyprof.profile(file, force=True, trace=True, memory=memory):
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        took = 1e3 * (time.perf_counter() - begin) / steps
    return {"peak_bytes": torch.cuda.max_memory_allocated(), "step_ms": took}


def program(name: str, make: Any, out: Path) -> dict[str, Any]:
    torch.manual_seed(0)
    step, modules, layers = make()
    found: dict[str, Any] = {"layers": layers, "plain": measure(step)}
    found["collected"] = collect(step, out / f"{name}.json.gz", True)
    scratch = Path("/tmp") / f"{name}.json"
    found["collected_without_memory"] = collect(step, scratch, False, steps=3)
    found["collected_with_memory"] = collect(step, scratch, True, steps=3)
    checkpointed(modules)
    found["checkpointed"] = measure(step)
    return found


def main(out: Path) -> None:
    found = {}
    for name, make in PROGRAMS.items():
        try:
            found[name] = program(name, make, out)
        except Exception as error:  # noqa: BLE001  (the other programs are measured all the same)
            found[name] = {"error": repr(error)}
        sys.stdout.write(f"{name} {json.dumps(found[name])}\n")
        sys.stdout.flush()
        text = json.dumps({"torch": torch.__version__, "programs": found}, indent=1)
        (out / "measured.json").write_text(text + "\n")
        gc.collect()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
