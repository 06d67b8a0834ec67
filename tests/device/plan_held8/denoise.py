"""A U-Net learns to predict noise: fp32, attention by einsum, every block checkpointed, schedules kept on the host."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, optimizer, precision, program, sized
from torch import Tensor
from torch.utils.checkpoint import checkpoint

TIMES, GROUPS = 1000, 8


def time_embedding(times: Tensor, width: int) -> Tensor:
    half = width // 2
    rates = torch.exp(-math.log(10000.0) / half * torch.arange(half, device=times.device))
    turned = times.float()[:, None] * rates[None, :]
    return torch.cat([turned.sin(), turned.cos()], dim=-1)


class ResBlock(nn.Module):
    def __init__(self, inner: int, outer: int, time_width: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(GROUPS, inner), nn.Conv2d(inner, outer, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(GROUPS, outer), nn.Conv2d(outer, outer, 3, padding=1)
        self.time = nn.Linear(time_width, 2 * outer)
        self.short = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        y = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.time(F.silu(times))[:, :, None, None].chunk(2, dim=1)
        y = self.norm2(y) * (1 + scale) + shift
        return self.short(x) + self.conv2(F.silu(y))


class AttentionBlock(nn.Module):
    def __init__(self, width: int, size: int, fused: bool) -> None:
        super().__init__()
        self.norm, self.to_qkv = nn.GroupNorm(GROUPS, width), nn.Conv2d(width, 3 * width, 1, bias=False)
        self.to_out, self.heads, self.size, self.fused = nn.Conv2d(width, width, 1), width // size, size, fused

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        b, c, h, w = x.shape
        q, k, v = (part.reshape(b, self.heads, self.size, h * w) for part in self.to_qkv(self.norm(x)).chunk(3, dim=1))
        if self.fused:
            q, k, v = (part.transpose(-2, -1).contiguous() for part in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v).transpose(-2, -1)
        else:
            scores = torch.einsum("bhdi,bhdj->bhij", q * self.size**-0.5, k)
            y = torch.einsum("bhij,bhdj->bhdi", scores.softmax(dim=-1), v)
        return x + self.to_out(y.reshape(b, c, h, w))


class Stage(nn.Module):
    """Blocks of one resolution, checkpointed one by one or not at all."""

    def __init__(self, blocks: list[nn.Module], on: Changes) -> None:
        super().__init__()
        self.blocks, self.kept = nn.ModuleList(blocks), "checkpoint" in on

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x, times) if self.kept else checkpoint(block, x, times, use_reentrant=False)
        return x


class UNet(nn.Module):
    def __init__(self, channels: int, base: int, factors: tuple[int, ...], size: int, on: Changes) -> None:
        super().__init__()
        widths, time_width = [base * factor for factor in factors], 4 * base
        self.base, fused = base, "sdpa" in on
        self.time = nn.Sequential(nn.Linear(base, time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.enter = nn.Conv2d(channels, base, 3, padding=1)
        self.down, self.shrink, inner = nn.ModuleList(), nn.ModuleList(), base
        for level, width in enumerate(widths):
            more = [AttentionBlock(width, size, fused)] if level else []
            blocks = [ResBlock(inner, width, time_width), *more, ResBlock(width, width, time_width)]
            self.down.append(Stage(blocks, on))
            self.shrink.append(nn.Conv2d(width, width, 3, 2, 1) if level + 1 < len(widths) else nn.Identity())
            inner = width
        middle = [ResBlock(inner, inner, time_width), AttentionBlock(inner, size, fused)]
        self.middle = Stage([*middle, ResBlock(inner, inner, time_width)], on)
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for level, width in reversed([*enumerate(widths)]):
            more = [AttentionBlock(width, size, fused)] if level else []
            blocks = [ResBlock(inner + width, width, time_width), *more, ResBlock(width, width, time_width)]
            self.up.append(Stage(blocks, on))
            self.grow.append(nn.Conv2d(width, width, 3, padding=1) if level else nn.Identity())
            inner = width
        self.leave = nn.Sequential(nn.GroupNorm(GROUPS, base), nn.SiLU(), nn.Conv2d(base, channels, 3, padding=1))

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        known = self.time(time_embedding(times, self.base))
        x, seen = self.enter(x), []
        for stage, shrink in zip(self.down, self.shrink, strict=True):
            x = stage(x, known)
            seen.append(x)
            x = shrink(x)
        x = self.middle(x, known)
        for stage, grow in zip(self.up, self.grow, strict=True):
            x = stage(torch.cat([x, seen.pop()], dim=1), known)
            if seen:
                x = grow(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.leave(x)


class Diffusion:
    """How much of a picture and how much noise there is at each time."""

    def __init__(self, on: Changes) -> None:
        betas = torch.linspace(1e-4, 0.02, TIMES, dtype=torch.float64)
        left = torch.cumprod(1.0 - betas, dim=0)
        self.signal, self.noise = left.sqrt(), (1.0 - left).sqrt()
        if "tables" in on:
            self.signal, self.noise = self.signal.to(DEVICE), self.noise.to(DEVICE)

    @staticmethod
    def at(table: Tensor, times: Tensor) -> Tensor:
        return table.to(times.device)[times].float()[:, None, None, None]

    def noised(self, pictures: Tensor, noise: Tensor, times: Tensor) -> Tensor:
        return self.at(self.signal, times) * pictures + self.at(self.noise, times) * noise


@program("gpu", "checkpoint amp tf32 sdpa channels_last tables fused")
def denoise(on: Changes) -> Step:
    precision(on)
    form = torch.channels_last if "channels_last" in on else torch.contiguous_format
    channels, side, batch = sized(4, 2), sized(64, 8), sized(24, 2)
    with torch.device(DEVICE):
        model = UNet(channels, sized(128, 16), (1, 2, 4) if sized(1, 0) else (1, 2), sized(64, 16), on)
        latents = torch.randn(4, batch, channels, side, side)
    model = model.to(memory_format=form)
    diffusion = Diffusion(on)
    adam = optimizer(torch.optim.Adam, model.parameters(), on, lr=1e-4)
    number = 0

    def step() -> Tensor:
        nonlocal number
        pictures = latents[number % len(latents)]
        number += 1
        times = torch.randint(TIMES, (batch,), device=DEVICE)
        noise = torch.randn_like(pictures)
        noised = diffusion.noised(pictures, noise, times).contiguous(memory_format=form)
        with autocast(on):
            loss = F.mse_loss(model(noised, times).float(), noise)
        adam.zero_grad(set_to_none=True)
        loss.backward()
        adam.step()
        return loss.detach()

    return step
