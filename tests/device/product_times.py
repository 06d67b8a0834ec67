"""What products, and the ops beside convolutions, take on a GPU: kernels alone, by shape, precision and layout.

    python tests/device/product_times.py OUT.csv.gz [--seconds 240] [--kinds conv2d gemm ...]

Shapes are drawn at random (seeded) from those that networks have. Each call runs once to warm up and three times under
PyTorch's profiler; a kernel that only waits stands before each call, so that kernels are told apart by their order. A
row has the median over the calls: ``us``, all kernels of the call. The files are what prof/changes/effect/data has.
"""

import argparse
import csv
import gzip
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

TIMES, CHUNK = 3, 27
MOST_BYTES, MOST_FLOP = 3e9, 0.6e12
FIELDS = ("kind", "shape", "precision", "form", "dir", "us")
aten = torch.ops.aten


class Call(NamedTuple):
    """One call to time, and the row it makes."""

    kind: str
    shape: str
    precision: str  # fp32, tf32, bf16
    form: str  # nchw, nhwc; nt, nn, tn of a matrix product
    direction: str  # fprop, dgrad, wgrad; bprop where one op makes all gradients
    run: Callable[[], Any]


Config = tuple[str, tuple[int, ...]]


def drawn(rng: random.Random, kinds: Sequence[str]) -> Iterator[Config]:
    """Shapes, one of each kind in turn."""
    while True:
        for kind in kinds:
            yield KINDS[kind](rng)


CHANNELS = (16, 24, 32, 40, 48, 64, 64, 80, 96, 112, 128, 128, 160, 192, 256, 256, 320, 384, 512, 512, 768, 1024, 2048)
SIDES = (7, 8, 14, 14, 16, 20, 28, 32, 32, 40, 56, 64, 80, 112, 128, 160, 224, 256)


def conv2d(rng: random.Random) -> Config:
    """(batch, channels, height, width, filters, kernel, stride, padding, dilation, groups)."""
    side, kernel = rng.choice(SIDES), rng.choice((1, 1, 3, 3, 3, 5, 7))
    inputs = rng.choice((1, 3, 3, 4)) if rng.random() < 0.08 else rng.choice(CHANNELS)
    filters = rng.choice((1, 3, 10, 19, 21, 81)) if rng.random() < 0.08 else rng.choice(CHANNELS)
    groups = rng.choice((2, 4, 8, 32)) if rng.random() < 0.07 and not inputs % 32 and not filters % 32 else 1
    stride, dilation = rng.choice((1, 1, 1, 2)), rng.choice((1, 1, 1, 1, 2, 4)) if kernel == 3 else 1
    if rng.random() < 0.06:
        kernel = stride = rng.choice((2, 4, 14, 16))
        side, padding = max(side, kernel) // kernel * kernel, 0
    else:
        padding = dilation * (kernel // 2)
    batch = rng.choice((1, 2, 4, 8, 16, 32, 64, 128, 256))
    return "conv2d", (batch, inputs, side, side, filters, kernel, stride, padding, dilation, groups)


def depthwise(rng: random.Random) -> Config:
    channels, side, kernel = rng.choice(CHANNELS[3:-1]), rng.choice(SIDES), rng.choice((3, 3, 5, 7))
    stride = rng.choice((1, 1, 2))
    batch = rng.choice((4, 8, 16, 32, 64, 128))
    return "depthwise", (batch, channels, side, side, channels, kernel, stride, kernel // 2, 1, channels)


def conv1d(rng: random.Random) -> Config:
    kernel, dilation = rng.choice((1, 2, 3, 3, 5, 9)), rng.choice((1, 1, 2, 4, 16))
    inputs = rng.choice((1, 80)) if rng.random() < 0.1 else rng.choice(CHANNELS[2:])
    length, batch = rng.choice((50, 128, 250, 512, 1000, 2048, 4000, 8192, 16000)), rng.choice((1, 4, 8, 16, 32, 64))
    padding = dilation * (kernel - 1) // 2
    stride = rng.choice((1, 1, 1, 2))
    return "conv1d", (batch, inputs, length, rng.choice(CHANNELS[2:]), kernel, stride, padding, dilation, 1)


def conv3d(rng: random.Random) -> Config:
    depth, side, kernel = rng.choice((4, 8, 16, 32)), rng.choice((7, 14, 16, 28, 32, 56, 64)), rng.choice((1, 3, 3))
    inputs = rng.choice((1, 3)) if rng.random() < 0.15 else rng.choice(CHANNELS[2:16])
    filters, stride, batch = rng.choice(CHANNELS[2:16]), rng.choice((1, 1, 2)), rng.choice((1, 2, 4, 8))
    return "conv3d", (batch, inputs, depth, side, side, filters, kernel, stride, kernel // 2, 1, 1)


def transposed(rng: random.Random) -> Config:
    kernel, stride, padding = rng.choice(((2, 2, 0), (4, 2, 1)))
    batch, inputs, filters = rng.choice((1, 4, 8, 16, 32)), rng.choice(CHANNELS[5:]), rng.choice(CHANNELS[2:])
    side = rng.choice((4, 8, 16, 32, 64))
    return "transposed2d", (batch, inputs, side, side, filters, kernel, stride, padding, 1, 1)


def size(rng: random.Random, low: float, high: float) -> int:
    """Mostly round numbers, at times any."""
    if rng.random() < 0.12:
        return int(2 ** rng.uniform(low, high))
    return int(2 ** rng.randint(int(low), int(high)) * rng.choice((1, 1, 1.25, 1.5)))


def gemm(rng: random.Random) -> Config:
    """(rows, results, inner) of a linear layer."""
    return "gemm", (size(rng, 4, 16), size(rng, 5, 15), size(rng, 5, 13))


def odd(rng: random.Random) -> Config:
    """(rows, results, inner) of a linear layer with an odd dimension, mostly a vocabulary."""
    rows = int(2 ** rng.randint(7, 13) * rng.choice((1, 1, 1.25, 1.5)))
    results, inner = int(2 ** rng.uniform(9, 17.2)), int(2 ** rng.randint(7, 11) * rng.choice((1, 1, 1.5)))
    if rng.random() < 0.2:  # any of the three may be odd
        results, inner = min(inner, results), min(results, 4096)
    return "gemm", (rows, results, inner)


def bmm(rng: random.Random) -> Config:
    """(batch, rows, results, inner)."""
    return "bmm", (size(rng, 3, 10), size(rng, 5, 11), size(rng, 5, 11), size(rng, 4, 8))


def attention(rng: random.Random) -> Config:
    """(batch, heads, queries, keys, head size, causal)."""
    length = rng.choice((49, 64, 128, 197, 256, 512, 577, 1024, 2048, 4096))
    heads, inner = rng.choice((1, 4, 8, 12, 16)), rng.choice((32, 48, 64, 64, 80, 96, 128))
    keys = length if rng.random() < 0.8 else rng.choice((77, 256, 1024))
    return "attention", (
        rng.choice((1, 4, 8, 16, 64)),
        heads,
        length,
        keys,
        inner,
        int(keys == length and rng.random() < 0.4),
    )


def norm(rng: random.Random) -> Config:
    """(batch, channels, height, width, groups); no groups: batch norm."""
    groups = rng.choice((0, 0, 0, 32, 8))
    channels = rng.choice([c for c in CHANNELS if not groups or not c % groups])
    return "norm", (rng.choice((2, 8, 16, 32, 64, 128)), channels, side := rng.choice(SIDES), side, groups)


def pool(rng: random.Random) -> Config:
    """(batch, channels, height, width, what): max pooling, mean pooling, bilinear and nearest upsampling."""
    side = rng.choice(SIDES)
    return "pool", (rng.choice((2, 8, 16, 32, 64)), rng.choice(CHANNELS[:-1]), side, side, rng.randint(0, 3))


KINDS = {
    each.__name__: each
    for each in (conv2d, gemm, depthwise, conv1d, conv3d, transposed, bmm, attention, norm, pool, odd)
}


def calls(config: Config) -> Iterator[Call]:
    kind, shape = config
    if kind.startswith(("conv", "depthwise", "transposed")):
        yield from of_convolution(kind, shape)
    elif kind in ("gemm", "bmm"):
        yield from of_product(kind, shape)
    elif kind == "attention":
        yield from of_attention(shape)
    else:
        yield from of_pixels(kind, shape)


def tensor(*shape: int, dtype: torch.dtype, form: str = "") -> torch.Tensor:
    made = torch.randn(*shape, device="cuda", dtype=dtype)
    if form == "nhwc":
        made = made.to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
    return made


PRECISIONS = (("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16))


def set_precision(precision: str) -> None:
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"


def of_convolution(kind: str, shape: tuple[int, ...]) -> Iterator[Call]:
    rank = 1 if kind == "conv1d" else 3 if kind == "conv3d" else 2
    batch, inputs, *sides = shape[: 2 + rank]
    filters, kernel, stride, padding, dilation, groups = shape[2 + rank :]
    back = kind == "transposed2d"
    weight_shape = (inputs, filters // groups) if back else (filters, inputs // groups)
    if back:
        outs = [(side - 1) * stride - 2 * padding + kernel for side in sides]
    else:
        outs = [(side + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1 for side in sides]
    pixels = 1
    for side in sides if back else outs:
        pixels *= side
    flop = 2.0 * batch * pixels * filters * (inputs // groups) * kernel**rank
    elements = batch * inputs * _product(sides) + batch * filters * _product(outs)
    if min(outs) < 1 or 4 * elements > MOST_BYTES or flop > MOST_FLOP:
        return
    options = ([stride] * rank, [padding] * rank, [dilation] * rank, back, [0] * rank, groups)
    for precision, dtype in PRECISIONS:
        for form in ("nchw", "nhwc") if rank > 1 else ("nchw",):
            x = tensor(batch, inputs, *sides, dtype=dtype, form=form)
            w = tensor(*weight_shape, *[kernel] * rank, dtype=dtype, form=form)
            g = tensor(batch, filters, *outs, dtype=dtype, form=form)
            names = (kind, " ".join(map(str, shape)), precision, form)
            yield Call(*names, "fprop", lambda x=x, w=w: aten.convolution(x, w, None, *options))
            for place, direction in enumerate(("dgrad", "wgrad")):
                mask = [place == 0, place == 1, False]
                yield Call(
                    *names,
                    direction,
                    lambda x=x, w=w, g=g, mask=mask: aten.convolution_backward(g, x, w, [0], *options, mask),
                )


def _product(sizes: list[int]) -> int:
    found = 1
    for each in sizes:
        found *= each
    return found


def of_product(kind: str, shape: tuple[int, ...]) -> Iterator[Call]:
    *batch, rows, results, inner = shape
    many = batch[0] if batch else 1
    if 2.0 * many * rows * results * inner > MOST_FLOP or 4 * many * (rows + results) * inner > MOST_BYTES:
        return
    if 4 * many * rows * results > MOST_BYTES:
        return
    multiply = torch.bmm if batch else torch.mm
    for precision, dtype in PRECISIONS:
        x, w, g = (tensor(*batch, *sizes, dtype=dtype) for sizes in ((rows, inner), (results, inner), (rows, results)))
        names = (kind, " ".join(map(str, shape)), precision)
        yield Call(*names, "nt", "fprop", lambda x=x, w=w: multiply(x, w.transpose(-1, -2)))
        yield Call(*names, "nn", "dgrad", lambda g=g, w=w: multiply(g, w))
        yield Call(*names, "tn", "wgrad", lambda g=g, x=x: multiply(g.transpose(-1, -2), x))


def of_attention(shape: tuple[int, ...]) -> Iterator[Call]:
    batch, heads, queries, keys, inner, causal = shape
    if 8.0 * batch * heads * queries * keys * inner > MOST_FLOP:
        return
    for precision, dtype in PRECISIONS[::2]:
        q = tensor(batch, heads, queries, inner, dtype=dtype).requires_grad_()
        k, v = (tensor(batch, heads, keys, inner, dtype=dtype).requires_grad_() for _ in range(2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal))
        g = torch.randn_like(y)
        names = ("attention", " ".join(map(str, shape)), precision, "")
        yield Call(
            *names,
            "fprop",
            lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, is_causal=bool(causal)),
        )
        yield Call(
            *names, "bprop", lambda y=y, q=q, k=k, v=v, g=g: torch.autograd.grad(y, (q, k, v), g, retain_graph=True)
        )


def of_pixels(kind: str, shape: tuple[int, ...]) -> Iterator[Call]:
    batch, channels, height, width, what = shape
    if 4 * batch * channels * height * width > MOST_BYTES / 4:
        return
    for precision, dtype in PRECISIONS[::2]:
        for form in ("nchw", "nhwc"):
            x = tensor(batch, channels, height, width, dtype=dtype, form=form).requires_grad_()
            function = _of_norm(channels, what) if kind == "norm" else POOLS[what]
            y = function(x)
            g = torch.randn_like(y)
            name = ("group_norm" if what else "batch_norm") if kind == "norm" else POOLS[what].__name__
            names = (name, " ".join(map(str, shape)), precision, form)
            yield Call(*names, "fprop", lambda f=function, x=x: f(x))
            yield Call(*names, "bprop", lambda y=y, x=x, g=g: torch.autograd.grad(y, x, g, retain_graph=True))


def _of_norm(channels: int, groups: int) -> Callable[[torch.Tensor], torch.Tensor]:
    scale, shift = (torch.ones(channels, device="cuda", requires_grad=True) for _ in range(2))
    mean, variance = torch.zeros(channels, device="cuda"), torch.ones(channels, device="cuda")
    if groups:
        return lambda x: F.group_norm(x, groups, scale.to(x.dtype), shift.to(x.dtype))
    return lambda x: F.batch_norm(x, mean, variance, scale, shift, training=True)


def max_pool(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 3, 2, 1)


def mean_pool(x: torch.Tensor) -> torch.Tensor:
    return F.adaptive_avg_pool2d(x, 1)


def bilinear(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)


def nearest(x: torch.Tensor) -> torch.Tensor:
    return F.interpolate(x, scale_factor=2.0, mode="nearest")


POOLS = (max_pool, mean_pool, bilinear, nearest)


def timed(group: list[Call]) -> list[dict[str, Any]]:
    """A row per call."""
    kept = []
    for call in group:
        set_precision(call.precision)
        try:
            call.run()
            kept.append(call)
        except RuntimeError as error:  # no kernel for it, or no memory
            sys.stdout.write(f"{call.kind} {call.shape} {call.precision} {call.form}: {str(error)[:90]}\n")
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for call in kept:
            set_precision(call.precision)
            for _ in range(TIMES):
                torch.cuda._sleep(500)
                call.run()
        torch.cuda.synchronize()
    events = [e for e in recorded.profiler.kineto_results.events() if e.device_type() == torch.autograd.DeviceType.CUDA]
    groups: list[list[float]] = []
    for event in sorted(events, key=lambda event: event.start_ns()):
        if "spin_kernel" in event.name():
            groups.append([])
        elif groups and event.name() != "Activity Buffer Request":
            groups[-1].append(event.duration_ns() / 1e3)
    if len(groups) != TIMES * len(kept):
        sys.stdout.write(f"{len(groups)} groups for {len(kept)} calls: left out\n")
        return []
    return [row(call, groups[TIMES * n : TIMES * (n + 1)]) for n, call in enumerate(kept)]


def row(call: Call, groups: list[list[float]]) -> dict[str, Any]:
    us = statistics.median(map(sum, groups))
    return dict(zip(FIELDS, (*call[:5], f"{us:.4g}"), strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["conv2d", "gemm", "conv2d", "gemm", *KINDS])
    options = parser.parse_args()
    end, rng = time.monotonic() + options.seconds, random.Random(options.seed)
    (torch.randn(2048, 2048, device="cuda") @ torch.randn(2048, 2048, device="cuda")).sum().item()
    count = configs = 0
    seconds: dict[str, float] = {}
    with gzip.open(options.out, "wt", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        shapes = drawn(rng, options.kinds)
        while time.monotonic() < end:
            group: list[Call] = []
            begun = time.monotonic()
            config = next(shapes)
            for call in calls(config):
                group.append(call)
                if len(group) == CHUNK:
                    break
            rows = timed(group) if group else []
            seconds[config[0]] = seconds.get(config[0], 0.0) + time.monotonic() - begun
            writer.writerows(rows)
            count, configs = count + len(rows), configs + bool(rows)
    sys.stdout.write(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}: {configs} shapes, {count} rows\n")
    sys.stdout.write(f"seconds by kind: { {kind: round(value, 1) for kind, value in seconds.items()} }\n")


if __name__ == "__main__":
    main()
