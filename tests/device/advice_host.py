"""Programs for the advice on a GPU that waits: for launches, for the host, for data."""

from collections.abc import Iterator

import numpy as np
import torch
import torch.nn as nn
from advice_case import DEVICE, HALF, ON_GPU, Step, case, graphed, inferred, randn, some, trained
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


@case("cuda_graph", "host")
def small_layers(changed: bool) -> Step:
    layers = nn.Sequential(*(nn.Linear(64, 64, device=DEVICE) for _ in range(100)))
    step = trained(layers, randn(64, 64, dtype=torch.float32, grad=False))
    return graphed(step) if changed else step


@case("cuda_graph", "host")
def small_batch_inference(changed: bool) -> Step:
    layers = [nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, norm_first=True) for _ in range(6)]
    module = nn.Sequential(*layers).to(DEVICE, HALF).train().requires_grad_(False)  # train: no fused fast path
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    step = inferred(module, randn(1, 32, 256))
    return graphed(step) if changed else step


@case("cuda_graph", "host")
def pointwise_chain(changed: bool) -> Step:
    """Hundreds of tiny element-wise operations, as physics codes have."""
    x = randn(some(4096), dtype=torch.float32)

    def step() -> None:
        y = x
        for _ in range(100):
            y = (y * 1.01 + 0.1).sin() - 0.5 * y
        y.mean()

    return graphed(step) if changed else step


@case("", "host")
def medium_layers(changed: bool) -> Step:
    """Neither: the GPU is a bit slower than the host. What does the profiler make of it? Changed: a CUDA graph."""
    layers = nn.Sequential(
        *(nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.LayerNorm(2048)) for _ in range(12))
    ).to(DEVICE, HALF)
    x = randn(some(4096), 2048, grad=True)
    step = trained(layers, x)
    if not changed:
        return step

    def kept() -> None:
        layers.zero_grad(set_to_none=False)
        layers(x).float().mean().backward()

    return graphed(kept)


@case("item", "host")
def checked(changed: bool) -> Step:
    """Is every layer's output finite? Asked one by one, or kept on the GPU and read once."""
    layers = [nn.Linear(2048, 2048, device=DEVICE, dtype=HALF) for _ in range(24)]
    x = randn(some(8192), 2048)

    def step() -> None:
        y = x
        bad = torch.zeros((), dtype=torch.bool, device=DEVICE)
        with torch.no_grad():
            for layer in layers:
                y = layer(y)
                wrong = ~torch.isfinite(y.amax())
                if changed:
                    bad |= wrong
                elif wrong.item():
                    raise ValueError("not finite")
        if changed and bad.item():
            raise ValueError("not finite")

    return step


@case("", "host")
def loss_read_each_step(changed: bool) -> Step:
    """loss.item() between forward and backward: the host is the limit anyhow, and nothing is gained."""
    layers = nn.Sequential(*(nn.Linear(1024, 1024, device=DEVICE, dtype=HALF) for _ in range(16)))
    x = randn(some(4096), 1024, grad=True)
    total = [torch.zeros((), device=DEVICE)]

    def step() -> None:
        layers.zero_grad(set_to_none=True)
        loss = layers(x).float().mean()
        if changed:
            total[0] += loss.detach()
        else:
            loss.item()
        loss.backward()

    return step


class Pictures(Dataset[Tensor]):
    """Each takes some milliseconds of a CPU."""

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> Tensor:
        numbers = np.random.default_rng(index).standard_normal((3, 128, 128), dtype=np.float32)
        return torch.from_numpy(np.tanh(numbers))


def batches(workers: int) -> Iterator[Tensor]:
    return iter(
        DataLoader(Pictures(), 16, num_workers=workers, pin_memory=ON_GPU, prefetch_factor=4 if workers else None)
    )


@case("data_loader", "host")
def slow_loader(changed: bool) -> Step:
    source = batches(8 if changed else 0)
    layers = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), *(nn.Conv2d(64, 64, 3, padding=1) for _ in range(6))
    ).to(DEVICE)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-6)

    def step() -> None:
        batch = next(source).to(DEVICE, non_blocking=True)
        optimizer.zero_grad()
        layers(batch).mean().backward()
        optimizer.step()

    return step


@case("pageable_copy", "host")
def pageable(changed: bool) -> Step:
    batch = torch.randn(16, some(1024), some(1024), pin_memory=changed and ON_GPU)
    weight = randn(some(1024), some(1024))

    def step() -> None:
        (batch.to(DEVICE, non_blocking=True).to(HALF) @ weight).sum()

    return step


@case("pageable_copy", "host")
def pageable_in_training(changed: bool) -> Step:
    """A batch of pictures, copied while the step before still runs where it is pinned."""
    batch = torch.randn(64, 3, some(224), some(224), pin_memory=changed and ON_GPU)
    layers = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), *(nn.Conv2d(64, 64, 3, padding=1) for _ in range(3)))
    layers = layers.to(DEVICE)

    def step() -> None:
        layers.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, dtype=HALF):
            loss = layers(batch.to(DEVICE, non_blocking=True)).float().mean()
        loss.backward()

    return step
