"""The Triton kernel, imported on a GPU only."""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def scaled_add_kernel(a, b, out, scale, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(a + at, inside) + scale * tl.load(b + at, inside), inside)


def launch(a, b, scale):
    out = torch.empty_like(a)
    scaled_add_kernel[(triton.cdiv(a.numel(), BLOCK),)](a, b, out, scale, a.numel(), BLOCK)
    return out
