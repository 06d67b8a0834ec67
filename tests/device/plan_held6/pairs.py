"""Pictures and captions paired: norms by hand over NCHW, pictures changed one by one, products taken twice."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, precision, program, sized
from torch import Tensor


class Norm(nn.Module):
    """Over the channels of [batch, channels, height, width]"""

    def __init__(self, width: int, on: Changes) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.fused = "norm" in on

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            y = F.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias, 1e-6)
            return y.permute(0, 3, 1, 2)
        mean = x.mean(1, keepdim=True)
        spread = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(spread + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class Block(nn.Module):
    def __init__(self, width: int, on: Changes) -> None:
        super().__init__()
        self.around = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.act = Norm(width, on), nn.GELU()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(0.1 * torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.around(x)).permute(0, 2, 3, 1)
        y = self.scale * self.down(self.act(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class Pictures(nn.Sequential):
    def __init__(self, width: int, depths: tuple[int, ...], shared: int, on: Changes) -> None:
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), Norm(width, on)]
        for stage, depth in enumerate(depths):
            outer = width << stage
            if stage:
                layers += [Norm(outer // 2, on), nn.Conv2d(outer // 2, outer, 2, 2)]
            layers += [Block(outer, on) for _ in range(depth)]
        last = width << (len(depths) - 1)
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(last), nn.Linear(last, shared, bias=False)]
        super().__init__(*layers)


class Captions(nn.Module):
    def __init__(self, words: int, width: int, heads: int, layers: int, longest: int, shared: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(0.01 * torch.randn(longest, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, shared, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.layers(self.words(ids) + self.places, src_key_padding_mask=ids == 0)
        ends = (ids != 0).sum(1) - 1
        return self.out(self.norm(x)[torch.arange(len(ids), device=ids.device), ends])


def changed(images: Tensor, on: Changes) -> Tensor:
    """Lighter or darker, with more or less contrast, and a grey square somewhere."""
    count, _, high, wide = images.shape
    light, contrast = torch.rand(count) * 0.4 - 0.2, torch.rand(count) * 0.4 + 0.8
    size = high // 4
    tops, lefts = torch.randint(0, high - size, (count,)), torch.randint(0, wide - size, (count,))
    if "augment" in on:
        light, contrast, tops, lefts = (part.to(DEVICE)[:, None, None, None] for part in (light, contrast, tops, lefts))
        mean = images.mean((1, 2, 3), keepdim=True)
        rows, columns = torch.arange(high, device=DEVICE)[:, None], torch.arange(wide, device=DEVICE)
        grey = (rows >= tops) & (rows < tops + size) & (columns >= lefts) & (columns < lefts + size)
        return ((images - mean) * contrast + mean + light).masked_fill(grey, 0.0)
    results = []
    for image, lighter, more, top, left in zip(images, light, contrast, tops, lefts, strict=True):
        mean = image.mean()
        image = (image - mean) * more.to(DEVICE) + mean + lighter.to(DEVICE)
        image[:, top : top + size, left : left + size] = 0.0
        results.append(image)
    return torch.stack(results)


class Towers(nn.Module):
    def __init__(self, on: Changes) -> None:
        super().__init__()
        self.on, shared = on, sized(512, 16)
        self.pictures = Pictures(sized(96, 8), (3, 3, 9, 3) if shared > 16 else (1, 1), shared, on)
        self.captions = Captions(sized(49408, 50), sized(512, 16), sized(8, 2), sized(6, 1), sized(77, 9), shared)
        self.warmth = nn.Parameter(torch.tensor(2.66))

    def forward(self, images: Tensor, ids: Tensor) -> Tensor:
        pictures, captions = (F.normalize(x, dim=-1) for x in (self.pictures(images), self.captions(ids)))
        labels = torch.arange(len(images), device=images.device)
        by_picture = self.warmth.exp() * pictures @ captions.T
        by_caption = by_picture.T if "logits" in self.on else self.warmth.exp() * captions @ pictures.T
        return (F.cross_entropy(by_picture, labels) + F.cross_entropy(by_caption, labels)) / 2


@program("gpu", "tf32 amp norm channels_last augment logits", last="compile")
def pairs(on: Changes) -> Step:
    precision(on)
    form = torch.channels_last if "channels_last" in on else torch.contiguous_format
    batch, side, longest = sized(48, 4), sized(224, 32), sized(77, 9)
    with torch.device(DEVICE):
        model = Towers(on)
        images = torch.rand(batch, 3, side, side)
        lengths = torch.randint(longest // 4, longest + 1, (batch,))
        ids = torch.randint(1, sized(49408, 50), (batch, longest)).where(torch.arange(longest) < lengths[:, None], 0)
    model = model.to(memory_format=form)
    if "compile" in on:
        for block in model.pictures:
            if isinstance(block, Block | Norm):
                block.compile()
    adam = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.2)

    def step() -> Tensor:
        adam.zero_grad()
        inputs = changed(images, on).to(memory_format=form)
        with autocast(on):
            loss = model(inputs, ids)
        loss.backward()
        adam.step()
        return loss.detach()

    return step
