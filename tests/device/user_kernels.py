"""Triton kernels that the program itself wrote, in the three ways of calling one. For compiled_layers.py.

pyprof.flops("scaled_add_kernel", lambda x, y, out, scale, n: 2 * x.numel)
pyprof.flops("pyprof_test::scaled_add", lambda x, y, scale: 2 * x.numel)
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn
from torch.library import triton_op, wrap_triton


@triton.jit
def scaled_add_kernel(x, y, out, scale, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    tl.store(out + at, tl.load(x + at, mask) + scale * tl.load(y + at, mask), mask)


def scaled_add(x: Tensor, y: Tensor, scale: float) -> Tensor:
    """x + scale * y, by a launch of the kernel."""
    out = torch.empty_like(x)
    scaled_add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, scale, x.numel(), BLOCK=1024)
    return out


@triton_op("pyprof_test::scaled_add", mutates_args={})
def scaled_add_op(x: Tensor, y: Tensor, scale: float) -> Tensor:
    out = torch.empty_like(x)
    wrap_triton(scaled_add_kernel)[(triton.cdiv(x.numel(), 1024),)](x, y, out, scale, x.numel(), BLOCK=1024)
    return out


class Direct(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return scaled_add(x, y, 2.0)


class Op(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return scaled_add_op(x, y, 3.0)


class Net(nn.Module):
    """Both, around a linear layer."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.direct, self.linear, self.op = Direct(), nn.Linear(width, width), Op()

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.op(self.linear(self.direct(x, y).relu()), y).sum()


def user_kernels() -> tuple[nn.Module, Tensor, Tensor]:
    x, y = (torch.randn(8192, 1024, device="cuda") for _ in "xy")
    return Net().to("cuda").requires_grad_(False), x, y
