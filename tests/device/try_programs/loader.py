"""A small CNN whose DataLoader prepares images on the CPU, in the main process."""

import sys

import numpy as np
import torch
from clock import HAND, STEPS, WARM, Clock, begin, turn
from torch import nn


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 16 * (WARM + STEPS + 8)

    def __getitem__(self, index):
        image = np.random.default_rng(index).standard_normal((3, 128, 128), dtype=np.float32)
        return torch.from_numpy(np.sort(image, axis=2)), index % 10


begin()
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(
    nn.Conv2d(3, 32, 3, 2),
    nn.ReLU(),
    nn.Conv2d(32, 64, 3, 2),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(64, 10),
)
turn()
model = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
workers = {"num_workers": int(HAND and 4), "persistent_workers": True} if "workers" in HAND else {}
loader = torch.utils.data.DataLoader(Images(), batch_size=16, pin_memory="pin_memory" in HAND, **workers)
clock = Clock()
for images, labels in loader:
    loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    clock.step(loss)
    if clock.count == WARM + STEPS + 2:
        break
clock.end()
sys.exit(2)
