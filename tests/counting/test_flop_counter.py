"""Against torch.utils.flop_counter: the same where it is right, and a table of where and by how much it is not."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

import pyprof  # noqa: E402


def R(*shape: int, **more: Any) -> Any:
    return torch.randn(*shape, requires_grad=True, **more)


def theirs(function: Callable[..., Any], *args: Any, backward: bool) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with FlopCounterMode(display=False) as counter:
            out = function(*args)
            if backward:
                (out[0] if isinstance(out, tuple) else out).sum().backward()
    return int(counter.get_total_flops())


SAME: list[tuple[str, Callable[..., Any], Any]] = [
    ("mm", torch.mm, lambda: (R(4, 5), R(5, 6))),
    ("addmm", torch.addmm, lambda: (R(4, 6), R(4, 5), R(5, 6))),
    ("bmm", torch.bmm, lambda: (R(3, 4, 5), R(3, 5, 6))),
    ("baddbmm", torch.baddbmm, lambda: (R(3, 4, 6), R(3, 4, 5), R(3, 5, 6))),
    ("linear", F.linear, lambda: (R(2, 3, 5), R(6, 5))),
    ("matmul", torch.matmul, lambda: (R(2, 1, 4, 5), R(3, 5, 6))),
    ("einsum", torch.einsum, lambda: ("bij,bjk->bik", R(3, 4, 5), R(3, 5, 6))),
    ("conv1d", F.conv1d, lambda: (R(2, 3, 10), R(5, 3, 4), None, 3)),
    ("conv2d", F.conv2d, lambda: (R(2, 4, 8, 8), R(6, 4, 3, 3), None, 2, 1, 2)),
    ("conv3d", F.conv3d, lambda: (R(2, 2, 5, 6, 7), R(3, 2, 3, 2, 1))),
    ("conv_transpose2d", F.conv_transpose2d, lambda: (R(2, 4, 8, 8), R(4, 3, 2, 2), None, 2)),
]

# PyTorch 2.13 does not count attention on a CPU; 2.15 counts all pairs, masked ones, too: 3072 forward, 7680 backward.
ATTENTION_ON_CPU = (0, 10752)

DIFFERENT: list[
    tuple[str, Callable[..., Any], Any, int, int | tuple[int, ...]]
] = [  # ours, theirs; forward and backward
    # a bias' gradient is a sum that has no product: 2 rows - 1 of 6 sums
    ("linear with a bias", F.linear, lambda: (R(2, 5), R(6, 5), R(6)), 3 * 120 + 6, 3 * 120),
    # weight gradient of 2 groups counted twice: 2*2*6*36*18 = 15552 each; (1 + 1 + 2) of them
    (
        "grouped convolution",
        lambda x, w: F.conv2d(x, w, None, 1, 0, 1, 2),
        lambda: (R(2, 4, 8, 8), R(6, 2, 3, 3)),
        3 * 15552,
        4 * 15552,
    ),
    # matrix and vector: 2*4*5 for each of three; it has no formula for mv, and counts K = 1 products as none
    ("mv", torch.mv, lambda: (R(4, 5), R(5)), 120, 0),
    ("dot", torch.dot, lambda: (R(7), R(7)), 14 + 14, 0),
    ("outer", torch.outer, lambda: (R(4), R(6)), 24 + 96, 0),
    ("addbmm", torch.addbmm, lambda: (R(4, 6), R(3, 4, 5), R(3, 5, 6)), 3 * 720, 1440),  # forward missing
    (
        "complex",
        torch.mm,
        lambda: (R(4, 5, dtype=torch.complex64), R(5, 6, dtype=torch.complex64)),
        3 * 960,
        3 * 240,
    ),  # 8 a multiply-add, not 2
    # 6 heads of 16 pairs: 2*96*16 and 2*96*40; on a CPU it knows no attention
    ("attention", F.scaled_dot_product_attention, lambda: (R(2, 3, 4, 8),) * 3, 3072 + 7680, ATTENTION_ON_CPU),
    # 10 of 16 pairs
    (
        "causal attention",
        lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
        lambda: (R(2, 3, 4, 8),),
        1920 + 4800,
        ATTENTION_ON_CPU,
    ),
]


@pytest.mark.parametrize(("function", "make"), [row[1:] for row in SAME], ids=[row[0] for row in SAME])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "both"])
def test_agree(function: Callable[..., Any], make: Any, backward: bool) -> None:
    ours = pyprof.count(function, *make(), backward=backward).flops
    assert ours == theirs(function, *make(), backward=backward)


@pytest.mark.parametrize(
    ("function", "make", "ours", "other"), [row[1:] for row in DIFFERENT], ids=[row[0] for row in DIFFERENT]
)
def test_known_differences(function: Callable[..., Any], make: Any, ours: int, other: int | tuple[int, ...]) -> None:
    def real(*args: Any) -> Any:
        out = function(*args)
        return out.real if out.is_complex() else out

    counts = pyprof.count(function, *make(), backward=True)
    assert counts.forward.flop + counts.backward.flop == ours
    assert theirs(real, *make(), backward=True) in (other if isinstance(other, tuple) else (other,))


def test_int_mm() -> None:
    args = torch.ones(32, 8, dtype=torch.int8), torch.ones(8, 16, dtype=torch.int8)
    assert pyprof.count(torch._int_mm, *args).flops == 8192  # 2*32*16*8
    assert theirs(torch._int_mm, *args, backward=False) == 0


def test_lstm() -> None:
    x = torch.randn(5, 4, 3)
    assert pyprof.count(nn.LSTM(3, 2), x).ops["lstm"].forward.flop == 1600  # 2*20*(24 + 16)
    assert theirs(nn.LSTM(3, 2), x, backward=False) == 0


def test_causal_masks_are_ignored_by_its_formulas() -> None:
    q = torch.empty(2, 3, 4, 8, device="meta", dtype=torch.bfloat16)
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    assert pyprof.count(flash, q, q, q, 0.0, True).flops == 1920
    assert theirs(flash, q, q, q, 0.0, True, backward=False) == 3072
