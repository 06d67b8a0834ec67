"""A T5-like translator in training: relative position bias looked up by each layer, padded sentences, fp32."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, precision, program, sized
from torch import Tensor

BUCKETS, FURTHEST = 32, 128
PAD = 0
HIDDEN = -1e9  # added to the score of a key that must not be seen


class RMSNorm(nn.Module):
    def __init__(self, width: int, one_call: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.one_call = one_call

    def forward(self, x: Tensor) -> Tensor:
        if self.one_call:
            return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


class PositionBias(nn.Module):
    """One number for each head and each bucket of distances, shared by the layers of a stack."""

    def __init__(self, heads: int, both_ways: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(BUCKETS, heads)
        self.both_ways = both_ways

    def forward(self, length: int) -> Tensor:
        position = torch.arange(length, device=self.table.weight.device)
        distance = position[None, :] - position[:, None]
        buckets, first = BUCKETS, torch.zeros_like(distance)
        if self.both_ways:
            buckets //= 2
            first = (distance > 0).long() * buckets
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        exact = buckets // 2
        far = torch.log(distance.float().clamp(min=1) / exact) / math.log(FURTHEST / exact) * (buckets - exact)
        far = (exact + far.long()).clamp(max=buckets - 1)
        bucket = first + torch.where(distance < exact, distance, far)
        return self.table(bucket).permute(2, 0, 1).unsqueeze(0)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.sdpa = heads, "sdpa" in on
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        nn.init.normal_(self.query.weight, std=0.02 / math.sqrt(width / heads))  # T5 does not divide its scores

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor) -> Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(memory)), self.split(self.value(memory))
        if self.sdpa:
            bias = bias.to(q.dtype).expand(len(q), self.heads, q.shape[2], k.shape[2])
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        else:
            scores = q @ k.transpose(-1, -2) + bias
            mixed = scores.softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, crossed: bool, on: Changes) -> None:
        super().__init__()
        self.attention, self.norm1 = Attention(width, heads, on), RMSNorm(width, "norm" in on)
        self.cross = Attention(width, heads, on) if crossed else None
        self.norm2 = RMSNorm(width, "norm" in on) if crossed else None
        self.wide, self.narrow = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.norm3, self.drop = RMSNorm(width, "norm" in on), nn.Dropout(0.1)

    def forward(self, x: Tensor, bias: Tensor, memory: Tensor | None = None, hidden: Tensor | None = None) -> Tensor:
        y = self.norm1(x)
        x = x + self.drop(self.attention(y, y, bias))
        if self.cross is not None:
            x = x + self.drop(self.cross(self.norm2(x), memory, hidden))
        return x + self.drop(self.narrow(self.drop(F.relu(self.wide(self.norm3(x))))))


class Stack(nn.Module):
    def __init__(self, depth: int, width: int, heads: int, decodes: bool, on: Changes) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, heads, decodes, on) for _ in range(depth))
        self.positions = PositionBias(heads, not decodes)
        self.norm, self.drop = RMSNorm(width, "norm" in on), nn.Dropout(0.1)
        self.once = "bias" in on

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None = None, hidden: Tensor | None = None) -> Tensor:
        x = self.drop(x)
        if self.once:
            bias = self.positions(x.shape[1]) + mask
            for layer in self.layers:
                x = layer(x, bias, memory, hidden)
        else:
            for layer in self.layers:
                x = layer(x, self.positions(x.shape[1]) + mask, memory, hidden)
        return self.drop(self.norm(x))


class Translator(nn.Module):
    def __init__(self, words: int, width: int, heads: int, depth: int, on: Changes) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.encoder = Stack(depth, width, heads, False, on)
        self.decoder = Stack(depth, width, heads, True, on)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        hidden = (source == PAD)[:, None, None, :].float() * HIDDEN
        length = target.shape[1]
        later = torch.full((length, length), HIDDEN, device=target.device).triu(1)[None, None]
        memory = self.encoder(self.words(source), hidden)
        return self.head(self.decoder(self.words(target), later, memory, hidden))


@program("gpu", "tf32 amp sdpa bias norm item")
def t5_translate(on: Changes) -> Step:
    precision(on)
    words, batch, long, short = sized(32128, 96), sized(16, 2), sized(512, 24), sized(128, 16)
    with torch.device(DEVICE):
        model = Translator(words, sized(768, 32), sized(12, 4), sized(6, 2), on)
        source = torch.randint(1, words, (batch, long))
        target = torch.randint(1, words, (batch, short + 1))
        lengths = torch.randint(long // 2, long + 1, (batch, 1))
        source[torch.arange(long) >= lengths] = PAD
    descent = torch.optim.AdamW(model.parameters(), lr=1e-4)
    average = torch.zeros((), device=DEVICE)
    history: list[float] = []

    def step() -> Tensor:
        # On a GPU, dropout may draw other numbers for bf16 than for fp32: with "amp" only the distribution of the
        # masks is the same.
        with autocast(on):
            scores = model(source, target[:, :-1])
            loss = F.cross_entropy(scores.flatten(0, 1), target[:, 1:].flatten())
        descent.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        descent.step()
        if "item" in on:
            average.lerp_(loss.detach(), 0.01)
        else:
            history.append(loss.item())
        return loss.detach()

    return step
