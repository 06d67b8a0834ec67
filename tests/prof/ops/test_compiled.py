"""torch.compile's Triton kernels: the ops in their names, their loops, FLOPs and bytes worked by hand."""

import csv
import json
import math
from pathlib import Path

import pytest

from pyprof.errors import ModelError
from pyprof.prof.ops.evaluation import evaluate, find
from pyprof.prof.ops.fused_names import fused_ops
from pyprof.prof.work.count import OpCall, count_call
from tests.prof.ops.op_cases import Row, t, worked

BF16, INT = "bfloat16", "int64"


FUSED: list[Row] = [  # a kernel's name, its other arguments, FLOPs and bytes
    # gelu 5 and add 1 of 128 elements; three tensors of 128 * 2 bytes
    ("triton_poi_fused_add_gelu_3", (t(8, 16, dtype=BF16), t(8, 16, dtype=BF16), t(128, dtype=BF16), 128), (768, 768)),
    # 4 rows of 8 out of a table of 1,000: 4*8 + 32*4 read, 32*4 written
    ("triton_poi_fused_embedding_0", (t(4, dtype=INT), t(1000, 8), t(4, 8), 32), (0, 288)),
    # two loops: 4 * 8; a cast computes nothing; (32 + 32/2) * 4
    ("triton_poi_fused__to_copy_t_1", (t(4, 8), t(8, 4, dtype=BF16), 4, 8), (0, 192)),
    # a bias as long as the inner loop: 4 * 8 sums; (32 + 8 + 32) * 4
    ("triton_poi_fused_add_1", (t(4, 8), t(8), t(4, 8), 4, 8), (32, 288)),
    # half of each row of [4,16]: no tensor has the loops' 4 * 8 elements; 32 of both, 1 FLOP an element
    ("triton_poi_fused_add_1", (t(4, 16), t(4, 16), 4, 8), (32, 256)),
    # a size that varies (4) before the single loop: 32 elements, not 4 * 32
    ("triton_poi_fused_add_1", (t(4, 8), t(4, 8), t(4, 8), 4, 32), (32, 384)),
    # RMS norm of [4,100]: add, pow and mul 400 each, mean 4 * (99 + 1), rsqrt one a row; (400 + 100 + 400) * 4
    ("triton_red_fused_add_mean_mul_pow_rsqrt_0", (t(4, 100), t(100), t(4, 100), 4, 100), (1604, 3600)),
    # a number before the loops: the seed's place in the seeds. layer_norm 7 an element where its result is written
    ("triton_per_fused_native_layer_norm_2", (t(4, 8), t(8), t(8), t(4, 1), t(4, 8), 1, 4, 8), (224, 336)),
    # only the statistics: 3 an element
    ("triton_red_fused_native_layer_norm_2", (t(4, 8), t(4, 1), t(4, 1), 4, 8), (96, 160)),
    # a window of the input for each output: all 64 read, 16 written
    ("triton_poi_fused_max_pool2d_with_indices_0", (t(1, 1, 8, 8), t(1, 1, 4, 4), 16), (0, 320)),
    # one row's loss: 8 of its loops' 8 elements, of scores of 80
    ("triton_per_fused_nll_loss_forward_1", (t(8, dtype=INT), t(8, 10), t(), 1, 8), (0, 100)),
    # one tensor, read and written in place: twice 128 * 4
    ("triton_poi_fused_gelu_4", (t(8, 16), 128), (640, 1024)),
    ("triton_poi_fused_arange_4", (t(128, dtype=INT), 128), (0, 1024)),  # only written, 128 * 8
    # a gradient and what was saved: nothing is left but to write over one of them; 11 an element
    ("triton_poi_fused_gelu_backward_view_6", (t(2, 4, 16, dtype=BF16), t(8, 16, dtype=BF16), 128), (1408, 768)),
    # the flat one is a product's result, which the name says is read: the sum goes to the first
    ("triton_poi_fused__unsafe_view_add_4", (t(2, 4, 16), t(2, 4, 16), t(8, 16), 128), (128, 2048)),
    ("triton_poi_fused__unsafe_view_mul_silu_3", (t(8, 16), t(8, 16), t(2, 4, 16), 128), (512, 1536)),
    # four rows added up without a loop: all 64 read
    ("triton_poi_fused_sum_2", (t(4, 16), t(16), 16), (0, 320)),
    # the product that a name holds is another kernel's
    ("triton_poi_fused_addmm_relu_2", (t(8, 16), t(8, 16), 128), (0, 1024)),
    # a scan of 4 rows of 8: 7 sums each
    ("triton_spl_fused_cumsum_0", (t(4, 8), t(4, 8), 4, 8), (28, 256)),
    ("triton_tem_fused_mm_0", (t(4, 5), t(5, 6), t(4, 6)), (240, 296)),  # 2*4*6*5; (20+30+24)*4
    ("triton_tem_fused_addmm_relu_0", (t(6), t(4, 5), t(5, 6), t(4, 6)), (240, 320)),
    ("triton_tem_fused_bmm_0", (t(3, 4, 5), t(3, 5, 6), t(3, 4, 6)), (720, 888)),
    # 288 outputs of 27 products each; (384 + 108 + 288) * 4
    ("triton_tem_fused_convolution_3", (t(2, 3, 8, 8), t(4, 3, 3, 3), t(2, 4, 6, 6)), (15552, 3120)),
    # an addition per value that the mask lets through, at most all, and ``add``
    ("triton_poi_fused__unsafe_masked_index_put_accumulate_add_2", (t(64), t(64), 64), (128, 512)),
    # 2 heads of 8 by 8 pairs, 2 * (4 + 4) each, no mask: one block; four tensors of 64 and 16 sums, 4 bytes; 1 block
    (
        "triton_tem_fused_flex_attention_0",
        (t(1, 2, 8, 4), t(1, 2, 8, 4), t(1, 2, 8, 4), t(1, 2, 8), t(1, 1, 1, dtype="int32"), t(1, 2, 8, 4)),
        (2048, 1092),
    ),
    # its backward: 2 * (3 * 4 + 2 * 4) a pair
    (
        "triton_tem_fused_flex_attention_backward_1",
        (t(1, 2, 8, 4), t(1, 2, 8, 4), t(1, 2, 8, 4), t(1, 2, 8), t(1, 2, 8, 4)),
        (5120, 1088),
    ),
]


test_fused_kernels = worked((find(name) or "", (name, *arguments), work) for name, arguments, work in FUSED)


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("triton_poi_fused_add_mul_0", ("add", "mul")),
        (
            "triton_poi_fused__to_copy_add_tanh_tanh_backward_view_6",
            ("_to_copy", "add", "tanh", "tanh_backward", "view"),
        ),
        (
            "triton_red_fused__log_softmax__to_copy_prepare_softmax_online_view_0",
            ("_log_softmax", "_to_copy", "prepare_softmax_online", "view"),
        ),
        (
            "triton_per_fused__unsafe_view_native_dropout_native_layer_norm_native_layer_norm_backward_13",
            ("_unsafe_view", "native_dropout", "native_layer_norm", "native_layer_norm_backward"),
        ),
        ("triton_poi_fused_0", None),  # unnamed
        ("triton_poi_fused_add_frobnicate_1", None),
    ],
)
def test_the_name_holds_the_ops(name: str, ops: tuple[str, ...] | None) -> None:
    assert fused_ops(name) == ops


def test_a_name_of_unknown_ops_leaves_the_bytes() -> None:
    counted = count_call(
        OpCall(
            aten="triton_poi_fused_frobnicate_0",
            sizes="[[8],[8],[]]",
            dtypes='["float32","float32","Scalar"]',
            args='["","","8"]',
        )
    )
    assert (counted.flop, counted.nbytes) == (None, 64)


def test_a_block_mask_leaves_the_bytes() -> None:
    """How many blocks are computed is in the mask's contents."""
    q = [1, 2, 256, 4]
    sizes = [q, q, q, [1, 2, 256], [1, 1, 2], [1, 1, 2, 2], q]
    kinds = ["float32"] * 4 + ["int32"] * 2 + ["float32"]
    with pytest.raises(ModelError, match="blocks"):
        evaluate(
            "triton_tem_fused_flex_attention",
            ("triton_tem_fused_flex_attention_0", *(t(*s, dtype=k) for s, k in zip(sizes, kinds, strict=True))),
        )
    counted = count_call(
        OpCall(aten="triton_tem_fused_flex_attention_0", sizes=json.dumps(sizes), dtypes=json.dumps(kinds))
    )
    assert (counted.flop, counted.nbytes) == (None, 4 * 2048 * 4 + 512 * 4 + 6 * 4)


# Where ours and inductor's bytes differ, and why; inductor's are its own estimate of the same kernel.
DIFFER = {
    "triton_poi_fused__to_copy_slice_sum_transpose_3": 3.0,  # 24 bytes: two ints added, both read
    "triton_per_fused__to_copy_add_native_layer_norm_backward_view_10": 0.75,  # updated in place, which nothing tells
    "triton_per_fused__to_copy_add_embedding_dense_backward_native_layer_norm_native_layer_norm_backward_view_17": 0.79,
    "triton_per_fused__to_copy_add_native_layer_norm_native_layer_norm_backward_view_14": 0.667,
    "triton_poi_fused__unsafe_view_mul_silu_silu_backward_view_0": 0.8,
    "triton_poi_fused__to_copy_add_21": 1.667,  # inductor leaves out an alias: two read, one written, 10 bytes each
    "triton_poi_fused_mul_silu_sin_split_2": 0.667,  # both halves are read, the name tells one
    # Q's and K's slices, of which inductor counts the rotated halves again: 12 bytes; 8 are needed, the call proves 6
    "triton_poi_fused__scaled_dot_product_cudnn_attention_"
    "_unsafe_view_add_cat_mul_neg_permute_select_slice_view_1": 0.377,
    "triton_poi_fused__unsafe_view_add_cat_mul_neg_permute_select_slice_view_1": 0.377,
    "triton_tem_fused_addmm_mul_1": 0.75,  # inductor counts the bias of 2,048 as the matrix that it is spread to
    "triton_tem_fused_addmm_t_3": 0.75,
}


def test_bytes_against_inductors_own(root: Path) -> None:
    """73 kernels of six programs on an H200: tests/golden/README.md."""
    rows = list(csv.DictReader((root / "tests" / "golden" / "h200_inductor_kernels.csv").read_text().splitlines()))
    ratios, ours = {}, 0
    for row in rows:
        found = count_call(OpCall(aten=row["kernel"], sizes=row["sizes"], dtypes=row["dtypes"], args=row["values"]))
        assert found.nbytes is not None
        ratio, ours = found.nbytes / (1e9 * float(row["num_gb"])), ours + found.nbytes
        if not math.isclose(ratio, 1, abs_tol=0.005):
            ratios[row["kernel"]] = round(ratio, 3)
        if int(row["flop"]):  # a template's product
            assert found.flop == int(row["flop"])
    assert ratios == DIFFER
    assert len(rows) == 73
    assert ours / sum(1e9 * float(row["num_gb"]) for row in rows) == pytest.approx(0.947, abs=0.0005)


def test_a_kernel_of_the_users_own_is_not_taken_for_inductors() -> None:
    assert find("triton_softmax_kernel") is None
