"""Speech to letters by a conformer: blocks recomputed though memory is free, swish by hand, the CTC loss on the CPU."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, precision, program, sized
from torch import Tensor
from torch.utils.checkpoint import checkpoint


class Swish(nn.Module):
    def __init__(self, on: Changes) -> None:
        super().__init__()
        self.fused = "swish" in on

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x) if self.fused else x * x.sigmoid()


def feed(width: int, on: Changes) -> nn.Sequential:
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), Swish(on), nn.Linear(4 * width, width))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.fused = heads, "sdpa" in on
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = there[:, None, None, :]
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        else:
            scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(2, 3))
            scores = scores.masked_fill(~seen, torch.finfo(scores.dtype).min)
            weights = scores.softmax(dim=-1).masked_fill(~seen, 0.0)
            y = torch.matmul(weights, v)
        return self.out(y.transpose(1, 2).flatten(2))


class Convolution(nn.Module):
    def __init__(self, width: int, kernel: int, on: Changes) -> None:
        super().__init__()
        self.norm, self.swish = nn.LayerNorm(width), Swish(on)
        self.widen = nn.Conv1d(width, 2 * width, 1)
        self.along = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.even, self.close = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        y = F.glu(self.widen(self.norm(x).transpose(1, 2)), dim=1)
        y = self.along(y.masked_fill(~there[:, None], 0.0))
        return self.close(self.swish(self.even(y))).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, kernel: int, on: Changes) -> None:
        super().__init__()
        self.feed1, self.feed2 = feed(width, on), feed(width, on)
        self.attention, self.convolution = Attention(width, heads, on), Convolution(width, kernel, on)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, there: Tensor) -> Tensor:
        x = x + 0.5 * self.feed1(x)
        x = x + self.attention(x, there)
        x = x + self.convolution(x, there)
        return self.norm(x + 0.5 * self.feed2(x))


class Conformer(nn.Module):
    def __init__(self, bands: int, width: int, heads: int, blocks: int, letters: int, on: Changes) -> None:
        super().__init__()
        self.again = "checkpoint" not in on
        self.shorten = nn.Sequential(
            nn.Conv2d(1, width // 2, 3, 2, 1), nn.ReLU(), nn.Conv2d(width // 2, width // 2, 3, 2, 1), nn.ReLU()
        )
        self.first = nn.Linear(width // 2 * (bands // 4), width)
        self.blocks = nn.ModuleList(Block(width, heads, 31, on) for _ in range(blocks))
        self.head = nn.Linear(width, letters)

    def forward(self, sounds: Tensor, there: Tensor) -> Tensor:
        """[batch, times, bands] to [batch, times / 4, letters]"""
        x = self.shorten(sounds[:, None])
        x = self.first(x.transpose(1, 2).flatten(2))
        for block in self.blocks:
            x = checkpoint(block, x, there, use_reentrant=False) if self.again else block(x, there)
        return self.head(x)


@program("gpu", "checkpoint tf32 amp swish sdpa ctc")
def conformer(on: Changes) -> Step:
    precision(on)
    batch, times, bands, letters = sized(24, 2), sized(1600, 96), sized(80, 8), sized(129, 12)
    lengths = torch.linspace(times // 8, times // 4, batch).long()
    said = torch.linspace(times // 40, times // 16, batch).long()
    texts = torch.randint(1, letters, (batch, int(said.max())))
    with torch.device(DEVICE):
        model = Conformer(bands, sized(512, 16), sized(8, 2), sized(10, 2), letters, on)
        sounds = torch.randn(batch, times, bands)
    there = (torch.arange(times // 4) < lengths[:, None]).to(DEVICE)
    where = DEVICE if "ctc" in on else "cpu"
    texts = texts.to(where)
    adam = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.98))

    def step() -> Tensor:
        adam.zero_grad()
        with autocast(on):
            letters = model(sounds, there)
        chances = letters.float().log_softmax(dim=-1).transpose(0, 1)
        loss = F.ctc_loss(chances.to(where), texts, lengths, said, zero_infinity=True)
        loss.backward()
        adam.step()
        return loss.detach()

    return step
