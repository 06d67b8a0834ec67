"""Pictures sampled by a diffusion transformer: two calls for guidance, weights cast and a text projected each time."""

from itertools import pairwise

import torch
import torch.nn as nn
import torch.nn.functional as F
from advice_case import graphed
from plan_program import DEVICE, HALF, Changes, Step, program, sized
from torch import Tensor

Pair = tuple[Tensor, Tensor]


def attended(q: Tensor, k: Tensor, v: Tensor, heads: int, on: Changes) -> Tensor:
    q, k, v = (x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2) for x in (q, k, v))
    if "sdpa" in on:
        y = F.scaled_dot_product_attention(q, k, v)
    else:
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)).float()
        scores = scores - scores.amax(dim=-1, keepdim=True)
        y = torch.matmul(scores.softmax(dim=-1).to(v.dtype), v)
    return y.transpose(1, 2).flatten(2)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.on = heads, on
        self.norm1, self.norm3 = (nn.LayerNorm(width, elementwise_affine=False, eps=1e-6) for _ in range(2))
        self.norm2 = nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        if "qkv" in on:
            self.joined()
        self.out = nn.Linear(width, width)
        self.text_q, self.text_k, self.text_v, self.text_out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def joined(self) -> None:
        parts = [self.q, self.k, self.v]
        self.qkv = nn.utils.skip_init(nn.Linear, self.q.in_features, 3 * self.q.out_features, device=DEVICE)
        self.qkv.weight = nn.Parameter(torch.cat([part.weight for part in parts]))
        self.qkv.bias = nn.Parameter(torch.cat([part.bias for part in parts]))
        del self.q, self.k, self.v

    def keys(self, text: Tensor) -> Pair:
        return self.text_k(text), self.text_v(text)

    def forward(self, x: Tensor, time: Tensor, text: Tensor | Pair) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(time))[:, None].chunk(6, dim=-1)
        y = self.norm1(x) * (1 + scale1) + shift1
        q, k, v = self.qkv(y).chunk(3, dim=-1) if "qkv" in self.on else (self.q(y), self.k(y), self.v(y))
        x = x + gate1 * self.out(attended(q, k, v, self.heads, self.on))
        k, v = self.keys(text) if isinstance(text, Tensor) else text
        x = x + self.text_out(attended(self.text_q(self.norm2(x)), k, v, self.heads, self.on))
        y = self.norm3(x) * (1 + scale2) + shift2
        return x + gate2 * self.down(F.gelu(self.up(y), approximate="tanh"))


class Transformer(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, side: int, on: Changes) -> None:
        super().__init__()
        self.on, self.width = on, width
        self.patches = nn.Conv2d(4, width, 2, 2)
        self.places = nn.Parameter(0.02 * torch.randn(1, side * side // 4, width))
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(Block(width, heads, on) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 16)
        self.rates = self.made().to(self.places.device)  # no buffer: it stays in fp32

    def made(self) -> Tensor:
        return torch.exp(torch.arange(0, self.width, 2, device="cpu") * (-9.21 / self.width))

    def forward(self, pictures: Tensor, time: Tensor, text: Tensor | list[Pair]) -> Tensor:
        batch, _, side, _ = pictures.shape
        rates = self.rates if "tables" in self.on else self.made().to(pictures.device)
        angles = time[:, None].float() * rates
        times = self.time(torch.cat([angles.cos(), angles.sin()], dim=-1).to(pictures.dtype))
        x = self.patches(pictures).flatten(2).transpose(1, 2) + self.places
        for number, block in enumerate(self.blocks):
            x = block(x, times, text if isinstance(text, Tensor) else text[number])
        x = self.head(self.norm(x)).view(batch, side // 2, side // 2, 2, 2, 4)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(batch, 4, side, side)


@program("host", "batched half context sdpa qkv tables", last="graph", needs={"graph": "batched half context tables"})
def sampler(on: Changes) -> Step:
    batch, side, width, steps = sized(4, 2), sized(32, 8), sized(1024, 32), sized(7, 3)
    with torch.device(DEVICE):
        model = Transformer(sized(10, 2), width, sized(16, 4), side, on).requires_grad_(False).eval()
        text, empty = torch.randn(batch, sized(77, 5), width), torch.zeros(batch, sized(77, 5), width)
        first = torch.randn(batch, 4, side, side)
        left = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), dim=0)
    result = torch.zeros_like(first)
    moments = [999 - 999 * number // steps for number in range(steps)] + [0]
    known = left.tolist()
    dtype = HALF if "half" in on else torch.float32
    model, text, empty = model.to(dtype), text.to(dtype), empty.to(dtype)

    def guided(pictures: Tensor, moment: int, wanted: list[Tensor | list[Pair]]) -> Tensor:
        """The noise in the pictures, told from what is there without the text."""
        with torch.autocast(DEVICE, HALF, enabled="half" not in on):
            if "batched" in on:
                time = torch.full((2 * batch,), moment, device=DEVICE)
                plain, told = model(torch.cat([pictures, pictures]).to(dtype), time, wanted[0]).chunk(2)
            else:
                time = torch.full((batch,), moment, device=DEVICE)
                plain, told = (model(pictures.to(dtype), time, one) for one in wanted)
        return plain.float() + 3.0 * (told.float() - plain.float())

    def texts() -> list[Tensor | list[Pair]]:
        parts: list[Tensor] = [torch.cat([empty, text])] if "batched" in on else [empty, text]
        if "context" not in on:
            return [*parts]
        with torch.autocast(DEVICE, HALF, enabled="half" not in on):
            return [[block.keys(part) for block in model.blocks] for part in parts]

    @torch.no_grad()
    def sampled() -> None:
        pictures, wanted = first, texts()
        for now, then in pairwise(moments):
            noise = guided(pictures, now, wanted)
            a, b = (known[now], known[then]) if "tables" in on else (left[now].item(), left[then].item())
            clean = ((pictures - (1 - a) ** 0.5 * noise) / a**0.5).clamp(-3, 3)
            pictures = b**0.5 * clean + (1 - b) ** 0.5 * noise
        result.copy_(pictures)

    sample = graphed(sampled) if "graph" in on else sampled

    def step() -> Tensor:
        first.normal_()
        sample()
        return result.abs().mean()

    return step
