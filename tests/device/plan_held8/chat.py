"""Answers of a Llama, token by token, as its reference code goes: a growing cache, norms and angles by small ops."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, HALF, ON_GPU, Changes, Step, program, sized
from torch import Tensor

THETA, EPS, EOS = 500000.0, 1e-5, 2
KIND = HALF if sized(1, 0) else torch.float32  # small sizes are to show that all changes choose the same tokens


class RMSNorm(nn.Module):
    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        self.weight, self.fused = nn.Parameter(torch.ones(width)), fused

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return F.rms_norm(x, x.shape[-1:], self.weight, EPS)
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPS)
        return self.weight * y.to(x.dtype)


def angles(positions: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding: (positions, size)."""
    powers = torch.arange(0, size, 2, device=positions.device).float() / size
    turned = positions.float()[:, None] * (1.0 / THETA**powers)[None, :]
    both = torch.cat([turned, turned], dim=-1)
    return both.cos().to(KIND), both.sin().to(KIND)


class Rotary(nn.Module):
    def __init__(self, size: int, longest: int, kept: bool) -> None:
        super().__init__()
        self.size, self.kept = size, kept
        cos, sin = angles(torch.arange(longest), size)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        if self.kept:
            cos, sin = self.cos[positions], self.sin[positions]
        else:
            cos, sin = angles(positions, self.size)
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-right, left], dim=-1) * sin


class Growing:
    """Keys and values of one layer; each token makes them longer."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def extended(self, k: Tensor, v: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        self.keys = k if self.keys is None else torch.cat([self.keys, k], dim=2)
        self.values = v if self.values is None else torch.cat([self.values, v], dim=2)
        return self.keys, self.values


class Fixed:
    """Keys and values of one layer in buffers as long as they will ever be."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.keys = torch.zeros(shape, dtype=KIND, device=DEVICE)
        self.values = torch.zeros(shape, dtype=KIND, device=DEVICE)

    def extended(self, k: Tensor, v: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.keys.index_copy_(2, positions, k), self.values.index_copy_(2, positions, v)


Cache = Growing | Fixed


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, longest: int, on: Changes) -> None:
        super().__init__()
        self.size, self.repeats, self.on = width // heads, heads // groups, on
        self.sizes = (width, groups * self.size, groups * self.size)
        self.wq, self.wk, self.wv = (nn.Linear(width, size, bias=False) for size in self.sizes)
        self.wo = nn.Linear(width, width, bias=False)
        if "qkv" in on:
            self.wqkv = nn.Parameter(torch.cat([part.weight.detach() for part in (self.wq, self.wk, self.wv)]))
            del self.wq, self.wk, self.wv
        self.rotary = Rotary(self.size, longest, "tables" in on)

    def forward(self, x: Tensor, positions: Tensor, cache: Cache, mask: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        if "qkv" in self.on:
            parts = F.linear(x, self.wqkv).split(self.sizes, dim=-1)
        else:
            parts = self.wq(x), self.wk(x), self.wv(x)
        q, k, v = (part.view(batch, length, -1, self.size).transpose(1, 2) for part in parts)
        q, k = self.rotary(q, positions), self.rotary(k, positions)
        k, v = cache.extended(k, v, positions)
        if "sdpa" in self.on and mask is None:
            y = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
            return self.wo(y.transpose(1, 2).reshape(batch, length, width))
        k, v = k.repeat_interleave(self.repeats, dim=1), v.repeat_interleave(self.repeats, dim=1)
        if "sdpa" in self.on:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        else:
            scores = q @ k.transpose(-2, -1) / self.size**0.5
            if mask is not None:
                scores = scores.masked_fill(~mask, float("-inf"))
            y = F.softmax(scores.float(), dim=-1).to(q.dtype) @ v
        return self.wo(y.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w3 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, groups: int, inner: int, longest: int, on: Changes) -> None:
        super().__init__()
        self.attention = Attention(width, heads, groups, longest, on)
        self.feed_forward = FeedForward(width, inner)
        self.norm1, self.norm2 = RMSNorm(width, "norm" in on), RMSNorm(width, "norm" in on)

    def forward(self, x: Tensor, positions: Tensor, cache: Cache, mask: Tensor | None) -> Tensor:
        x = x + self.attention(self.norm1(x), positions, cache, mask)
        return x + self.feed_forward(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, words: int, layers: int, shape: tuple[int, int, int, int], longest: int, on: Changes) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, shape[0])
        self.layers = nn.ModuleList([Block(*shape, longest, on) for _ in range(layers)])
        self.norm, self.output = RMSNorm(shape[0], "norm" in on), nn.Linear(shape[0], words, bias=False)

    def forward(self, tokens: Tensor, positions: Tensor, caches: list[Cache], seen: int) -> Tensor:
        """Scores of what follows the last token; ``seen`` positions of the caches are looked at."""
        mask = None
        if len(positions) > 1 or isinstance(caches[0], Fixed):
            mask = torch.arange(seen, device=DEVICE)[None, :] <= positions[:, None]
        x = self.embedding(tokens)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = layer(x, positions, cache, mask)
        return self.output(self.norm(x[:, -1]))


@program("host", "static sdpa norm tables qkv item graph", needs={"graph": "static"})
def chat(on: Changes) -> Step:
    words, layers, batch = sized(128256, 97), sized(16, 2), sized(4, 2)
    prompt, new = sized(500, 9), sized(12, 5)
    longest = prompt + new
    shape = (sized(2048, 32), sized(32, 4), sized(8, 2), sized(8192, 64))  # width, heads, groups, inner
    with torch.device(DEVICE):
        model = Llama(words, layers, shape, longest, on).to(KIND).requires_grad_(False).eval()
        question = torch.randint(words, (batch, prompt))
        everywhere = torch.arange(prompt)
    read = [Growing() for _ in range(layers)]
    with torch.no_grad():
        first = model(question, everywhere, read, prompt).argmax(-1, keepdim=True)
    kept = [(cache.keys, cache.values) for cache in read]

    def chosen(logits: Tensor) -> tuple[Tensor, Tensor]:
        best = F.log_softmax(logits.float(), dim=-1).max(dim=-1, keepdim=True)
        return best.indices, best.values

    token, position = first.clone(), torch.full((1,), prompt, device=DEVICE)
    chance = torch.zeros(batch, 1, device=DEVICE)
    answers: list[list[list[int]]] = []
    fixed: list[Cache] = []
    if "static" in on:
        fixed = [Fixed((batch, shape[2], longest, shape[0] // shape[1])) for _ in range(layers)]
        for cache, (keys, values) in zip(fixed, kept, strict=True):
            cache.keys[:, :, :prompt], cache.values[:, :, :prompt] = keys, values

    @torch.no_grad()
    def next_in_place() -> None:
        """The next token, from and into the same tensors, so that it may be recorded."""
        indices, values = chosen(model(token, position, fixed, longest))
        token.copy_(indices)
        chance.copy_(values)
        position.add_(1)

    again = next_in_place
    if "graph" in on and "static" in on and ON_GPU:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            position.fill_(prompt)
            for _ in range(3):
                next_in_place()
        torch.cuda.current_stream().wait_stream(side)
        position.fill_(prompt)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            next_in_place()
        again = graph.replay

    @torch.no_grad()
    def step() -> Tensor:
        caches: list[Cache] = fixed
        if "static" in on:
            token.copy_(first)
            position.fill_(prompt)
        else:
            caches = [Growing() for _ in range(layers)]
            for cache, (keys, values) in zip(caches, kept, strict=True):
                cache.keys, cache.values = keys, values
        last, found, scores, text = first, [], [], []
        for number in range(new):
            if "static" in on:
                again()
                last, value = token.clone(), chance.clone()
            else:
                at = torch.arange(prompt + number, prompt + number + 1, device=DEVICE)
                last, value = chosen(model(last, at, caches, prompt + number + 1))
            found.append(last)
            scores.append(value)
            if "item" not in on:
                text.append(last.flatten().tolist())  # each token goes to the reader at once
                if all(one == EOS for one in text[-1]):
                    break
        if "item" in on:  # what follows an end is cut off afterwards
            text = torch.cat(found, dim=1).tolist()
        answers.append(text)
        return -torch.stack(scores).mean()

    return step
