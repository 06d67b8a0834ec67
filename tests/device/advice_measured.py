"""What advice predicts against what the change brings, on a GPU.

    python tests/device/advice_measured.py OUT.json

Each case is a program that deserves a piece of advice and the same program changed as advised. The first is captured
and judged (parse, annotate, advise); both are timed without any profiler: medians of 20 steps by CUDA events.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F

import pyprof
from pyprof.parse.correlate import correlate
from pyprof.parse.detect import reader
from pyprof.prof.advice import Run, advise
from pyprof.prof.annotate import annotate

Step = Callable[[], Any]
CASES: list[tuple[str, str, Callable[[], Step], Callable[[], Step]]] = []
HALF = torch.bfloat16


def case(name: str, rule: str) -> Callable[[Callable[[bool], Step]], Callable[[bool], Step]]:
    """Register a program that takes whether it is changed as advised."""

    def register(make: Callable[[bool], Step]) -> Callable[[bool], Step]:
        CASES.append((name, rule, lambda: make(False), lambda: make(True)))
        return make

    return register


def trained(module: nn.Module, *inputs: torch.Tensor, autocast: bool = False) -> Step:
    """Forward and backward of a module's mean."""

    def step() -> None:
        module.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=HALF, enabled=autocast):
            loss = module(*inputs).float().mean()
        loss.backward()

    return step


def randn(*shape: int, dtype: torch.dtype = HALF, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype, requires_grad=grad)


@case("lm_head 768 to 50257, bf16", "alignment")
def lm_head(changed: bool) -> Step:
    layer = nn.Linear(768, 50264 if changed else 50257, bias=False, device="cuda", dtype=HALF)
    return trained(layer, randn(4096, 768, grad=True))


@case("linear 1001 to 1001 on 2048 rows, bf16", "alignment")
def odd_linear(changed: bool) -> Step:
    width = 1008 if changed else 1001
    layers = nn.Sequential(*(nn.Linear(width, width, device="cuda", dtype=HALF) for _ in range(8)))
    return trained(layers, randn(2048, width, grad=True))


@case("float32 products without TF32", "tf32")
def full_precision(changed: bool) -> Step:
    torch.set_float32_matmul_precision("high" if changed else "highest")
    layers = nn.Sequential(*(nn.Linear(4096, 4096, device="cuda") for _ in range(3)))
    step = trained(layers, randn(4096, 4096, dtype=torch.float32, grad=True))

    def run() -> None:
        torch.set_float32_matmul_precision("high" if changed else "highest")
        step()

    return run


@case("a transformer's products in float32", "amp")
def mixed(changed: bool) -> Step:
    torch.set_float32_matmul_precision("highest")
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True, device="cuda")
    return trained(layer, randn(8, 512, 1024, dtype=torch.float32, grad=True), autocast=changed)


class NewGelu(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.fused:
            return F.gelu(x, approximate="tanh")
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


@case("GELU spelled out, 12 layers of 4096 x 3072, bf16", "fusion")
def gelu(changed: bool) -> Step:
    width = 768
    blocks = [
        nn.Sequential(
            nn.Linear(width, 3072, device="cuda", dtype=HALF),
            NewGelu(changed),
            nn.Linear(3072, width, device="cuda", dtype=HALF),
        )
        for _ in range(12)
    ]
    return trained(nn.Sequential(*blocks), randn(4096, width, grad=True))


class Attention(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v)
        return ((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5).softmax(-1) @ v


@case("attention spelled out, 8 x 16 heads of 2048 x 64, bf16", "unfused_attention")
def attention(changed: bool) -> Step:
    return trained(Attention(changed), *(randn(8, 16, 2048, 64, grad=True) for _ in range(3)))


@case("Adam in a for-loop, 24 tensors of 2048 x 2048", "optimizer")
def adam(changed: bool) -> Step:
    parameters = [nn.Parameter(randn(2048, 2048, dtype=torch.float32)) for _ in range(24)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    kind = {"fused": True} if changed else {"foreach": False}
    optimizer = torch.optim.Adam(parameters, lr=1e-4, **kind)
    return optimizer.step


@case("Adam foreach, 24 tensors of 2048 x 2048", "optimizer")
def adam_foreach(changed: bool) -> Step:
    parameters = [nn.Parameter(randn(2048, 2048, dtype=torch.float32)) for _ in range(24)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.Adam(parameters, lr=1e-4, **({"fused": True} if changed else {"foreach": True}))
    return optimizer.step


@case("convolutions in NCHW, bf16", "channels_last")
def convolutions(changed: bool) -> Step:
    layers = nn.Sequential(
        *(
            nn.Sequential(nn.Conv2d(128, 128, 3, padding=1, bias=False), nn.BatchNorm2d(128), nn.ReLU())
            for _ in range(6)
        )
    ).to("cuda", HALF)
    x = randn(32, 128, 56, 56, grad=True)
    if changed:
        layers = layers.to(memory_format=torch.channels_last)
        x = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    return trained(layers, x)


@case("a bias before BatchNorm", "conv_bias")
def biased(changed: bool) -> Step:
    layers = nn.Sequential(
        *(
            nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=not changed), nn.BatchNorm2d(64), nn.ReLU())
            for _ in range(6)
        )
    ).to("cuda", HALF, memory_format=torch.channels_last)
    x = randn(64, 64, 112, 112).to(memory_format=torch.channels_last).requires_grad_()
    return trained(layers, x)


@case("64 MB from pageable memory a step", "pageable_copy")
def pageable(changed: bool) -> Step:
    batch = torch.randn(16, 1024, 1024, pin_memory=changed)
    weight = randn(1024, 1024)

    def step() -> None:
        (batch.to("cuda", non_blocking=True).to(HALF) @ weight).sum()

    return step


@case("200 layers of 64 x 64", "launch_bound")
def small(changed: bool) -> Step:
    layers = nn.Sequential(*(nn.Linear(64, 64, device="cuda") for _ in range(200)))
    x = randn(64, 64, dtype=torch.float32, grad=True)
    step = trained(layers, x)
    if not changed:
        return step
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layers.zero_grad(set_to_none=False)
        layers(x).mean().backward()
    return graph.replay


def milliseconds(step: Step, steps: int = 20) -> float:
    """Median time of a step, from its first call to its last kernel."""
    for _ in range(5):
        step()
    times = []
    for _ in range(steps):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def judged(step: Step) -> list[dict[str, Any]]:
    """The advice on one step, captured."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.json.gz"
        with pyprof.profile(path):
            step()
            torch.cuda.synchronize()
        table = correlate(reader(path)(path))
    return [
        {"rule": card.rule, "saved_ms": card.saved_ms, "why": card.why} for card in advise(Run(table, annotate(table)))
    ]


def main() -> None:
    rows = []
    for name, rule, before, after in CASES:
        torch.manual_seed(0)
        row: dict[str, Any] = {"case": name, "rule": rule}
        try:
            step = before()
            row["before_ms"] = milliseconds(step)
            cards = judged(step)
            row["predicted_ms"] = next((card["saved_ms"] for card in cards if card["rule"] == rule), None)
            row["cards"] = cards
            row["after_ms"] = milliseconds(after())
            row["saved_ms"] = row["before_ms"] - row["after_ms"]
        except (RuntimeError, pyprof.PyprofError) as error:
            row["error"] = str(error)[:300]
        rows.append(row)
        shown = {k: round(v, 3) if isinstance(v, float) else v for k, v in row.items() if k != "cards"}
        print(json.dumps(shown), [card["rule"] for card in row.get("cards", [])], flush=True)
        torch.cuda.empty_cache()
    Path(sys.argv[1]).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
