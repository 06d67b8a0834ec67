"""Text by a sampling decoder: gradients on, weights cast at each word, each row penalized alone, a growing cache."""

import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, HALF, Changes, Step, program, sized
from torch import Tensor

END, PAD, PENALTY, TOP = 1, 0, 1.2, 50


class Cache:
    """Keys and values of a layer, in place."""

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0
        self.keys: Tensor | None = None

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys is None:
            batch, heads, _, size = k.shape
            self.keys = k.new_empty(batch, heads, self.most, size)
            self.values = v.new_empty(batch, heads, self.most, size)
        end = self.used + k.shape[2]
        self.keys[:, :, self.used : end] = k.detach()
        self.values[:, :, self.used : end] = v.detach()
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class GrowingCache:
    """Keys and values of a layer, copied at each word."""

    def __init__(self) -> None:
        self.past: tuple[Tensor, Tensor] | None = None

    def update(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.past is not None:
            k, v = torch.cat((self.past[0], k), dim=-2), torch.cat((self.past[1], v), dim=-2)
        self.past = (k, v)
        return k, v


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, cache: Cache | GrowingCache) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(width, dim=2)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in (q, k, v))
        k, v = cache.update(k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Decoder(nn.Module):
    def __init__(self, words: int, width: int, heads: int, layers: int, most: int, on: Changes) -> None:
        super().__init__()
        self.wte, self.wpe, self.on = nn.Embedding(words, width), nn.Embedding(most, width), on
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f, self.lm_head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: Tensor, start: int, caches: list[Cache | GrowingCache]) -> Tensor:
        places = torch.arange(start, start + ids.shape[1], device=ids.device)
        with torch.autocast(DEVICE, HALF, enabled="half" not in self.on):
            x = self.wte(ids) + self.wpe(places)
            for block, cache in zip(self.h, caches, strict=True):
                x = block(x, cache)
            if "last" in self.on:
                x = x[:, -1:]
            logits = self.lm_head(self.ln_f(x))
        return logits.float()[:, -1, :]


def penalized(logits: Tensor, ids: Tensor, on: Changes) -> Tensor:
    """Make what was said before less likely."""
    if "penalty" in on:
        score = logits.gather(1, ids)
        return logits.scatter(1, ids, torch.where(score < 0, score * PENALTY, score / PENALTY))
    for i in range(logits.shape[0]):
        seen = torch.unique(ids[i])
        score = logits[i, seen]
        logits[i, seen] = torch.where(score < 0, score * PENALTY, score / PENALTY)
    return logits


def sampled(logits: Tensor) -> tuple[Tensor, Tensor]:
    """One of the likeliest words of each row, and the logarithm of its probability."""
    least = torch.topk(logits, TOP).values[:, -1:]
    logits = logits.masked_fill(logits < least, float("-inf"))
    word = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
    return word, F.log_softmax(logits, dim=-1).gather(1, word)


def generate(model: Decoder, prompt: Tensor, more: int, on: Changes) -> tuple[Tensor, Tensor]:
    most = prompt.shape[1] + more
    caches = [Cache(most) if "cache" in on else GrowingCache() for _ in model.h]
    ids, new, start = prompt, prompt, 0
    finished = torch.zeros(len(prompt), 1, dtype=torch.bool, device=prompt.device)
    told = torch.zeros(len(prompt), 1, device=prompt.device)
    for _ in range(more):
        logits = penalized(model(new, start, caches), ids, on)
        start = ids.shape[1]
        new, chance = sampled(logits)
        new, told = new.masked_fill(finished, PAD), told + chance.masked_fill(finished, 0.0)
        ids = torch.cat((ids, new), dim=-1)
        finished = finished | (new == END)
        if "end" not in on and finished.all():  # without this check, rows that ended are filled up
            break
    return ids, told.mean() / more


@program("host", "grad half penalty end last cache")
def storyteller(on: Changes) -> Step:
    words, length, more = sized(50257, 101), sized(512, 12), sized(16, 5)
    with torch.device(DEVICE):
        model = Decoder(words, sized(1024, 32), sized(16, 4), sized(16, 2), length + more, on).eval()
        prompt = torch.randint(2, words, (sized(8, 3), length))
    if "half" in on:  # also what stays between layers is then in half precision
        model.to(HALF)

    def step() -> Tensor:
        with torch.inference_mode() if "grad" in on else contextlib.nullcontext():
            ids, chance = generate(model, prompt, more, on)
            ids.tolist()
        return chance.detach()

    return step
