"""Images denoised by a transformer: guidance in two passes, scores and norms in fp32, tables and places on the CPU."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, HALF, Changes, Step, program, sized
from torch import Tensor

TIMES = 1000


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Norm(nn.Module):
    """A norm without weights."""

    def __init__(self, width: int, on: Changes) -> None:
        super().__init__()
        self.width, self.on = width, on

    def forward(self, x: Tensor) -> Tensor:
        if "layer_norm" in self.on:
            return F.layer_norm(x, (self.width,), eps=1e-6)
        return F.layer_norm(x.float(), (self.width,), eps=1e-6).type_as(x)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.scale, self.on = heads, (width // heads) ** -0.5, on
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        if "sdpa" in self.on:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            sim = torch.einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
            attn = sim.float().softmax(dim=-1).to(v.dtype)
            y = torch.einsum("b h i j, b h j d -> b h i d", attn, v)
        return self.proj(y.transpose(1, 2).reshape(b, n, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.norm1, self.norm2, self.attn = Norm(width, on), Norm(width, on), Attention(width, heads, on)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.adaln = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adaln(c).chunk(6, dim=1)
        x = x + gate1.unsqueeze(1) * self.attn(modulate(self.norm1(x), shift1, scale1))
        return x + gate2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), shift2, scale2))


def sincos(width: int, places: Tensor) -> Tensor:
    rates = 1.0 / 10000 ** (torch.arange(width // 2, dtype=torch.float64) / (width / 2))
    angles = torch.outer(places.reshape(-1), rates)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def positions(width: int, side: int) -> Tensor:
    """Sines and cosines of rows and columns, [side * side, width]."""
    rows, columns = torch.meshgrid(*[torch.arange(side, dtype=torch.float64)] * 2, indexing="ij")
    return torch.cat([sincos(width // 2, rows), sincos(width // 2, columns)], dim=1)


class DiT(nn.Module):
    def __init__(self, side: int, width: int, heads: int, depth: int, classes: int, on: Changes) -> None:
        super().__init__()
        self.width, self.side, self.on = width, side // 2, on
        self.patches = nn.Conv2d(4, width, 2, stride=2)
        self.times = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.labels = nn.Embedding(classes + 1, width)
        self.blocks = nn.ModuleList([Block(width, heads, on) for _ in range(depth)])
        self.norm, self.out = Norm(width, on), nn.Linear(width, 2 * 2 * 4)
        self.adaln = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))
        if "positions" in on:
            self.register_buffer("places", positions(width, self.side).float().to(DEVICE))

    def embedded(self, t: Tensor) -> Tensor:
        rates = torch.exp(-math.log(10000) * torch.arange(128, device=t.device).float() / 128)
        angles = t[:, None].float() * rates[None]
        return self.times(torch.cat([angles.cos(), angles.sin()], dim=-1).to(self.out.weight.dtype))

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        if "positions" in self.on:
            x = x + self.places
        else:
            x = x + positions(self.width, self.side).float().to(x.device, x.dtype)
        c = self.embedded(t) + self.labels(y)
        for block in self.blocks:
            x = block(x, c)
        shift, scale = self.adaln(c).chunk(2, dim=1)
        x = self.out(modulate(self.norm(x), shift, scale))
        x = x.reshape(len(x), self.side, self.side, 2, 2, 4)
        return torch.einsum("nhwpqc->nchpwq", x).reshape(len(x), 4, 2 * self.side, 2 * self.side)


class Diffusion:
    """A linear schedule. Its tables are on the CPU, and copied whenever one of their values is wanted."""

    def __init__(self, on: Changes) -> None:
        betas = torch.linspace(1e-4, 0.02, TIMES, dtype=torch.float64)
        kept = torch.cumprod(1 - betas, dim=0)
        before = torch.cat([torch.ones(1, dtype=torch.float64), kept[:-1]])
        tables = {
            "recip": (1 / kept).sqrt(),
            "recipm1": (1 / kept - 1).sqrt(),
            "first": betas * before.sqrt() / (1 - kept),
            "second": (1 - before) * (1 - betas).sqrt() / (1 - kept),
            "log_variance": (betas * (1 - before) / (1 - kept)).clamp_min(1e-20).log(),
        }
        self.tables = {name: table.to(DEVICE) if "tables" in on else table for name, table in tables.items()}

    def extract(self, name: str, t: Tensor, like: Tensor) -> Tensor:
        values = self.tables[name].to(device=t.device)[t].float()
        while values.dim() < like.dim():
            values = values[..., None]
        return values.expand(like.shape)

    def p_sample(self, x: Tensor, noise: Tensor, t: Tensor) -> Tensor:
        start = self.extract("recip", t, x) * x - self.extract("recipm1", t, x) * noise
        mean = self.extract("first", t, x) * start.clamp(-1, 1) + self.extract("second", t, x) * x
        moved = (t != 0).float().view(-1, 1, 1, 1)
        return mean + moved * torch.exp(0.5 * self.extract("log_variance", t, x)) * torch.randn_like(x)


def guided(model: DiT, x: Tensor, t: Tensor, y: Tensor, none: Tensor, on: Changes) -> Tensor:
    """The noise, as far from the one without a class as the guidance says."""
    x = x.to(HALF)
    if "guidance" in on:
        wanted, free = model(torch.cat([x, x]), torch.cat([t, t]), torch.cat([y, none])).float().chunk(2)
    else:
        wanted, free = model(x, t, y).float(), model(x, t, none).float()
    return free + 4.0 * (wanted - free)


@program("gpu", "sdpa layer_norm guidance positions tables", last="compile")
def dit(on: Changes) -> Step:
    batch, side, classes = sized(6, 2), sized(64, 8), sized(1000, 10)
    with torch.device(DEVICE):
        model = DiT(side, sized(1024, 32), sized(16, 4), sized(24, 2), classes, on).eval()
        x, y = torch.randn(batch, 4, side, side), torch.randint(classes, (batch,))
        none = torch.full((batch,), classes)
    model.to(HALF)
    if "compile" in on:
        for block in model.blocks:
            block.compile()
    diffusion, left = Diffusion(on), TIMES

    @torch.no_grad()
    def step() -> Tensor:
        nonlocal x, left
        left = left - 4 if left > 4 else TIMES - 4
        t = torch.tensor([left] * batch, device=DEVICE)
        x = diffusion.p_sample(x, guided(model, x, t, y, none, on), t)
        return x.pow(2).mean()

    return step
