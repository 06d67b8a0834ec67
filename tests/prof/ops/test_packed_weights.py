"""Ops of quantized modules, whose weights are packed."""

import pytest

from pyprof.errors import UnknownArgument
from pyprof.prof.ops.evaluation import evaluate
from pyprof.prof.ops.model import Work
from tests.prof.ops.op_cases import Row, t, worked

X, IMAGE = t(10, 64, dtype="quint8"), t(2, 3, 32, 32, dtype="quint8")
W, KERNELS = t(32, 64, dtype="qint8"), t(8, 3, 3, 3, dtype="qint8")
THREE = ([1] * 3, [0] * 3, [1] * 3, 1)
PLAIN = ([1, 1], [0, 0], [1, 1], 1, False, [0, 0])


def packed(weight, *moves):
    return ("packed", weight, *(tuple(each) if isinstance(each, list) else each for each in moves))


SECOND = t(10, 64, dtype="quint8")
ROWS: list[Row] = [
    # 2 * 10 * 32 * 64; 640 + 2048 bytes read, 320 written
    (
        "quantized::linear quantized::linear_relu quantized::linear_leaky_relu quantized::linear_tanh "
        "quantized::linear_dynamic quantized::linear_relu_dynamic quantized::linear_dynamic_fp16 "
        "quantized::linear_relu_dynamic_fp16",
        (X, packed(W), 0.1, 3),
        Work(40_960, 2688, 320),
    ),
    # 2 * 2*8*30*30 * 27 = 777,600; 6144 + 216 bytes read, 14,400 written
    (
        "quantized::conv2d quantized::conv2d_relu quantized::conv2d_dynamic",
        (IMAGE, packed(KERNELS, *PLAIN), 0.1, 3),
        Work(777_600, 6360, 14_400),
    ),
    # stride 2, padding 1: 16 x 16 of 8 channels, 2 * 2*8*256 * 27
    (
        "quantized::conv2d",
        (IMAGE, packed(KERNELS, [2, 2], [1, 1], [1, 1], 1, False, [0, 0]), 0.1, 3),
        Work(221_184, 6360, 4096),
    ),
    # and the addition of a tensor of the result's size
    (
        "quantized::conv2d_add quantized::conv2d_add_relu",
        (IMAGE, t(2, 8, 30, 30, dtype="quint8"), packed(KERNELS, *PLAIN), 0.1, 3),
        Work(777_600 + 14_400, 6360 + 14_400, 14_400),
    ),
    # of one dimension, packed as of two: 4 outputs of 5 taps and 3 channels on 2 * (20 - 4) places
    (
        "quantized::conv1d quantized::conv1d_relu quantized::conv1d_dynamic",
        (t(2, 3, 20, dtype="quint8"), packed(t(4, 3, 1, 5, dtype="qint8"), *PLAIN), 0.1, 3),
        Work(2 * 2 * 4 * 16 * 15, 120 + 60, 128),
    ),
    # of three: 4 outputs of 8 taps and 3 channels on 2 * 3 * 3 * 3 places
    (
        "quantized::conv3d quantized::conv3d_relu quantized::conv3d_dynamic",
        (t(2, 3, 4, 4, 4, dtype="quint8"), packed(t(4, 3, 2, 2, 2, dtype="qint8"), *THREE, False, [0] * 3), 0.1, 3),
        Work(2 * 2 * 4 * 27 * 24, 384 + 96, 216),
    ),
    # transposed, weight [3 in, 8 out, 3, 3]: each input element meets 8 * 9 taps; result 34 x 34
    (
        "quantized::conv_transpose2d quantized::conv_transpose2d_dynamic",
        (IMAGE, packed(t(3, 8, 3, 3, dtype="qint8"), [1, 1], [0, 0], [1, 1], 1, True, [0, 0]), 0.1, 3),
        Work(2 * 6144 * 72, 6360, 2 * 8 * 34 * 34),
    ),
    # 120 elements meet 4 * 5 taps; result 24
    (
        "quantized::conv_transpose1d quantized::conv_transpose1d_dynamic",
        (t(2, 3, 20, dtype="quint8"), packed(t(3, 4, 1, 5, dtype="qint8"), *PLAIN[:4], True, [0, 0]), 0.1, 3),
        Work(2 * 120 * 20, 120 + 60, 2 * 4 * 24),
    ),
    # 384 elements meet 4 * 8 taps; result 5 x 5 x 5
    (
        "quantized::conv_transpose3d quantized::conv_transpose3d_dynamic",
        (t(2, 3, 4, 4, 4, dtype="quint8"), packed(t(3, 4, 2, 2, 2, dtype="qint8"), *THREE, True, [0] * 3), 0.1, 3),
        Work(2 * 384 * 32, 384 + 96, 2 * 4 * 125),
    ),
    (
        "quantized::add quantized::add_relu quantized::mul quantized::mul_relu",
        (X, SECOND, 0.1, 3),
        Work(640, 1280, 640),
    ),
    (
        "quantized::add_scalar quantized::add_scalar_relu quantized::mul_scalar quantized::mul_scalar_relu",
        (X, 2.0),
        Work(640, 640, 640),
    ),
    ("quantized::hardswish", (X, 0.1, 3), Work(3 * 640, 640, 640)),
    ("quantized::cat quantized::cat_relu", ([X, SECOND], 1, 0.1, 3), Work(0, 1280, 1280)),
]

test_worked_by_hand = worked(ROWS)


def test_a_dynamic_layer_writes_floats():
    """10 * 32 float32 numbers: the capture shows the result's type"""
    work = evaluate("quantized::linear_dynamic", (t(10, 64), packed(W), True), (t(10, 32),))
    assert (work.flop, work.write) == (40_960, 1280)


def test_without_the_weights_the_work_is_unknown():
    for missing in (None, "<torch.ScriptObject>"):
        with pytest.raises(UnknownArgument, match="packed weights"):
            evaluate("quantized::linear", (X, missing, 0.1, 3))
