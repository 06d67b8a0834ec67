"""pyprof.count on a GPU, on a CPU and on meta tensors: the same program counts the same. Prints what differs.

    PYTHONPATH=. python tests/device/count_devices.py

Ends with exit status 1 if a program differs, or leaves an op unknown.
"""

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import pyprof

warnings.filterwarnings("ignore")
DEVICES = ("cpu", "meta", "cuda") if torch.cuda.is_available() else ("cpu", "meta")
ONE = (
    "sin rsqrt sigmoid erf gelu silu mish softplus elu hardswish logsigmoid selu relu6 sum mean var amax norm sort "
    "trace cumsum softmax log_softmax prod logsumexp tril lgamma sinc nan_to_num square median"
)
Make = Callable[[str], Callable[[], Any]]
PROGRAMS: dict[str, Make] = {}


def R(device: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.rand(*shape, device=device, dtype=dtype).add_(0.1).requires_grad_()


def function(name: str) -> Callable[..., Any]:
    return getattr(torch, name, None) or getattr(F, name)


def of_shapes(call: Callable[..., Any], *shapes: tuple[int, ...], **more: Any) -> Make:
    """A program of one call, of tensors of these shapes."""

    def make(device: str) -> Callable[[], Any]:
        inputs = [R(device, *shape) for shape in shapes]
        return lambda: call(*inputs, **more)

    return make


for _name in ONE.split():
    _dim = {"dim": -1} if _name in ("cumsum", "softmax", "log_softmax", "prod", "logsumexp", "median") else {}
    PROGRAMS[_name] = of_shapes(function(_name), (8, 8), **_dim)
for _name in ("mm", "add", "mul", "div", "sub", "pow", "maximum", "linear", "cdist", "dist", "mse_loss", "l1_loss"):
    PROGRAMS[_name] = of_shapes(function(_name), (8, 8), (8, 8))
for _name in ("mul", "div", "sub", "add", "matmul"):
    PROGRAMS[f"{_name}, broadcasting"] = of_shapes(function(_name), (4, 8, 8), (1, 8, 8))
PROGRAMS |= {
    "einsum": of_shapes(lambda a, b: torch.einsum("bij,bjk->bik", a, b), (2, 8, 4), (2, 4, 8)),
    "baddbmm": of_shapes(torch.baddbmm, (2, 8, 8), (2, 8, 4), (2, 4, 8)),
    "conv2d": of_shapes(F.conv2d, (2, 4, 8, 8), (8, 4, 3, 3), (8,), padding=1),
    "conv2d, groups": of_shapes(F.conv2d, (2, 4, 8, 8), (8, 2, 3, 3), (8,), groups=2, stride=2),
    "conv1d, same": of_shapes(F.conv1d, (2, 4, 9), (8, 4, 4), (8,), padding="same"),
    "conv_transpose2d": of_shapes(F.conv_transpose2d, (2, 4, 8, 8), (4, 8, 3, 3), (8,), stride=2, output_padding=1),
    "attention": of_shapes(F.scaled_dot_product_attention, *((2, 4, 16, 8),) * 3),
    "attention, causal": of_shapes(F.scaled_dot_product_attention, *((2, 4, 16, 8),) * 3, is_causal=True),
    "attention, heads shared": of_shapes(
        F.scaled_dot_product_attention, (2, 4, 16, 8), (2, 2, 16, 8), (2, 2, 16, 8), enable_gqa=True
    ),
    "max_pool2d": of_shapes(F.max_pool2d, (2, 4, 8, 8), kernel_size=2),
    "avg_pool2d": of_shapes(F.avg_pool2d, (2, 4, 8, 8), kernel_size=3, stride=2),
    "adaptive_avg_pool2d": of_shapes(F.adaptive_avg_pool2d, (2, 4, 8, 8), output_size=2),
    "interpolate": of_shapes(F.interpolate, (2, 4, 8, 8), scale_factor=2, mode="bilinear"),
    "pad": of_shapes(F.pad, (2, 4, 8), pad=(1, 2), mode="reflect"),
    "layer_norm": of_shapes(lambda x, w, b: F.layer_norm(x, (8,), w, b), (4, 8), (8,), (8,)),
    "rms_norm": of_shapes(lambda x, w: F.rms_norm(x, (8,), w), (4, 8), (8,)),
    "group_norm": of_shapes(lambda x, w, b: F.group_norm(x, 2, w, b), (2, 4, 8), (4,), (4,)),
    "residual": of_shapes(lambda x, w: (y := x.neg()) + F.linear(y, w), (4, 8), (8, 8)),
    "vmap": of_shapes(torch.func.vmap(F.linear), (3, 4, 8), (3, 8, 8)),
    "checkpoint": of_shapes(
        lambda x, w: checkpoint(lambda y: F.linear(y, w).tanh(), x, use_reentrant=False), (4, 8), (8, 8)
    ),
}


def of_module(make_module: Callable[[], nn.Module], *shape: int, first: bool = False) -> Make:
    def make(device: str) -> Callable[[], Any]:
        module, x = make_module().to(device), R(device, *shape)
        return lambda: module(x)[0] if first else module(x)

    return make


PROGRAMS |= {
    "BatchNorm2d": of_module(lambda: nn.BatchNorm2d(4), 2, 4, 8, 8),
    "BatchNorm2d, eval": of_module(lambda: nn.BatchNorm2d(4).eval(), 2, 4, 8, 8),
    "InstanceNorm2d": of_module(lambda: nn.InstanceNorm2d(4), 2, 4, 8, 8),
    "LSTM": of_module(lambda: nn.LSTM(8, 8, 2, bidirectional=True), 5, 2, 8, first=True),
    "GRU": of_module(lambda: nn.GRU(8, 8), 5, 2, 8, first=True),
    "RNN": of_module(lambda: nn.RNN(8, 8), 5, 2, 8, first=True),
    "LSTMCell": of_module(lambda: nn.LSTMCell(8, 8), 2, 8, first=True),
    "GRUCell": of_module(lambda: nn.GRUCell(8, 8), 2, 8),
    "encoder layer": of_module(lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2, 5, 8),
    "dropout": of_module(lambda: nn.Dropout(0.5), 8, 8),
    "PReLU": of_module(nn.PReLU, 8, 8),
    "weight norm": of_module(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), 4, 8),
}


def indexed(call: Callable[..., Any], *shape: int) -> Make:
    """A program of a table, or scores, and four numbers."""

    def make(device: str) -> Callable[[], Any]:
        numbers, table = torch.arange(4, device=device), R(device, *shape)
        return lambda: call(numbers, table)

    return make


PROGRAMS |= {
    "embedding": indexed(F.embedding, 9, 8),
    "embedding_bag": indexed(lambda i, w: F.embedding_bag(i[None], w, mode="sum"), 9, 8),
    "cross_entropy": indexed(lambda i, x: F.cross_entropy(x, i), 4, 8),
    "index_select": indexed(lambda i, x: x.index_select(0, i), 9, 8),
    "gather": indexed(lambda i, x: x.gather(0, i[:, None]), 9, 8),
    "index_add": indexed(lambda i, x: x.index_add(0, i, x[:4]), 9, 8),
}


def numbers(work: Any) -> tuple[float, ...]:
    parts = (work.forward, work.backward)
    return tuple(n for part in parts for n in (part.flop, part.nbytes))


def rows(work: Any) -> dict[tuple[str, ...], tuple[float, ...]]:
    return {tuple(row[:3]): tuple(row[3:]) for row in work.rows if row.flops or row.bytes}


def compare(name: str, make: Make) -> bool:
    """Print the rows that differ from the CPU's."""
    works = {device: pyprof.count(make(device), backward=True) for device in DEVICES}
    same = True
    for device, work in works.items():
        if work.unknown:
            print(f"{name}: {device}: unknown {work.reasons}")
        if numbers(work) != numbers(works["cpu"]):
            print(f"{name}: {device}: {numbers(work)}, cpu: {numbers(works['cpu'])}")
            ours, theirs = rows(works["cpu"]), rows(work)
            for key in sorted(ours.keys() | theirs.keys()):
                if ours.get(key) != theirs.get(key):
                    print("   ", *key, ours.get(key), theirs.get(key))
        same = same and not work.unknown and numbers(work) == numbers(works["cpu"])
    return same


def flex_is_exact() -> bool:
    """Blocks of 128 on and below the diagonal of 256 by 256: 3 of 4, in 8 heads, forward 2*(64+64) and backward
    2*5*64 a pair."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def causal(_b: Any, _h: Any, q: Any, k: Any) -> Any:
        return q >= k

    mask = create_block_mask(causal, None, None, 256, 256, device="cuda", BLOCK_SIZE=128)
    inputs = [R("cuda", 2, 4, 256, 64, dtype=torch.bfloat16) for _ in range(3)]
    found = []
    for attention in (flex_attention, torch.compile(flex_attention, fullgraph=True)):
        work = pyprof.count(attention, *inputs, block_mask=mask, backward=True)
        op = work.ops["flex_attention"]
        pairs = 8 * 3 * 128 * 128
        found.append((op.forward.flop, op.backward.flop) == (pairs * 256, pairs * 640))
        print("flex_attention:", op.forward, op.backward, work.unknown)
    return all(found)


def main() -> int:
    differ = [name for name, make in PROGRAMS.items() if not compare(name, make)]
    print(f"{len(PROGRAMS)} programs on {', '.join(DEVICES)}, {len(differ)} differ: {differ}")
    if "cuda" in DEVICES and not flex_is_exact():
        differ.append("flex_attention")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
