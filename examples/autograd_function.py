"""An autograd Function of your own, named in the kernel table by pyprof.wrap.

    python examples/autograd_function.py

PyTorch names the backward of a Function, but not its forward: those kernels would be a relu and a square among others.
`pyprof.wrap` gives the forward a marker with the name of the class.
"""

import torch

import pyprof


class SquaredReLU(torch.autograd.Function):
    """max(x, 0) squared, with its derivative written by hand."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.relu(x).square()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 2 * torch.relu(x)


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layer = torch.nn.Linear(256, 256).to(device)
    x = torch.randn(64, 256, device=device)

    pyprof.init()  # wrap() needs a session: call init() first
    pyprof.wrap(SquaredReLU, "forward")
    with pyprof.profile("function.json.gz", force=True):
        SquaredReLU.apply(layer(x)).sum().backward()
    pyprof.deinit()  # puts back what init() and wrap() replaced

    profile = pyprof.load("function.json.gz")
    # Forward: the wrapped function is the `op`, its class the `mod`. Backward: autograd's node has the class's name.
    mine = profile.where("mod like '*SquaredReLU' or op == 'SquaredReLU'")
    print(f"SquaredReLU: {mine.totals.rows} of {profile.totals.rows} operations, {mine.totals.flop:,} FLOP")
    print(mine.kernels[["mod", "op", "dir", "aten", "flops", "bytes"]].to_string(index=False))


if __name__ == "__main__":
    main()
