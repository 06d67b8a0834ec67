"""Convolutions: values worked by hand, and what holds for all sizes."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof.errors import ShapeError, UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import UNKNOWN, Tensor, Work, total
from tests.prof.ops.op_cases import Row, t, worked

X, W, B = t(2, 4, 8, 8), t(6, 4, 3, 3), t(6)  # 512, 216, 6 elements
# padding 1: y [2,6,8,8] = 768 elements, 2*768*36 = 55296 flop; (512+216+6)*4 = 2936, 768*4 = 3072
SAME = Work(55296, 2936, 3072)
NO_BIAS = Work(55296, 2912, 3072)
# transposed, weight [4,3,2,2], stride 2: each of 512 inputs scatters 3*4: 2*512*12 = 12288; (512+48)*4; y [2,3,16,16]
WT = t(4, 3, 2, 2)
UP = Work(12288, 2240, 6144)
ONE = ((1, 1), (1, 1), (1, 1))  # a list for stride, padding, dilation
TWICE = ((2, 2), (0, 0), (1, 1), False, (0, 0), 1)  # stride 2; transposed, output padding, groups
UPWARDS = ((2, 2), (0, 0), (1, 1), True, (0, 0), 1)

ROWS: list[Row] = [
    ("conv2d", (X, W, B, 1, 1, 1, 1), SAME),
    ("conv2d", (X, W, B, (1,), "same", (1,), 1), SAME),
    ("conv2d", (X, W, B, 1, "valid"), Work(31104, 2936, 1728)),  # y 6x6: 432 elements, 2*432*36
    ("conv2d", (X, t(6, 2, 3, 3), None, 2, 1, 1, 2), Work(6912, 2480, 768)),  # y 4x4: 192*2*18; (512+108)*4
    ("conv2d", (t(4, 8, 8), W, B, 1, 1), Work(27648, 1912, 1536)),  # without a batch: half; (256+216+6)*4
    ("conv2d", (X, W, None, 1, 2, 2), NO_BIAS),  # dilation 2 spans 5, padding 2 keeps 8
    ("conv1d", (t(2, 3, 10), t(5, 3, 4), None, 3), Work(720, 480, 120)),  # y 3: 30*2*12; (60+60)*4
    ("conv3d", (t(1, 1, 3, 3, 3), t(2, 1, 3, 3, 3), None), Work(108, 324, 8)),  # 2 elements * 2*27
    ("conv2d", (t(1, 1, 2, 2, dtype="complex64"), t(1, 1, 2, 2, dtype="complex64")), Work(32, 64, 8)),  # 4 * 8
    ("convolution convolution_overrideable", (X, W, B, *ONE, False, (0, 0), 1), SAME),
    ("_convolution", (X, W, B, *ONE, False, (0, 0), 1, False, False, True, True), SAME),
    ("convolution", (X, WT, None, (2, 2), (0, 0), (1, 1), True, (0, 0), 1), UP),
    ("_convolution_mode", (X, W, B, (1, 1), "same", (1, 1), 1), SAME),
    ("conv_transpose2d", (X, WT, None, 2), UP),
    ("conv_transpose2d", (X, t(4, 3, 3, 3), None, 2, 1, 1, 2), Work(27648, 2480, 12288)),
    # groups 2: 3*2 = 6 channels, (8-1)*2 - 2 + 2 + 1 + 1 = 16: 2*512*27; (512+108)*4; 2*6*256*4
    ("cudnn_convolution", (X, W, (1, 1), (1, 1), (1, 1), 1, False, False, True), NO_BIAS),
    ("cudnn_convolution", (X, W, B, (1, 1), (1, 1), (1, 1), 1), SAME),  # torch 1.x
    ("cudnn_convolution", (X, W, None, (1, 1), (1, 1), (1, 1), 1), NO_BIAS),
    ("cudnn_convolution_transpose", (X, WT, (0, 0), (0, 0), (2, 2), (1, 1), 1, False, False, True), UP),
    ("cudnn_convolution_relu miopen_convolution_relu", (X, W, B, *ONE, 1), SAME),
    (
        "cudnn_convolution_add_relu miopen_convolution_add_relu",
        (X, W, t(2, 6, 8, 8), 1.0, B, *ONE, 1),
        Work(55296, 6008, 3072),
    ),  # z: + 3072
    ("miopen_convolution miopen_depthwise_convolution", (X, W, B, *ONE, 1, False, False), SAME),
    ("mkldnn_convolution mkldnn::_convolution_pointwise", (X, W, B, *ONE, 1), SAME),
    # an addend comes before the weight: + 3072
    ("mkldnn::_convolution_pointwise", (X, t(2, 6, 8, 8), W, B, *ONE, 1, "add", 1.0), Work(55296, 6008, 3072)),
    (
        "miopen_convolution_transpose mkldnn::_convolution_transpose_pointwise",
        (X, WT, None, (0, 0), (0, 0), (2, 2), (1, 1), 1, False, False),
        UP,
    ),
    ("thnn_conv2d thnn_conv2d_forward", (X, W, (3, 3), B, (1, 1), (1, 1)), SAME),
    ("_slow_conv2d_forward", (X, W, (3, 3), B, (1, 1), (1, 1), t(0)), SAME),  # ends in an out tensor
    ("slow_conv_dilated2d", (X, W, (3, 3), None, (1, 1), (2, 2), (2, 2)), NO_BIAS),
    (
        "_conv_depthwise2d thnn_conv_depthwise2d thnn_conv_depthwise2d_forward",
        (X, t(4, 1, 3, 3), (3, 3), None, *ONE),
        Work(9216, 2192, 2048),
    ),  # 512*2*9; (512+36)*4
    ("slow_conv_transpose2d", (X, WT, (2, 2), None, (2, 2), (0, 0), (0, 0), (1, 1)), UP),
    # y [1,2,1,1,1]: 2 elements of 27 products each
    (
        "slow_conv3d slow_conv3d_forward",
        (t(1, 1, 3, 3, 3), t(2, 1, 3, 3, 3), (3,) * 3, None, (1,) * 3, (0,) * 3),
        Work(108, 324, 8),
    ),
    (
        "slow_conv_dilated3d conv_depthwise3d",
        (t(1, 1, 3, 3, 3), t(2, 1, 3, 3, 3), (3,) * 3, None, (1,) * 3, (0,) * 3, (1,) * 3),
        Work(108, 324, 8),
    ),
    # each of 3 inputs scatters 2*2 products: y [1,2,4] and [1,2,4,1,1], 8 elements; (3 + 4)*4
    ("conv_transpose1d", (t(1, 1, 3), t(1, 2, 2), None), Work(24, 28, 32)),
    ("conv_transpose3d", (t(1, 1, 3, 1, 1), t(1, 2, 2, 1, 1), None), Work(24, 28, 32)),
    (
        "slow_conv_transpose3d",
        (t(1, 1, 3, 1, 1), t(1, 2, 2, 1, 1), (2, 1, 1), None, (1,) * 3, (0,) * 3, (0,) * 3, (1,) * 3),
        Work(24, 28, 32),
    ),
    # PyTorch 1.x: the gradients as ops of their own. dy 768 elements, weight 216, x 512: 2 * 768 * 36
    (
        "cudnn_convolution_backward_input miopen_convolution_backward_input",
        ([2, 4, 8, 8], t(2, 6, 8, 8), W),
        Work(55296, 3936, 2048),
    ),
    (
        "cudnn_convolution_backward_weight miopen_convolution_backward_weight",
        ([6, 4, 3, 3], t(2, 6, 8, 8), X),
        Work(55296, 5120, 864),
    ),
    ("conv_tbc", (t(7, 2, 3), t(3, 3, 5), t(5), 1), Work(1260, 368, 280)),  # T 7: 70*2*9; (42+45+5)*4
]

DY = t(2, 6, 8, 8)
DGRAD = Work(55296, 3936, 2048)  # (768+216)*4; 512*4
WGRAD = Work(55296, 5120, 864)  # (768+512)*4; 216*4
BIAS = Work(762, 3072, 24)  # 768 - 6
TAIL = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
BACKWARD: list[Row] = [
    (
        "convolution_backward",
        (DY, X, W, (6,), *TAIL, (True, True, True)),
        {"dgrad": DGRAD, "wgrad": WGRAD, "bias": BIAS},
    ),
    ("convolution_backward", (DY, X, W, (0,), *TAIL, (False, True, False)), {"wgrad": WGRAD}),
    ("convolution_backward", (DY, X, W, *(UNKNOWN,) * 8), {"dgrad": DGRAD, "wgrad": WGRAD}),
    ("convolution_backward_overrideable", (DY, X, W, *TAIL, (True, False, False)), {"dgrad": DGRAD}),
    ("conv2d.backward", (X, W, t(6), 1, "same"), {"dgrad": DGRAD, "wgrad": WGRAD, "bias": BIAS}),
    ("conv2d.backward", (replace(X, needs_grad=False), W, None, 1, 1), {"wgrad": WGRAD}),
    (
        "convolution_backward",
        (t(2, 3, 16, 16), X, WT, None, (2, 2), (0, 0), (1, 1), True, (0, 0), 1, (True, False, False)),
        {"dgrad": Work(12288, 6336, 2048)},
    ),  # (1536+48)*4
    (
        "cudnn_convolution_backward miopen_convolution_backward miopen_depthwise_convolution_backward "
        "mkldnn_convolution_backward",
        (X, DY, W, *ONE, 1, False, False, True, (True, True)),
        {"dgrad": DGRAD, "wgrad": WGRAD},
    ),
    (
        "_slow_conv2d_backward thnn_conv2d_backward _conv_depthwise2d_backward thnn_conv_depthwise2d_backward "
        "slow_conv_dilated2d_backward",
        (DY, X, W, (3, 3), (1, 1), (1, 1), (False, True, True)),
        {"wgrad": WGRAD, "bias": BIAS},
    ),
    # x 3, weight 2*1*2 = 4 and dy [1,2,2] 4 elements: 4 * 2 products
    ("conv1d.backward", (t(1, 1, 3), t(2, 1, 2), None), {"dgrad": Work(16, 32, 12), "wgrad": Work(16, 28, 16)}),
    (
        "conv3d.backward",
        (t(1, 1, 3, 1, 1), t(2, 1, 2, 1, 1), None),
        {"dgrad": Work(16, 32, 12), "wgrad": Work(16, 28, 16)},
    ),
    (
        "slow_conv3d_backward conv_depthwise3d_backward slow_conv_dilated3d_backward",
        (t(1, 2, 2, 1, 1), t(1, 1, 3, 1, 1), t(2, 1, 2, 1, 1), (2, 1, 1), (1,) * 3, (0,) * 3, (True, True, False)),
        {"dgrad": Work(16, 32, 12), "wgrad": Work(16, 28, 16)},
    ),
    (
        "cudnn_convolution_transpose_backward miopen_convolution_transpose_backward",
        (X, t(2, 3, 16, 16), WT, (0, 0), (0, 0), (2, 2), (1, 1), 1, False, False, (True, False)),
        {"dgrad": Work(12288, 6336, 2048)},
    ),
]


test_worked_by_hand = worked(ROWS, BACKWARD)


JUMPS: list[Row] = [  # strides that jump over elements of x: those are not read
    # y [2,6,4,4] = 192 elements, of x every second in both dimensions: (2*4*16 + 24)*4 = 608
    ("conv2d", (X, t(6, 4, 1, 1), None, 2), Work(1536, 608, 768)),
    ("conv1d", (t(1, 1, 11), t(1, 1, 2), None, 3), Work(16, 40, 16)),  # 2 of every 3: 4*2 of 11
    ("conv1d", (t(1, 1, 9), t(1, 1, 2), None, 2), Work(16, 44, 16)),  # no gaps: all of x, also the one at the end
    ("conv_transpose2d", (t(2, 6, 4, 4), t(6, 4, 1, 1), None, 2), Work(1536, 864, 2 * 4 * 49 * 4)),  # all of x is read
    (
        "convolution_backward",  # dgrad (192+24)*4 read, 512*4 written; wgrad (192+128)*4, 24*4
        (t(2, 6, 4, 4), X, t(6, 4, 1, 1), None, *TWICE, (True, True, False)),
        Work(2 * 1536, 864 + 1280, 2048 + 96),
    ),
    (
        "convolution_backward",  # transposed: dy [2,4,7,7] is read at 16 of 49 positions, by both gradients
        (t(2, 4, 7, 7), t(2, 6, 4, 4), t(6, 4, 1, 1), None, *UPWARDS, (True, True, False)),
        Work(2 * 1536, (128 + 24 + 128 + 192) * 4, 768 + 96),
    ),
    ("cudnn_convolution_backward_weight", ((6, 4, 1, 1), t(2, 6, 4, 4), X), Work(1536, 1280, 96)),
]
test_strides_larger_than_the_kernel = worked(JUMPS)


def test_a_size_that_is_not_told_leaves_the_flop_of_dx_alone() -> None:
    work = total(evaluate("cudnn_convolution_backward_input", (UNKNOWN, DY, W)))
    assert work.flop == 55296 and math.isnan(work.nbytes)
    with pytest.raises(UnknownArgument):
        evaluate("cudnn_convolution_backward_weight", (UNKNOWN, DY, X))


def test_an_nvtx_range_needs_the_output_and_nothing_else() -> None:
    shapes = (Tensor(X.shape), Tensor(W.shape), UNKNOWN, *(UNKNOWN,) * 6)
    work = total(evaluate("convolution", shapes, (Tensor(DY.shape),)))
    assert work.flop == 55296 and math.isnan(work.nbytes)
    with pytest.raises(UnknownArgument):
        evaluate("convolution", shapes)


def test_a_transposed_convolution_needs_the_input_alone() -> None:
    work = total(evaluate("conv_transpose2d", (Tensor(X.shape), Tensor(WT.shape), *(UNKNOWN,) * 6)))
    assert work.flop == 12288 and math.isnan(work.nbytes)


def test_shapes_tell_a_transposed_convolution_where_channels_differ() -> None:
    unknown = (UNKNOWN,) * 7
    assert total(evaluate("convolution", (X, WT, *unknown), (t(2, 3, 16, 16),))).flop == 12288
    with pytest.raises(UnknownArgument):  # 4 channels to 4 and larger: both fit
        evaluate("convolution", (X, t(4, 4, 2, 2), *unknown), (t(2, 4, 16, 16),))


def test_an_unknown_output_mask_follows_the_outputs() -> None:
    args = (DY, X, W, *(UNKNOWN,) * 8)
    assert set(evaluate("convolution_backward", args, (None, W, B))) == {"wgrad", "bias"}  # type: ignore[arg-type]


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ShapeError):
        evaluate("conv2d", (t(2, 4), W))


sizes = st.integers(1, 6)


@given(b=sizes, c=sizes, o=sizes, h=sizes, w=sizes)
def test_a_1x1_convolution_is_a_product(b: int, c: int, o: int, h: int, w: int) -> None:
    mm = total(evaluate("mm", (t(b * h * w, c), t(c, o))))
    assert evaluate("conv2d", (t(b, c, h, w), t(o, c, 1, 1))) == mm


@given(b=sizes, more=sizes, c=sizes)
def test_flop_adds_over_a_split_of_the_batch(b: int, more: int, c: int) -> None:
    flop = [total(evaluate("conv1d", (t(n, c, 9), t(4, c, 3)))).flop for n in (b, more, b + more)]
    assert flop[0] + flop[1] == flop[2]


@given(n=sizes, c=sizes, o=sizes)
def test_a_transposed_convolution_is_the_data_gradient(n: int, c: int, o: int) -> None:
    up = total(evaluate("conv_transpose1d", (t(n, c, 5), t(c, o, 3), None, 2)))
    mask = (True, False, False)
    parts = evaluate("convolution_backward", (t(n, c, 5), t(n, o, 11), t(c, o, 3), None, 2, 0, 1, False, 0, 1, mask))
    assert parts == {"dgrad": up}
