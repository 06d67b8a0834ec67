"""Masked words guessed by an encoder: sentences padded to the longest allowed, scores at each place, GELU by hand."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, precision, program, sized
from torch import Tensor

PAD, MASK, IGNORED = 0, 1, -100


def gelu(x: Tensor, on: Changes) -> Tensor:
    return F.gelu(x) if "gelu" in on else x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def parted(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.parted(self.query(x)), self.parted(self.key(x)), self.parted(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2))
        scores = scores / math.sqrt(q.shape[-1])
        scores = scores + mask
        seen = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.out(seen.permute(0, 2, 1, 3).contiguous().view(x.shape))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.on = on
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.down(gelu(self.up(x), self.on)))


class Bert(nn.Module):
    """``rows``: of the table of words, which may have some more than there are words."""

    def __init__(self, words: int, rows: int, width: int, heads: int, layers: int, longest: int, on: Changes) -> None:
        super().__init__()
        self.on, self.count = on, words
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads, on) for _ in range(layers))
        self.turn, self.turned = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(rows))
        for table in (self.words, self.places, self.kinds):
            nn.init.normal_(table.weight, std=0.02)
        if rows > words:
            self.words.weight = nn.Parameter(F.pad(self.words.weight.detach(), (0, 0, 0, rows - words)))

    def forward(self, ids: Tensor, kinds: Tensor, there: Tensor, labels: Tensor) -> Tensor:
        mask = (1.0 - there[:, None, None, :].float()) * -10000.0
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.norm(self.words(ids) + self.places(places) + self.kinds(kinds))
        for layer in self.layers:
            x = layer(x, mask)
        if "masked" in self.on:
            asked = labels != IGNORED
            x, labels = x[asked], labels[asked]
        x = self.turned(gelu(self.turn(x), self.on))
        scores = F.linear(x, self.words.weight, self.bias)
        if scores.shape[-1] > self.count:
            scores = scores[..., : self.count]
        return F.cross_entropy(scores.flatten(0, -2), labels.flatten(), ignore_index=IGNORED)


def sentences(batch: int, longest: int, shortest: int, most: int, words: int) -> tuple[Tensor, Tensor, Tensor]:
    """Masked words, whether they are there, and what is to be guessed."""
    lengths = torch.linspace(shortest, most, batch).long()
    there = torch.arange(longest) < lengths[:, None]
    ids = torch.randint(2, words, (batch, longest)).where(there, PAD)
    asked = (torch.rand(batch, longest) < 0.15) & there
    asked[:, 1] = True
    return ids.masked_fill(asked, MASK), there, ids.where(asked, IGNORED)


@program("gpu", "tf32 amp trim masked vocabulary gelu")
def bert(on: Changes) -> Step:
    precision(on)
    words, longest, most = sized(30522, 61), sized(512, 16), sized(304, 10)
    rows = -(-words // 64) * 64 if "vocabulary" in on else words
    ids, there, labels = sentences(sized(16, 3), longest, sized(48, 4), most, words)
    if "trim" in on:
        longest = int(there.sum(dim=1).max())
        longest = min(-(-longest // 8) * 8, ids.shape[1])
    ids, there, labels = (part[:, :longest].contiguous().to(DEVICE) for part in (ids, there, labels))
    kinds = torch.zeros_like(ids)
    with torch.device(DEVICE):
        model = Bert(words, rows, sized(768, 32), sized(12, 4), sized(12, 2), sized(512, 16), on)
    adam = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.01)

    def step() -> Tensor:
        adam.zero_grad()
        with autocast(on):
            loss = model(ids, kinds, there, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        return loss.detach()

    return step
