"""torchvision's ResNet-50, one training step, for captures and for measurements on a GPU.

tests/golden/h200_resnet50_init.sqlite.gz holds this file's line numbers: who changes a line records it again.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def training(device: str, batch: int) -> Callable[[], Tensor]:
    """What makes one training step (bf16 autocast, channels last, SGD) and returns the loss."""
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.resnet50().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(batch, 3, 224, 224, device=device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,), device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            scores = model(images)
            loss = F.cross_entropy(scores, labels)
        loss.backward()
        optimizer.step()
        return loss

    return step
