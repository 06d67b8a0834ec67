"""Mixed precision followed through a run: what inherits the narrow type, and the casts that are added."""

import numpy as np
import pytest

from pyprof.prof.changes.effect.run import Run
from pyprof.prof.changes.rules.products.narrow import Flow
from pyprof.prof.changes.rules.products.reduced_precision import _narrowed, _odd
from pyprof.prof.work.annotate import annotate
from tests.prof.changes.rules.advice_rows import mm, run, table

SGEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8"
ROWS, WIDE, NARROW = 4096, 4096, 1024


def pointwise(op, *shapes, ns=50_000, **more):
    return {
        "aten": f"aten::{op}", "sizes": [list(shape) for shape in shapes], "dtypes": ["float32"] * len(shapes),
        "strides": [[shape[-1], 1] if shape else [] for shape in shapes], "ns": ns,
        "kShortName": "vectorized_elementwise_kernel", "phase": "forward", "dir": "fprop", **more,
    }  # fmt: skip


def linear(m, k, n, ns=500_000, **more):
    nodes = ["aten::linear", "aten::mm"]
    return mm(m, k, n, ns, name=SGEMM, dtype="float32", op=["linear"], nodes=nodes, **more)


def flow(*rows):
    made = table(*rows)
    run = Run(made, annotate(made))
    return Flow(run, (run.family == "gemm"))


def test_an_activation_after_a_product_has_half_of_its_bytes():
    found = flow(linear(ROWS, NARROW, WIDE), pointwise("relu", (ROWS, WIDE)))
    assert found.factor.tolist() == [1.0, 0.5]
    assert found.changed_ns().tolist() == [500_000, 25_000]


@pytest.mark.parametrize(("kernel", "ns"), [("elementwise_kernel", 45_000), ("reduce_kernel", 45_000)])
def test_a_kernel_for_strided_operands_gains_little_by_a_narrow_type(kernel, ns):
    """0.9 of 50 µs: the medians of 44 and of 21 pairs of kernels on an H200, before and under autocast."""
    found = flow(linear(ROWS, NARROW, WIDE), pointwise("mul", (ROWS, WIDE), kShortName=kernel))
    assert found.changed_ns()[1] == ns


def test_operands_of_two_types_take_longer_than_wide_ones():
    """1.4 times: the medians were 1.43 and 1.37 of 21 pairs on an H200."""
    found = flow(linear(ROWS, NARROW, WIDE), pointwise("add", (ROWS, WIDE), (ROWS, WIDE)))
    assert found.changed_ns()[1] == 70_000


def test_what_is_filled_in_place_by_a_mask_keeps_its_type():
    """The mask is no operand of float32; so the softmax afterwards casts its input."""
    fill = pointwise("masked_fill_", (ROWS, WIDE), (ROWS, WIDE), dtypes=["float32", "bool"])
    found = flow(linear(ROWS, NARROW, WIDE), fill, pointwise("_softmax", (ROWS, WIDE)))
    assert found.factor.tolist() == [1.0, 0.5, 1.0]
    assert found.casts.tolist() == [2, 0, 1]


def test_what_a_comparison_makes_is_not_followed():
    equal = pointwise("eq", (ROWS, WIDE), (), dtypes=["float32", ""])
    found = flow(linear(ROWS, NARROW, WIDE), equal, pointwise("relu", (ROWS, WIDE)))
    assert found.factor.tolist() == [1.0, 0.5, 0.5]


def test_the_softmax_of_cross_entropy_is_narrow_and_what_follows_is_wide():
    """Under autocast on an H200, PyTorch 2.11: log_softmax in bf16, then a cast to float32 for nll_loss."""
    nodes = ["aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax"]
    softmax = pointwise("_log_softmax", (ROWS, WIDE), nodes=nodes, kShortName="cunn_SoftMaxForward")
    found = flow(linear(ROWS, NARROW, WIDE), softmax, pointwise("nll_loss_forward", (ROWS, WIDE), (ROWS,)))
    assert found.factor.tolist() == [1.0, 0.5, 1.0]
    assert found.casts.tolist() == [2, 0, 1]
    # to float32 at 2.1 times the time of 6 bytes per element at 0.85 of 4.8 TB/s
    assert np.isclose(found.cast_ns[2], 1500 + 2.1 * 6 * ROWS * WIDE / (0.85 * 4.8e12) * 1e9)


def test_a_second_operand_that_nothing_made_is_wide():
    """The product's result has 2 bytes per element, the other operand 4, and so has the sum: 10 of 12."""
    found = flow(linear(ROWS, NARROW, WIDE), pointwise("add", (ROWS, WIDE), (ROWS, WIDE)))
    assert found.factor.tolist() == [1.0, 10 / 12]


def test_a_vector_in_float32_widens_what_a_product_made():
    """A scale for each column, as a parameter: 2 bytes per element are read and 4 written, of 8. relu is wide after it.

    RetinaNet on an H200 with a frozen batch norm by hand: the casts of what convolutions then read take 7.3 ms of 72.
    """
    scaled = pointwise("mul", (ROWS, NARROW), (NARROW,), seqId=[7])
    one, two = linear(ROWS, WIDE, NARROW, layer=["one"]), linear(ROWS, NARROW, WIDE, layer=["two"])
    backward = pointwise("mul", (ROWS, NARROW), (NARROW,), seqId=[7], phase="backward", dir="bprop")
    found = flow(one, scaled, pointwise("relu", (ROWS, NARROW)), two, backward)
    assert found.factor.tolist() == [1.0, 6 / 8, 1.0, 1.0, 1.0]  # the gradient is wide until it is cast
    assert found.casts.tolist() == [2, 0, 0, 2, 1]


def test_a_number_in_a_tensor_without_dimensions_widens_nothing():
    found = flow(linear(ROWS, WIDE, NARROW), pointwise("mul", (ROWS, NARROW), ()))
    assert found.factor.tolist() == [1.0, 0.5]


def test_a_vector_that_a_product_made_is_narrow():
    """Gates of squeeze and excitation: 2 x 512 numbers."""
    gates = linear(2, WIDE, NARROW // 2)
    found = flow(linear(ROWS, WIDE, NARROW), gates, pointwise("mul", (ROWS, NARROW), (2, NARROW // 2)))
    assert found.factor[2] == 0.5


def test_the_parameters_of_a_norm_widen_nothing():
    norm = pointwise("cudnn_batch_norm", (ROWS, NARROW), (NARROW,), (NARROW,))
    assert flow(linear(ROWS, WIDE, NARROW), norm).factor.tolist() == [1.0, 0.5]


def test_what_comes_before_any_product_stays_wide():
    found = flow(pointwise("relu", (ROWS, NARROW)), linear(ROWS, NARROW, WIDE))
    assert found.factor.tolist() == [1.0, 1.0]


def test_a_sum_of_a_wide_and_a_narrow_tensor_is_wide():
    """Of 12 bytes per element, 10 remain: 4 and 2 are read and 4 written."""
    residual = pointwise("mul", (ROWS, NARROW), ())
    found = flow(residual, linear(ROWS, WIDE, NARROW), pointwise("add", (ROWS, NARROW), (ROWS, NARROW)))
    assert found.factor[2] == 10 / 12


def test_ops_that_autocast_keeps_wide_cast_their_input():
    found = flow(linear(ROWS, NARROW, WIDE), pointwise("_softmax", (ROWS, WIDE)), pointwise("mul", (ROWS, WIDE), ()))
    assert found.casts.tolist() == [2, 1, 0]  # input and weight of the product; its result
    assert found.factor.tolist() == [1.0, 1.0, 1.0]


def test_a_narrow_operand_is_not_cast_and_a_weight_once():
    """The second product reads what the first one made; its own weight is cast, the first one's not again."""
    chain = [linear(ROWS, NARROW, NARROW, layer=["one"]), linear(ROWS, NARROW, NARROW, layer=["two"])]
    again = linear(ROWS, NARROW, NARROW, layer=["one"])
    found = flow(*chain, again)
    assert found.casts.tolist() == [2, 1, 0]
    # 6 bytes per element at 0.85 of 4.8 TB/s, and 1.5 µs for each: input and weight, a weight
    sizes = [[ROWS * NARROW, NARROW * NARROW], [NARROW * NARROW], []]
    assert np.allclose(found.cast_ns, [sum(1500 + 6 * n / (0.85 * 4.8e12) * 1e9 for n in each) for each in sizes])


def test_the_backward_of_a_narrow_op_is_narrow():
    backward = pointwise("threshold_backward", (ROWS, WIDE), (ROWS, WIDE), seqId=[7], phase="backward", dir="bprop")
    relu = pointwise("relu", (ROWS, WIDE), seqId=[7])
    found = flow(linear(ROWS, NARROW, WIDE, seqId=[6]), relu, backward)
    assert found.factor[2] == 0.5


def test_gradients_of_casts_are_cast_back_once():
    first = mm(ROWS, WIDE, NARROW, 500_000, name=SGEMM, dtype="float32", phase="backward", dir="bprop", seqId=[6])
    second = mm(NARROW, ROWS, WIDE, 500_000, name=SGEMM, dtype="float32", phase="backward", dir="bprop", seqId=[6])
    found = flow(linear(ROWS, NARROW, WIDE, seqId=[6]), first, second)
    assert found.casts.tolist() == [2, 2, 0]
    # to float32: 2.1 times the time of 6 bytes per element at 0.85 of 4.8 TB/s, and 1.5 µs for each of both casts
    elements = 2.1 * (ROWS * NARROW + NARROW * WIDE)
    assert np.isclose(found.cast_ns[1], 3000 + 6 * elements / (0.85 * 4.8e12) * 1e9, rtol=0.01)


def test_parts_of_a_narrow_result_are_narrow():
    """Queries are a third of what the product before them made, though a wide tensor of their size is there, too."""
    first = pointwise("mul", (ROWS, NARROW), ())
    found = flow(first, linear(ROWS, NARROW, 3 * NARROW), pointwise("clone", (ROWS, NARROW)))
    assert found.factor.tolist() == [1.0, 1.0, 0.5]


def test_an_edit_retypes_the_products_and_what_inherits_their_type():
    """Not what came before them: bfloat16 for the second and the third row."""
    made = table(pointwise("mul", (ROWS, NARROW), ()), linear(ROWS, NARROW, WIDE), pointwise("relu", (ROWS, WIDE)))
    edit = _narrowed(Run(made, annotate(made)), np.array([1]), "tc_bf16")
    assert edit.retyped.tolist() == [1, 2] and (edit.dtype, edit.unit) == ("bfloat16", "bf16")


def test_what_is_no_part_of_a_narrow_result_is_wide():
    """Of another size, of more parts than are usual, and larger than what was made."""
    for columns, width in ((4096, 3000), (5 * NARROW, NARROW), (NARROW, WIDE)):
        found = flow(linear(ROWS, NARROW, columns), pointwise("relu", (ROWS, width)))
        assert found.factor.tolist() == [1.0, 1.0]


def test_which_sizes_fill_16_bytes_depends_on_the_type():
    """Rows of 8 numbers fill 16 bytes in bf16, of 4 in TF32; 12 are 24 bytes in bf16 and 48 in TF32."""
    found = [run(mm(64, 64, size, 9_000, name=SGEMM, dtype="float32")) for size in (8, 12, 24, 42)]
    assert [_odd(each, 0, 2) for each in found] == [False, True, False, True]
    assert [_odd(each, 0, 4) for each in found] == [False, False, False, True]
