"""A classifier with shifted windows; each picture is augmented by itself on the GPU, and masks are made over again."""

import random
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, precision, program, sized
from torch import Tensor

WINDOW = 7


def windows_of(x: Tensor) -> Tensor:
    """[batch, height, width, channels] to [batch * windows, places, channels]."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // WINDOW, WINDOW, width // WINDOW, WINDOW, channels)
    return x.transpose(2, 3).reshape(-1, WINDOW * WINDOW, channels)


def from_windows(x: Tensor, height: int, width: int) -> Tensor:
    x = x.view(-1, height // WINDOW, width // WINDOW, WINDOW, WINDOW, x.shape[-1])
    return x.transpose(2, 3).reshape(len(x), height, width, x.shape[-1])


def shift_mask(height: int, width: int, device: torch.device) -> Tensor:
    """What places of a window must not look at, for they were no neighbours before the shift."""
    regions = torch.zeros((1, height, width, 1), device=device)
    cuts = (slice(0, -WINDOW), slice(-WINDOW, -(WINDOW // 2)), slice(-(WINDOW // 2), None))
    count = 0
    for rows in cuts:
        for columns in cuts:
            regions[:, rows, columns, :] = count
            count += 1
    regions = windows_of(regions).squeeze(-1)
    mask = regions.unsqueeze(1) - regions.unsqueeze(2)
    return mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)


def relative_places() -> Tensor:
    places = torch.stack(torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij")).flatten(1)
    apart = places[:, :, None] - places[:, None, :] + WINDOW - 1
    return apart[0] * (2 * WINDOW - 1) + apart[1]


class WindowAttention(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.on = heads, on
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(0.02 * torch.randn((2 * WINDOW - 1) ** 2, heads))
        self.register_buffer("places", relative_places())

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        count, length, width = x.shape
        qkv = self.qkv(x).view(count, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        bias = self.table[self.places.flatten()].view(length, length, -1).permute(2, 0, 1).unsqueeze(0)
        if "sdpa" in self.on:
            if mask is not None:
                bias = (bias + mask.unsqueeze(1)).expand(count // len(mask), -1, -1, -1, -1).flatten(0, 1)
            y = F.scaled_dot_product_attention(query, key, value, attn_mask=bias.to(query.dtype))
        else:
            scores = (query * (width // self.heads) ** -0.5) @ key.transpose(-2, -1)
            scores = scores + bias
            if mask is not None:
                scores = scores.view(-1, len(mask), self.heads, length, length) + mask[None, :, None]
                scores = scores.view(count, self.heads, length, length)
            y = scores.softmax(dim=-1) @ value
        return self.out(y.transpose(1, 2).reshape(count, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, side: int, shift: int, on: Changes) -> None:
        super().__init__()
        self.side, self.shift, self.on = side, shift, on
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = WindowAttention(width, heads, on)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        if shift and "masks" in on:
            self.register_buffer("mask", shift_mask(side, side, self.norm_1.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        y, mask = self.norm_1(x), None
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), dims=(1, 2))
            mask = self.mask if "masks" in self.on else shift_mask(self.side, self.side, x.device)
        y = from_windows(self.attention(windows_of(y), mask), self.side, self.side)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), dims=(1, 2))
        x = x + y
        return x + self.mlp(self.norm_2(x))


class Merge(nn.Module):
    """Four neighbours become one of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.reduction = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = (x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2], x[:, 1::2, 1::2])
        return self.reduction(self.norm(torch.cat(parts, dim=-1)))


class Swin(nn.Module):
    def __init__(self, side: int, width: int, depths: list[int], classes: int, on: Changes) -> None:
        super().__init__()
        self.patches, self.norm_patches = nn.Conv2d(3, width, 4, 4), nn.LayerNorm(width)
        side, heads = side // 4, 3
        layers: list[nn.Module] = []
        for stage, depth in enumerate(depths):
            if stage:
                layers.append(Merge(width))
                side, width, heads = side // 2, 2 * width, 2 * heads
            for number in range(depth):
                shift = WINDOW // 2 if number % 2 and side > WINDOW else 0
                layers.append(Block(width, heads, side, shift, on))
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.norm_patches(self.patches(images).permute(0, 2, 3, 1))
        return self.head(self.norm(self.layers(x)).mean((1, 2)))


class Drawn(NamedTuple):
    """How one picture is changed."""

    top: int
    left: int
    flipped: bool
    bright: float
    contrast: float
    hole_top: int
    hole_left: int


class Augment:
    def __init__(self, room: int, side: int, together: bool) -> None:
        self.room, self.side, self.hole, self.together = room, side, side // 4, together
        self.chance = random.Random(0)
        self.mean = torch.tensor([0.485, 0.456, 0.406], device=DEVICE).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225], device=DEVICE).view(3, 1, 1)

    def draw(self) -> Drawn:
        chance, free = self.chance, self.side - self.hole
        where = (chance.randint(0, self.room), chance.randint(0, self.room), chance.random() < 0.5)
        light = (chance.uniform(0.6, 1.4), chance.uniform(0.6, 1.4))
        return Drawn(*where, *light, chance.randint(0, free), chance.randint(0, free))

    def __call__(self, images: Tensor) -> Tensor:
        drawn = [self.draw() for _ in images]
        if self.together:
            return self.all(images, drawn)
        return torch.stack([self.one(image, how) for image, how in zip(images, drawn, strict=True)])

    def one(self, image: Tensor, how: Drawn) -> Tensor:
        view = image[:, how.top : how.top + self.side, how.left : how.left + self.side].float() / 255.0
        if how.flipped:
            view = view.flip(-1)
        view = (view * how.bright).clamp(0.0, 1.0)
        grey = view.mean()
        view = ((view - grey) * how.contrast + grey).clamp(0.0, 1.0)
        view = (view - self.mean) / self.std
        view[:, how.hole_top : how.hole_top + self.hole, how.hole_left : how.hole_left + self.hole] = 0.0
        return view

    def all(self, images: Tensor, drawn: list[Drawn]) -> Tensor:
        values = torch.tensor(drawn, dtype=torch.float32).to(images.device)
        top, left, flipped, bright, contrast, hole_top, hole_left = values.view(len(drawn), 7, 1).unbind(1)
        places = torch.arange(self.side, device=images.device)
        rows = top.long() + places
        columns = left.long() + torch.where(flipped > 0, places.flip(0), places)
        each = torch.arange(len(images), device=images.device)
        channels = torch.arange(3, device=images.device)
        view = images[
            each[:, None, None, None], channels[:, None, None], rows[:, None, :, None], columns[:, None, None]
        ]
        view = (view.float() / 255.0 * bright[..., None, None]).clamp(0.0, 1.0)
        grey = view.mean((1, 2, 3), keepdim=True)
        view = ((view - grey) * contrast[..., None, None] + grey).clamp(0.0, 1.0)
        in_rows = (places >= hole_top) & (places < hole_top + self.hole)
        in_columns = (places >= hole_left) & (places < hole_left + self.hole)
        hole = in_rows[:, None, :, None] & in_columns[:, None, None, :]
        return ((view - self.mean) / self.std).masked_fill(hole, 0.0)


@program("gpu", "tf32 amp sdpa augment masks item")
def swin(on: Changes) -> Step:
    precision(on)
    side, room, classes = sized(224, 56), sized(32, 8), sized(1000, 20)
    depths = [2, 2, 6, 2] if side > 56 else [2, 1]
    with torch.device(DEVICE):
        model = Swin(side, sized(96, 24), depths, classes, on)
        images = torch.randint(256, (sized(96, 4), 3, side + room, side + room), dtype=torch.uint8)
        labels = torch.randint(classes, (len(images),))
    augment = Augment(room, side, "augment" in on)
    adam = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.05)
    sums = {"loss": 0.0, "right": 0.0}
    sums_there = torch.zeros(2, device=DEVICE)

    def step() -> Tensor:
        inputs = augment(images)
        with autocast(on):
            scores = model(inputs)
            loss = F.cross_entropy(scores, labels, label_smoothing=0.1)
        adam.zero_grad()
        loss.backward()
        adam.step()
        right = (scores.detach().argmax(dim=1) == labels).float().mean()
        if "item" in on:
            sums_there.add_(torch.stack((loss.detach(), right)))
        else:
            sums["loss"] += loss.item()
            sums["right"] += right.item()
        return loss.detach()

    return step
