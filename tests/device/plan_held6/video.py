"""A 3-d residual network on clips: mirrored one by one, gradients clipped in a loop of reads, idle biases."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, program, sized
from torch import Tensor


def convolution(inner: int, outer: int, kernel: tuple[int, ...], stride: tuple[int, ...], on: Changes) -> nn.Conv3d:
    conv = nn.Conv3d(inner, outer, kernel, stride, tuple(size // 2 for size in kernel))
    if "bias" in on:
        conv.bias = None
    return conv


class Apart(nn.Sequential):
    """A convolution over a picture, then one over time."""

    def __init__(self, inner: int, outer: int, stride: int, on: Changes) -> None:
        middle = inner * outer * 27 // (inner * 9 + 3 * outer)
        super().__init__(
            convolution(inner, middle, (1, 3, 3), (1, stride, stride), on),
            nn.BatchNorm3d(middle),
            nn.ReLU(),
            convolution(middle, outer, (3, 1, 1), (stride, 1, 1), on),
            nn.BatchNorm3d(outer),
        )


class Block(nn.Module):
    def __init__(self, inner: int, outer: int, stride: int, on: Changes) -> None:
        super().__init__()
        self.first, self.second = Apart(inner, outer, stride, on), Apart(outer, outer, 1, on)
        self.short = nn.Identity()
        if stride > 1 or inner != outer:
            self.short = nn.Sequential(
                convolution(inner, outer, (1, 1, 1), (stride, stride, stride), on), nn.BatchNorm3d(outer)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.second(F.relu(self.first(x))) + self.short(x))


class Watcher(nn.Module):
    def __init__(self, width: int, depths: tuple[int, ...], classes: int, on: Changes) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, width, (3, 7, 7), (1, 2, 2), on), nn.BatchNorm3d(width), nn.ReLU())
        inner, blocks = width, []
        for stage, depth in enumerate(depths):
            for number in range(depth):
                outer = width << stage
                blocks.append(Block(inner, outer, 2 if stage and not number else 1, on))
                inner = outer
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inner, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3, 4)))


def prepared(clips: Tensor, mean: Tensor, deviation: Tensor, on: Changes) -> Tensor:
    """Bytes [batch, times, height, width, colours] to numbers [batch, colours, times, height, width], some mirrored."""
    mirrored = torch.rand(len(clips)) < 0.5
    if "flips" in on:
        clips = clips.permute(0, 4, 1, 2, 3)
        there = mirrored.to(DEVICE)[:, None, None, None, None]
        clips = torch.where(there, clips.flip(-1), clips)
        return (clips / 255 - mean) / deviation
    ready = []
    for clip, mirror in zip(clips, mirrored.tolist(), strict=True):
        numbers = clip.permute(3, 0, 1, 2).float() / 255
        numbers = torch.flip(numbers, [-1]) if mirror else numbers
        ready.append((numbers - mean) / deviation)
    return torch.stack(ready)


def clipped(parameters: list[nn.Parameter], most: float, on: Changes) -> None:
    if "clip" in on:
        torch.nn.utils.clip_grad_norm_(parameters, most)
        return
    total = 0.0
    for parameter in parameters:
        if parameter.grad is not None:
            total += parameter.grad.data.norm(2).item() ** 2
    share = most / (total**0.5 + 1e-6)
    if share < 1:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.data.mul_(share)


@program("gpu", "amp channels_last flips clip bias zero_grad")
def video(on: Changes) -> Step:
    form = torch.channels_last_3d if "channels_last" in on else torch.contiguous_format
    classes, side = sized(400, 7), sized(112, 16)
    with torch.device(DEVICE):
        model = Watcher(sized(64, 8), (2, 2, 2, 2) if side > 16 else (1, 1), classes, on)
        clips = torch.randint(0, 256, (sized(16, 4), sized(16, 8), side, side, 3), dtype=torch.uint8)
        labels = torch.randint(classes, (len(clips),))
        mean = torch.tensor([0.43, 0.39, 0.38])[:, None, None, None]
        deviation = torch.tensor([0.23, 0.22, 0.22])[:, None, None, None]
    model = model.to(memory_format=form)
    parameters = list(model.parameters())
    descent = torch.optim.SGD(parameters, lr=0.001, momentum=0.9, weight_decay=1e-4)

    def step() -> Tensor:
        descent.zero_grad(set_to_none="zero_grad" in on)
        inputs = prepared(clips, mean, deviation, on).to(memory_format=form)
        with autocast(on):
            loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        clipped(parameters, 10.0, on)
        descent.step()
        return loss.detach()

    return step
