"""Convolutions: dimensions, strides, groups, layouts, dtypes, both directions."""

import torch
import torch.nn.functional as F
from case import R, both, forward

NHWC = torch.channels_last
DTYPES = ("fp32", "tf32", "fp16", "bf16")


def add() -> None:
    for dtype in DTYPES:
        for layout, memory in (("nchw", torch.contiguous_format), ("nhwc", NHWC)):
            _two(dtype, layout, memory)
        _stranger(dtype)
    both("conv2d 3x3 nchw", lambda x, w: F.conv2d(x, w, padding=1), R(8, 64, 28, 28), R(64, 64, 3, 3), dtypes=["fp64"])


def _two(dtype: str, layout: str, memory: torch.memory_format) -> None:
    def conv(name, x, w, check="", **options):  # type: ignore[no-untyped-def]
        both(f"conv2d {name} {layout}", lambda x, w: F.conv2d(x, w, **options), R(*x, memory=memory),
             R(*w, memory=memory), dtypes=[dtype], check=check)  # fmt: skip

    conv("1x1", (32, 256, 56, 56), (64, 256, 1, 1), check="f")
    conv("3x3", (32, 128, 28, 28), (128, 128, 3, 3), padding=1)
    conv("3x3 stride 2", (32, 128, 56, 56), (256, 128, 3, 3), padding=1, stride=2)
    conv("7x7 stem", (32, 3, 224, 224), (64, 3, 7, 7), padding=3, stride=2)
    conv("grouped", (32, 256, 28, 28), (256, 8, 3, 3), padding=1, groups=32)
    conv("depthwise", (32, 256, 56, 56), (256, 1, 3, 3), padding=1, groups=256)
    conv("odd channels", (16, 33, 28, 28), (47, 33, 3, 3), padding=1)


def _stranger(dtype: str) -> None:
    both(
        "conv1d", lambda x, w, b: F.conv1d(x, w, b, padding=1), R(32, 256, 1024), R(256, 256, 3), R(256), dtypes=[dtype]
    )
    both("conv3d", lambda x, w: F.conv3d(x, w, padding=1), R(4, 32, 16, 56, 56), R(64, 32, 3, 3, 3), dtypes=[dtype])
    both("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2), R(32, 128, 28, 28), R(128, 64, 2, 2),
         dtypes=[dtype])  # fmt: skip
    forward("conv2d dilated bias", lambda x, w, b: F.conv2d(x, w, b, padding=2, dilation=2), R(16, 64, 56, 56),
            R(64, 64, 3, 3), R(64), dtype=dtype)  # fmt: skip
