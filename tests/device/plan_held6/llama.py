"""A language model tuned by adapters: all recomputed, keys repeated, scores and norms in fp32, an odd vocabulary."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, HALF, Changes, Step, program, sized
from torch import Tensor
from torch.utils.checkpoint import checkpoint


class Norm(nn.Module):
    def __init__(self, width: int, on: Changes) -> None:
        super().__init__()
        self.weight, self.fused = nn.Parameter(torch.ones(width)), "norm" in on

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return F.rms_norm(x, x.shape[-1:], self.weight, 1e-5)
        y = x.to(torch.float32)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * y.to(x.dtype)


class Adapted(nn.Module):
    """A frozen layer, and beside it a narrow one that learns."""

    def __init__(self, inner: int, outer: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inner, outer, bias=False)
        self.down, self.up = nn.Linear(inner, rank, bias=False), nn.Linear(rank, outer, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.up(self.down(x.to(self.down.weight.dtype))).to(x.dtype)


def turns(length: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines of each place, [length, size]."""
    rates = 10000.0 ** (-torch.arange(0, size, 2, device=device).float() / size)
    angles = torch.outer(torch.arange(length, device=device).float(), rates)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def turned(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    other = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cosines.to(x.dtype) + other * sines.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, pairs: int, rank: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.pairs, self.size, self.on = heads, pairs, width // heads, on
        self.q, self.v = Adapted(width, width, rank), Adapted(width, pairs * self.size, rank)
        self.k, self.out = nn.Linear(width, pairs * self.size, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, places: tuple[Tensor, Tensor]) -> Tensor:
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(batch, length, self.pairs, self.size).transpose(1, 2)
        v = self.v(x).view(batch, length, self.pairs, self.size).transpose(1, 2)
        if "rotary" not in self.on:
            places = turns(length, self.size, x.device)
        q, k = turned(q, *places), turned(k, *places)
        if "sdpa" in self.on:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        else:
            k, v = (part.repeat_interleave(self.heads // self.pairs, dim=1) for part in (k, v))
            future = torch.full((length, length), float("-inf"), device=x.device, dtype=x.dtype).triu(1)
            scores = torch.matmul(q, k.transpose(2, 3)) / self.size**0.5 + future
            y = torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(x.dtype), v)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, pairs: int, inner: int, rank: int, on: Changes) -> None:
        super().__init__()
        self.attention = Attention(width, heads, pairs, rank, on)
        self.norm1, self.norm2 = Norm(width, on), Norm(width, on)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, places: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attention(self.norm1(x), places)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, words: int, width: int, heads: int, layers: int, inner: int, on: Changes) -> None:
        super().__init__()
        self.size, self.count, self.on = width // heads, words, on
        self.words = nn.Embedding(words, width)
        self.layers = nn.ModuleList(Layer(width, heads, heads // 4, inner, 16, on) for _ in range(layers))
        self.norm, self.head = Norm(width, on), nn.Linear(width, words, bias=False)
        if "vocabulary" in on:
            self.head.weight = nn.Parameter(F.pad(self.head.weight.detach(), (0, 0, 0, -words % 64)))

    def forward(self, ids: Tensor) -> Tensor:
        x, places = self.words(ids), turns(ids.shape[1], self.size, ids.device)
        x.requires_grad_()
        for layer in self.layers:
            x = layer(x, places) if "checkpoint" in self.on else checkpoint(layer, x, places, use_reentrant=False)
        scores = self.head(self.norm(x))
        return scores[..., : self.count] if scores.shape[-1] > self.count else scores

    def halved(self) -> "Llama":
        """All in half precision, of which only the adapters are tuned, in fp32."""
        adapters = [
            part for name, part in self.named_modules() if name.endswith((".q.down", ".q.up", ".v.down", ".v.up"))
        ]
        self.to(HALF).requires_grad_(False)
        for adapter in adapters:
            adapter.float().requires_grad_(True)
        return self


def guessed(scores: Tensor, ids: Tensor, on: Changes) -> Tensor:
    """Each word's loss by the scores of the place before."""
    if "shift" in on:
        following = F.pad(ids[:, 1:], (0, 1), value=-100)
        return F.cross_entropy(scores.flatten(0, 1).float(), following.flatten())
    scores = scores.float()
    before, following = scores[:, :-1, :].contiguous(), ids[:, 1:].contiguous()
    return F.cross_entropy(before.view(-1, before.shape[-1]), following.view(-1))


@program("gpu", "checkpoint sdpa norm rotary shift vocabulary", last="compile")
def llama(on: Changes) -> Step:
    words = sized(32003, 61)
    with torch.device(DEVICE):
        model = Llama(words, sized(2048, 64), sized(32, 8), sized(8, 2), sized(5632, 96), on).halved()
        ids = torch.randint(words, (sized(6, 2), sized(1024, 12)))
    if "compile" in on:
        for layer in model.layers:
            layer.compile()
    tuned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    adam = torch.optim.AdamW(tuned, lr=1e-4, weight_decay=0.0)

    def step() -> Tensor:
        adam.zero_grad()
        loss = guessed(model(ids), ids, on)
        loss.backward()
        adam.step()
        return loss.detach()

    return step
