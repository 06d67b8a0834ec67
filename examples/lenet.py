"""One training step of LeNet, ready to be profiled. Runs on the GPU where there is one, else on the CPU.

python examples/lenet.py                              alone: nothing is recorded
pyprof run -o net.json.gz examples/lenet.py           with pyprof's own collector
nsys profile -o net -t cuda,nvtx pyprof run examples/lenet.py
nsys profile -o net --capture-range=cudaProfilerApi python examples/lenet.py --nvtx
                                                      under Nsight Systems: all, or one step
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

import pyprof

BATCH = 32
WARM_UP_STEPS = 3


class LeNet(nn.Module):
    """LeNet-5 for 1x28x28 images and 10 classes."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = x.flatten(1)
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


def train_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvtx", action="store_true", help="mark the calls for nsys or nvprof")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = LeNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(BATCH, 1, 28, 28, device=device)
    labels = torch.randint(10, (BATCH,), device=device)

    if args.nvtx:
        pyprof.init(trace=True)
    for _ in range(WARM_UP_STEPS):
        train_step(model, optimizer, images, labels)

    pyprof.start()
    loss = train_step(model, optimizer, images, labels)
    pyprof.stop()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
