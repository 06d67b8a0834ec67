"""Programs for the advice on what moves bytes: chains, optimizers, gradients, casts, copies."""

from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from advice_case import DEVICE, HALF, ON_GPU, Step, case, inferred, randn, some, trained
from torch import Tensor


class NewGelu(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return F.gelu(x, approximate="tanh")
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


@case("fusion", "memory")
def gelu(changed: bool) -> Step:
    width = some(768)
    blocks = (
        nn.Sequential(
            nn.Linear(width, 4 * width, device=DEVICE, dtype=HALF),
            NewGelu(changed),
            nn.Linear(4 * width, width, device=DEVICE, dtype=HALF),
        )
        for _ in range(12)
    )
    return trained(nn.Sequential(*blocks), randn(some(4096), width, grad=True))


class Gated(nn.Module):
    """RMSNorm and SwiGLU as many write them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width, device=DEVICE))
        self.up, self.gate = (nn.Linear(width, 4 * width, device=DEVICE, dtype=HALF) for _ in range(2))
        self.down = nn.Linear(4 * width, width, device=DEVICE, dtype=HALF)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        norm = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        y = (norm * self.scale).to(x.dtype)
        gate = self.gate(y)
        return x + self.down(gate * torch.sigmoid(gate) * self.up(y))


@case("fusion", "compiled")
def gated(changed: bool) -> Step:
    module = nn.Sequential(*(Gated(some(1024)) for _ in range(4)))
    return trained(torch.compile(module) if changed and ON_GPU else module, randn(some(8192), some(1024), grad=True))


@case("fusion", "compiled")
def activation_inferred(changed: bool) -> Step:
    """Mish, a scale and a clamp over fp32 pictures."""

    def activate(x: Tensor) -> Tensor:
        return (x * torch.tanh(F.softplus(x)) * 1.7 + 0.1).clamp(-1, 6)

    function = torch.compile(activate) if changed and ON_GPU else activate
    x = randn(some(64), 64, 112, 112, dtype=torch.float32)

    def step() -> None:
        with torch.no_grad():
            function(x)

    return step


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), targets)


@case("cross_entropy", "compiled")
def vocabulary_loss(changed: bool) -> Step:
    function = torch.compile(loss_of) if changed and ON_GPU else loss_of
    logits = randn(some(8192), some(50304), grad=True)
    targets = torch.randint(some(50304), (some(8192),), device=DEVICE)

    def step() -> None:
        logits.grad = None
        function(logits, targets).backward()

    return step


@case("cross_entropy", "compiled")
def vocabulary_loss_128k(changed: bool) -> Step:
    function = torch.compile(loss_of) if changed and ON_GPU else loss_of
    logits = randn(some(4096), some(128256), grad=True)
    targets = torch.randint(some(128256), (some(4096),), device=DEVICE)

    def step() -> None:
        logits.grad = None
        function(logits, targets).backward()

    return step


def parameters(count: int, size: int) -> list[nn.Parameter]:
    made = [nn.Parameter(randn(some(size), some(size), dtype=torch.float32)) for _ in range(count)]
    for parameter in made:
        parameter.grad = torch.randn_like(parameter)
    return made


def updated(kind: type[torch.optim.Optimizer], count: int, size: int, **options: Any) -> Step:
    return kind(parameters(count, size), lr=1e-4, **options).step


@case("optimizer", "memory")
def adam_loop(changed: bool) -> Step:
    return updated(torch.optim.Adam, 24, 2048, **({"fused": True} if changed else {"foreach": False}))


@case("optimizer", "memory")
def adam_foreach(changed: bool) -> Step:
    return updated(torch.optim.Adam, 24, 2048, **({"fused": True} if changed else {"foreach": True}))


@case("optimizer", "memory")
def adamw_foreach_small(changed: bool) -> Step:
    """Lists of more than 30 tensors are cut in Kineto's traces, and nothing is said of them."""
    return updated(torch.optim.AdamW, 28, 1024, **({"fused": True} if changed else {"foreach": True}))


@case("optimizer", "memory")
def adamw_loop_small(changed: bool) -> Step:
    """Many small tensors: the host is the limit."""
    return updated(torch.optim.AdamW, 200, 256, **({"fused": True} if changed else {"foreach": False}))


@case("optimizer", "memory")
def sgd_loop_small(changed: bool) -> Step:
    options: dict[str, Any] = {"fused": True} if changed else {"foreach": False}
    return updated(torch.optim.SGD, 200, 256, momentum=0.9, **options)


@case("zero_grad", "memory")
def zeroed(changed: bool) -> Step:
    """Large weights, few rows: the gradients are most of the traffic."""
    layers = nn.Sequential(*(nn.Linear(some(4096), some(4096), bias=False, device=DEVICE) for _ in range(8)))
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-4)
    x = randn(64, some(4096), dtype=torch.float32)

    def step() -> None:
        optimizer.zero_grad(set_to_none=changed)
        with torch.autocast(DEVICE, dtype=HALF):
            loss = layers(x).float().mean()
        loss.backward()
        optimizer.step()

    return step


@case("sparse_grad", "memory")
def embedding(changed: bool) -> Step:
    table = nn.Embedding(some(500_000), 256, sparse=changed, device=DEVICE)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.01)
    tokens = torch.randint(some(500_000), (64, some(256)), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        table(tokens).sum().backward()
        optimizer.step()

    return step


@case("sparse_grad", "memory")
def embedding_adam(changed: bool) -> Step:
    table = nn.Embedding(some(500_000), 128, sparse=changed, device=DEVICE)
    kind = torch.optim.SparseAdam if changed else torch.optim.Adam
    optimizer = kind(table.parameters(), lr=0.01)
    tokens = torch.randint(some(500_000), (64, some(128)), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        table(tokens).sum().backward()
        optimizer.step()

    return step


@case("weight_casts", "memory")
def autocast_inference(changed: bool) -> Step:
    layers = nn.Sequential(*(nn.Linear(some(4096), some(4096), device=DEVICE) for _ in range(12)))
    dtype = HALF if changed else torch.float32
    return inferred(layers.to(dtype), randn(64, some(4096), dtype=dtype), autocast=not changed)


@case("dropout_in_eval", "memory")
def left_in_training(changed: bool) -> Step:
    width = some(4096)
    blocks = (
        nn.Sequential(nn.Linear(width, width, device=DEVICE, dtype=HALF), nn.GELU(), nn.Dropout(0.1)) for _ in range(6)
    )
    module = nn.Sequential(*blocks)
    return inferred(module.eval() if changed else module, randn(some(8192), width))
