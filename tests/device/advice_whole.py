"""Whole models compiled, and products in FP8.

PyTorch 2.11 compiles the children of an nn.Sequential apart, as a user's blocks often are; whole_llama is one graph.
"""

from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from advice_case import DEVICE, HALF, ON_GPU, Step, case, inferred, randn, some, trained
from torch import Tensor


def compiled(model: nn.Module, changed: bool) -> nn.Module:
    if changed:
        model.compile()
    return model


class Block(nn.Module):
    """A transformer's layer with dropout."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + self.drop(self.out(y))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


def optimized(model: nn.Module, *inputs: Tensor, autocast: bool) -> Step:
    """Training with a fused optimizer."""
    adam, forward = (
        torch.optim.AdamW(model.parameters(), lr=1e-4, fused=ON_GPU),
        trained(model, *inputs, autocast=autocast),
    )

    def step() -> None:
        forward()
        adam.step()

    return step


@case("compile", "whole")
def whole_transformer(changed: bool) -> Step:
    model = nn.Sequential(*(Block(1024, 16, 0.1) for _ in range(4))).to(DEVICE)
    return optimized(compiled(model, changed), randn(16, some(512), 1024, dtype=torch.float32), autocast=True)


@case("compile", "whole")
def whole_small(changed: bool) -> Step:
    """So small that the host is the limit."""
    model = nn.Sequential(*(Block(256, 4, 0.0) for _ in range(6))).to(DEVICE)
    return optimized(compiled(model, changed), randn(4, some(64), 256, dtype=torch.float32), autocast=False)


class Gated(nn.Module):
    """A Llama's layer: norms and gates by hand, positions rotated."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.scale1, self.scale2 = (nn.Parameter(torch.ones(width)) for _ in range(2))
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = self.norm(x, self.scale1)
        q, k, v = (p(y).view(*y.shape[:2], self.heads, -1).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = (
            a * cos + torch.cat([-a[..., a.shape[-1] // 2 :], a[..., : a.shape[-1] // 2]], -1) * sin for a in (q, k)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        y = self.norm(x, self.scale2)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def norm(self, x: Tensor, scale: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * scale


class Layers(nn.ModuleList):
    def forward(self, x: Tensor, *rest: Tensor) -> Tensor:
        for layer in self:
            x = layer(x, *rest)
        return x


def gated(layers: int, width: int, hidden: int, batch: int, length: int) -> tuple[nn.Module, list[Tensor]]:
    model = Layers(Gated(width, width // 128, hidden) for _ in range(layers)).to(DEVICE, HALF)
    return model, [randn(batch, length, width), randn(length, 128), randn(length, 128)]


@case("compile", "whole")
def whole_llama(changed: bool) -> Step:
    model, inputs = gated(3, 2048, 5632, 4, some(1024))
    return inferred(compiled(model, changed), *inputs)


class Convolutions(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        self.second = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x + self.second(F.silu(self.first(x))))


@case("compile", "whole")
def whole_convolutions(changed: bool) -> Step:
    model = nn.Sequential(*(Convolutions(64) for _ in range(3))).to(DEVICE, memory_format=torch.channels_last)
    x = randn(some(32), 64, 56, 56, dtype=torch.float32).to(memory_format=torch.channels_last)
    return optimized(compiled(model, changed), x, autocast=True)


F8 = torch.float8_e4m3fn


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """A tensor in FP8 with one scale, which the product multiplies with."""
    scale = x.abs().amax().float().clamp(min=1e-12) / 448.0
    return (x.float() / scale).clamp(-448.0, 448.0).to(F8), scale


def both_layouts(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As it is, and transposed, each with contiguous rows."""
    found, scale = quantized(x)
    return found, found.t().contiguous(), scale


quantize: Any = torch.compile(quantized) if ON_GPU else quantized
quantize_both: Any = torch.compile(both_layouts) if ON_GPU else both_layouts


def product(a: Tensor, a_scale: Tensor, b_rows: Tensor, b_scale: Tensor, dtype: torch.dtype) -> Tensor:
    """a @ b_rows.T"""
    if not ON_GPU:
        return ((a.float() * a_scale) @ (b_rows.float() * b_scale).t()).to(dtype)
    return torch._scaled_mm(a, b_rows.t(), a_scale, b_scale, out_dtype=dtype, use_fast_accum=True)


class Float8Product(torch.autograd.Function):
    """x @ weight.T with all three products of training in FP8."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        rows, turned, scale = quantize_both(x)
        w_rows, w_turned, w_scale = quantize_both(weight)
        ctx.save_for_backward(turned, scale, w_turned, w_scale)
        return product(rows, scale, w_rows, w_scale, x.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        turned, scale, w_turned, w_scale = ctx.saved_tensors
        rows, g_turned, g_scale = quantize_both(grads[0])
        dtype = grads[0].dtype
        return product(rows, g_scale, w_turned, w_scale, dtype), product(g_turned, g_scale, turned, scale, dtype)


class Float8Linear(nn.Module):
    """Instead of a linear layer without bias; ``fixed``: its weight is converted once."""

    def __init__(self, linear: nn.Linear, fixed: bool) -> None:
        super().__init__()
        self.weight, self.fixed = linear.weight, fixed
        if fixed:
            self.narrow, self.scale = quantized(linear.weight.detach())

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, -2)
        if self.fixed:
            rows, scale = quantize(flat)
            return product(rows, scale, self.narrow, self.scale, x.dtype).view(*x.shape[:-1], -1)
        return Float8Product.apply(flat, self.weight).view(*x.shape[:-1], -1)


def in_float8(model: nn.Module, fixed: bool) -> nn.Module:
    for name, child in model.named_children():
        setattr(model, name, Float8Linear(child, fixed) if isinstance(child, nn.Linear) else in_float8(child, fixed))
    return model


@case("fp8", "whole")
def fp8_mlp(changed: bool) -> Step:
    layers = [nn.Linear(4096, 14336, bias=False), nn.GELU(), nn.Linear(14336, 4096, bias=False)]
    model = nn.Sequential(*layers).to(DEVICE, HALF)
    with torch.no_grad():
        return inferred(in_float8(model, fixed=True) if changed else model, randn(some(8192), 4096))


@case("fp8", "whole")
def fp8_training(changed: bool) -> Step:
    model = nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(3))).to(DEVICE, HALF)
    return trained(in_float8(model, fixed=False) if changed else model, randn(some(8192), 4096, grad=True))


@case("fp8", "whole")
def fp8_llama(changed: bool) -> Step:
    """Layers of 2048: their products are short."""
    model, inputs = gated(2, 2048, 5632, 2, some(1024))
    return inferred(in_float8(model, fixed=True) if changed else model, *inputs)
