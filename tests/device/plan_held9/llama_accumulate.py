"""A small Llama in bf16 with fp32 copies of its weights: four parts of a batch, checkpoints, clipping by hand."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, HALF, Changes, Step, program, sized
from torch import Tensor
from torch.utils.checkpoint import checkpoint

PARTS = 4
Angles = tuple[Tensor, Tensor]


def angles(length: int, width: int, device: torch.device) -> Angles:
    """Cosines and sines of the rotary embedding."""
    rates = 1.0 / 10000 ** (torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
    turns = torch.outer(torch.arange(length, device=device, dtype=torch.float32), rates)
    turns = torch.cat([turns, turns], -1)
    return turns.cos().to(HALF), turns.sin().to(HALF)


def rotated(x: Tensor, turns: Angles) -> Tensor:
    cosine, sine = turns
    low, high = x.chunk(2, -1)
    return x * cosine + torch.cat([-high, low], -1) * sine


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * y.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.groups, self.on, self.each = heads, groups, on, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.each, bias=False)
        self.value = nn.Linear(width, groups * self.each, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, kept: Angles | None) -> Tensor:
        length = x.shape[1]
        turns = kept if kept is not None else angles(length, self.each, x.device)
        q = self.query(x).unflatten(-1, (self.heads, self.each)).transpose(1, 2)
        k = self.key(x).unflatten(-1, (self.groups, self.each)).transpose(1, 2)
        v = self.value(x).unflatten(-1, (self.groups, self.each)).transpose(1, 2)
        q, k = rotated(q, turns), rotated(k, turns)
        k, v = (part.repeat_interleave(self.heads // self.groups, 1) for part in (k, v))
        if "sdpa" in self.on:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(self.each)
            later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            shares = scores.masked_fill(later, float("-inf")).float().softmax(-1)
            mixed = shares.to(x.dtype) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, on: Changes) -> None:
        super().__init__()
        inner = 11 * width // 4
        self.norm1, self.attention = RMSNorm(width), Attention(width, heads, groups, on)
        self.norm2 = RMSNorm(width)
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor, kept: Angles | None) -> Tensor:
        x = x + self.attention(self.norm1(x), kept)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, words: int, width: int, heads: int, groups: int, depth: int, on: Changes) -> None:
        super().__init__()
        self.words, self.each, self.on = nn.Embedding(words, width), width // heads, on
        self.blocks = nn.ModuleList(Block(width, heads, groups, on) for _ in range(depth))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, words, bias=False)
        self.kept: Angles | None = None
        if "compile" in on:
            for block in self.blocks:
                block.compile()

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        if "tables" in self.on and self.kept is None:
            self.kept = angles(words.shape[1], self.each, words.device)
        for block in self.blocks:
            x = block(x, self.kept) if "checkpoint" in self.on else checkpoint(block, x, self.kept, use_reentrant=False)
        return self.head(self.norm(x))


class Masters:
    """AdamW on fp32 copies of the weights, gradients clipped to a norm of 1."""

    def __init__(self, weights: list[nn.Parameter], at_once: bool) -> None:
        self.weights, self.at_once = weights, at_once
        self.copies = [nn.Parameter(weight.detach().float()) for weight in weights]
        self.descent = torch.optim.AdamW(self.copies, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)

    @torch.no_grad()
    def clip(self) -> None:
        if self.at_once:
            nn.utils.clip_grad_norm_(self.copies, 1.0)
            return
        squares = 0.0
        for copy in self.copies:
            squares += copy.grad.norm().item() ** 2
        norm = math.sqrt(squares)
        if norm > 1.0:
            for copy in self.copies:
                copy.grad.mul_(1.0 / (norm + 1e-6))

    @torch.no_grad()
    def step(self) -> None:
        for copy, weight in zip(self.copies, self.weights, strict=True):
            copy.grad = weight.grad.float()
            weight.grad = None
        self.clip()
        self.descent.step()
        for copy, weight in zip(self.copies, self.weights, strict=True):
            weight.copy_(copy)


@program("gpu", "checkpoint sdpa tables clip compile item")
def llama_accumulate(on: Changes) -> Step:
    words, batch, length = sized(32000, 96), sized(16, 4), sized(1024, 16)
    with torch.device(DEVICE):
        model = Llama(words, sized(1024, 32), sized(16, 4), sized(4, 2), sized(8, 2), on).to(HALF)
        text = torch.randint(words, (batch, length + 1))
    masters = Masters(list(model.parameters()), "clip" in on)
    history: list[float] = []

    def step() -> Tensor:
        total = torch.zeros((), device=DEVICE)
        said = 0.0
        for part in text.chunk(PARTS):
            scores = model(part[:, :-1])
            loss = F.cross_entropy(scores.flatten(0, 1).float(), part[:, 1:].flatten()) / PARTS
            loss.backward()
            total += loss.detach()
            if "item" not in on:
                said += loss.item()
        masters.step()
        # With "item" the loss of the whole batch is read once, where nothing waits for the parts.
        history.append(total.item() if "item" in on else said)
        return total

    return step
