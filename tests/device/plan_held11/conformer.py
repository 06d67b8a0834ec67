"""A speech encoder trained with CTC, whose batches are padded to the longest utterance that there may be."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, precision, program, sized
from torch import Tensor

STACKED = 4  # frames that become one place
BANDS, SPANS = 2, 10  # masks of frequencies and of times


class Swish(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x)


def activation(on: Changes) -> nn.Module:
    return nn.SiLU() if "silu" in on else Swish()


class FeedForward(nn.Sequential):
    def __init__(self, width: int, on: Changes) -> None:
        up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        super().__init__(nn.LayerNorm(width), up, activation(on), down)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(query, key, value, attn_mask=valid[:, None, None, :])
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Convolution(nn.Module):
    def __init__(self, width: int, kernel: int, on: Changes) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.depthwise = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.act = activation(on)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        y = F.glu(self.up(self.norm_1(x)), dim=-1).masked_fill(~valid.unsqueeze(-1), 0.0)
        y = self.depthwise(y.transpose(1, 2)).transpose(1, 2)
        return self.down(self.act(self.norm_2(y)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, kernel: int, on: Changes) -> None:
        super().__init__()
        self.first, self.second = FeedForward(width, on), FeedForward(width, on)
        self.attention, self.convolution = Attention(width, heads), Convolution(width, kernel, on)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        x = x + 0.5 * self.first(x)
        x = x + self.attention(x, valid)
        x = x + self.convolution(x, valid)
        return self.norm(x + 0.5 * self.second(x))


class Encoder(nn.Module):
    def __init__(self, bins: int, width: int, depth: int, letters: int, longest: int, on: Changes) -> None:
        super().__init__()
        self.stacked = nn.Linear(STACKED * bins, width)
        self.places = nn.Parameter(0.02 * torch.randn(longest // STACKED, width))
        self.blocks = nn.ModuleList(Block(width, 4, 31, on) for _ in range(depth))
        self.head = nn.Linear(width, letters)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        batch, frames, bins = features.shape
        x = self.stacked(features.reshape(batch, frames // STACKED, STACKED * bins))
        x = x + self.places[: x.shape[1]]
        valid = torch.arange(x.shape[1], device=x.device) < lengths[:, None]
        for block in self.blocks:
            x = block(x, valid)
        return F.log_softmax(self.head(x).float(), dim=-1)


class SpecAugment:
    def __init__(self, bins: int, together: bool) -> None:
        self.bins, self.together, self.chance = bins, together, random.Random(0)

    def draw(self, most: int, within: int) -> tuple[int, int]:
        size = self.chance.randint(0, most)
        low = self.chance.randint(0, within - size)
        return low, low + size

    def __call__(self, features: Tensor, frames: list[int]) -> Tensor:
        drawn = []
        for length in frames:
            bands = [self.draw(self.bins // 4, self.bins) for _ in range(BANDS)]
            drawn.append(bands + [self.draw(length // 20, length) for _ in range(SPANS)])
        if self.together:
            return self.all(features, torch.tensor(drawn).to(features.device))
        features = features.clone()
        for utterance, masks in zip(features, drawn, strict=True):
            for low, high in masks[:BANDS]:
                utterance[:, low:high] = 0.0
            for low, high in masks[BANDS:]:
                utterance[low:high, :] = 0.0
        return features

    def all(self, features: Tensor, drawn: Tensor) -> Tensor:
        bands = self.inside(drawn[:, :BANDS], features.shape[2])
        spans = self.inside(drawn[:, BANDS:], features.shape[1])
        return features.masked_fill(bands[:, None, :] | spans[:, :, None], 0.0)

    def inside(self, ranges: Tensor, size: int) -> Tensor:
        places = torch.arange(size, device=ranges.device)
        return ((places >= ranges[..., :1]) & (places < ranges[..., 1:])).any(dim=1)


def emitted_by_utterance(best: Tensor, lengths: list[int], wanted: int) -> float:
    """How many letters come out for each that should."""
    count = 0
    for path, length in zip(best, lengths, strict=True):
        letters = torch.unique_consecutive(path[:length])
        count += len(letters[letters != 0])
    return count / wanted


def emitted(best: Tensor, lengths: Tensor, wanted: int) -> Tensor:
    before = F.pad(best[:, :-1], (1, 0), value=-1)
    valid = torch.arange(best.shape[1], device=best.device) < lengths[:, None]
    return ((best != before) & (best != 0) & valid).sum() / wanted


@program("both", "tf32 amp padding batched silu ctc decode")
def conformer(on: Changes) -> Step:
    precision(on)
    batch, bins, letters, longest = sized(32, 3), sized(80, 16), sized(128, 20), sized(2000, 240)
    frames = [longest // 5 + (longest * 2 // 5) * number // (batch - 1) // 8 * 8 for number in range(batch)]
    places = [length // STACKED for length in frames]
    spoken = [max(length // 6, 2) for length in places]
    with torch.device(DEVICE):
        model = Encoder(bins, sized(256, 32), sized(10, 2), letters, longest, on)
        features = torch.randn(batch, longest, bins)
        targets = torch.randint(1, letters, (batch, max(spoken)))
        lengths = torch.tensor(places)
        for utterance, length in zip(features, frames, strict=True):
            utterance[length:] = 0.0
    places_here, spoken_here = torch.tensor(places), torch.tensor(spoken)
    augment = SpecAugment(bins, "batched" in on)
    adam = torch.optim.AdamW(model.parameters(), lr=5e-4, betas=(0.9, 0.98), weight_decay=1e-3)
    history: list[float | Tensor] = []

    def step() -> Tensor:
        inputs = features
        if "padding" in on:
            inputs = inputs[:, : -(-max(frames) // STACKED) * STACKED]
        inputs = augment(inputs, frames)
        with autocast(on):
            chances = model(inputs, lengths)
        in_time = chances.transpose(0, 1)
        if "ctc" in on:
            loss = F.ctc_loss(in_time, targets, places_here, spoken_here, zero_infinity=True)
        else:
            loss = F.ctc_loss(in_time.cpu(), targets.cpu(), places_here, spoken_here, zero_infinity=True)
        adam.zero_grad()
        loss.backward()
        adam.step()
        best = chances.detach().argmax(dim=-1)
        if "decode" in on:
            history.append(emitted(best, lengths, sum(spoken)))
        else:
            history.append(emitted_by_utterance(best, places, sum(spoken)))
        del history[:-100]
        return loss.detach()

    return step
