"""A causal language model with rotary embeddings and grouped keys, trained with accumulated gradients in fp32."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, optimizer, precision, program, sized
from torch import Tensor


class RMSNorm(nn.Module):
    def __init__(self, width: int, builtin: bool) -> None:
        super().__init__()
        self.weight, self.eps, self.builtin = nn.Parameter(torch.ones(width)), 1e-5, builtin

    def forward(self, x: Tensor) -> Tensor:
        if self.builtin:
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.type_as(x) * self.weight


def angles(length: int, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the positions' turns."""
    rates = 1.0 / 10000 ** (torch.arange(0, size, 2).float() / size)
    turns = torch.outer(torch.arange(length).float(), rates)
    turns = torch.cat((turns, turns), dim=-1)
    return turns.cos(), turns.sin()


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, context: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.groups, self.size, self.on = heads, groups, width // heads, on
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        cos, sin = angles(context, self.size)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query = self.query(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        key = self.key(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        value = self.value(x).view(batch, length, self.groups, self.size).transpose(1, 2)
        if "rotary" in self.on:
            cos, sin = self.cos[:length], self.sin[:length]
        else:
            cos, sin = (part.to(x.device) for part in angles(length, self.size))
        query, key = turned(query, cos, sin).type_as(value), turned(key, cos, sin).type_as(value)
        key = key.repeat_interleave(self.heads // self.groups, dim=1)
        value = value.repeat_interleave(self.heads // self.groups, dim=1)
        if "sdpa" in self.on:
            y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(-2, -1) / self.size**0.5
            mask = torch.full((length, length), float("-inf"), device=x.device).triu(1)
            y = F.softmax((scores + mask).float(), dim=-1).type_as(value) @ value
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class SwiGLU(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, hidden: int, context: int, on: Changes) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = RMSNorm(width, "norm" in on), RMSNorm(width, "norm" in on)
        self.attention, self.mlp = Attention(width, heads, groups, context, on), SwiGLU(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.mlp(self.norm_2(x))


class Model(nn.Module):
    def __init__(self, words: int, width: int, depth: int, hidden: int, context: int, on: Changes) -> None:
        super().__init__()
        heads = width // 64 if width > 256 else 4
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, heads // 4, hidden, context, on) for _ in range(depth))
        self.norm = RMSNorm(width, "norm" in on)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embedding.weight
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def clip_gradients(parameters: list[nn.Parameter], most: float) -> None:
    total = 0.0
    for parameter in parameters:
        total += parameter.grad.norm(2).item() ** 2
    scale = most / (total**0.5 + 1e-6)
    if scale < 1:
        for parameter in parameters:
            parameter.grad.mul_(scale)


@program("gpu", "tf32 amp sdpa norm rotary clip fused", last="compile")
def causal(on: Changes) -> Step:
    precision(on)
    words, width, depth = sized(32000, 200), sized(1024, 64), sized(8, 2)
    context, batch, parts = sized(1024, 32), 2, sized(3, 2)
    with torch.device(DEVICE):
        model = Model(words, width, depth, sized(2816, 96), context, on)
        tokens = torch.randint(words, (parts, batch, context + 1))
    parameters = list(model.parameters())
    adam = optimizer(torch.optim.AdamW, parameters, on, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    called = torch.compile(model) if "compile" in on else model

    def step() -> Tensor:
        total = torch.zeros((), device=DEVICE)
        for part in tokens:
            with autocast(on):
                scores = called(part[:, :-1])
                loss = F.cross_entropy(scores.float().flatten(0, 1), part[:, 1:].flatten()) / parts
            loss.backward()
            total += loss.detach()
        if "clip" in on:
            nn.utils.clip_grad_norm_(parameters, 1.0)
        else:
            clip_gradients(parameters, 1.0)
        adam.step()
        adam.zero_grad()
        return total

    return step
