"""Activation checkpointing measured: peak memory and step time of programs with and without it.

    python tests/device/checkpointing.py OUT [PROGRAM ...]

Writes for each program OUT/NAME.json.gz, two steps without checkpointing as ``pyprof.profile(memory=True, warmup=)``
collects them, so that the time of steps without the profiler is in the file, too; OUT/NAME_done.json.gz, a step with
torch.utils.checkpoint (use_reentrant=False) of the layers that it names; and OUT/measured.json: for both, unprofiled,
torch.cuda.max_memory_allocated() and the time of steps in a row. Both take turns, because the machine's host is not
steady. It also has what a checkpointed call of few small ops costs the host. tests/prof/memory/test_measured.py
compares.
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
BLOCK_S, PAIRS, WARM_UP = 0.2, 8, 6
Step = Callable[[], Any]
ON = [False]  # whether modules are checkpointed


def checkpointed(modules: list[nn.Module]) -> None:
    """Let the modules run under torch.utils.checkpoint while ON."""
    for module in modules:

        def forward(*args: Any, f: Any = module.forward, **kw: Any) -> Any:
            return checkpoint(f, *args, use_reentrant=False, **kw) if ON[0] else f(*args, **kw)

        module.forward = forward  # type: ignore[method-assign]


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


def block(step: Step, steps: int) -> float:
    """The time of a step, ms, of several in a row between two synchronisations."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / steps


def peak(step: Step) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    block(step, 2)
    return torch.cuda.max_memory_allocated()


def measure(step: Step) -> dict[str, Any]:
    """Peaks, and times of blocks of steps, of both variants in turn."""
    found: dict[str, Any] = {"plain": {"steps_ms": []}, "checkpointed": {"steps_ms": []}}
    variants = (("plain", False), ("checkpointed", True))
    steps = 1
    for name, on in variants:
        ON[0] = on
        block(step, WARM_UP)
        found[name]["peak_bytes"] = peak(step)
        steps = max(steps, round(1e3 * BLOCK_S / block(step, 4)))
    for turn in range(PAIRS):
        for name, on in variants if turn % 2 else variants[::-1]:
            ON[0] = on
            step()
            found[name]["steps_ms"].append(block(step, steps))
    pairs = zip(found["checkpointed"]["steps_ms"], found["plain"]["steps_ms"], strict=True)
    costs = [after - before for after, before in pairs]
    quartiles = statistics.quantiles(costs, n=4)
    return {**found, "steps": steps, "cost_ms": statistics.median(costs), "quartiles_ms": quartiles[::2]}


def collect(step: Step, file: Path, memory: bool, steps: int) -> None:
    with pyprof.profile(file, force=True, trace=True, memory=memory, warmup=WARM_UP, steps=steps):
        for _ in range(WARM_UP + steps):
            step()
        torch.cuda.synchronize()


def measured(make: Any, _file: Path) -> dict[str, Any]:
    step, modules, layers = make()
    checkpointed(modules)
    return {"layers": layers, **measure(step)}


def collected(make: Any, file: Path) -> dict[str, Any]:
    step, modules, _ = make()
    checkpointed(modules)
    for on, name in ((False, f"{file}.json.gz"), (True, f"{file}_done.json.gz")):
        ON[0] = on
        block(step, 2)
        collect(step, Path(name), memory=not on, steps=2)
    return {"collected": True}


def on_host(function: Step, x: torch.Tensor, on: bool, autocast: bool) -> tuple[float, float]:
    """The seconds that forward and backward pass of a function take the host."""
    begin = time.perf_counter()
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        y = checkpoint(function, x, use_reentrant=False) if on else function(x)
    middle = time.perf_counter()
    y.sum().backward()
    return middle - begin, time.perf_counter() - middle


def host_cost() -> list[dict[str, float]]:
    """µs on the host, forward and backward, of a function of few ops on a small tensor, plain and checkpointed."""
    x = torch.randn(8, 8, device="cuda", requires_grad=True)
    found = []
    for autocast in (False, True):
        for ops in (1, 4, 16, 64):

            def function(y: torch.Tensor, ops: int = ops) -> torch.Tensor:
                for _ in range(ops):
                    y = y.sin()  # saves its input
                return y

            times: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for _ in range(120):
                for on in (False, True):
                    torch.cuda.synchronize()
                    times[on].append(on_host(function, x, on, autocast))
            row: dict[str, float] = {"ops": ops, "autocast": autocast}
            for on, name in ((False, "plain"), (True, "checkpointed")):
                for place, part in enumerate(("forward", "backward")):
                    row[f"{name} {part}"] = 1e6 * statistics.median(time[place] for time in times[on][20:])
            found.append(row)
    return found


def main(out: Path, names: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {}
    host = host_cost()
    for part in (measured, collected):  # a profiler that has run slows down what follows
        for name in names or PROGRAMS:
            torch.manual_seed(0)
            ON[0] = False
            try:
                found.setdefault(name, {}).update(part(PROGRAMS[name], out / name))
            except Exception as error:  # noqa: BLE001  (the other programs are measured all the same)
                found[name]["error"] = repr(error)
            sys.stdout.write(f"{part.__name__} {name} {json.dumps(found[name])}\n")
            sys.stdout.flush()
            text = json.dumps({"torch": torch.__version__, "host_us": host, "programs": found}, indent=1)
            (out / "measured.json").write_text(text + "\n")
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
