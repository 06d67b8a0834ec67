"""Sounds told apart: made ready by one CPU thread, copied while the GPU waits, windows and filters made anew."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, ON_GPU, Changes, Step, autocast, optimizer, program, sized
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

RATE = 16000


class Sounds(Dataset[tuple[Tensor, int]]):
    """Chirps with noise, resampled and scaled as augmentation does."""

    def __init__(self, samples: int, classes: int) -> None:
        self.samples, self.classes = samples, classes

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        random = np.random.default_rng(index)
        label = index % self.classes
        times = np.arange(self.samples) / RATE
        sound = np.sin(2 * np.pi * (200 + 50 * label) * times * (1 + 0.1 * times))
        sound = np.interp(times * random.uniform(0.9, 1.1), times, sound)
        sound = sound + 0.1 * random.standard_normal(self.samples)
        return torch.from_numpy((sound / np.abs(sound).max()).astype(np.float32)), label


def filters(bins: int, bands: int) -> Tensor:
    """Triangles on the mel scale, [bins, bands]."""
    heights = torch.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), bands + 2)
    edges = 700 * (10 ** (heights / 2595) - 1)
    places = torch.linspace(0, RATE / 2, bins)[:, None]
    up = (places - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - places) / (edges[2:] - edges[1:-1])
    return torch.minimum(up, down).clamp(min=0)


class Spectrum(nn.Module):
    def __init__(self, size: int, bands: int, kept: bool) -> None:
        super().__init__()
        self.size, self.bands, self.kept = size, bands, kept
        self.register_buffer("window", torch.hann_window(size), persistent=False)
        self.register_buffer("filters", filters(size // 2 + 1, bands).to(self.window.device), persistent=False)

    def forward(self, sounds: Tensor) -> Tensor:
        """[batch, samples] to [batch, bands, times]"""
        window, weights = self.window, self.filters
        if not self.kept:
            window = torch.hann_window(self.size).to(sounds.device)
            with torch.device("cpu"):
                weights = filters(self.size // 2 + 1, self.bands)
            weights = weights.to(sounds.device)
        bins = torch.stft(sounds, self.size, self.size // 4, window=window, return_complex=True).abs() ** 2
        bands = torch.matmul(bins.transpose(1, 2), weights).transpose(1, 2)
        return (bands + 1e-6).log()


class Block(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.conv2 = nn.Conv1d(width, width, 1)
        self.norm1, self.norm2 = nn.BatchNorm1d(width), nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))


class Listener(nn.Module):
    def __init__(self, bands: int, width: int, blocks: int, classes: int, on: Changes) -> None:
        super().__init__()
        self.spectrum = Spectrum(512, bands, "window" in on)
        self.first = nn.Conv1d(bands, width, 5, padding=2)
        self.blocks = nn.Sequential(*(Block(width, 2 ** (number % 5)) for number in range(blocks)))
        self.score, self.head = nn.Conv1d(width, 1, 1), nn.Linear(width, classes)

    def forward(self, sounds: Tensor) -> Tensor:
        with torch.autocast(DEVICE, enabled=False):
            bands = self.spectrum(sounds)
        x = self.blocks(self.first(bands))
        return self.head((x * self.score(x).softmax(-1)).sum(-1))


def batches(batch: int, samples: int, classes: int, on: Changes) -> Iterator[list[Tensor]]:
    workers = 8 if "workers" in on else 0
    more = {"prefetch_factor": 4} if workers else {}
    pinned = "pinned" in on and ON_GPU
    return iter(DataLoader(Sounds(samples, classes), batch, num_workers=workers, pin_memory=pinned, **more))


@program("data", "workers pinned window amp fused item")
def audio(on: Changes) -> Step:
    classes, samples = sized(35, 5), sized(2 * RATE, 2048)
    source = batches(sized(32, 2), samples, classes, on)
    with torch.device(DEVICE):
        model = Listener(sized(80, 16), sized(500, 24), sized(12, 2), classes, on)
    adam = optimizer(torch.optim.AdamW, model.parameters(), on, lr=1e-3, foreach=False)
    history: list[float] = []

    def step() -> Tensor:
        sounds, labels = next(source)
        sounds, labels = (part.to(DEVICE, non_blocking="pinned" in on) for part in (sounds, labels))
        adam.zero_grad()
        with autocast(on):
            scores = model(sounds)
            loss = F.cross_entropy(scores, labels)
        loss.backward()
        adam.step()
        if "item" not in on:
            history.append((scores.argmax(1) == labels).float().mean().item())
        return loss.detach()

    return step
