"""A diffusion U-Net: NCHW in fp32, attention and swish by hand, averaged weights in a loop, a schedule on the CPU."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, program, sized
from torch import Tensor


def swish(x: Tensor, on: Changes) -> Tensor:
    return F.silu(x) if "swish" in on else x * torch.sigmoid(x)


class Residual(nn.Module):
    def __init__(self, inner: int, outer: int, time: int, on: Changes) -> None:
        super().__init__()
        self.on = on
        self.norm1, self.conv1 = nn.GroupNorm(8, inner), nn.Conv2d(inner, outer, 3, padding=1)
        self.time = nn.Linear(time, outer)
        self.norm2, self.conv2 = nn.GroupNorm(8, outer), nn.Conv2d(outer, outer, 3, padding=1)
        self.short = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(swish(self.norm1(x), self.on))
        y = y + self.time(swish(time, self.on))[:, :, None, None]
        y = self.conv2(swish(self.norm2(y), self.on))
        return self.short(x) + y


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.heads, self.fused = heads, "sdpa" in on
        self.norm = nn.GroupNorm(8, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        batch, width, high, wide = x.shape
        parts = self.qkv(self.norm(x)).reshape(batch, 3, self.heads, width // self.heads, high * wide)
        q, k, v = parts.unbind(1)
        if self.fused:
            y = F.scaled_dot_product_attention(*(part.transpose(2, 3).contiguous() for part in (q, k, v)))
            y = y.transpose(2, 3)
        else:
            weights = torch.einsum("bhcs,bhct->bhst", q, k) * (width // self.heads) ** -0.5
            y = torch.einsum("bhst,bhct->bhcs", weights.softmax(dim=-1), v)
        return x + self.out(y.reshape(batch, width, high, wide))


class Level(nn.Module):
    """Two residual blocks, each with attention if the picture is small enough."""

    def __init__(self, inners: tuple[int, ...], outer: int, time: int, heads: int, on: Changes) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Residual(inner, outer, time, on) for inner in inners)
        self.attentions = nn.ModuleList(
            Attention(outer, heads, on) if heads else nn.Identity() for _ in range(len(inners))
        )


class UNet(nn.Module):
    def __init__(self, width: int, shares: tuple[int, ...], heads: tuple[int, ...], on: Changes) -> None:
        super().__init__()
        self.width, time, self.on = width, 4 * width, on
        self.time = nn.ModuleList([nn.Linear(width, time), nn.Linear(time, time)])
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        self.smaller, self.larger = nn.ModuleList(), nn.ModuleList()
        now, skipped = width, [width]
        for share, head in zip(shares, heads, strict=True):
            outer = width * share
            self.downs.append(Level((now, outer), outer, time, head, on))
            self.smaller.append(nn.Conv2d(outer, outer, 3, 2, 1))
            skipped += [outer, outer]
            now = outer
        self.middle1, self.middle2 = Residual(now, now, time, on), Residual(now, now, time, on)
        self.middle = Attention(now, heads[-1], on)
        for share, head in zip(reversed(shares), reversed(heads), strict=True):
            outer = width * share
            self.larger.append(nn.Conv2d(now, now, 3, padding=1))
            self.ups.append(Level((now + skipped.pop(), outer + skipped.pop()), outer, time, head, on))
            now = outer
        self.norm, self.last = nn.GroupNorm(8, now), nn.Conv2d(now, 3, 3, padding=1)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        waves = torch.exp(-9.2 * torch.arange(self.width // 2, device=x.device) / (self.width // 2))
        angles = times[:, None].float() * waves
        time = torch.cat([angles.sin(), angles.cos()], dim=1)
        time = self.time[1](swish(self.time[0](time), self.on))
        x, skipped = self.first(x), []
        for level, smaller in zip(self.downs, self.smaller, strict=True):
            for block, attention in zip(level.blocks, level.attentions, strict=True):
                x = attention(block(x, time))
                skipped.append(x)
            x = smaller(x)
        x = self.middle2(self.middle(self.middle1(x, time)), time)
        for level, larger in zip(self.ups, self.larger, strict=True):
            x = larger(F.interpolate(x, scale_factor=2.0, mode="nearest"))
            for block, attention in zip(level.blocks, level.attentions, strict=True):
                x = attention(block(torch.cat([x, skipped.pop()], dim=1), time))
        return self.last(swish(self.norm(x), self.on))


@torch.no_grad()
def averaged(slow: nn.Module, model: nn.Module, on: Changes) -> None:
    if "ema" in on:
        torch._foreach_lerp_(list(slow.parameters()), list(model.parameters()), 0.001)
        return
    for old, new in zip(slow.parameters(), model.parameters(), strict=True):
        old.data = 0.999 * old.data + 0.001 * new.data


@program("gpu", "amp channels_last sdpa swish ema schedule")
def unet(on: Changes) -> Step:
    form = torch.channels_last if "channels_last" in on else torch.contiguous_format
    side, steps = sized(64, 8), 1000
    with torch.device(DEVICE):
        shares, heads = ((1, 2, 2, 4), (0, 4, 4, 8)) if side > 8 else ((1, 2), (0, 2))
        model = UNet(sized(128, 16), shares, heads, on)
        images = torch.randn(sized(32, 2), 3, side, side).clamp(-1, 1)
    model = model.to(memory_format=form)
    slow = copy.deepcopy(model).requires_grad_(False)
    kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, steps), dim=0)
    if "schedule" in on:
        kept = kept.to(DEVICE)
    adam = torch.optim.AdamW(model.parameters(), lr=2e-4)

    def step() -> Tensor:
        times = torch.randint(0, steps, (len(images),), device=DEVICE)
        noise = torch.randn_like(images)
        share = kept[times.to(kept.device)].to(DEVICE)[:, None, None, None]
        noisy = (share.sqrt() * images + (1 - share).sqrt() * noise).to(memory_format=form)
        adam.zero_grad()
        with autocast(on):
            loss = F.mse_loss(model(noisy, times).float(), noise)
        loss.backward()
        adam.step()
        averaged(slow, model, on)
        return loss.detach()

    return step
