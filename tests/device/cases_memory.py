"""Ops that move bytes: tensors of 0.5 to 1 GB, far more than an L2 cache."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from case import DTYPES, I, N, R, Run, backward, both, custom, forward

BIG = 1 << 28
ROWS = (1 << 16, 4096)  # 2^28 elements
IMAGES = (256, 256, 64, 64)  # 2^28


def add() -> None:
    for part in (_pointwise, _moves, _norms, _rows, _reductions, _tables, _images, _optimizers):
        part()


def _bytes(name: str, op: Callable[..., Any], *specs: Any, dtype: str = "fp32") -> None:
    forward(name, op, *specs, dtype=dtype, check="b")


def _both(name: str, op: Callable[..., Any], *specs: Any, dtype: str = "bf16") -> None:
    both(name, op, *specs, dtypes=[dtype], check="b")


def _pointwise() -> None:
    for name in ("gelu", "silu", "relu", "leaky_relu", "sigmoid", "tanh", "softplus", "elu", "hardswish", "mish"):
        _both(name, getattr(F, name), R(BIG))
    _both("glu", partial(F.glu, dim=-1), R(*ROWS))
    for dtype in ("fp32", "bf16"):
        _bytes("add", torch.add, N(BIG), N(BIG), dtype=dtype)
    _bytes("mul", torch.mul, N(BIG), N(BIG), dtype="fp16")
    _bytes("add_", torch.Tensor.add_, N(BIG), N(BIG), dtype="bf16")
    _bytes("add a row", torch.add, N(*ROWS), N(ROWS[1]), dtype="bf16")
    _bytes("exp", torch.exp, N(BIG))
    _bytes("pow", lambda x: x**3, N(BIG))
    _bytes("where", torch.where, I(2, BIG, dtype=torch.bool), N(BIG), N(BIG), dtype="bf16")
    _bytes("lt", torch.lt, N(BIG), N(BIG), dtype="bf16")
    _bytes("addcmul", torch.addcmul, N(BIG), N(BIG), N(BIG), dtype="bf16")
    _bytes("lerp", lambda a, b: torch.lerp(a, b, 0.5), N(BIG), N(BIG))
    _bytes("clamp", lambda x: x.clamp(-1, 1), N(BIG))
    _both("dropout", F.dropout, R(BIG))
    _both("masked_fill", lambda x, m: x.masked_fill(m, 0.0), R(BIG), I(2, BIG, dtype=torch.bool))


def _moves() -> None:
    _bytes("clone", torch.clone, N(BIG))
    _bytes("cast fp32 to bf16", lambda x: x.to(torch.bfloat16), N(BIG))
    _bytes("cast bf16 to fp32", lambda x: x.to(torch.float32), N(BIG), dtype="bf16")
    _bytes("cast fp16 to fp8", lambda x: x.to(torch.float8_e4m3fn), N(BIG), dtype="fp16")
    _bytes("transpose", lambda x: x.T.contiguous(), N(16384, 16384))
    _bytes("to channels_last", lambda x: x.contiguous(memory_format=torch.channels_last), N(*IMAGES), dtype="bf16")
    _bytes("copy_", torch.Tensor.copy_, N(BIG), N(BIG), dtype="bf16")
    _bytes("fill_", lambda x: x.fill_(1.0), N(BIG))
    _bytes("zero_", torch.Tensor.zero_, N(BIG))
    _bytes("cat", lambda a, b: torch.cat([a, b]), N(BIG // 2), N(BIG // 2), dtype="bf16")
    _bytes("stack", lambda a, b: torch.stack([a, b], 1), N(BIG // 2), N(BIG // 2), dtype="bf16")
    _bytes("flip", lambda x: x.flip(0), N(*ROWS), dtype="bf16")
    _bytes("roll", lambda x: x.roll(5, 0), N(*ROWS), dtype="bf16")
    _bytes("pad", lambda x: F.pad(x, (1, 1, 1, 1)), N(*IMAGES), dtype="bf16")
    _bytes("tril", torch.tril, N(16384, 16384))
    _bytes("repeat", lambda x: x.repeat(4, 1), N(ROWS[0] // 4, ROWS[1]), dtype="bf16")
    _bytes("randn", torch.randn_like, N(BIG))
    _bytes("arange", lambda x: torch.arange(BIG // 2, device=x.device), N(1))


def _norms() -> None:
    wide = R(*ROWS)
    for dtype in ("bf16", "fp32"):
        _both("layer_norm", lambda x, w, b: F.layer_norm(x, (4096,), w, b), wide, R(4096), R(4096), dtype=dtype)
    _both("rms_norm", lambda x, w: F.rms_norm(x, (4096,), w), wide, R(4096))
    _both("group_norm", lambda x, w, b: F.group_norm(x, 32, w, b), R(*IMAGES), R(256), R(256))
    for memory in (torch.contiguous_format, torch.channels_last):
        name = "batch_norm" + (" nhwc" if memory is torch.channels_last else "")
        _both(name, lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), R(*IMAGES, memory=memory),
              R(256, dtype=torch.float32), R(256, dtype=torch.float32))  # fmt: skip
    custom("batch_norm eval bf16", _batch_norm_eval, "b")
    _both("instance_norm", F.instance_norm, R(*IMAGES), dtype="fp32")


def _batch_norm_eval(device: str) -> Run:
    layer = torch.nn.BatchNorm2d(256).to(device).eval()
    x = torch.randn(IMAGES, device=device, dtype=torch.bfloat16)
    return lambda: layer(x)


def _rows() -> None:
    _both("softmax", partial(F.softmax, dim=-1), R(*ROWS))
    _both("log_softmax", partial(F.log_softmax, dim=-1), R(*ROWS))
    _both("softmax 32768", partial(F.softmax, dim=-1), R(8192, 32768))
    _both("softmax 512", partial(F.softmax, dim=-1), R(1 << 19, 512))
    _both("cross_entropy", F.cross_entropy, R(8192, 50304), I(50304, 8192))
    _both("mse_loss", F.mse_loss, R(BIG), N(BIG))
    _both("bce with logits", F.binary_cross_entropy_with_logits, R(BIG), N(BIG), dtype="fp32")
    _both("cumsum", partial(torch.cumsum, dim=-1), R(*ROWS), dtype="fp32")
    _bytes("sort", lambda x: x.sort(-1), N(*ROWS), dtype="fp32")
    _bytes("topk", lambda x: x.topk(8, -1), N(8192, 32768), dtype="fp32")
    _bytes("argmax", lambda x: x.argmax(-1), N(*ROWS), dtype="bf16")


def _reductions() -> None:
    for dtype in ("fp32", "bf16"):
        _bytes("sum", torch.sum, N(BIG), dtype=dtype)
        _bytes("sum rows", lambda x: x.sum(0), N(*ROWS), dtype=dtype)
    _bytes("mean last", lambda x: x.mean(-1), N(*ROWS), dtype="bf16")
    _bytes("max", torch.max, N(BIG), dtype="bf16")
    _bytes("norm", torch.linalg.vector_norm, N(BIG), dtype="fp32")
    _bytes("var", lambda x: x.var(-1), N(*ROWS), dtype="fp32")
    _bytes("any", lambda x: x.any(), I(2, BIG, dtype=torch.bool))
    _bytes("logsumexp", lambda x: x.logsumexp(-1), N(*ROWS), dtype="fp32")
    _bytes("count_nonzero", torch.count_nonzero, N(BIG), dtype="fp32")
    backward("sum rows", lambda x: x.sum(0), R(*ROWS), dtype="bf16")


def _tables() -> None:
    _both("embedding", F.embedding, I(50_000, 1 << 17), R(50_000, 1024), dtype="fp32")
    _both("index_select", lambda x, i: x.index_select(0, i), R(1 << 17, 2048), I(1 << 17, 1 << 17))
    _bytes("index rows", lambda x, i: x[i], N(1 << 17, 2048), I(1 << 17, 1 << 17), dtype="bf16")
    _both("gather", lambda x, i: x.gather(1, i), R(1 << 14, 4096), I(4096, 1 << 14, 4096), dtype="fp32")
    _bytes("scatter_add", lambda x, i, s: x.scatter_add(0, i, s), N(1 << 14, 4096), I(1 << 14, 1 << 14, 4096),
           N(1 << 14, 4096))  # fmt: skip
    _bytes("index_add", lambda x, i, s: x.index_add(0, i, s), N(1 << 16, 2048), I(1 << 16, 1 << 16), N(1 << 16, 2048))
    _bytes("masked_select", torch.masked_select, N(BIG // 2), I(2, BIG // 2, dtype=torch.bool))
    _bytes("nonzero", torch.nonzero, I(2, BIG // 2, dtype=torch.bool))


def _images() -> None:
    _both("max_pool2d", lambda x: F.max_pool2d(x, 2), R(*IMAGES))
    _both("max_pool2d 3x3", lambda x: F.max_pool2d(x, 3, 2, 1), R(*IMAGES, memory=torch.channels_last))
    _both("avg_pool2d", lambda x: F.avg_pool2d(x, 2), R(*IMAGES))
    _both("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1), R(*IMAGES))
    _both("upsample nearest", lambda x: F.interpolate(x, scale_factor=2), R(256, 64, 64, 64))
    _both("upsample bilinear", lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), R(256, 64, 64, 64))
    _bytes("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), N(*IMAGES), dtype="bf16")
    _bytes("grid_sample", lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), N(256, 64, 64, 64),
           N(256, 64, 64, 2))  # fmt: skip


def _optimizers() -> None:
    ways = {"for-loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
    for way, options in ways.items():
        custom(f"Adam {way} fp32", partial(_step, "Adam", options), "b")
        custom(f"AdamW {way} bf16", partial(_step, "AdamW", options, dtype="bf16"), "b")
        custom(f"SGD momentum {way} fp32", partial(_step, "SGD", {"momentum": 0.9, "lr": 0.01, **options}), "b")
    custom("RMSprop foreach fp32", partial(_step, "RMSprop", {"foreach": True}), "b")
    custom("Adagrad foreach fp32", partial(_step, "Adagrad", {"foreach": True}), "b")
    custom("clip_grad_norm_ fp32", _clip, "b")
    custom("zero_grad fp32", _zero_grad, "b")


def _parameters(device: str, dtype: str = "fp32") -> list[torch.nn.Parameter]:
    parameters = [torch.nn.Parameter(torch.randn(8192, 16384, device=device, dtype=DTYPES[dtype])) for _ in range(2)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return parameters


def _step(name: str, options: dict[str, Any], device: str, dtype: str = "fp32") -> Run:
    return getattr(torch.optim, name)(_parameters(device, dtype), **options).step  # type: ignore[no-any-return]


def _clip(device: str) -> Run:
    parameters = _parameters(device)
    return lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0)


def _zero_grad(device: str) -> Run:
    gradients = [parameter.grad for parameter in _parameters(device)]
    return lambda: torch._foreach_zero_(gradients)
