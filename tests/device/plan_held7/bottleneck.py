"""A bottleneck network on images, in fp32 and NCHW: biases before norms; own clipping, averaging and accuracy."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, program, sized
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

DECAY = 0.999


def conv(inner: int, outer: int, size: int, on: Changes, stride: int = 1) -> nn.Conv2d:
    layer = nn.Conv2d(inner, outer, size, stride=stride, padding=size // 2)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    if "bias" in on:  # the norm behind it takes any bias away
        layer.bias = None
    return layer


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inner: int, planes: int, stride: int, on: Changes) -> None:
        super().__init__()
        outer = planes * self.expansion
        self.conv1, self.bn1 = conv(inner, planes, 1, on), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = conv(planes, planes, 3, on, stride), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = conv(planes, outer, 1, on), nn.BatchNorm2d(outer)
        self.downsample = nn.Sequential()
        if stride != 1 or inner != outer:
            self.downsample = nn.Sequential(conv(inner, outer, 1, on, stride), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return F.relu(out + self.downsample(x))


class Network(nn.Module):
    def __init__(self, counts: tuple[int, ...], width: int, classes: int, on: Changes) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(3, width, 7, on, 2), nn.BatchNorm2d(width)
        blocks, inner = [], width
        for stage, count in enumerate(counts):
            planes = width * 2**stage
            for place in range(count):
                blocks.append(Bottleneck(inner, planes, 2 if stage and not place else 1, on))
                inner = planes * Bottleneck.expansion
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(inner, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        return self.fc(self.blocks(x).mean((2, 3)))


def clip(model: nn.Module, most: float, on: Changes) -> None:
    if "clip" in on:
        nn.utils.clip_grad_norm_(model.parameters(), most)
        return
    total = 0.0
    for p in model.parameters():
        if p.grad is not None:
            total += p.grad.data.norm(2).item() ** 2
    coef = most / (total**0.5 + 1e-6)
    if coef < 1:
        for p in model.parameters():
            if p.grad is not None:
                p.grad.data.mul_(coef)


class Ema:
    """A moving average of a model's parameters and buffers."""

    def __init__(self, model: nn.Module, on: Changes) -> None:
        self.shadow, self.on = copy.deepcopy(model).requires_grad_(False), on
        self.pairs = [
            (old, new.detach())
            for old, new in zip(self.shadow.state_dict().values(), model.state_dict().values(), strict=True)
        ]
        self.average = get_ema_multi_avg_fn(DECAY)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        if "ema" in self.on:
            floats = [pair for pair in self.pairs if pair[0].is_floating_point()]
            counts = [pair for pair in self.pairs if not pair[0].is_floating_point()]
            self.average([old for old, _ in floats], [new for _, new in floats], 1)
            torch._foreach_copy_([old for old, _ in counts], [new for _, new in counts])
            return
        values = model.state_dict()
        for k, v in self.shadow.state_dict().items():
            if v.dtype.is_floating_point:
                v.mul_(DECAY).add_(values[k].detach(), alpha=1.0 - DECAY)
            else:
                v.copy_(values[k])


class Meter:
    """The mean loss and accuracy of an epoch."""

    def __init__(self, on: Changes) -> None:
        self.on, self.seen = on, 0
        self.loss: Tensor | float = 0.0
        self.right: Tensor | float = 0.0

    def update(self, loss: Tensor, logits: Tensor, y: Tensor) -> None:
        loss, right = loss.detach(), (logits.detach().argmax(1) == y).sum()
        self.seen += len(y)
        self.loss += loss * len(y) if "meter" in self.on else loss.item() * len(y)
        self.right += right if "meter" in self.on else right.item()


@program("gpu", "amp channels_last bias clip ema meter")
def bottleneck(on: Changes) -> Step:
    counts = (sized(3, 1), sized(4, 1), sized(6, 1), sized(3, 1))
    batch, size, classes = sized(96, 8), sized(224, 64), sized(1000, 11)
    with torch.device(DEVICE):
        model = Network(counts, sized(64, 8), classes, on)
        images = torch.randint(256, (batch, 3, size, size), dtype=torch.uint8)
        labels = torch.randint(classes, (batch,))
        mean = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
        std = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
    if "channels_last" in on:
        model = model.to(memory_format=torch.channels_last)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    ema, meter = Ema(model, on), Meter(on)

    def step() -> Tensor:
        x = (images.float() / 255 - mean) / std
        if "channels_last" in on:
            x = x.contiguous(memory_format=torch.channels_last)
        with autocast(on):
            logits = model(x)
            loss = F.cross_entropy(logits, labels, label_smoothing=0.1)
        sgd.zero_grad()
        loss.backward()
        clip(model, 1.0, on)
        sgd.step()
        ema.update(model)
        meter.update(loss, logits, labels)
        return loss.detach()

    return step
