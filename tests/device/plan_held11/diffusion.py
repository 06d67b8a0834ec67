"""A diffusion transformer on the latents of a frozen encoder, with checkpointed blocks and a moving average."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, HALF, Changes, Step, autocast, precision, program, sized
from torch import Tensor
from torch.utils.checkpoint import checkpoint

TIMES = 1000


class Residual(nn.Module):
    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.norm_1, self.conv_1 = nn.GroupNorm(8, before), nn.Conv2d(before, width, 3, padding=1)
        self.norm_2, self.conv_2 = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.shortcut = nn.Conv2d(before, width, 1) if before != width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_1(F.silu(self.norm_1(x)))
        return self.shortcut(x) + self.conv_2(F.silu(self.norm_2(y)))


class Encoder(nn.Module):
    """Pictures to means and logarithms of variances of latents of an eighth of their side."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
        before = width
        for number, factor in enumerate((1, 2, 4, 4)):
            if number:
                layers.append(nn.Conv2d(before, before, 3, 2, 1))
            layers += [Residual(before, factor * width), Residual(factor * width, factor * width)]
            before = factor * width
        layers += [nn.GroupNorm(8, before), nn.SiLU(), nn.Conv2d(before, 8, 3, padding=1)]
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


class TanhGELU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.norm_2 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        act = nn.GELU(approximate="tanh") if "gelu" in on else TanhGELU()
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), act, nn.Linear(4 * width, width))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def attention(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(query, key, value)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.modulation(condition).chunk(6, dim=1)
        x = x + gate_1.unsqueeze(1) * self.attention(modulated(self.norm_1(x), shift_1, scale_1))
        return x + gate_2.unsqueeze(1) * self.mlp(modulated(self.norm_2(x), shift_2, scale_2))


def frequencies(size: int) -> Tensor:
    return torch.exp(-math.log(10000) * torch.arange(size // 2, dtype=torch.float32) / (size // 2))


class Transformer(nn.Module):
    def __init__(self, side: int, width: int, depth: int, classes: int, on: Changes) -> None:
        super().__init__()
        self.side, self.on, self.whole = side, on, "checkpoint" in on
        self.patches = nn.Conv2d(4, width, 2, 2)
        self.places = nn.Parameter(0.02 * torch.randn(1, (side // 2) ** 2, width))
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.labels = nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList(Block(width, max(width // 64, 2), on) for _ in range(depth))
        self.norm, self.out = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 16)
        self.register_buffer("rates", frequencies(256), persistent=False)

    def time_embedding(self, times: Tensor) -> Tensor:
        rates = self.rates if "tables" in self.on else frequencies(256).to(times.device)
        turns = times[:, None].float() * rates[None]
        return self.time(torch.cat((torch.cos(turns), torch.sin(turns)), dim=-1))

    def forward(self, latents: Tensor, times: Tensor, labels: Tensor) -> Tensor:
        x = self.patches(latents).flatten(2).transpose(1, 2) + self.places
        condition = self.time_embedding(times) + self.labels(labels)
        for block in self.blocks:
            x = block(x, condition) if self.whole else checkpoint(block, x, condition, use_reentrant=False)
        x = self.out(self.norm(x)).view(len(x), self.side // 2, self.side // 2, 2, 2, 4)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(len(x), 4, self.side, self.side)


class Schedule:
    """How much of a latent and of noise there is at each time, and the weight of its loss."""

    def __init__(self, there: bool) -> None:
        kept = np.cumprod(1.0 - np.linspace(1e-4, 0.02, TIMES, dtype=np.float64))
        ratio = kept / (1.0 - kept)
        tables = {
            "signal": np.sqrt(kept),
            "noise": np.sqrt(1.0 - kept),
            "weight": np.minimum(ratio, 5.0) / ratio,
        }
        self.tables = tables
        self.there = {key: torch.tensor(table).float().to(DEVICE) for key, table in tables.items()} if there else {}

    def at(self, name: str, times: Tensor) -> Tensor:
        if self.there:
            return self.there[name][times].view(-1, 1, 1, 1)
        return torch.from_numpy(self.tables[name]).to(device=times.device)[times].float().view(-1, 1, 1, 1)


class Average:
    """A slowly moving average of parameters."""

    def __init__(self, model: nn.Module, decay: float, together: bool) -> None:
        self.model, self.decay, self.together = model, decay, together
        self.values = {name: value.detach().clone() for name, value in model.named_parameters()}

    @torch.no_grad()
    def update(self) -> None:
        if self.together:
            torch._foreach_lerp_(list(self.values.values()), list(self.model.parameters()), 1 - self.decay)
            return
        for name, value in self.model.named_parameters():
            self.values[name].mul_(self.decay).add_(value.data, alpha=1 - self.decay)


@program("gpu", "tf32 amp encoder checkpoint gelu ema tables", last="compile")
def diffusion(on: Changes) -> Step:
    precision(on)
    side, classes, batch = sized(256, 32), sized(1000, 10), sized(24, 4)
    with torch.device(DEVICE):
        encoder = Encoder(sized(64, 16)).eval().requires_grad_(False)
        model = Transformer(side // 8, sized(768, 32), sized(12, 2), classes, on)
        images = torch.rand(batch, 3, side, side) * 2 - 1
        labels = torch.randint(classes, (batch,))
    kind = HALF if "encoder" in on else torch.float32
    encoder = encoder.to(kind)
    schedule = Schedule("tables" in on)
    average = Average(model, 0.9999, "ema" in on)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    called = torch.compile(model) if "compile" in on else model

    def step() -> Tensor:
        mean, log_variance = encoder(images.to(kind)).float().chunk(2, dim=1)
        latents = mean + torch.exp(0.5 * log_variance.clamp(-30.0, 20.0)) * torch.randn_like(mean)
        latents = latents * 0.18215
        noise = torch.randn_like(latents)
        times = torch.randint(TIMES, (batch,), device=DEVICE)
        dropped = torch.rand(batch, device=DEVICE) < 0.1
        noisy = schedule.at("signal", times) * latents + schedule.at("noise", times) * noise
        with autocast(on):
            guess = called(noisy, times, torch.where(dropped, classes, labels))
        loss = (schedule.at("weight", times) * (guess.float() - noise) ** 2).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
        average.update()
        return loss.detach()

    return step
