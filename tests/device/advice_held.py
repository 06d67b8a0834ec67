"""Programs that no rule was made with: the same advice at other sizes, types and in other code."""

from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from advice_case import DEVICE, ON_GPU, Step, case, graphed, inferred, randn, some, trained
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

FP16 = torch.float16
FP32 = torch.float32


@case("alignment", "held")
def held_vocabulary(changed: bool) -> Step:
    layer = nn.Linear(2048, 32008 if changed else 32003, bias=False, device=DEVICE, dtype=FP16)
    return trained(layer, randn(some(2048), 2048, dtype=FP16, grad=True))


@case("tf32", "held")
def held_mlp(changed: bool) -> Step:
    layers = nn.Sequential(nn.Linear(2048, 5120), nn.SiLU(), nn.Linear(5120, 2048)).to(DEVICE)
    step = trained(layers, randn(some(3072), 2048, dtype=FP32, grad=True))

    def run() -> None:
        torch.set_float32_matmul_precision("high" if changed else "highest")
        step()
        torch.set_float32_matmul_precision("highest")

    return run


@case("amp", "held")
def held_encoder(changed: bool) -> Step:
    layers = [nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, batch_first=True) for _ in range(4)]
    return trained(nn.Sequential(*layers).to(DEVICE), randn(64, some(197), 768, dtype=FP32), autocast=changed)


class Unet(nn.Module):
    """Down and up again, with a bridge."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (self.block(a, b) for a, b in ((32, 64), (64, 128), (192, 64)))

    @staticmethod
    def block(inner: int, outer: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inner, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
            nn.Conv2d(outer, outer, 3, padding=1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        wide = self.first(x)
        deep = self.second(F.max_pool2d(wide, 2))
        result: Tensor = self.third(torch.cat([wide, F.interpolate(deep, scale_factor=2)], 1))
        return result


@case("channels_last", "held")
def held_unet(changed: bool) -> Step:
    form = torch.channels_last if changed else torch.contiguous_format
    x = randn(16, 32, some(128), some(128), dtype=FP16).to(memory_format=form)
    return trained(Unet().to(DEVICE, FP16, memory_format=form), x)


@case("conv_bias", "held")
def held_bias(changed: bool) -> Step:
    blocks = (nn.Sequential(nn.Conv2d(128, 128, 1, bias=not changed), nn.BatchNorm2d(128)) for _ in range(5))
    layers = nn.Sequential(*blocks).to(DEVICE, FP16, memory_format=torch.channels_last)
    return trained(layers, randn(64, 128, some(56), some(56), dtype=FP16).to(memory_format=torch.channels_last))


class Attention(nn.Module):
    """With an additive mask and dropout, as BERT has it."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.1)
        scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5 + mask
        return F.dropout(F.softmax(scores, dim=-1), 0.1) @ v


@case("attention", "held")
def held_attention(changed: bool) -> Step:
    q, k, v = (randn(16, 16, some(1024), 128, dtype=FP16, grad=True) for _ in range(3))
    return trained(Attention(changed), q, k, v, torch.zeros(16, 1, 1, some(1024), device=DEVICE, dtype=FP16))


@case("attention_backend", "held")
def held_backend(changed: bool) -> Step:
    q, k, v = (randn(4, 32, some(2048), 128, dtype=FP16, grad=True) for _ in range(3))

    def step() -> None:
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION if changed else SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            F.scaled_dot_product_attention(q, k, v).float().mean().backward()

    return step


class Norm(nn.Module):
    """Layer normalisation by hand."""

    def __init__(self, width: int, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.scale, self.shift = (nn.Parameter(torch.ones(width, device=DEVICE)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            return F.layer_norm(x, x.shape[-1:], self.scale, self.shift)
        apart = x - x.mean(-1, keepdim=True)
        return apart / torch.sqrt((apart * apart).mean(-1, keepdim=True) + 1e-5) * self.scale + self.shift


@case("fusion", "held")
def held_norm(changed: bool) -> Step:
    width = some(2048)
    return inferred(nn.Sequential(*(Norm(width, changed) for _ in range(4))), randn(some(16384), width, dtype=FP32))


@case("cross_entropy", "held")
def held_loss(changed: bool) -> Step:
    function: Any = torch.compile(F.cross_entropy) if changed and ON_GPU else F.cross_entropy
    logits = randn(some(8192), some(32000), grad=True)
    targets = torch.randint(some(32000), (some(8192),), device=DEVICE)

    def step() -> None:
        logits.grad = None
        function(logits, targets).backward()

    return step


@case("optimizer", "held")
def held_adamw(changed: bool) -> Step:
    parameters = [nn.Parameter(randn(some(4096), 1024, dtype=FP32)) for _ in range(16)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    return torch.optim.AdamW(parameters, weight_decay=0.1, **({"fused": True} if changed else {"foreach": True})).step


@case("zero_grad", "held")
def held_zeros(changed: bool) -> Step:
    layers = nn.Sequential(*(nn.Linear(some(3072), some(3072), device=DEVICE) for _ in range(6)))
    optimizer = torch.optim.Adam(layers.parameters(), fused=True)
    x = randn(128, some(3072), dtype=FP32)

    def step() -> None:
        layers.zero_grad(set_to_none=changed)
        layers(x).mean().backward()
        optimizer.step()

    return step


@case("sparse_grad", "held")
def held_embedding(changed: bool) -> Step:
    table = nn.Embedding(some(2_000_000), 64, sparse=changed, device=DEVICE)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    tokens = torch.randint(some(2_000_000), (1024, 20), device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        table(tokens).mean(1).sum().backward()
        optimizer.step()

    return step


@case("weight_casts", "held")
def held_casts(changed: bool) -> Step:
    layers = nn.Sequential(*(nn.Linear(some(6144), some(6144), bias=False, device=DEVICE) for _ in range(8)))
    dtype = FP16 if changed else FP32
    module = layers.to(dtype)
    x = randn(16, some(6144), dtype=dtype)

    def step() -> None:
        with torch.inference_mode(), torch.autocast(DEVICE, dtype=FP16, enabled=not changed):
            module(x)

    return step


@case("dropout_in_eval", "held")
def held_dropout(changed: bool) -> Step:
    width = some(1024)
    blocks = (nn.Sequential(nn.Linear(width, 4 * width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(4 * width, width))
              for _ in range(4))  # fmt: skip
    module = nn.Sequential(*blocks).to(DEVICE, FP16)
    return inferred(module.eval() if changed else module, randn(some(16384), width, dtype=FP16))


@case("pageable_copy", "held")
def held_copies(changed: bool) -> Step:
    batches = [torch.randn(some(2048), 1024, pin_memory=changed and ON_GPU) for _ in range(8)]
    weight = randn(1024, 1024, dtype=FP32)
    return lambda: [batch.to(DEVICE, non_blocking=True) @ weight for batch in batches]


@case("cuda_graph", "held")
def held_cell(changed: bool) -> Step:
    """A recurrent cell, step by step."""
    cell = nn.GRUCell(256, 256, device=DEVICE).requires_grad_(False)
    inputs = randn(60, 32, 256, dtype=FP32)

    def step() -> None:
        state = torch.zeros(32, 256, device=DEVICE)
        for one in inputs:
            state = cell(one, state)

    return graphed(step) if changed else step


@case("repeats", "held")
def held_experts(changed: bool) -> Step:
    """Experts of a mixture, one by one, or batched."""
    x, up = randn(24, some(192), 2048), randn(24, 2048, 1024)
    if changed:
        return lambda: torch.bmm(x, up)
    return lambda: [x[i] @ up[i] for i in range(24)]


@case("item", "held")
def held_check(changed: bool) -> Step:
    """The gradient's norm, read by Python to decide something."""
    layers = nn.Sequential(*(nn.Linear(2048, 2048, device=DEVICE, dtype=torch.bfloat16) for _ in range(12)))
    optimizer = torch.optim.SGD(layers.parameters(), lr=1e-5, foreach=True)
    x = randn(some(16384), 2048)

    def step() -> None:
        optimizer.zero_grad()
        layers(x).float().mean().backward()
        norm = nn.utils.clip_grad_norm_(layers.parameters(), 1.0)
        if changed or norm.item() < 1e9:
            optimizer.step()

    return step
