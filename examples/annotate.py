"""Name the parts of a program that are not modules: pyprof.annotate, as a block and as a decorator.

    python examples/annotate.py

The names stand in the column `layer`, between the modules' names, and sums by layer follow them.
"""

import torch
import torch.nn.functional as F

import pyprof


@pyprof.annotate("augment")  # every call of the function
def augment(images):
    return (images + 0.1 * torch.randn_like(images)).clamp(0, 1)


def train_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    with pyprof.annotate("student"):  # a block; blocks may be nested
        logits = model(augment(images))
    with pyprof.annotate("loss"):
        loss = F.cross_entropy(logits, labels)
    loss.backward()  # a kernel of the backward carries the layer of its forward op
    optimizer.step()


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = torch.rand(64, 1, 28, 28, device=device), torch.randint(10, (64,), device=device)

    with pyprof.profile("annotate.json.gz", force=True):
        train_step(model, optimizer, images, labels)

    layers = pyprof.load("annotate.json.gz").layers
    print(layers[["layer", "depth", "count", "time", "forward", "backward"]].to_string(index=False))


if __name__ == "__main__":
    main()
