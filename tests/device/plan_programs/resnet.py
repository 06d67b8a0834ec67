"""A residual network on pictures: NCHW, a loop over parameters as optimizer, values read in each step."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, program, sized
from torch import Tensor


class Bottleneck(nn.Module):
    def __init__(self, inner: int, width: int, stride: int, bias: bool) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inner, width, 1, bias=bias), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=bias), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, 4 * width, 1, bias=bias), nn.BatchNorm2d(4 * width)
        self.short = nn.Identity()
        if stride > 1 or inner != 4 * width:
            self.short = nn.Sequential(nn.Conv2d(inner, 4 * width, 1, stride, bias=bias), nn.BatchNorm2d(4 * width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, depths: tuple[int, ...], width: int, classes: int, bias: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=bias), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        inner, stages = width, []
        for stage, depth in enumerate(depths):
            for block in range(depth):
                stages.append(Bottleneck(inner, width << stage, 2 if stage and not block else 1, bias))
                inner = 4 * (width << stage)
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inner, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(x)).mean((2, 3)))


class Momentum:
    """Stochastic gradient descent as one writes it, parameter by parameter."""

    def __init__(self, parameters: list[nn.Parameter], rate: float, momentum: float, decay: float) -> None:
        self.parameters, self.rate, self.momentum, self.decay = parameters, rate, momentum, decay
        self.speeds = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(self) -> None:
        for parameter, speed in zip(self.parameters, self.speeds, strict=True):
            gradient = parameter.grad + self.decay * parameter
            speed.mul_(self.momentum).add_(gradient)
            parameter.sub_(self.rate * speed)


@program("gpu", "channels_last amp sgd item bias zero_grad")
def resnet(on: Changes) -> Step:
    form = torch.channels_last if "channels_last" in on else torch.contiguous_format
    classes, side = sized(1000, 10), sized(160, 32)
    with torch.device(DEVICE):
        model = ResNet((3, 4, 6, 3) if side > 32 else (1, 1), sized(64, 8), classes, "bias" not in on)
        images = torch.randn(sized(64, 2), 3, side, side)
        labels = torch.randint(classes, (len(images),))
    model = model.to(memory_format=form)
    parameters = list(model.parameters())
    if "sgd" in on:
        descent = torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4)
    else:
        descent = Momentum(parameters, 0.01, 0.9, 1e-4)
    total, right = torch.zeros((), device=DEVICE), torch.zeros((), device=DEVICE)
    history: list[tuple[float, float]] = []

    def step() -> Tensor:
        model.zero_grad(set_to_none="zero_grad" in on)
        with autocast(on):
            scores = model(images.to(memory_format=form))
            loss = F.cross_entropy(scores, labels)
        loss.backward()
        descent.step()
        hits = (scores.argmax(1) == labels).float().mean()
        if "item" in on:
            total.add_(loss.detach())
            right.add_(hits)
        else:
            history.append((loss.item(), hits.item()))
        return loss.detach()

    return step
