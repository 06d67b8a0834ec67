"""torchvision's ResNet-50, trained in plain fp32, on batches of 64 unless BATCH says otherwise."""

import contextlib
import os

import torch
import torchvision
from clock import HAND, STEPS, WARM, Clock, begin, turn

begin()
model = torchvision.models.resnet50()
turn()
model = model.cuda()
batch = int(os.environ.get("BATCH", "64"))
images, labels = torch.randn(batch, 3, 224, 224).cuda(), torch.randint(0, 1000, (batch,)).cuda()
if "channels_last" in HAND:
    model = model.to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
if "cudnn_benchmark" in HAND:
    torch.backends.cudnn.benchmark = True
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
clock = Clock()
for _ in range(WARM + STEPS + 2):
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16) if "amp" in HAND else contextlib.nullcontext():
        loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    clock.step(loss)
clock.end()
