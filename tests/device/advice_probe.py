"""Kernels of many sizes in one capture each, for the constants behind the advice's predictions."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from advice_case import DEVICE, HALF, randn, some
from torch.nn.attention import SDPBackend, sdpa_kernel

PROBES: dict[str, Callable[[], Any]] = {}


def probe(function: Callable[[], Any]) -> Callable[[], Any]:
    PROBES[function.__name__] = function
    return function


@probe
def probe_gemm_rows() -> None:
    """Rows from 1024 to 6144: where does a wave of blocks end?"""
    weight = randn(some(4096), some(4096))
    for rows in range(1024, 6145, 128):
        torch.mm(randn(some(rows), some(4096)), weight)


@probe
def probe_gemm_odd() -> None:
    """Odd sizes by place, and their padded neighbours."""
    for m, k, n in (
        (4096, 1001, 1024),
        (4096, 1024, 1001),
        (4095, 1024, 1024),
        (4096, 1002, 1024),
        (4096, 1004, 1024),
        (4096, 1024, 1002),
        (4096, 1024, 1004),
        (4096, 1024, 1024),
        (512, 513, 513),
        (512, 520, 520),
    ):
        for dtype in (HALF, torch.float16):
            a, b = randn(m, k, dtype=dtype), randn(n, k, dtype=dtype)
            torch.mm(a, b.t())
            torch.mm(a.t().contiguous().t(), b.t())
            torch.mm(a, b.t().contiguous())


@probe
def probe_convolutions() -> None:
    """Forward and backward, by channels, size, kernel, groups, layout and dtype."""
    shapes = [(c, c, s, k, 1) for c, s in ((64, 56), (128, 28), (256, 14), (512, 7)) for k in (1, 3)]
    shapes += [(c, c, 56, 3, 1) for c in (65, 72, 100, 104)] + [
        (3, 64, 112, 7, 1),
        (4, 64, 112, 7, 1),
        (8, 64, 112, 7, 1),
    ]
    shapes += [(256, 256, 28, 3, g) for g in (4, 32, 256)] + [(192, 192, 28, 7, 192), (64, 256, 56, 1, 1)]
    for dtype in (HALF, torch.float32):
        for channels, out, size, kernel, groups in shapes:
            for form in (torch.contiguous_format, torch.channels_last):
                x = randn(32, channels, some(size), some(size), dtype=dtype).to(memory_format=form).requires_grad_()
                w = randn(out, channels // groups, kernel, kernel, dtype=dtype).to(memory_format=form).requires_grad_()
                y = F.conv2d(x, w, padding=kernel // 2, groups=groups)
                y.backward(torch.ones_like(y))


@probe
def probe_attention() -> None:
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        for tokens, width in ((512, 64), (1024, 64), (2048, 64), (4096, 64), (2048, 128), (4096, 128)):
            for causal in (False, True):
                q, k, v = (randn(8, 16, some(tokens), width, grad=True) for _ in range(3))
                with sdpa_kernel([backend, SDPBackend.MATH] if DEVICE == "cpu" else backend):
                    y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
                    y.backward(torch.ones_like(y))


@probe
def probe_memory() -> None:
    """Fused Adam, element-wise kernels and copies from the host by size."""
    for size in (64, 256, 512, 1024, 2048, 4096):
        made = [torch.nn.Parameter(randn(some(size), some(size), dtype=torch.float32)) for _ in range(4)]
        for parameter in made:
            parameter.grad = torch.ones_like(parameter)
        for kind in (torch.optim.AdamW, torch.optim.SGD):
            kind(made, lr=1e-4, fused=True).step()
            kind(made, lr=1e-4, foreach=True).step()
        for dtype in (HALF, torch.float32):
            x = randn(some(size), some(size), dtype=dtype)
            F.gelu(x)
            torch.relu(x)
            x + x
            x.float()
            x.zero_()
    for megabytes in (1, 4, 16, 64):
        for pinned in (False, True):
            torch.empty(megabytes << 18, pin_memory=pinned and DEVICE == "cuda").to(DEVICE, non_blocking=True)
