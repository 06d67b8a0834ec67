"""The cases of ``backward_outputs.py``: what is run, under the names of its table of FLOPs."""

import torch
import torch.nn.functional as F
from backward_outputs import FLOP, ROWS, WIDE
from case import CASES, I, N, R, Run, backward, custom
from torch.nn.attention import SDPBackend, sdpa_kernel

IMAGES = (256, 256, 64, 64)
NHWC = torch.channels_last


def add_cases() -> None:
    before = len(CASES)
    for part in (_convolutions, _products, _norms, _others, _sequence):
        part()
    names = [case.name.partition(" backward")[0] for case in CASES[before:]]
    assert names == list(FLOP), sorted(set(names) ^ set(FLOP))


def _convolutions() -> None:
    for name, shape in (("28x28", (32, 256, 28, 28)), ("112x112", (64, 256, 112, 112))):
        backward(f"depthwise {name}", lambda x, w: F.conv2d(x, w, padding=1, groups=256), R(*shape), R(256, 1, 3, 3),
                 dtype="bf16")  # fmt: skip
    x, w = (64, 64, 112, 112), (64, 64, 3, 3)
    backward("conv2d bias", lambda x, w, b: F.conv2d(x, w, b, padding=1), R(*x), R(*w), R(64), dtype="bf16")
    backward("conv2d weight only", lambda x, w: F.conv2d(x, w, padding=1), N(*x), R(*w), dtype="bf16")
    backward("conv2d input only", lambda x, w: F.conv2d(x, w, padding=1), R(*x), N(*w), dtype="bf16")
    backward("conv2d grouped", lambda x, w: F.conv2d(x, w, padding=1, groups=32), R(64, 256, 56, 56), R(256, 8, 3, 3),
             dtype="bf16")  # fmt: skip
    backward("conv2d 1x1 stride 2", lambda x, w: F.conv2d(x, w, stride=2), R(64, 256, 112, 112, memory=NHWC),
             R(512, 256, 1, 1, memory=NHWC), dtype="bf16")  # fmt: skip
    backward("conv1d bias", lambda x, w, b: F.conv1d(x, w, b, padding=1), R(64, 256, 8192), R(256, 256, 3), R(256),
             dtype="bf16")  # fmt: skip
    backward("conv3d", lambda x, w: F.conv3d(x, w, padding=1), R(4, 32, 32, 112, 112), R(32, 32, 3, 3, 3), dtype="bf16")
    backward("conv_transpose2d bias", lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2), R(64, 128, 112, 112),
             R(128, 32, 2, 2), R(32), dtype="bf16")  # fmt: skip


def _products() -> None:
    backward("linear bias", F.linear, R(ROWS, 2048), R(1024, 2048), R(1024), dtype="bf16")
    backward("linear weight only", F.linear, N(ROWS, 2048), R(1024, 2048), dtype="bf16")
    backward("addmm bias", torch.addmm, R(1024), R(131_072, 512), R(512, 1024), dtype="bf16")
    backward("baddbmm", torch.baddbmm, R(64, 2048, 1024), R(64, 2048, 512), R(64, 512, 1024), dtype="bf16")


def _norms() -> None:
    def layer(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (WIDE,), w, b)

    backward("layer_norm", layer, R(ROWS, WIDE), R(WIDE), R(WIDE), dtype="bf16")
    backward("layer_norm input only", layer, R(ROWS, WIDE), N(WIDE), N(WIDE), dtype="bf16")
    wide = torch.float32
    backward("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), R(*IMAGES),
             R(256, dtype=wide), R(256, dtype=wide), dtype="bf16")  # fmt: skip
    backward("group_norm", lambda x, w, b: F.group_norm(x, 32, w, b), R(*IMAGES), R(256), R(256), dtype="bf16")
    backward("rms_norm", lambda x, w: F.rms_norm(x, (WIDE,), w), R(ROWS, WIDE), R(WIDE), dtype="bf16")
    backward("weight_norm", lambda v, g: torch._weight_norm(v, g, 0), R(32_768, 4096), R(32_768, 1))


def _attention(backend: SDPBackend) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v)

    name = "flash" if backend is SDPBackend.FLASH_ATTENTION else "cudnn"
    backward(f"attention {name}", attend, *[R(16, 16, 2048, 128)] * 3, dtype="bf16")


def _others() -> None:
    _attention(SDPBackend.FLASH_ATTENTION)
    _attention(SDPBackend.CUDNN_ATTENTION)
    backward("embedding", F.embedding, I(1_000_000, 524_288), R(1_000_000, 128))
    backward("embedding_bag", lambda i, w: F.embedding_bag(i, w, mode="sum"), I(1_000_000, 262_144, 4),
             R(1_000_000, 128))  # fmt: skip
    backward("prelu", F.prelu, R(*IMAGES), R(256), dtype="bf16")
    backward("cross_entropy", F.cross_entropy, R(16_384, 50_304), I(50_304, 16_384), dtype="bf16")
    backward("glu", F.glu, R(ROWS, 2 * WIDE), dtype="bf16")
    backward("mul by a row", torch.mul, R(ROWS, WIDE), R(WIDE), dtype="bf16")
    backward("index_select", lambda x, i: x.index_select(0, i), R(131_072, 2048), I(131_072, 131_072), dtype="bf16")
    backward("index", lambda x, i: x[i], R(131_072, 2048), I(131_072, 131_072), dtype="bf16")
    backward("gather", lambda x, i: x.gather(1, i), R(16_384, 4096), I(4096, 16_384, 4096))
    backward("scatter_add", lambda x, i, s: x.scatter_add(1, i, s), R(16_384, 4096), I(4096, 16_384, 4096),
             R(16_384, 4096))  # fmt: skip
    backward("max_pool2d", lambda x: F.max_pool2d(x, 2), R(*IMAGES), dtype="bf16")
    backward("bilinear", F.bilinear, R(ROWS, 64), R(ROWS, 64), R(8, 64, 64))


def _sequence() -> None:
    custom("LSTM backward bf16", _lstm)


def _lstm(device: str) -> Run:
    layer = torch.nn.LSTM(512, 512).to(device, torch.bfloat16)
    x = torch.randn(32, 4096, 512, device=device, dtype=torch.bfloat16, requires_grad=True)
    out = layer(x)[0]
    seed = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, [x, *layer.parameters()], seed, retain_graph=True)
