"""How the parts of one op's work are shared among its kernels."""

import json

import numpy as np
import pytest

from pyprof.prof.work.annotate import annotate
from pyprof.table.columns import Coded, Ragged, Table

ONE = (
    2 * 32 * 256 * 28 * 28 * 9
)  # a depthwise 3x3 convolution of [32, 256, 28, 28]: 115,605,504 FLOP, in each direction
X = 2 * 32 * 256 * 28 * 28  # bytes in bf16
WEIGHT = 2 * 256 * 9
BIAS = 32 * 256 * 28 * 28 - 256  # additions of its gradient
DEPTHWISE = "void at::native::(anonymous namespace)::conv_depthwise2d_"
DGRAD, WGRAD = f"{DEPTHWISE}backward_kernel<3, 1, c10::BFloat16, int>()", f"{DEPTHWISE}grad_weight_kernel<int>()"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>()"
NODES = ["ConvolutionBackward0", "aten::convolution_backward"]


def backward(kernels: list[str], mask: str = "[True, True, False]", summed: bool = False, ns: int = 5000) -> Table:
    """One convolution_backward with these kernels; ``summed``: and one of an ``aten::sum`` within it."""
    shapes = [[32, 256, 28, 28], [32, 256, 28, 28], [256, 1, 3, 3], [], [], [], [], [], [], [], []]
    dtypes = ["bfloat16"] * 3 + ["ScalarList"] * 4 + ["Scalar", "ScalarList", "Scalar", "ScalarList"]
    args = ["", "", "", "[256]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "256", mask]
    own = [("aten::convolution_backward", shapes, dtypes, args, NODES, 1)] * len(kernels)
    total = ("aten::sum", [[32, 256, 28, 28], [], [], []], ["bfloat16", "ScalarList", "Scalar", ""],
             ["", "[0, 2, 3]", "False", ""], [*NODES, "aten::sum"], 2)  # fmt: skip
    rows = [*own, total] if summed else own
    names = [*kernels, SUM] if summed else kernels
    count = len(rows)
    columns = {
        "kShortName": Coded.of(names),
        "kLongName": Coded.of(names),
        "kind": Coded.of(["kernel"] * count),
        "kDuration": np.full(count, ns),
        "aten": Coded.of(row[0] for row in rows),
        "dir": Coded.of(["bprop"] * count),
        "opId": np.array([row[5] for row in rows]),
        "pid": np.ones(count, np.int64),
        "seqId": Ragged.of([[7]] * count),
        **{key: Coded.of(json.dumps(row[i]) for row in rows)
           for i, key in ((1, "sizes"), (2, "dtypes"), (3, "args"), (4, "nodes"))},
    }  # fmt: skip
    return Table(count, columns)


def flops(table: Table) -> list[int]:
    found: list[int] = annotate(table).flops.tolist()
    return found


@pytest.mark.parametrize("kernels", [[DGRAD, WGRAD], [WGRAD, DGRAD], ["kernel_a", "kernel_b"], [WGRAD, "kernel_b"]])
def test_each_gradient_has_its_kernel_in_any_order(kernels: list[str]) -> None:
    """PyTorch 2.11 launches a depthwise convolution's weight gradient first: its sum was 115,605,504."""
    table = backward(kernels)
    assert flops(table) == [ONE, ONE]
    assert annotate(table).bytes.tolist() == [2 * X + WEIGHT] * 2  # dy and weight to dx; dy and x to dweight


def test_a_kernel_that_computes_both_gradients_has_the_work_of_both() -> None:
    table = backward(["fused_backward_kernel"])
    assert (flops(table), annotate(table).bytes.tolist()) == ([2 * ONE], [4 * X + 2 * WEIGHT])


def test_two_kernels_of_one_gradient_do_not_lose_the_other() -> None:
    assert flops(backward([DGRAD, DGRAD])) == [ONE, ONE]  # by duration: half of both gradients each
    assert flops(backward([DGRAD, DGRAD, "kernel"])) == [ONE // 2, ONE // 2, ONE]


def test_a_bias_is_counted_where_it_is_summed() -> None:
    with_bias = "[True, True, True]"
    assert flops(backward([WGRAD, DGRAD], with_bias, summed=True)) == [ONE, ONE, BIAS]
    assert flops(backward([WGRAD, DGRAD, SUM], with_bias)) == [ONE, ONE, BIAS]
    assert flops(backward([WGRAD, DGRAD], with_bias)) == [ONE + BIAS // 2, ONE + BIAS // 2]  # no kernel of its own
    assert flops(backward([WGRAD], "[False, True, True]", summed=True)) == [ONE, BIAS]


def test_without_a_mask_the_kernels_show_which_gradients_were_computed() -> None:
    """NVTX ranges have no flags: a first layer has no data gradient."""
    assert flops(backward([WGRAD], mask="")) == [ONE]
    assert flops(backward([WGRAD, DGRAD], mask="")) == [ONE, ONE]
    assert flops(backward(["kernel"], mask="")) == [ONE]


def test_rounding_loses_nothing() -> None:
    table = backward(["fused_a", "fused_b", "fused_c", "fused_d"], "[False, True, True]")
    assert sum(flops(table)) == ONE + BIAS
