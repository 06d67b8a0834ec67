"""A one-stage detector with a feature pyramid and frozen norms; targets are found for one picture after the other."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, program, sized
from torch import Tensor

SHAPES = 9  # anchors at each place
STRIDES = (8, 16, 32, 64, 128)


class FrozenNorm(nn.Module):
    """Batch norm with fixed statistics and affine parameters."""

    def __init__(self, width: int, builtin: bool) -> None:
        super().__init__()
        self.builtin = builtin
        self.register_buffer("weight", torch.ones(width))
        self.register_buffer("bias", torch.zeros(width))
        self.register_buffer("mean", 0.01 * torch.randn(width))
        self.register_buffer("var", 0.5 + 0.5 * torch.rand(width))

    def forward(self, x: Tensor) -> Tensor:
        if self.builtin:
            return F.batch_norm(x, self.mean, self.var, self.weight, self.bias, training=False, eps=1e-5)
        weight, bias = self.weight.reshape(1, -1, 1, 1), self.bias.reshape(1, -1, 1, 1)
        mean, var = self.mean.reshape(1, -1, 1, 1), self.var.reshape(1, -1, 1, 1)
        scale = weight * (var + 1e-5).rsqrt()
        return x * scale + (bias - mean * scale)


class Bottleneck(nn.Module):
    def __init__(self, before: int, width: int, stride: int, builtin: bool) -> None:
        super().__init__()
        self.conv_1, self.norm_1 = nn.Conv2d(before, width, 1, bias=False), FrozenNorm(width, builtin)
        self.conv_2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.norm_2 = FrozenNorm(width, builtin)
        self.conv_3, self.norm_3 = nn.Conv2d(width, 4 * width, 1, bias=False), FrozenNorm(4 * width, builtin)
        self.shortcut: nn.Module = nn.Identity()
        if before != 4 * width:
            projection = nn.Conv2d(before, 4 * width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, FrozenNorm(4 * width, builtin))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm_1(self.conv_1(x)), inplace=True)
        y = F.relu(self.norm_2(self.conv_2(y)), inplace=True)
        return F.relu(self.norm_3(self.conv_3(y)) + self.shortcut(x), inplace=True)


class Backbone(nn.Module):
    def __init__(self, width: int, depths: list[int], builtin: bool) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            FrozenNorm(width, builtin),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        before, stages = width, []
        for number, depth in enumerate(depths):
            blocks = []
            for index in range(depth):
                stride = 2 if number and not index else 1
                blocks.append(Bottleneck(before, width, stride, builtin))
                before = 4 * width
            stages.append(nn.Sequential(*blocks))
            width *= 2
        self.stages = nn.ModuleList(stages)

    def forward(self, images: Tensor) -> list[Tensor]:
        x, found = self.stem(images), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found[1:]


class Pyramid(nn.Module):
    def __init__(self, widths: list[int], width: int) -> None:
        super().__init__()
        self.sides = nn.ModuleList(nn.Conv2d(before, width, 1) for before in widths)
        self.outs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in widths)
        self.sixth, self.seventh = nn.Conv2d(widths[-1], width, 3, 2, 1), nn.Conv2d(width, width, 3, 2, 1)

    def forward(self, found: list[Tensor]) -> list[Tensor]:
        levels = [side(x) for side, x in zip(self.sides, found, strict=True)]
        for number in (1, 0):
            above = F.interpolate(levels[number + 1], size=levels[number].shape[-2:], mode="nearest")
            levels[number] = levels[number] + above
        levels = [out(x) for out, x in zip(self.outs, levels, strict=True)]
        sixth = self.sixth(found[-1])
        return [*levels, sixth, self.seventh(F.relu(sixth))]


class Head(nn.Module):
    def __init__(self, width: int, values: int, bias: float) -> None:
        super().__init__()
        tower: list[nn.Module] = []
        for _ in range(4):
            tower += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU(inplace=True)]
        self.tower, self.out, self.values = (
            nn.Sequential(*tower),
            nn.Conv2d(width, SHAPES * values, 3, padding=1),
            values,
        )
        nn.init.constant_(self.out.bias, bias)

    def forward(self, levels: list[Tensor]) -> Tensor:
        """[batch, anchors, values]"""
        found = [self.out(self.tower(x)) for x in levels]
        return torch.cat([x.permute(0, 2, 3, 1).reshape(len(x), -1, self.values) for x in found], dim=1)


class Detector(nn.Module):
    def __init__(self, width: int, depths: list[int], classes: int, builtin: bool) -> None:
        super().__init__()
        self.backbone = Backbone(width, depths, builtin)
        self.pyramid = Pyramid([8 * width, 16 * width, 32 * width], 4 * width)
        self.scores, self.deltas = Head(4 * width, classes, -4.6), Head(4 * width, 4, 0.0)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        levels = self.pyramid(self.backbone(images))
        return self.scores(levels), self.deltas(levels)


def all_anchors(side: int) -> Tensor:
    """Boxes [anchors, 4] of all levels, in pixels."""
    found = []
    for stride in STRIDES:
        scales = torch.tensor([4 * stride * 2 ** (third / 3) for third in range(3)])
        ratios = torch.tensor([0.5, 1.0, 2.0]).sqrt()
        heights = (ratios[:, None] * scales).flatten()
        widths = (scales / ratios[:, None]).flatten()
        shapes = torch.stack((-widths, -heights, widths, heights), dim=1) / 2
        places = (torch.arange(-(-side // stride)) + 0.5) * stride
        y, x = torch.meshgrid(places, places, indexing="ij")
        centres = torch.stack((x, y, x, y), dim=-1).view(-1, 1, 4)
        found.append((centres + shapes).view(-1, 4))
    return torch.cat(found)


def overlaps(anchors: Tensor, boxes: Tensor) -> Tensor:
    """Intersection over union [..., anchors, boxes]."""
    boxes = boxes.unsqueeze(-3)
    anchors = anchors.unsqueeze(1)
    low, high = torch.maximum(anchors[..., :2], boxes[..., :2]), torch.minimum(anchors[..., 2:], boxes[..., 2:])
    both = (high - low).clamp(min=0).prod(dim=-1)
    areas = (anchors[..., 2:] - anchors[..., :2]).prod(dim=-1) + (boxes[..., 2:] - boxes[..., :2]).prod(dim=-1)
    return both / (areas - both)


def encoded(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Boxes as seen from anchors."""
    sizes, own = boxes[..., 2:] - boxes[..., :2], anchors[..., 2:] - anchors[..., :2]
    apart = (boxes[..., :2] + sizes / 2 - anchors[..., :2] - own / 2) / own
    return torch.cat((apart, (sizes / own).log()), dim=-1)


def focal(scores: Tensor, wanted: Tensor) -> Tensor:
    chance = torch.sigmoid(scores)
    entropy = F.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
    right = chance * wanted + (1 - chance) * (1 - wanted)
    share = 0.25 * wanted + 0.75 * (1 - wanted)
    return share * (1 - right) ** 2 * entropy


def loss_by_picture(
    scores: Tensor, deltas: Tensor, anchors: Tensor, boxes: list[Tensor], kinds: list[Tensor]
) -> Tensor:
    losses = []
    for number in range(len(scores)):
        best, which = overlaps(anchors, boxes[number]).max(dim=1)
        inside = best >= 0.5
        kept = inside | (best < 0.4)
        count = max(1, inside.sum().item())
        wanted = torch.zeros_like(scores[number])
        wanted[inside, kinds[number][which[inside]]] = 1.0
        kinds_loss = focal(scores[number][kept], wanted[kept]).sum() / count
        places = encoded(boxes[number][which[inside]], anchors[inside])
        places_loss = F.smooth_l1_loss(deltas[number][inside], places, reduction="sum", beta=0.1) / count
        losses.append(kinds_loss + places_loss)
    return sum(losses) / len(losses)


def loss_of_all(scores: Tensor, deltas: Tensor, anchors: Tensor, boxes: Tensor, kinds: Tensor) -> Tensor:
    best, which = overlaps(anchors, boxes).max(dim=2)
    inside = best >= 0.5
    kept = inside | (best < 0.4)
    count = inside.sum(dim=1).clamp(min=1)
    wanted = torch.zeros_like(scores).scatter_(2, kinds.gather(1, which).unsqueeze(2), inside.unsqueeze(2).float())
    kinds_loss = (focal(scores, wanted) * kept.unsqueeze(2)).sum((1, 2)) / count
    places = encoded(boxes.gather(1, which.unsqueeze(2).expand(-1, -1, 4)), anchors)
    apart = F.smooth_l1_loss(deltas, places, reduction="none", beta=0.1)
    places_loss = (apart * inside.unsqueeze(2)).sum((1, 2)) / count
    return (kinds_loss + places_loss).mean()


def some_objects(batch: int, side: int, classes: int) -> tuple[list[Tensor], list[Tensor]]:
    """Boxes and kinds of each picture."""
    boxes, kinds = [], []
    for number in range(batch):
        low = torch.rand(3 + number % 6, 2) * side * 0.4
        high = low + side * (0.05 + 0.55 * torch.rand(len(low), 2))
        boxes.append(torch.cat((low, high), dim=1).to(DEVICE))
        kinds.append(torch.randint(classes, (len(low),)).to(DEVICE))
    return boxes, kinds


def padded(boxes: list[Tensor], kinds: list[Tensor]) -> tuple[Tensor, Tensor]:
    """As the loader would pad them: with boxes too small to be any anchor's."""
    most = max(len(some) for some in boxes)
    nothing = torch.tensor([0.0, 0.0, 1.0, 1.0], device=DEVICE)
    filled = [torch.cat((some, nothing.expand(most - len(some), 4))) for some in boxes]
    return torch.stack(filled), nn.utils.rnn.pad_sequence(kinds, batch_first=True)


@program("gpu", "amp channels_last norm frozen anchors batched")
def retina(on: Changes) -> Step:
    form = torch.channels_last if "channels_last" in on else torch.contiguous_format
    side, width, classes, batch = sized(640, 64), sized(64, 8), sized(80, 5), sized(12, 2)
    with torch.device(DEVICE):
        model = Detector(width, [3, 4, 6, 3] if side > 64 else [1, 1, 1, 1], classes, "norm" in on)
        images = torch.randn(batch, 3, side, side)
    boxes, kinds = some_objects(batch, side, classes)
    all_boxes, all_kinds = padded(boxes, kinds)
    known_anchors = all_anchors(side).to(DEVICE)
    model = model.to(memory_format=form)
    fixed = {id(weight) for part in (model.backbone.stem, model.backbone.stages[0]) for weight in part.parameters()}
    if "frozen" in on:
        for part in (model.backbone.stem, model.backbone.stages[0]):
            part.requires_grad_(False)
    trained = [weight for weight in model.parameters() if id(weight) not in fixed]
    sgd = torch.optim.SGD(trained, lr=1e-3, momentum=0.9, weight_decay=1e-4)

    def step() -> Tensor:
        sgd.zero_grad()
        with autocast(on):
            scores, deltas = model(images.to(memory_format=form))
        scores, deltas = scores.float(), deltas.float()
        anchors = known_anchors if "anchors" in on else all_anchors(side).to(DEVICE)
        if "batched" in on:
            loss = loss_of_all(scores, deltas, anchors, all_boxes, all_kinds)
        else:
            loss = loss_by_picture(scores, deltas, anchors, boxes, kinds)
        loss.backward()
        sgd.step()
        return loss.detach()

    return step
