"""Programs with passes that one pass can do: python tests/device/repeated_passes.py NAME many|once

Prints the mean time of a step, ms, as the program is (many) or with one pass (once). Captures of both, for the GPU's
work: pyprof run --warmup 15 --steps 3 tests/device/repeated_passes.py NAME many
"""

import sys
import time
from collections.abc import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F

import pyprof

DEVICE = torch.device("cuda")
WARM, STEPS = 10, 40


class Block(nn.Module):
    def __init__(self, width: int, heads: int = 8) -> None:
        super().__init__()
        self.n1, self.n2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.f1, self.f2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.f2(F.gelu(self.f1(self.n2(x))))


class LanguageModel(nn.Module):
    def __init__(self, words: int = 32000, width: int = 768, length: int = 256) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(12)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


class Denoiser(nn.Module):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.inner, self.outer = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.condition = nn.Linear(512, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(16, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(16)
        )

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        x = self.inner(x) + self.condition(condition)[:, :, None, None]
        for layer in self.layers:
            x = x + layer(x)
        return self.outer(x)


class Heads(nn.Module):
    """Attention whose heads are modules of their own, or three layers for all of them."""

    def __init__(self, many: bool, width: int = 512, count: int = 8) -> None:
        super().__init__()
        self.many, self.count, self.o = many, count, nn.Linear(width, width)
        size = width // count if many else width
        self.heads = nn.ModuleList(
            nn.ModuleList(nn.Linear(width, size) for _ in range(3)) for _ in range(count if many else 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = []
        for query, key, value in self.heads:
            q, k, v = query(x), key(x), value(x)
            if not self.many:
                q, k, v = (y.unflatten(-1, (self.count, -1)).transpose(1, 2) for y in (q, k, v))
            y = torch.softmax(q @ k.transpose(-2, -1) / 8, -1) @ v
            results.append(y if self.many else y.transpose(1, 2).flatten(2))
        return x + self.o(torch.cat(results, -1))


def trained(model: nn.Module, loss: Callable[[], torch.Tensor], parameters: list[torch.Tensor]) -> Callable[[], None]:
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)

    def step() -> None:
        result = loss()
        optimizer.zero_grad()
        result.backward()
        optimizer.step()

    return step


def chunks(many: bool) -> Callable[[], None]:
    model, ids = LanguageModel().to(DEVICE).eval(), torch.randint(32000, (16, 256), device=DEVICE)

    @torch.no_grad()
    def step() -> None:
        out = torch.cat([model(part) for part in ids.split(2)]) if many else model(ids)
        F.cross_entropy(out[:, :-1].flatten(0, 1), ids[:, 1:].flatten())

    return step


def guide(many: bool) -> Callable[[], None]:
    model, x = Denoiser().to(DEVICE).eval(), torch.randn(4, 4, 64, 64, device=DEVICE)
    with_it, without = torch.randn(4, 512, device=DEVICE), torch.zeros(4, 512, device=DEVICE)

    @torch.no_grad()
    def step() -> None:
        y = x
        for _ in range(10):
            if many:
                a, b = model(y, with_it), model(y, without)
            else:
                a, b = model(torch.cat((y, y)), torch.cat((with_it, without))).chunk(2)
            y = y - 0.1 * (b + 3 * (a - b))

    return step


def heads(many: bool) -> Callable[[], None]:
    model, x = nn.Sequential(*(Heads(many) for _ in range(6))).to(DEVICE), torch.randn(16, 200, 512, device=DEVICE)
    return trained(model, lambda: model(x).square().mean(), list(model.parameters()))


def critics(many: bool) -> Callable[[], None]:
    def critic() -> nn.Module:
        return nn.Sequential(nn.Linear(40, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))

    models = nn.ModuleList(critic() for _ in range(10)).to(DEVICE)
    x, y = torch.randn(256, 40, device=DEVICE), torch.randn(256, 1, device=DEVICE)
    if many:
        return trained(models, lambda: sum(F.mse_loss(each(x), y) for each in models), list(models.parameters()))
    weights, _ = torch.func.stack_module_state(list(models))
    stacked = {name: each.detach().requires_grad_() for name, each in weights.items()}

    def loss() -> torch.Tensor:
        out = torch.vmap(lambda each: torch.func.functional_call(models[0], each, (x,)))(stacked)
        return (out - y).square().mean((1, 2)).sum()

    return trained(models, loss, list(stacked.values()))


def images(many: bool) -> Callable[[], None]:
    layers = [layer for _ in range(8) for layer in (nn.Conv2d(64, 64, 3, padding=1), nn.GELU())]
    ends = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 100)
    model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.GELU(), *layers, *ends).to(DEVICE)
    x, y = torch.randn(8, 3, 128, 128, device=DEVICE), torch.randint(100, (8,), device=DEVICE)

    def loss() -> torch.Tensor:
        return F.cross_entropy(torch.cat([model(each[None]) for each in x]) if many else model(x), y)

    return trained(model, loss, list(model.parameters()))


def main(name: str, how: str) -> None:
    step = {"chunks": chunks, "guide": guide, "heads": heads, "critics": critics, "images": images}[name](how == "many")
    for number in range(STEPS):
        if number == WARM:
            torch.cuda.synchronize()
            begin = time.perf_counter()
        step()
        pyprof.step()
    torch.cuda.synchronize()
    sys.stdout.write(f"{name} {how} {(time.perf_counter() - begin) / (STEPS - WARM) * 1e3:.3f} ms\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
