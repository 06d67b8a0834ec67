"""Speech recognised by a Conformer in fp32: masks cut out one by one, activations as formulas, scores in memory."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, optimizer, precision, program, sized
from torch import Tensor


class Swish(nn.Module):
    def __init__(self, on: Changes) -> None:
        super().__init__()
        self.fused = "silu" in on

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x) if self.fused else x * torch.sigmoid(x)


class FeedForward(nn.Sequential):
    def __init__(self, width: int, on: Changes) -> None:
        up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        super().__init__(nn.LayerNorm(width), up, Swish(on), nn.Dropout(0.1), down, nn.Dropout(0.1))


class Attention(nn.Module):
    """Attention whose scores know how far apart two frames are."""

    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.size, self.fused = heads, width // heads, "sdpa" in on
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.place = nn.Linear(width, width, bias=False)
        self.content_bias = nn.Parameter(0.1 * torch.randn(heads, 1, self.size))
        self.place_bias = nn.Parameter(0.1 * torch.randn(heads, 1, self.size))

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, self.size).transpose(1, 2)

    def forward(self, x: Tensor, places: Tensor, there: Tensor) -> Tensor:
        x = self.norm(x)
        q, k, v, p = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x)), self.split(self.place(places))
        distances = self.shifted(torch.matmul(q + self.place_bias, p.transpose(2, 3)))
        absent = ~there[:, None, None]
        if self.fused:
            bias = (distances / math.sqrt(self.size)).masked_fill(absent, -1e4)
            query = (q + self.content_bias).to(v.dtype)
            y = F.scaled_dot_product_attention(query, k, v, attn_mask=bias.to(v.dtype))
        else:
            scores = torch.matmul(q + self.content_bias, k.transpose(2, 3))
            scores = ((scores + distances) / math.sqrt(self.size)).masked_fill(absent, -1e4)
            weights = scores.softmax(dim=-1).masked_fill(absent, 0.0)
            y = torch.matmul(weights, v)
        return self.out(y.transpose(1, 2).reshape(x.shape))

    def shifted(self, scores: Tensor) -> Tensor:
        """From distances, [.., length, 2 * length - 1], to pairs of frames."""
        batch, heads, length, span = scores.shape
        scores = F.pad(scores, (1, 0)).view(batch, heads, span + 1, length)
        return scores[:, :, 1:].reshape(batch, heads, length, span)[..., :length]


class Convolution(nn.Module):
    def __init__(self, width: int, on: Changes) -> None:
        super().__init__()
        self.norm, self.batch_norm = nn.LayerNorm(width), nn.BatchNorm1d(width)
        self.up, self.down = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depthwise = nn.Conv1d(width, width, 15, padding=7, groups=width)
        self.swish, self.dropout = Swish(on), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.glu(self.up(self.norm(x).transpose(1, 2)), dim=1)
        y = self.down(self.swish(self.batch_norm(self.depthwise(y))))
        return self.dropout(y.transpose(1, 2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.forward1, self.forward2 = FeedForward(width, on), FeedForward(width, on)
        self.attention, self.convolution = Attention(width, heads, on), Convolution(width, on)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, places: Tensor, there: Tensor) -> Tensor:
        x = x + 0.5 * self.forward1(x)
        x = x + self.attention(x, places, there)
        x = x + self.convolution(x)
        return self.norm(x + 0.5 * self.forward2(x))


class Conformer(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, bands: int, letters: int, on: Changes) -> None:
        super().__init__()
        self.width = width
        self.conv1 = nn.Conv2d(1, width // 2, 3, 2, padding=1)
        self.conv2 = nn.Conv2d(width // 2, width // 2, 3, 2, padding=1)
        self.join = nn.Linear(width // 2 * (bands // 4), width)
        self.blocks = nn.ModuleList(Block(width, heads, on) for _ in range(layers))
        self.head = nn.Linear(width, letters)

    def places(self, length: int, device: torch.device) -> Tensor:
        away = torch.arange(length - 1, -length, -1.0, device=device)[:, None]
        rates = torch.exp(torch.arange(0, self.width, 2, device=device) * (-math.log(10000.0) / self.width))
        return torch.cat([(away * rates).sin(), (away * rates).cos()], dim=-1)[None]

    def forward(self, sounds: Tensor, lengths: Tensor) -> Tensor:
        """[batch, times, bands] to [times, batch, letters]"""
        x = F.relu(self.conv2(F.relu(self.conv1(sounds[:, None]))))
        x = self.join(x.transpose(1, 2).flatten(2))
        there = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        places = self.places(x.shape[1], x.device)
        for block in self.blocks:
            x = block(x, places, there)
        return F.log_softmax(self.head(x), dim=-1).transpose(0, 1)


def cut(sounds: Tensor, times: int, bands: int, on: Changes) -> Tensor:
    """Sounds without some stretches of time and some bands."""
    batch, length, width = sounds.shape
    first_time = torch.randint(length - times, (batch, 2), device=sounds.device)
    first_band = torch.randint(width - bands, (batch, 2), device=sounds.device)
    if "augment" in on:
        time, band = torch.arange(length, device=sounds.device), torch.arange(width, device=sounds.device)
        lost_time = ((time >= first_time[..., None]) & (time < first_time[..., None] + times)).any(1)
        lost_band = ((band >= first_band[..., None]) & (band < first_band[..., None] + bands)).any(1)
        return sounds.masked_fill(lost_time[:, :, None] | lost_band[:, None, :], 0.0)
    sounds = sounds.clone()
    for number in range(batch):
        for mask in range(2):
            start = int(first_time[number, mask])
            sounds[number, start : start + times] = 0
            start = int(first_band[number, mask])
            sounds[number, :, start : start + bands] = 0
    return sounds


@program("gpu", "tf32 amp sdpa silu augment fused")
def conformer(on: Changes) -> Step:
    precision(on)
    batch, times, bands, letters = sized(24, 2), sized(1600, 64), sized(80, 16), sized(128, 12)
    said = sized(60, 3)
    with torch.device(DEVICE):
        model = Conformer(sized(8, 2), sized(512, 32), sized(8, 4), bands, letters, on)
        sounds = torch.randn(batch, times, bands)
        lengths = torch.randint(3 * times // 16, times // 4 + 1, (batch,))
        texts = torch.randint(1, letters, (batch, said))
        counts = torch.full((batch,), said)
    adam = optimizer(torch.optim.AdamW, model.parameters(), on, lr=3e-4, weight_decay=1e-3, foreach=False)

    def step() -> Tensor:
        adam.zero_grad()
        inputs = cut(sounds, times // 16, bands // 8, on)
        with autocast(on):
            chances = model(inputs, lengths)
        loss = F.ctc_loss(chances.float(), texts, lengths, counts, zero_infinity=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        adam.step()
        return loss.detach()

    return step
