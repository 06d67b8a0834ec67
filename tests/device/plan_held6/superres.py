"""Pictures enlarged by a GAN: made twice in each step, gradients for networks that are not trained, losses read."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from plan_program import DEVICE, Changes, Step, autocast, program, sized
from torch import Tensor


class Dense(nn.Module):
    """Five convolutions, each of which sees all that came before."""

    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(width + i * growth, growth, 3, padding=1) for i in range(4))
        self.last = nn.Conv2d(width + 4 * growth, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x]
        for conv in self.convs:
            parts.append(F.leaky_relu(conv(torch.cat(parts, dim=1)), 0.2))
        return x + 0.2 * self.last(torch.cat(parts, dim=1))


class Trunk(nn.Sequential):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__(*(Dense(width, growth) for _ in range(3)))

    def forward(self, x: Tensor) -> Tensor:
        return x + 0.2 * super().forward(x)


class Generator(nn.Module):
    def __init__(self, width: int, growth: int, trunks: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.trunks = nn.Sequential(*(Trunk(width, growth) for _ in range(trunks)))
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.larger = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.smooth, self.last = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = x + self.middle(self.trunks(x))
        for conv in self.larger:
            x = F.leaky_relu(conv(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        return self.last(F.leaky_relu(self.smooth(x), 0.2))


class Critic(nn.Module):
    def __init__(self, width: int, stages: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.LeakyReLU(0.2)]
        inner = width
        for stage in range(stages):
            outer = min(width << stage, 8 * width)
            layers += [nn.Conv2d(inner, outer, 3, 1, 1), nn.BatchNorm2d(outer), nn.LeakyReLU(0.2)]
            layers += [nn.Conv2d(outer, outer, 4, 2, 1), nn.BatchNorm2d(outer), nn.LeakyReLU(0.2)]
            inner = outer
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(inner, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layers(x).mean((2, 3)))


def features(width: int, depths: tuple[int, ...]) -> nn.Sequential:
    """The convolutions of an image classifier. A perceptual loss compares their outputs for two images."""
    layers: list[nn.Module] = []
    inner = 3
    for stage, depth in enumerate(depths):
        outer = min(width << stage, 8 * width)
        for _ in range(depth):
            layers += [nn.Conv2d(inner, outer, 3, padding=1), nn.ReLU()]
            inner = outer
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers[:-2])


def told(scores: Tensor, real: bool) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(real)))


@program("gpu", "amp channels_last generated frozen no_grad item")
def superres(on: Changes) -> Step:
    form = torch.channels_last if "channels_last" in on else torch.contiguous_format
    side = sized(48, 8)
    with torch.device(DEVICE):
        generator = Generator(sized(64, 8), sized(32, 4), sized(5, 1))
        critic = Critic(sized(64, 8), sized(4, 2))
        viewer = features(sized(64, 8), (2, 2, 4, 4) if side > 8 else (1, 1)).eval()
        small = torch.rand(sized(16, 2), 3, side, side)
        large = torch.rand(len(small), 3, 4 * side, 4 * side)
    generator, critic, viewer = (part.to(memory_format=form) for part in (generator, critic, viewer))
    small, large = small.to(memory_format=form), large.to(memory_format=form)
    if "frozen" in on:
        viewer.requires_grad_(False)
    adams = [torch.optim.Adam(part.parameters(), lr=1e-4, betas=(0.9, 0.99)) for part in (generator, critic)]
    history: list[tuple[float, ...]] = []
    total = torch.zeros(4, device=DEVICE)

    def step() -> Tensor:
        with autocast(on):
            fake = generator(small)
            judged = told(critic(large), True) + told(critic(fake.detach()), False)
        adams[1].zero_grad()
        judged.backward()
        adams[1].step()
        if "frozen" in on:
            critic.requires_grad_(False)
        with autocast(on):
            if "generated" not in on:
                fake = generator(small)
            near = F.l1_loss(fake.float(), large)
            with torch.set_grad_enabled("no_grad" not in on):
                wanted = viewer(large)
            alike = F.l1_loss(viewer(fake).float(), wanted.float())
            fooled = told(critic(fake), True)
        loss = near + alike + 5e-3 * fooled
        adams[0].zero_grad()
        loss.backward()
        adams[0].step()
        critic.requires_grad_(True)
        if "item" in on:
            total.add_(torch.stack([judged, near, alike, fooled]).detach())
        else:
            history.append((judged.item(), near.item(), alike.item(), fooled.item()))
        return loss.detach() + judged.detach()

    return step
