"""FLOPs and bytes of a call, without a profiler and without a GPU: pyprof.count in place of torch's FlopCounterMode.

    python examples/count_flops.py

FlopCounterMode counts matrix products, convolutions and attention. pyprof.count also counts element-wise ops,
normalisation, the optimizer and the rest, and the bytes that each has to move. It names the ops that it cannot count.
"""

import torch
from torch.utils.flop_counter import FlopCounterMode

import pyprof


def train_step(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def main():
    model = torch.nn.TransformerEncoderLayer(d_model=64, nhead=4, dim_feedforward=256, dropout=0.0, batch_first=True)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(8, 16, 64)

    with FlopCounterMode(display=False) as torchs:
        train_step(model, optimizer, x)

    counted = pyprof.count(train_step, model, optimizer, x)  # or as a block: with pyprof.count() as counted: ...
    print(f"FlopCounterMode: {torchs.get_total_flops():>12,} FLOP")
    print(f"pyprof.count:    {counted.flops:>12,} FLOP, {counted.bytes:,.0f} bytes\n")
    print(counted)  # by op and direction, and what is not counted

    # Nothing has to be computed: on the meta device, a model of any size is counted in milliseconds.
    large = torch.nn.Linear(100_000, 100_000, device="meta")
    print(f"\n{pyprof.count(large, torch.empty(1000, 100_000, device='meta')).flops:.3e} FLOP in a layer of 40 GB")


if __name__ == "__main__":
    main()
