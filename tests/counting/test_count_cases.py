"""Calls through ``pyprof.count`` as people write them, each beside its FLOPs and bytes worked out by hand.

What ops.csv leaves open: functions, methods, operators and modules, keywords and defaults, other ranks and types,
broadcast, expanded and empty tensors, ``out=``, gradients for some inputs only. A case is the call, its
inputs (in float32 unless a case says another type), and (flop, bytes) forward, or forward and backward.
"""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

import pyprof  # noqa: E402

BF, HALF, DOUBLE, COMPLEX = torch.bfloat16, torch.float16, torch.float64, torch.complex64


def N(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, dtype=dtype)


def R(*shape: int, dtype: Any = torch.float32) -> Any:
    return N(*shape, dtype=dtype).requires_grad_()


def I(high: int, *shape: int) -> Any:  # noqa: E743  (indices)
    return torch.randint(high, shape)


B = torch.ones(6, 32).bool()
SDPA = F.scaled_dot_product_attention
Case = tuple[Any, tuple[Any, ...], tuple[float, ...]]

# x[5,33] W[65,33]: a product is 2*5*33*65 = 21450 flop on 165 + 2145 + 325 = 2635 elements
PRODUCTS: list[Case] = [
    (F.linear, (N(5, 33), R(65, 33), R(65)), (21450, 2700 * 4, 21450 + 4 * 65, (2635 + 325 + 65) * 4)),
    (F.linear, (R(5, 33), N(65, 33), N(65)), (21450, 2700 * 4, 21450, 2635 * 4)),
    (F.linear, (N(5, 33), N(65, 33), R(65)), (21450, 2700 * 4, 4 * 65, (325 + 65) * 4)),  # 5 rows: 4 sums
    (F.linear, (R(33, 5).t(), R(65, 33)), (21450, 2635 * 4, 2 * 21450, 2 * 2635 * 4)),  # strides do not matter
    (F.linear, (N(1, 33).expand(5, 33), N(65, 33)), (21450, (33 + 2145 + 325) * 4)),  # a row stored once
    (F.linear, (N(0, 33), N(65, 33)), (0, 2145 * 4)),
    (nn.Linear(33, 65), (N(5, 33),), (21450, 2700 * 4, 21450 + 260, (2635 + 390) * 4)),
    (
        lambda x, w: F.linear(input=x, weight=w),
        (R(5, 33, dtype=BF), R(65, 33, dtype=BF)),
        (21450, 2635 * 2, 2 * 21450, 2 * 2635 * 2),
    ),
    # A[5,7] B[7,2]: 140 flop, 35 + 14 + 10 elements
    (lambda a, b: a @ b, (R(5, 7), R(7, 2)), (140, 59 * 4, 280, 118 * 4)),
    (lambda a, b: a.mm(b), (R(5, 7, dtype=HALF), R(7, 2, dtype=HALF)), (140, 59 * 2, 280, 118 * 2)),
    (lambda a, b: torch.mm(a, b, out=torch.empty(5, 2)), (N(5, 7), N(7, 2)), (140, 59 * 4)),
    (lambda a: a @ a, (N(8, 8),), (1024, 128 * 4)),  # one tensor, read once
    (torch.mm, (N(5, 0), N(0, 7)), (0, 35 * 4)),
    (torch.mm, (R(5, 7, dtype=COMPLEX), R(7, 2, dtype=COMPLEX)), (560, 59 * 8, 1120, 118 * 8)),
    (torch.dot, (R(10), R(10)), (20, 21 * 4, 20, 42 * 4)),  # backward one product an element
    (torch.ger, (R(5), R(7)), (35, 47 * 4, 140, 94 * 4)),  # forward K = 1, no sums; backward two products with a vector
    (torch.mv, (R(5, 7), R(7)), (70, 47 * 4, 140, 94 * 4)),
    (torch.inner, (N(3, 10), N(4, 10)), (240, (30 + 40 + 12) * 4)),
    (torch.kron, (N(3, 4), N(5, 6)), (360, (12 + 30 + 360) * 4)),
    (lambda a, b: torch.tensordot(a, b, 2), (R(3, 4, 5), R(4, 5, 6)), (720, 198 * 4, 1440, 396 * 4)),  # K = 20
    (lambda *m: torch.linalg.multi_dot(m), (N(10, 3), N(3, 8), N(8, 2)), (96 + 120, (24 + 16 + 6 + 30 + 6 + 20) * 4)),
    (lambda s, a, b: torch.baddbmm(s, a, b, beta=0), (N(3, 5, 2), N(3, 5, 7), N(3, 7, 2)), (420, 177 * 4)),  # s unread
    (
        torch.baddbmm,
        (R(5, 1), R(3, 5, 7), R(3, 7, 2)),
        (420, 182 * 4, 840 + 25, (2 * 177 + 30 + 5) * 4),
    ),  # the sum of 30 gradients to 5
    (torch.matmul, (R(2, 1, 3, 5, 7), R(4, 1, 7, 2)), (3360, (210 + 56 + 240) * 4, 6720, 2 * 506 * 4)),
    (torch.matmul, (R(3, 5, 7), R(7)), (210, 127 * 4, 420, 254 * 4)),
    (
        lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b),
        (R(2, 5, 3, 7), R(2, 4, 3, 7)),
        (1680, (210 + 168 + 120) * 4, 3360, 2 * 498 * 4),
    ),
    (lambda a: torch.einsum("ij->i", a), (N(5, 7),), (30, 40 * 4)),
    (lambda a: torch.einsum("ij->ji", a), (N(5, 7),), (0, 0)),
]

# a window of so many products: 2 * outputs * Cin/groups * kernel
CONVOLUTIONS: list[Case] = [
    # [2,6,50], 16 positions of 3 taps 2 apart, 3 steps: 2*2*8*16*6*3; 600 + 144 + 256 elements; biases 8
    (
        lambda x, w, b: F.conv1d(x, w, b, stride=3, padding=1, dilation=2),
        (R(2, 6, 50), R(8, 6, 3), R(8)),
        (9216, 1008 * 4, 2 * 9216 + 248, (2000 + 256 + 8) * 4),
    ),
    # an even kernel pads one side more, in a kernel of its own, which is no part of the algorithm
    (lambda x, w: F.conv1d(x, w, padding="same"), (R(2, 6, 50), R(8, 6, 4)), (38400, 1592 * 4, 76800, 3184 * 4)),
    (F.conv1d, (R(6, 50), R(8, 6, 4)), (18048, (300 + 192 + 376) * 4, 36096, 2 * 868 * 4)),  # no batch
    (
        F.conv2d,
        (N(2, 4, 9, 9), R(8, 4, 3, 3), R(8)),
        (2 * 784 * 36, (648 + 288 + 8 + 784) * 4, 2 * 784 * 36 + 776, (1720 + 784 + 8) * 4),
    ),
    (F.conv2d, (N(2, 4, 9, 9, dtype=COMPLEX), N(8, 4, 3, 3, dtype=COMPLEX)), (8 * 784 * 36, 1720 * 8)),
    (
        nn.Conv2d(4, 8, 3, padding="same", groups=2, bias=False),
        (R(2, 4, 6, 5),),
        (2 * 480 * 18, (240 + 144 + 480) * 4, 4 * 480 * 18, 2 * 864 * 4),
    ),
    # transposed: 2 * inputs * Cout/groups * kernel; (10 - 1)*3 - 4 + 8 + 1 + 1 = 33 positions
    (
        lambda x, w: F.conv_transpose1d(x, w, stride=3, padding=2, output_padding=1, dilation=2),
        (R(2, 6, 10), R(6, 8, 5)),
        (9600, (120 + 240 + 528) * 4, 19200, 2 * 888 * 4),
    ),
    (F.conv_transpose2d, (R(6, 5, 5), N(6, 4, 3, 3)), (10800, (150 + 216 + 196) * 4, 10800, 562 * 4)),
]

# [2,4,10,16] is 1280 elements; 8 heads of 10*10 pairs, causal 55; a pair is 2*(16 + 16), backward 2*5*16
ATTENTION: list[Case] = [
    (SDPA, (R(2, 4, 10, 16),) * 3, (51200, (2 * 1280 + 80) * 4)),  # one tensor, O, logarithms
    (
        lambda q, k, v: SDPA(query=q, key=k, value=v, is_causal=True, scale=0.1),
        (R(2, 4, 10, 16), *[R(2, 4, 6, 16)] * 2),
        (8 * 45 * 64, (2 * 1280 + 768 + 80) * 4),
    ),  # 21 + 4*6 pairs
    (
        lambda q, k, v: SDPA(q, k, v, enable_gqa=True),
        (R(2, 8, 10, 16), R(2, 2, 10, 16), R(2, 2, 10, 16)),
        (102400, (2 * 2560 + 2 * 640 + 160) * 4, 256000, (4 * 2560 + 4 * 640 + 160) * 4),
    ),
    (
        SDPA,
        (R(2, 4, 10, 16), R(2, 4, 12, 16), R(2, 4, 12, 16), N(2, 1, 1, 12).expand(2, 4, 10, 12)),
        (61440, (2 * 1280 + 2 * 1536 + 24 + 80) * 4, 153600, (4 * 1280 + 4 * 1536 + 24 + 80) * 4),
    ),  # 24 numbers stored
    (SDPA, (R(8, 10, 16), R(8, 12, 16), R(8, 12, 16)), (61440, (5632 + 80) * 4, 153600, (11264 + 80) * 4)),
    (SDPA, (N(0, 4, 1, 16), N(0, 4, 33, 16), N(0, 4, 33, 16)), (0, 0)),
    # nothing but keys and values of E = 6 and 8: 2*20*16*16 + 2*24*16*(6 + 8) + 4*2*10*12*16 + 2*20*16*16
    (
        lambda q, k, v: nn.MultiheadAttention(16, 4, kdim=6, vdim=8)(q, k, v, need_weights=False)[0],
        (N(10, 2, 16), N(12, 2, 6), N(12, 2, 8)),
        (10240 + 10752 + 15360 + 10240,),
    ),
]

# E = 6*32 = 192 elements, 768 bytes
ELEMENTS: list[Case] = [
    (lambda x: x.relu_(), (N(6, 32),), (0, 2 * 768)),
    (lambda a, b: a.add_(b, alpha=2), (N(6, 32), N(6, 32)), (384, 3 * 768)),
    (lambda a, b: torch.add(a, b, out=torch.empty(6, 32)), (N(6, 32), N(6, 32)), (192, 3 * 768)),
    (torch.mul, (R(6, 32), R(6, 1)), (192, 2 * 768 + 24, 384 + 186, 4 * 768 + 48)),
    (torch.div, (R(6, 32), R(32)), (192, 2 * 768 + 128, 768 + 160, 4 * 768 + 128 + 256)),
    (torch.add, (R(6, 1), R(32)), (192, 768 + 152, 186 + 160, 2 * 768 + 152)),
    (torch.add, (N(1, 32).expand(6, 32), N(6, 32)), (192, 128 + 2 * 768)),
    (torch.add, (I(9, 6, 32), N(6, 32)), (192, 8 * 192 + 2 * 768)),
    (torch.add, (I(9, 6, 32), I(9, 6, 32)), (0, 24 * 192)),
    (torch.mul, (N(6, 32, dtype=COMPLEX), N(6, 32, dtype=COMPLEX)), (6 * 192, 6 * 768)),
    (lambda x: 1 - x, (N(6, 32),), (192, 2 * 768)),
    (lambda x: x**3, (R(6, 32),), (384, 2 * 768, 576, 3 * 768)),
    (lambda x: x < 0, (N(6, 32),), (0, 768 + 192)),
    (lambda x: torch.where(B, x, 0.0), (R(6, 32),), (0, 192 + 2 * 768, 0, 192 + 2 * 768)),
    (lambda x: F.glu(x, 1), (R(6, 8, 4, dtype=BF),), (384, 2 * 288, 768, 2 * 480)),
    (lambda x: F.softplus(x, beta=2), (R(6, 32),), (768, 2 * 768, 960, 3 * 768)),
    (torch.polar, (N(6), N(6)), (24, 96)),
    (torch.arcsin, (torch.rand(6, 32).requires_grad_(),), (192, 2 * 768, 768, 3 * 768)),  # as asin
    (torch.mul, (R(0, 5), R(0, 5)), (0, 0, 0, 0)),
    (lambda x: x.half(), (R(6, 32),), (0, 6 * 192, 0, 6 * 192)),
    (lambda x: x.to(torch.float32), (R(6, 32),), (0, 0)),
    (lambda x: x.expand(6, 32), (R(1, 32),), (0, 0, 160, 768 + 128)),
    (lambda x: x[:, 2:5], (R(6, 32),), (0, 0, 0, 72 + 768)),
    (lambda x: x.t().reshape(-1), (N(6, 32),), (0, 2 * 768)),
    (lambda x: x.repeat(3, 1), (R(6, 32),), (0, 4 * 768, 384, 4 * 768)),
    (lambda a, b: torch.cat([a, b], dim=1), (R(6, 32), R(6, 32)), (0, 4 * 768, 0, 0)),
]

REDUCED: list[Case] = [
    (lambda x: x.sum(1), (R(6, 32, dtype=BF),), (186, 2 * 198, 0, 0)),
    (lambda x: torch.sum(x, 0, dtype=torch.float32), (N(6, 32, dtype=BF),), (160, 2 * 192 + 128)),
    (lambda x: x.mean((0, 2)), (R(6, 4, 8),), (192, 4 * 196, 192, 4 * 196)),
    (torch.linalg.norm, (R(6, 32),), (384, 772, 193, 2 * 768 + 8)),
    (lambda x: x.cumsum(0), (R(6, 32, dtype=BF),), (160, 768, 160, 768)),
    (lambda x: x.topk(5)[0], (N(6, 32),), (0, 768 + 30 * 12)),
    (torch.trace, (N(6, 6),), (5, 7 * 4)),
    (lambda x: torch.logsumexp(x, (1, 2)), (R(2, 3, 32),), (3 * 192 + 2, 4 * 194, 576, 4 * 388)),
    # log_softmax 4*192; 6 gathered: 5 sums, a division; back 4*192 - 6, and 6 divisions
    (F.cross_entropy, (R(6, 32), I(32, 6)), (774, 2 * 768 + 24 + 48 + 8, 768, 768 + 56 + 3 * 768)),
    (lambda x, t: F.kl_div(x, t, reduction="batchmean"), (R(6, 32), torch.rand(6, 32)), (768, 2 * 768 + 4)),
    (lambda x, t: F.mse_loss(x, t, reduction="none"), (R(6, 32), N(6, 32)), (384, 3 * 768, 576, 4 * 768)),
    (lambda x: F.softmax(x, 0), (R(6, 32),), (768 - 32, 2 * 768, 768 - 32, 3 * 768)),
    # 30 rows of 32: 7*960 + 60, the statistics of 30 rows; parameters alone: 3*960 - 64
    (
        lambda x, w, b: F.layer_norm(x, (32,), w, b),
        (N(6, 5, 32), R(32), R(32)),
        (6780, 4 * (1920 + 64 + 60), 2816, 4 * (1920 + 60 + 64)),
    ),
    (nn.MaxPool2d(3, 2, ceil_mode=True), (R(2, 3, 8, 8),), (0, 4 * 384 + 12 * 96, 96, 12 * 96 + 4 * 384)),
    (lambda x: F.max_pool2d(x, 2), (N(2, 3, 8, 8),), (0, 4 * 384 + 12 * 96)),
    # windows of 3*3 at every second of 9*9: 96 divisions, 864 shares less 486 first ones
    (lambda x: F.avg_pool2d(x, 3, 2), (R(2, 3, 9, 9),), (864, 4 * 582, 96 + 378, 4 * 582)),
    (lambda x: F.interpolate(x, size=(16, 24)), (R(2, 3, 8, 8),), (0, 4 * 2688, 1920, 4 * 2688)),
    (lambda x: F.pad(x, (-1, 2)), (R(2, 3, 8),), (0, 4 * 96, 0, 4 * 90)),  # 42 kept of 48, 54 written
]

# 24 indices of 50 rows of 8
ROWS: list[Case] = [
    (F.embedding, (I(50, 4, 6), R(50, 8)), (0, 192 + 2 * 768, 192, 768 + 192 + 1600)),
    (F.embedding, (I(50, 4, 6).int(), R(50, 8)), (0, 96 + 2 * 768, 192, 768 + 96 + 1600)),
    (
        lambda i, w: F.embedding_bag(i, w, mode="sum"),
        (I(50, 4, 6), R(50, 8)),
        (160, 192 + 768 + 128, 192, 128 + 192 + 1600),
    ),
    (lambda x, i: x[i], (R(10, 20), I(10, 5)), (0, 40 + 800, 100, 400 + 40 + 800)),
    (lambda x, i: torch.gather(x, 1, i), (R(10, 20), I(20, 10, 5)), (0, 50 * 16, 50, 50 * 12 + 800)),
    (lambda x, i, y: torch.scatter_reduce(x, 1, i, y, "sum"), (N(10, 20), I(20, 10, 5), N(10, 5)), (50, 1600 + 600)),
    (lambda x, i, y: torch.index_add(x, 0, i, y), (R(10, 20), I(10, 5), R(5, 20)), (100, 1600 + 440, 0, 40 + 800)),
]


def recurrent(kind: type, *arguments: int, **options: Any) -> Any:
    cell = kind(*arguments, **options)
    return lambda x: cell(x)[0]


# T = 6 steps of 3 samples, I = 5, H = 7: gates * (5 + 7) * 7 products each; states given as zeros are read
RECURRENT: list[Case] = [
    (recurrent(nn.RNN, 5, 7, 2), (R(6, 3, 5),), (2 * 18 * 7 * 12 + 2 * 18 * 7 * 14,)),
    # a projection to 3: 4 gates * (5 + 3) * 7 and 7*3; the second layer, of both directions, (6 + 3)
    (
        recurrent(nn.LSTM, 5, 7, 2, proj_size=3, bidirectional=True),
        (R(6, 3, 5),),
        (2 * (36 * 28 * 8 + 36 * 21) + 2 * (36 * 28 * 9 + 36 * 21),),
    ),
    (recurrent(nn.GRU, 5, 7, bias=False), (R(6, 3, 5),), (36 * 21 * 12,)),
    (
        recurrent(nn.LSTM, 5, 7),
        (nn.utils.rnn.pack_padded_sequence(N(6, 3, 5), torch.tensor([6, 4, 1])),),
        (2 * 11 * 28 * 12,),
    ),  # 11 steps in all
    (nn.GRUCell(5, 7), (R(3, 5), R(3, 7)), (6 * 21 * 12, 4 * (15 + 21 + 21 * 12 + 42 + 21), 12 * 21 * 12)),
]

ALL = [*PRODUCTS, *CONVOLUTIONS, *ATTENTION, *ELEMENTS, *REDUCED, *ROWS, *RECURRENT]


@pytest.mark.filterwarnings("ignore")  # torch's, about padding one side more
@pytest.mark.parametrize("case", ALL, ids=map(str, range(len(ALL))))
def test_worked_by_hand(case: Case) -> None:
    call, inputs, expected = case
    work = pyprof.count(call, *inputs, backward=len(expected) > 2)
    made = {"empty", "zeros"}  # what a call makes besides
    forward = [(op.forward.flop, op.forward.nbytes) for name, op in work.ops.items() if name not in made]
    found = (*map(sum, zip(*forward, strict=True)), work.backward.flop, work.backward.nbytes)
    assert found[: len(expected)] == expected, str(work)
    assert not work.unknown
