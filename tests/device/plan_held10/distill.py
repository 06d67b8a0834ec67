"""A small convolutional network taught by a large one: gradients reach the teacher, layouts change in each block."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, precision, program, sized
from torch import Tensor


class Norm(nn.LayerNorm):
    """Over the channels of [batch, channels, height, width]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        y = self.down(F.gelu(self.up(self.norm(y))))
        return x + (self.scale * y).permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, depths: list[int], width: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), Norm(width, eps=1e-6)]
        for stage, depth in enumerate(depths):
            if stage:
                layers += [Norm(width, eps=1e-6), nn.Conv2d(width, 2 * width, 2, 2)]
                width *= 2
            layers += [Block(width) for _ in range(depth)]
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(images).mean((2, 3))))


class Lion:
    """Steps by the sign of a momentum, parameter by parameter or all in one."""

    def __init__(self, parameters: list[nn.Parameter], rate: float, decay: float, together: bool) -> None:
        self.parameters, self.rate, self.decay, self.together = parameters, rate, decay, together
        self.speeds = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(self) -> None:
        if self.together:
            gradients = [parameter.grad for parameter in self.parameters]
            updates = torch._foreach_lerp(self.speeds, gradients, 0.1)
            torch._foreach_sign_(updates)
            torch._foreach_mul_(self.parameters, 1 - self.rate * self.decay)
            torch._foreach_add_(self.parameters, updates, alpha=-self.rate)
            torch._foreach_lerp_(self.speeds, gradients, 0.01)
            return
        for parameter, speed in zip(self.parameters, self.speeds, strict=True):
            parameter.data.mul_(1 - self.rate * self.decay)
            update = speed.clone().mul_(0.9).add(parameter.grad, alpha=0.1).sign_()
            parameter.add_(update, alpha=-self.rate)
            speed.mul_(0.99).add_(parameter.grad, alpha=0.01)


class Average:
    """A slowly moving average of a model."""

    def __init__(self, model: nn.Module, decay: float, together: bool) -> None:
        self.model, self.decay, self.together = model, decay, together
        self.values = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self) -> None:
        if self.together:
            now = list(self.model.state_dict().values())
            torch._foreach_lerp_(list(self.values.values()), now, 1 - self.decay)
            return
        for name, value in self.model.state_dict().items():
            self.values[name] = self.decay * self.values[name] + (1.0 - self.decay) * value


def taught(scores: Tensor, wanted: Tensor, labels: Tensor, heat: float) -> Tensor:
    soft = F.kl_div(
        F.log_softmax(scores / heat, dim=1), F.log_softmax(wanted / heat, dim=1), reduction="batchmean", log_target=True
    )
    return 0.7 * heat**2 * soft + 0.3 * F.cross_entropy(scores, labels, label_smoothing=0.1)


@program("gpu", "tf32 amp channels_last teacher fused ema")
def distill(on: Changes) -> Step:
    precision(on)
    form = torch.channels_last if "channels_last" in on else torch.contiguous_format
    classes, side, width = sized(1000, 40), sized(192, 32), sized(96, 32)
    few = [3, 3, 9, 3] if side > 32 else [1, 1]
    many = [3, 3, 18, 3] if side > 32 else [1, 2]
    with torch.device(DEVICE):
        student = ConvNext(few, width, classes)
        teacher = ConvNext(many, width, classes).eval()
        images = torch.randn(sized(32, 4), 3, side, side)
        labels = torch.randint(classes, (len(images),))
    student, teacher = student.to(memory_format=form), teacher.to(memory_format=form)
    lion = Lion(list(student.parameters()), 1e-5, 0.05, "fused" in on)
    average = Average(student, 0.999, "ema" in on)

    def step() -> Tensor:
        student.zero_grad()
        inputs = images.to(memory_format=form)
        with autocast(on):
            scores = student(inputs)
            with torch.set_grad_enabled("teacher" not in on):
                wanted = teacher(inputs)
            loss = taught(scores, wanted, labels, 2.0)
        loss.backward()
        lion.step()
        average.update()
        return loss.detach()

    return step
