"""A ConvNeXt on pictures cropped, flipped and mixed up on the GPU, with an average of its weights kept beside it."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, precision, program, sized
from torch import Tensor

SMOOTHING = 0.1


class ChannelNorm(nn.Module):
    """A layer norm over the channels of NCHW, as the authors of ConvNeXt write it."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(1, keepdim=True)
        x = x / torch.sqrt(x.pow(2).mean(1, keepdim=True) + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(F.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    def __init__(self, depths: tuple[int, ...], width: int, classes: int) -> None:
        super().__init__()
        parts: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), ChannelNorm(width, eps=1e-6)]
        for stage, depth in enumerate(depths):
            if stage:
                parts += [ChannelNorm(width, eps=1e-6), nn.Conv2d(width, 2 * width, 2, 2)]
                width *= 2
            parts += [Block(width) for _ in range(depth)]
        self.body = nn.Sequential(*parts)
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.body(x).mean((2, 3))))


class Augment:
    """A random crop and a random flip of each picture, and colours as the network wants them."""

    def __init__(self, side: int, at_once: bool) -> None:
        self.side, self.at_once = side, at_once
        self.mean = torch.tensor([0.485, 0.456, 0.406], device=DEVICE).view(3, 1, 1)
        self.std = torch.tensor([0.229, 0.224, 0.225], device=DEVICE).view(3, 1, 1)

    def __call__(self, pictures: Tensor) -> Tensor:
        count, _, height, width = pictures.shape
        tops = torch.randint(height - self.side + 1, (count,))
        lefts = torch.randint(width - self.side + 1, (count,))
        flips = torch.rand(count) < 0.5
        if self.at_once:
            return self.together(pictures, tops, lefts, flips)
        done = []
        for picture, top, left, flip in zip(pictures, tops.tolist(), lefts.tolist(), flips.tolist(), strict=True):
            crop = picture[:, top : top + self.side, left : left + self.side]
            if flip:
                crop = crop.flip(-1)
            crop = crop.float() / 255
            done.append((crop - self.mean) / self.std)
        return torch.stack(done)

    def together(self, pictures: Tensor, tops: Tensor, lefts: Tensor, flips: Tensor) -> Tensor:
        along = torch.arange(self.side)
        rows = tops[:, None] + along
        columns = lefts[:, None] + torch.where(flips[:, None], along.flip(0), along)
        rows, columns = rows.to(DEVICE), columns.to(DEVICE)
        each = torch.arange(len(pictures), device=DEVICE)
        channels = torch.arange(3, device=DEVICE)
        crops = pictures[
            each[:, None, None, None], channels[:, None, None], rows[:, None, :, None], columns[:, None, None]
        ]
        return (crops.float() / 255 - self.mean) / self.std


class Average:
    """The moving average of the weights."""

    def __init__(self, model: nn.Module, decay: float, together: bool) -> None:
        self.kept = copy.deepcopy(model).requires_grad_(False)
        self.decay, self.together = decay, together
        self.mine, self.theirs = list(self.kept.parameters()), list(model.parameters())

    @torch.no_grad()
    def update(self) -> None:
        if self.together:
            torch._foreach_lerp_(self.mine, self.theirs, 1 - self.decay)
            return
        for mine, theirs in zip(self.mine, self.theirs, strict=True):
            mine.copy_(self.decay * mine + (1 - self.decay) * theirs)


def smoothed(scores: Tensor, labels: Tensor) -> Tensor:
    logs = F.log_softmax(scores.float(), -1)
    likely = -logs.gather(1, labels[:, None]).squeeze(1)
    return ((1 - SMOOTHING) * likely - SMOOTHING * logs.mean(-1)).mean()


@program("gpu", "tf32 amp channels_last augment ema smoothing")
def convnext_ema(on: Changes) -> Step:
    precision(on)
    classes, side, batch = sized(1000, 10), sized(224, 32), sized(48, 3)
    with torch.device(DEVICE):
        model = ConvNeXt((3, 3, 9, 3) if side > 32 else (1, 1), sized(96, 8), classes)
        pictures = torch.randint(256, (batch, 3, side + side // 8, side + side // 8), dtype=torch.uint8)
        labels = torch.randint(classes, (batch,))
    if "channels_last" in on:
        model = model.to(memory_format=torch.channels_last)
    augment = Augment(side, "augment" in on)
    average = Average(model, 0.999, "ema" in on)
    descent = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    mixing = torch.distributions.Beta(0.8, 0.8)

    def criterion(scores: Tensor, wanted: Tensor) -> Tensor:
        if "smoothing" in on:
            return F.cross_entropy(scores, wanted, label_smoothing=SMOOTHING)
        return smoothed(scores, wanted)

    def step() -> Tensor:
        images = augment(pictures)
        share = mixing.sample().item()
        order = torch.randperm(batch).to(DEVICE)
        images = share * images + (1 - share) * images[order]
        if "channels_last" in on:
            images = images.to(memory_format=torch.channels_last)
        with autocast(on):
            scores = model(images)
            loss = share * criterion(scores, labels) + (1 - share) * criterion(scores, labels[order])
        descent.zero_grad()
        loss.backward()
        descent.step()
        average.update()
        return loss.detach()

    return step
