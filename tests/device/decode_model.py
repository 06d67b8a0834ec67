"""A decoder that generates one token per step with a static KV cache, for captures on a GPU."""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, batch: int, context: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        shape = batch, heads, context, width // heads
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def forward(self, x: Tensor, place: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, place, k)
        self.values.index_copy_(2, place, v)
        y = F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, batch: int, context: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, batch, context)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, place: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), place, mask)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(
        self, layers: int = 6, width: int = 512, heads: int = 8, batch: int = 8, context: int = 256, words: int = 4096
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads, batch, context) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.register_buffer("places", torch.arange(context))

    def forward(self, ids: Tensor, place: Tensor) -> None:
        """Replace ids (batch, 1), the tokens at place (1,), by the most likely next ones, and advance the place."""
        mask = (self.places <= place).expand(ids.shape[0], 1, 1, -1)
        x = self.words(ids)
        for block in self.blocks:
            x = block(x, place, mask)
        ids.copy_(self.head(self.norm(x)).argmax(-1))
        place.add_(1).remainder_(len(self.places))
