"""Pictures sorted by inverted bottlenecks: NCHW, fp32, swish by hand, decay and averages parameter by parameter."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, ON_GPU, Changes, Step, autocast, optimizer, program, sized
from torch import Tensor

# kernel, stride, expansion, channels, repeats
FULL = [
    (3, 1, 1, 16, 1),
    (3, 2, 6, 24, 2),
    (5, 2, 6, 40, 2),
    (3, 2, 6, 80, 3),
    (5, 1, 6, 112, 3),
    (5, 2, 6, 192, 4),
    (3, 1, 6, 320, 1),
]
SMALL = [(3, 1, 1, 8, 1), (5, 2, 4, 16, 2)]
DECAY, KEEP = 1e-4, 0.999


class Swish(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x) if self.fused else x * torch.sigmoid(x)


def conv_bn(inner: int, outer: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inner, outer, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outer))


class SqueezeExcite(nn.Module):
    def __init__(self, width: int, squeezed: int, act: nn.Module) -> None:
        super().__init__()
        self.reduce, self.expand, self.act = nn.Conv2d(width, squeezed, 1), nn.Conv2d(squeezed, width, 1), act

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.expand(self.act(self.reduce(F.adaptive_avg_pool2d(x, 1)))))


class MBConv(nn.Module):
    def __init__(self, inner: int, outer: int, kernel: int, stride: int, expansion: int, act: nn.Module) -> None:
        super().__init__()
        width = inner * expansion
        parts = [conv_bn(inner, width, 1), act] if expansion > 1 else []
        parts += [conv_bn(width, width, kernel, stride, groups=width), act]
        parts += [SqueezeExcite(width, max(1, inner // 4), act), conv_bn(width, outer, 1)]
        self.layers, self.residual = nn.Sequential(*parts), stride == 1 and inner == outer

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class Net(nn.Module):
    def __init__(self, plan: list[tuple[int, ...]], stem: int, last: int, classes: int, act: nn.Module) -> None:
        super().__init__()
        layers, inner = [conv_bn(3, stem, 3, 2), act], stem
        for kernel, stride, expansion, outer, repeats in plan:
            for repeat in range(repeats):
                layers.append(MBConv(inner, outer, kernel, 1 if repeat else stride, expansion, act))
                inner = outer
        self.features = nn.Sequential(*layers, conv_bn(inner, last, 1), act)
        self.classifier = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


class Averages:
    """Exponential moving averages of all weights and running statistics."""

    def __init__(self, model: nn.Module, foreach: bool) -> None:
        self.model, self.foreach = model, foreach
        self.values = [tensor.detach().clone() for tensor in self.sources()]

    def sources(self) -> list[Tensor]:
        return [tensor for tensor in self.model.state_dict().values() if tensor.is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        if self.foreach:
            torch._foreach_lerp_(self.values, self.sources(), 1 - KEEP)
            return
        for average, value in zip(self.values, self.sources(), strict=True):
            average.copy_(KEEP * average + (1 - KEEP) * value)


@program("gpu", "channels_last amp silu decay ema fused pinned")
def photos(on: Changes) -> Step:
    form = torch.channels_last if "channels_last" in on else torch.contiguous_format
    side, batch, classes = sized(192, 32), sized(128, 4), sized(1000, 10)
    with torch.device(DEVICE):
        act = Swish("silu" in on)
        model = Net(FULL if sized(1, 0) else SMALL, sized(32, 8), sized(1280, 32), classes, act)
        mean = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
        std = torch.tensor([0.229, 0.224, 0.225]).view(1, 3, 1, 1)
    model = model.to(memory_format=form)
    weights = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() < 2]
    groups = [{"params": weights, "weight_decay": DECAY if "decay" in on else 0.0}, {"params": others}]
    sgd = optimizer(torch.optim.SGD, groups, on, lr=0.02, momentum=0.9, nesterov=True)
    averages = Averages(model, "ema" in on)
    order = torch.Generator().manual_seed(7)
    shape = (batch, 3, side, side)
    batches = [
        (
            torch.randint(256, shape, dtype=torch.uint8, generator=order),
            torch.randint(classes, (batch,), generator=order),
        )
        for _ in range(4)
    ]
    pinned = "pinned" in on and ON_GPU
    if pinned:
        batches = [(images.pin_memory(), labels.pin_memory()) for images, labels in batches]
    number = 0

    def step() -> Tensor:
        nonlocal number
        images, labels = (part.to(DEVICE, non_blocking=pinned) for part in batches[number % len(batches)])
        number += 1
        x = ((images.float() / 255 - mean) / std).contiguous(memory_format=form)
        with autocast(on):
            loss = F.cross_entropy(model(x), labels, label_smoothing=0.1)
        penalised = loss
        if "decay" not in on:
            for weight in weights:
                penalised = penalised + 0.5 * DECAY * weight.pow(2).sum()
        sgd.zero_grad(set_to_none=True)
        penalised.backward()
        sgd.step()
        averages.update()
        return loss.detach()

    return step
