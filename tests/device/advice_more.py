"""Programs for the advice that whole models led to: indices in loops, group norms, cuDNN's choices, masks, clipping."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from advice_case import DEVICE, HALF, ON_GPU, Step, case, graphed, randn, some, trained
from torch import Tensor


def scanned(x: Tensor, dim: int, changed: bool) -> Step:
    """A recurrence over one dimension, whose pieces are taken by an index or by unbind."""

    def step() -> None:
        x.grad = None
        pieces = x.unbind(dim) if changed else None
        state = torch.zeros_like(x.select(dim, 0))
        for i in range(x.shape[dim]):
            state = 0.9 * state + (pieces[i] if pieces is not None else x.select(dim, i))
        state.float().mean().backward()

    return step


@case("select_in_loop", "more")
def state_space(changed: bool) -> Step:
    return scanned(randn(4, some(1024), 128, 16, dtype=torch.float32, grad=True), 2, changed)


@case("select_in_loop", "more")
def recurrent(changed: bool) -> Step:
    return scanned(randn(some(256), 64, 2048, grad=True), 1, changed)


def group_normed(shape: tuple[int, ...], groups: int, changed: bool) -> Step:
    module = nn.Sequential(*(nn.Sequential(nn.GroupNorm(groups, shape[1]), nn.SiLU()) for _ in range(3)))
    module = module.to(DEVICE, torch.float16)
    return trained(
        torch.compile(module) if changed and ON_GPU else module, randn(*shape, dtype=torch.float16, grad=True)
    )


@case("group_norm", "more")
def volumes(changed: bool) -> Step:
    return group_normed((2, 32, some(64), some(64), 64), 8, changed)


@case("group_norm", "more")
def pictures(changed: bool) -> Step:
    return group_normed((4, 128, some(128), 128), 8, changed)


@case("", "more")
def positional(changed: bool) -> Step:
    """The positional convolution of speech models, which runs without tensor cores: measuring finds no faster one."""
    module = nn.Conv1d(768, 768, 128, padding=64, groups=16).to(DEVICE, torch.float16)
    step = trained(module, randn(some(512) // 64, 768, 499, dtype=torch.float16, grad=True))

    def run() -> None:
        with torch.backends.cudnn.flags(enabled=True, benchmark=changed):
            step()

    return run


@case("channels_last", "more")
def convolutions_3d(changed: bool) -> Step:
    form = torch.channels_last_3d if changed else torch.contiguous_format
    blocks = (
        nn.Sequential(nn.Conv3d(32, 32, 3, padding=1, bias=False), nn.BatchNorm3d(32), nn.ReLU()) for _ in range(4)
    )
    module = nn.Sequential(*blocks).to(DEVICE, HALF).to(memory_format=form)
    x = randn(4, 32, some(64), some(64), 32).to(memory_format=form).requires_grad_()
    return trained(module, x)


@case("", "more")
def group_normed_in_nhwc(changed: bool) -> Step:
    """Group norms between the convolutions take NCHW alone."""
    form = torch.channels_last if changed else torch.contiguous_format
    blocks = (nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.GroupNorm(32, 64), nn.SiLU()) for _ in range(4))
    module = nn.Sequential(*blocks).to(DEVICE, HALF).to(memory_format=form)
    return trained(module, randn(8, 64, some(128), some(128)).to(memory_format=form).requires_grad_())


class InTwo(nn.Module):
    """A 1-d convolution as a 2-d one of height 1 in channels last."""

    def __init__(self, conv: nn.Conv1d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        weight = self.conv.weight.unsqueeze(2).to(memory_format=torch.channels_last)
        wide = x.unsqueeze(2).to(memory_format=torch.channels_last)
        return F.conv2d(wide, weight, self.conv.bias, (1, self.conv.stride[0])).squeeze(2)


@case("", "more")
def convolutions_1d(changed: bool) -> Step:
    """The feature extractor of speech models; changed, in NHWC."""
    convs = [nn.Conv1d(512, 512, 3, stride=2).to(DEVICE, HALF) for _ in range(4)]
    module = nn.Sequential(*(nn.Sequential(InTwo(conv) if changed else conv, nn.GELU()) for conv in convs))
    return trained(module, randn(8, 512, some(31_999), grad=True))


def biased(changed: bool, grad: bool) -> Step:
    """Relative positions, an embedding a head and pair: permuted, its last stride is the number of heads."""
    query, key, value = (randn(some(1024) // 64, 8, 512, 64, grad=True) for _ in range(3))
    positions = randn(512, 512, 8, grad=grad)

    def step() -> None:
        mask = positions.permute(2, 0, 1).unsqueeze(0)
        mask = mask.contiguous() if changed else mask
        F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=0.1).float().mean().backward()

    return step


@case("attention_backend", "more")
def trained_positions(changed: bool) -> Step:
    return biased(changed, grad=True)


@case("attention_backend", "more")
def fixed_positions(changed: bool) -> Step:
    return biased(changed, grad=False)


@case("optimizer", "more")
def clipped(changed: bool) -> Step:
    """AdamW of bf16 parameters by lists, after clipping."""
    parameters = [randn(some(2048), some(2048), grad=True) for _ in range(24)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, **({"fused": True} if changed else {"foreach": True}))

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return step


def layered(batch: int, changed: bool) -> Step:
    layers = [nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True) for _ in range(6)]
    step = trained(nn.Sequential(*layers).to(DEVICE, HALF), randn(some(batch), 128, 512))
    return graphed(step) if changed else step


@case("cuda_graph", "more")
def layers_of_32(changed: bool) -> Step:
    return layered(32, changed)


@case("cuda_graph", "more")
def layers_of_64(changed: bool) -> Step:
    return layered(64, changed)
