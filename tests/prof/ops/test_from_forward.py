"""Backward ops whose shapes the capture lacks are counted by the shapes of their forward call."""

import pytest

from pyprof.prof.ops.from_forward import bias_gradient
from tests.prof.ops.op_cases import t

LINEAR = ["AddmmBackward0", "aten::sum"]


@pytest.mark.parametrize(
    ("gradient", "nodes", "operands", "shape"),
    [
        ([32, 10], LINEAR, [t(32, 6), t(10, 6), t(10)], [10]),  # the call has a bias of 10
        ([32, 10], LINEAR, [t(32, 6), t(10, 6)], None),  # a call without one
        ([32, 10], ["aten::native_layer_norm_backward"], [], [10]),  # partial sums, a row for each block
        ([32, 10], ["MulBackward0"], [t(10)], None),
        ([4, 32, 10], LINEAR, [t(10)], None),
        ([32, 16, 5, 5], ["aten::convolution_backward"], [], [16]),  # all dimensions but the second
        ([32, 16, 5], ["aten::convolution_backward"], [], [16]),
        ([32, 16], ["aten::convolution_backward"], [], None),  # a sum of partial results
    ],
)
def test_a_sum_to_one_number_for_each_channel(gradient, nodes, operands, shape):
    assert bias_gradient(gradient, nodes, operands) == shape
