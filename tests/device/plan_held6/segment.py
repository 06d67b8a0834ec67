"""Pictures parted into classes: gradients kept, chances of all classes copied back, pictures made ready on the CPU."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, program, sized
from torch import Tensor

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Conv(nn.Module):
    def __init__(self, inner: int, outer: int, kernel: int, stride: int = 1, dilation: int = 1) -> None:
        super().__init__()
        padding = dilation * (kernel // 2)
        self.conv = nn.Conv2d(inner, outer, kernel, stride, padding, dilation, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outer)
        nn.init.uniform_(self.norm.running_mean, -0.1, 0.1)
        nn.init.uniform_(self.norm.running_var, 0.1, 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))

    @torch.no_grad()
    def fold(self) -> None:
        """The norm's factors and shifts become the convolution's."""
        norm = self.norm
        factors = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        self.conv.weight.mul_(factors[:, None, None, None])
        self.conv.bias = nn.Parameter(norm.bias - norm.running_mean * factors)
        self.norm = nn.Identity()


class Bottleneck(nn.Module):
    def __init__(self, inner: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.first, self.last = Conv(inner, width, 1), Conv(width, 4 * width, 1)
        self.middle = Conv(width, width, 3, stride, dilation)
        self.short = Conv(inner, 4 * width, 1, stride) if inner != 4 * width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.last(F.relu(self.middle(F.relu(self.first(x))))) + self.short(x))


class Pyramid(nn.Module):
    """The same place seen with several dilations, and the mean of the picture."""

    def __init__(self, inner: int, width: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.near, self.all = Conv(inner, width, 1), nn.Conv2d(inner, width, 1)
        self.wide = nn.ModuleList(Conv(inner, width, 3, dilation=dilation) for dilation in dilations)
        self.join = Conv((2 + len(dilations)) * width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        whole = F.relu(self.all(x.mean((2, 3), keepdim=True)))
        whole = F.interpolate(whole, x.shape[2:], mode="bilinear", align_corners=False)
        parts = [F.relu(conv(x)) for conv in (self.near, *self.wide)]
        return F.relu(self.join(torch.cat([*parts, whole], dim=1)))


class Segmenter(nn.Module):
    def __init__(self, width: int, depths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.stem, inner, blocks = Conv(3, width, 7, 2), width, []
        for stage, depth in enumerate(depths):
            for number in range(depth):
                stride, dilation = 2 if stage == 1 and not number else 1, max(1, 2 ** (stage - 1))
                blocks.append(Bottleneck(inner, width << stage, stride, dilation))
                inner = 4 * (width << stage)
        self.blocks, self.pyramid = nn.Sequential(*blocks), Pyramid(inner, 4 * width, (6, 12, 18))
        self.head = nn.Conv2d(4 * width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.blocks(F.max_pool2d(F.relu(self.stem(x)), 3, 2, 1))
        y = self.head(self.pyramid(y))
        return F.interpolate(y, x.shape[2:], mode="bilinear", align_corners=False)


def ready(pictures: Tensor, on: Changes) -> Tensor:
    """Bytes [batch, height, width, colours] on the CPU to numbers [batch, colours, height, width] on the GPU."""
    where = DEVICE if "bytes" in on else "cpu"
    mean, deviation = (torch.tensor(part, device=where) for part in (MEAN, DEVIATION))
    numbers = (pictures.to(where).float() / 255 - mean) / deviation
    return numbers.permute(0, 3, 1, 2).contiguous().to(DEVICE)


def found(scores: Tensor, on: Changes) -> tuple[Tensor, Tensor]:
    """Each place's class, and how sure it is, on the CPU."""
    if "labels" in on:
        sure, labels = scores.float().softmax(dim=1).max(dim=1)
        return labels.to(torch.uint8).cpu(), sure.detach().mean().cpu()
    chances = F.softmax(scores.float(), dim=1).detach()
    return chances.argmax(dim=1).cpu(), chances.cpu().amax(dim=1).mean()


@program("both", "inference amp channels_last folded bytes labels")
def segment(on: Changes) -> Step:
    form = torch.channels_last if "channels_last" in on else torch.contiguous_format
    side, classes = sized(512, 32), sized(21, 5)
    with torch.device(DEVICE):
        model = Segmenter(sized(64, 8), (3, 4, 6, 3) if side > 32 else (1, 1), classes).eval()
    pictures = torch.randint(0, 256, (sized(8, 2), side, side, 3), dtype=torch.uint8)
    if "folded" in on:
        for part in model.modules():
            if isinstance(part, Conv):
                part.fold()
    model = model.to(memory_format=form)

    def step() -> Tensor:
        with torch.set_grad_enabled("inference" not in on), autocast(on):
            scores = model(ready(pictures, on).to(memory_format=form))
        return found(scores, on)[1]

    return step
