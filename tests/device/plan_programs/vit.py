"""A vision transformer in fp32: attention by einsum, positions resized in each step, memory given back each time."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, ON_GPU, Changes, Step, autocast, optimizer, precision, program, sized
from torch import Tensor


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.fused = heads, "sdpa" in on
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).unbind(2)
        if self.fused:
            q, k, v = (part.transpose(1, 2) for part in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0).transpose(1, 2)
        else:
            weights = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
            weights = F.dropout(weights.softmax(-1), 0.1, self.training)
            y = torch.einsum("bhij,bjhd->bihd", weights, v)
        return self.out(y.reshape(batch, length, width))


def drop_path(x: Tensor, share: float) -> Tensor:
    """Leave out a branch for some of the samples."""
    keep = torch.rand(x.shape[0], 1, 1, device=x.device) >= share
    return x * keep / (1 - share)


class Block(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, on)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + drop_path(self.attention(self.norm1(x)), 0.1)
        return x + drop_path(self.mlp(self.norm2(x)), 0.1)


class VisionTransformer(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, patch: int, classes: int, on: Changes) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, width, 14, 14))
        self.blocks = nn.Sequential(*(Block(width, heads, on) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)
        self.resize = "places" not in on

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images)
        places = self.places
        if self.resize or places.shape[2:] != x.shape[2:]:
            places = F.interpolate(places, x.shape[2:], mode="bicubic", align_corners=False)
        x = (x + places).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1)
        return self.head(self.norm(self.blocks(x))[:, 0])


def mixed(images: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    share = 0.3
    return share * images + (1 - share) * images.flip(0), share * targets + (1 - share) * targets.flip(0)


@program("gpu", "tf32 amp sdpa fused places empty_cache", last="compile")
def vit(on: Changes) -> Step:
    precision(on)
    classes, side = sized(1000, 10), sized(224, 32)
    with torch.device(DEVICE):
        model = VisionTransformer(sized(6, 1), sized(768, 32), sized(12, 4), 16, classes, on)
        images = torch.randn(sized(48, 2), 3, side, side)
        labels = torch.randint(classes, (len(images),))
    if "compile" in on:
        for block in model.blocks:
            block.compile()
    adam = optimizer(torch.optim.AdamW, model.parameters(), on, lr=1e-4, weight_decay=0.05, foreach=False)

    def step() -> Tensor:
        inputs, targets = mixed(images, F.one_hot(labels, classes).float())
        adam.zero_grad()
        with autocast(on):
            scores = model(inputs)
            loss = torch.sum(-targets * F.log_softmax(scores, dim=-1), dim=-1).mean()
        loss.backward()
        adam.step()
        if "empty_cache" not in on and ON_GPU:
            torch.cuda.empty_cache()
        return loss.detach()

    return step
