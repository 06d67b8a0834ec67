"""Text from a GPT-2: each word drawn from the 50 likeliest, keys and values kept in a cache that grows, fp32."""

import math
from collections.abc import Callable

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, ON_GPU, Changes, Step, program, sized
from torch import Tensor

LIKELIEST, TEMPERATURE = 50, 0.8


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.on = heads, on
        query, key, value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        if "qkv" in on:
            self.qkv = nn.Linear(width, 3 * width, device="meta").to_empty(device=query.weight.device)
            with torch.no_grad():
                self.qkv.weight.copy_(torch.cat([query.weight, key.weight, value.weight]))
                self.qkv.bias.copy_(torch.cat([query.bias, key.bias, value.bias]))
        else:
            self.query, self.key, self.value = query, key, value

    def reserve(self, batch: int, length: int) -> None:
        width = self.out.in_features // self.heads
        self.keys = torch.zeros(batch, self.heads, length, width, device=DEVICE)
        self.values = torch.zeros_like(self.keys)

    def remembered(self, k: Tensor, v: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        if "static" in self.on:
            self.keys.index_copy_(2, positions, k)
            self.values.index_copy_(2, positions, v)
        elif self.keys is None:
            self.keys, self.values = k, v
        else:
            self.keys, self.values = torch.cat([self.keys, k], 2), torch.cat([self.values, v], 2)
        return self.keys, self.values

    def forward(self, x: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        parts = self.qkv(x).chunk(3, -1) if "qkv" in self.on else (self.query(x), self.key(x), self.value(x))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        k, v = self.remembered(k, v, positions)
        if "sdpa" in self.on:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            mixed = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads, on)
        self.norm2 = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, positions: Tensor, seen: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), positions, seen)
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, words: int, longest: int, width: int, heads: int, depth: int, on: Changes) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads, on) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        for table in (self.words, self.places):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, words: Tensor, positions: Tensor, length: int) -> Tensor:
        """Scores of the word after the last one; the cache then holds ``length`` places."""
        x = self.words(words) + self.places(positions)
        seen = torch.arange(length, device=words.device)[None, :] <= positions[:, None]
        for block in self.blocks:
            x = block(x, positions, seen)
        return F.linear(self.norm(x[:, -1]), self.words.weight)

    def forget(self) -> None:
        for block in self.blocks:
            block.attention.keys = block.attention.values = None


def drawn(scores: Tensor) -> tuple[Tensor, Tensor]:
    """A word for each row, and the logarithm of its share."""
    best, words = torch.topk(scores / TEMPERATURE, min(LIKELIEST, scores.shape[-1]))
    shares = best.softmax(-1)
    choice = torch.multinomial(shares, 1)
    return words.gather(1, choice), shares.gather(1, choice).log()


def recorded(model: GPT, batch: int, length: int) -> Callable[[Tensor, Tensor], Tensor]:
    """The pass of one more word as a CUDA graph: the cache stays in its place, so all shapes stay as they are."""
    word = torch.zeros(batch, 1, dtype=torch.long, device=DEVICE)
    position = torch.full((1,), length - 1, dtype=torch.long, device=DEVICE)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.no_grad():
        with torch.cuda.stream(side):
            for _ in range(3):
                model(word, position, length)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            scores = model(word, position, length)

    def replay(new: Tensor, place: Tensor) -> Tensor:
        word.copy_(new)
        position.copy_(place)
        graph.replay()
        return scores

    return replay


@program("host", "static graph qkv sdpa item inference_mode", needs={"graph": "static"})
def gpt2_sampling(on: Changes) -> Step:
    words, batch, given, wanted = sized(50257, 80), sized(16, 2), sized(96, 8), sized(24, 5)
    longest, fixed, end = sized(1024, 32), "static" in on, words - 1
    with torch.device(DEVICE):
        model = GPT(words, longest, sized(768, 32), sized(12, 4), sized(12, 2), on).eval()
        prompt = torch.randint(words, (batch, given))
    if fixed:
        for block in model.blocks:
            block.attention.reserve(batch, given + wanted)

    def plain(new: Tensor, place: Tensor, length: int) -> Tensor:
        return model(new, place, given + wanted if fixed else length)

    replay = recorded(model, batch, given + wanted) if "graph" in on and fixed and ON_GPU else None

    def generate() -> Tensor:
        if not fixed:
            model.forget()
        scores = plain(prompt, torch.arange(given, device=DEVICE), given)
        text, logs, ended = [prompt], [], torch.zeros(batch, 1, dtype=torch.bool, device=DEVICE)
        for length in range(given + 1, given + wanted + 1):
            word, log = drawn(scores)
            word = word.masked_fill(ended, end)
            ended |= word == end
            text.append(word)
            logs.append(log)
            # With "item" the loop goes on after all 16 texts have ended. A text of 24 words hardly ever ends here, so
            # the words are the same.
            if "item" not in on and bool(ended.all()):
                break
            if length == given + wanted:
                break
            place = torch.full((1,), length - 1, device=DEVICE)
            scores = replay(word, place) if replay else plain(word, place, length)
        torch.cat(text, 1).tolist()
        return torch.cat(logs, 1).mean()

    def step() -> Tensor:
        with torch.inference_mode() if "inference_mode" in on else torch.no_grad():
            return generate()

    return step
