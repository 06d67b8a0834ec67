"""Programs for the advice on products: padding, precision, attention, convolutions."""

from contextlib import nullcontext
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from advice_case import DEVICE, HALF, Step, case, inferred, randn, some, trained
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel


@case("alignment", "products")
def lm_head(changed: bool) -> Step:
    layer = nn.Linear(768, 50264 if changed else 50257, bias=False, device=DEVICE, dtype=HALF)
    return trained(layer, randn(some(4096), 768, grad=True))


@case("alignment", "products")
def odd_linears(changed: bool) -> Step:
    """Small ones: the host is the limit once they are padded."""
    width = 1008 if changed else 1001
    layers = nn.Sequential(*(nn.Linear(width, width, device=DEVICE, dtype=HALF) for _ in range(8)))
    return trained(layers, randn(some(2048), width, grad=True))


@case("alignment", "products")
def odd_wide_linears(changed: bool) -> Step:
    width = some(4104) if changed else some(4097)
    layers = nn.Sequential(*(nn.Linear(width, width, device=DEVICE, dtype=HALF) for _ in range(2)))
    return trained(layers, randn(some(8192), width, grad=True))


def convolutions(
    channels: int, size: int, batch: int, layers: int = 6, bias: bool = False, groups: int = 1, kernel: int = 3
) -> nn.Sequential:
    blocks = (
        nn.Sequential(
            nn.Conv2d(channels, channels, kernel, padding=kernel // 2, bias=bias, groups=groups),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
        )
        for _ in range(layers)
    )
    return nn.Sequential(*blocks).to(DEVICE, HALF)


def images(batch: int, channels: int, size: int, last: bool) -> Tensor:
    form = torch.channels_last if last else torch.contiguous_format
    return randn(some(batch), channels, some(size), some(size)).to(memory_format=form).requires_grad_()


def convnet(last: bool, batch: int, channels: int, size: int, **more: Any) -> Step:
    form = torch.channels_last if last else torch.contiguous_format
    module = convolutions(channels, size, batch, **more).to(memory_format=form)
    return trained(module, images(batch, channels, size, last))


@case("alignment", "products")
def odd_channels(changed: bool) -> Step:
    return best_of_cudnn(convnet(True, 32, 104 if changed else 100, 56))


@case("alignment", "products")
def odd_channels_65(changed: bool) -> Step:
    return best_of_cudnn(convnet(True, 64, 72 if changed else 65, 56))


def best_of_cudnn(step: Step) -> Step:
    """cuDNN measures its kernels first: by its heuristics 104 channels got a slower one than 100."""

    def run() -> None:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            step()

    return run


@case("", "products")
def first_convolution(changed: bool) -> Step:
    """Three channels, padded to eight: is there anything to gain?"""
    channels = 8 if changed else 3
    layer = nn.Conv2d(channels, 64, 7, 2, 3, bias=False).to(DEVICE, HALF, memory_format=torch.channels_last)
    return trained(layer, randn(some(128), channels, some(224), some(224)).to(memory_format=torch.channels_last))


@case("channels_last", "products")
def nchw(changed: bool) -> Step:
    return convnet(changed, 32, 128, 56)


@case("channels_last", "products")
def nchw_resnet50(changed: bool) -> Step:
    import torchvision

    form = torch.channels_last if changed else torch.contiguous_format
    model = torchvision.models.resnet50().to(DEVICE, memory_format=form)
    pictures = randn(some(64), 3, 224, 224, dtype=torch.float32).contiguous(memory_format=form)
    return trained(model, pictures, autocast=True)


@case("conv_bias", "products")
def biased(changed: bool) -> Step:
    return convnet(True, 64, 64, 112, bias=not changed)


@case("channels_last", "products")
def depthwise(changed: bool) -> Step:
    return convnet(changed, 64, 256, 56, groups=256)


@case("channels_last", "products")
def depthwise_7x7(changed: bool) -> Step:
    return convnet(changed, 64, 192, 28, groups=192, kernel=7)


@case("channels_last", "products")
def grouped(changed: bool) -> Step:
    return convnet(changed, 64, 256, 56, groups=32)


@case("", "products")
def grouped_or_dense(changed: bool) -> Step:
    """Channels last in both: more FLOPs against groups."""
    return convnet(True, 64, 256, 56, groups=1 if changed else 32)


@case("tf32", "products")
def full_precision(changed: bool) -> Step:
    layers = nn.Sequential(*(nn.Linear(4096, 4096, device=DEVICE) for _ in range(3)))
    step = trained(layers, randn(some(4096), 4096, dtype=torch.float32, grad=True))

    def run() -> None:
        torch.set_float32_matmul_precision("high" if changed else "highest")
        step()
        torch.set_float32_matmul_precision("highest")

    return run


@case("amp", "products")
def mixed(changed: bool) -> Step:
    layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True, device=DEVICE)
    return trained(layer, randn(8, some(512), 1024, dtype=torch.float32, grad=True), autocast=changed)


class Attention(nn.Module):
    """Attention spelled out, or by scaled_dot_product_attention under some backends."""

    def __init__(self, fused: bool, causal: bool = False, dropout: float = 0.0, backends: Any = None) -> None:
        super().__init__()
        self.fused, self.causal, self.dropout, self.backends = fused, causal, dropout, backends

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.fused:
            with sdpa_kernel(self.backends) if self.backends else nullcontext():
                return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, dropout_p=self.dropout)
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        if self.causal:
            mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
            scores = scores.masked_fill(~mask, float("-inf"))
        return F.dropout(scores.softmax(-1), self.dropout) @ v if self.dropout else scores.softmax(-1) @ v


def heads(batch: int, count: int, tokens: int, width: int, grad: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (randn(batch, count, some(tokens), width, grad=grad) for _ in range(3))
    return q, k, v


@case("attention", "products")
def attention(changed: bool) -> Step:
    return trained(Attention(changed), *heads(8, 16, 2048, 64))


@case("attention", "products")
def causal_attention(changed: bool) -> Step:
    return trained(Attention(changed, causal=True, dropout=0.1), *heads(8, 12, 1024, 64))


@case("attention", "products")
def inferred_attention(changed: bool) -> Step:
    return inferred(Attention(changed), *heads(4, 16, 4096, 128, grad=False))


@case("attention_backend", "products")
def math_attention(changed: bool) -> Step:
    return trained(Attention(True, backends=None if changed else SDPBackend.MATH), *heads(8, 16, 2048, 64))


@case("attention_backend", "products")
def efficient_attention(changed: bool) -> Step:
    backends = None if changed else SDPBackend.EFFICIENT_ATTENTION
    return trained(Attention(True, causal=True, backends=backends), *heads(8, 16, 4096, 64))


@case("attention_backend", "products")
def flash_attention(changed: bool) -> Step:
    """Flash against what PyTorch chooses itself."""
    backends = None if changed else SDPBackend.FLASH_ATTENTION
    return trained(Attention(True, causal=True, backends=backends), *heads(8, 16, 4096, 64))


@case("repeats", "products")
def small_products(changed: bool) -> Step:
    left, right = randn(32, some(256), 512), randn(32, 512, 384)
    if changed:
        return lambda: torch.bmm(left, right)
    pairs = list(zip(left.unbind(), right.unbind(), strict=True))
    return lambda: [a @ b for a, b in pairs]


@case("repeats", "products")
def small_long_products(changed: bool) -> Step:
    """Few blocks, long inner dimension: the GPU is the limit."""
    left, right = randn(16, some(256), 8192), randn(16, 8192, 384)
    if changed:
        return lambda: torch.bmm(left, right)
    pairs = list(zip(left.unbind(), right.unbind(), strict=True))
    return lambda: [a @ b for a, b in pairs]
