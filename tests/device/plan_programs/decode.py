"""Text generated word by word: weights cast each time, a cache that grows by concatenation, an end asked for."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from advice_case import graphed
from plan_program import DEVICE, HALF, Changes, Step, program, sized
from torch import Tensor

END = 2


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, longest: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.size, self.longest, self.on = heads, width // heads, longest, on
        if "qkv" in on:
            self.qkv = nn.Linear(width, 3 * width)
        else:
            self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(x).chunk(3, dim=-1) if "qkv" in self.on else (self.q(x), self.k(x), self.v(x))
        q, k, v = (part.view(batch, length, self.heads, self.size).transpose(1, 2) for part in parts)
        k, v = self.static(k, v, places) if "static_cache" in self.on else self.grown(k, v)
        past = torch.arange(k.shape[2], device=x.device)[None] <= places[:, None]
        if "sdpa" in self.on:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=past)
        else:
            scores = torch.matmul(q, k.transpose(2, 3)) / self.size**0.5
            scores = scores + torch.zeros_like(scores).masked_fill(~past, float("-inf"))
            y = torch.matmul(F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def grown(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys is not None and self.values is not None:
            k, v = torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2)
        self.keys, self.values = k, v
        return k, v

    def static(self, k: Tensor, v: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        if self.keys is None or self.values is None:
            shape = (k.shape[0], self.heads, self.longest, self.size)
            self.keys, self.values = k.new_zeros(shape), v.new_zeros(shape)
        self.keys.index_copy_(2, places, k)
        self.values.index_copy_(2, places, v)
        return self.keys, self.values


class Block(nn.Module):
    def __init__(self, width: int, heads: int, longest: int, on: Changes) -> None:
        super().__init__()
        self.attention = Attention(width, heads, longest, on)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), places)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, words: int, longest: int, on: Changes) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, heads, longest, on) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: Tensor, places: Tensor) -> Tensor:
        x = self.words(ids) + self.places(places)
        for block in self.blocks:
            x = block(x, places)
        return self.head(self.norm(x[:, -1]))

    def forget(self) -> None:
        for block in self.blocks:
            block.attention.keys = block.attention.values = None


def sampled(logits: Tensor, share: float, on: Changes) -> Tensor:
    """The next word: of the likeliest that together have ``share``, or of the 50 likeliest."""
    if "topk" in on:
        likely, words = (logits.float() / 0.8).topk(min(50, logits.shape[-1]), dim=-1)
        return words.gather(1, torch.multinomial(likely.softmax(-1), 1))
    likely, words = torch.sort(F.softmax(logits.float() / 0.8, dim=-1), descending=True)
    likely = likely.masked_fill(likely.cumsum(-1) - likely > share, 0.0)
    return words.gather(1, torch.multinomial(likely / likely.sum(-1, keepdim=True), 1))


@program("host", "half static_cache sdpa qkv topk item", last="graph", needs={"graph": "half static_cache item"})
def decode(on: Changes) -> Step:
    words, prompt, new = sized(32000, 64), sized(128, 8), sized(16, 4)
    longest = prompt + new
    with torch.device(DEVICE):
        model = Model(sized(12, 2), sized(1024, 32), sized(16, 4), words, longest, on).requires_grad_(False).eval()
        asked = torch.randint(3, words, (sized(8, 2), prompt))
        starts, place = torch.arange(prompt), torch.tensor([prompt])
    if "half" in on:
        model = model.to(HALF)
    word = asked[:, -1:].clone()

    def next_word() -> None:
        with torch.autocast(DEVICE, HALF, enabled="half" not in on):
            word.copy_(sampled(model(word, place), 0.9, on))
        place.add_(1)

    def answered() -> Tensor:
        ended = torch.zeros(len(asked), dtype=torch.bool, device=DEVICE)
        result = [begun()]
        for _ in range(new - 1):
            following()
            result.append(word.clone())
            ended |= word[:, 0] == END
            if "item" not in on and ended.all().item():
                break
        return torch.cat(result, dim=1)

    def begun() -> Tensor:
        if "static_cache" not in on:
            model.forget()
        place.fill_(prompt)
        with torch.autocast(DEVICE, HALF, enabled="half" not in on):
            word.copy_(sampled(model(asked, starts), 0.9, on))
        return word.clone()

    @torch.no_grad()
    def step() -> Tensor:
        return answered().float().mean()

    following = next_word
    if "graph" in on:
        with torch.no_grad():
            begun()
            following = graphed(next_word)
    return step
