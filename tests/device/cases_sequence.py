"""Attention on each backend, and recurrent layers."""

from functools import partial

import torch
import torch.nn.functional as F
from case import DTYPES, R, Run, both, custom
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
            "cudnn": SDPBackend.CUDNN_ATTENTION, "math": SDPBackend.MATH}  # fmt: skip


def add() -> None:
    for backend in BACKENDS:
        dtypes = ("fp16", "bf16") if backend in ("flash", "cudnn") else ("fp32", "tf32", "fp16", "bf16")
        for dtype in dtypes:
            for causal in (False, True):
                for dim in (64, 128) if dtype == "bf16" else (64,):
                    _attention(backend, dtype, causal, dim)
    _attention("flash", "bf16", False, 256)
    _attention("efficient", "bf16", False, 256)
    for kind in ("LSTM", "GRU", "RNN"):
        for dtype in ("fp32", "tf32", "fp16", "bf16"):
            custom(f"{kind} {dtype}", partial(_recurrent, kind, dtype, False), "f", dtype == "tf32")
            custom(f"{kind} backward {dtype}", partial(_recurrent, kind, dtype, True), "f", dtype == "tf32")
    custom("LSTMCell fp32", _cell)


def _attention(backend: str, dtype: str, causal: bool, dim: int) -> None:
    def op(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(BACKENDS[backend]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    tensor = R(8, 16, 1024, dim)
    name = f"sdpa {backend} {dim}{' causal' if causal else ''}"
    both(name, op, tensor, tensor, tensor, dtypes=[dtype], check="f")


def _recurrent(kind: str, dtype: str, gradients: bool, device: str) -> Run:
    layer = getattr(torch.nn, kind)(512, 512, num_layers=1, batch_first=False).to(device, DTYPES[dtype])
    x = torch.randn(8, 64, 512, device=device, dtype=DTYPES[dtype], requires_grad=True)
    if not gradients:
        return lambda: layer(x)
    out = layer(x)[0]
    seed = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, [x, *layer.parameters()], seed, retain_graph=True)


def _cell(device: str) -> Run:
    cell = torch.nn.LSTMCell(512, 512).to(device)
    x = torch.randn(256, 512, device=device)
    return lambda: cell(x)
