"""Padding to 16 bytes: products measured on an H200, which dimensions a layout concerns, where to say nothing."""

import json

import pytest

from pyprof.prof.changes.effect.product import gemm, product_of
from pyprof.prof.changes.rules.products.alignment import alignment, padded_to
from tests.prof.changes.rules.advice_rows import changes, mm, run

# Measured on an H200, PyTorch 2.11, bf16: M, K, N, ns before padding, after
MEASURED = [
    (4096, 4096, 50257, 12_827_000, 2_118_000),
    (4097, 4097, 4097, 1_040_000, 191_000),
    (2048, 1001, 1001, 54_700, 11_500),
]


@pytest.mark.parametrize(("m", "k", "n", "before", "after"), MEASURED)
def test_what_padding_was_measured_to_bring(m, k, n, before, after):
    (change,) = changes(mm(m, k, n, before))
    assert change.rule == "alignment"
    assert change.gpu_ms == pytest.approx((before - after) / 1e6, rel=0.25)
    assert change.time_ms - change.gpu_ms == pytest.approx(after / 1e6, rel=0.25)
    assert change.kernels == 1


def test_the_expected_time_by_hand():
    # 2·4096·4096·50264 = 1.686602e12 FLOP at 0.82 × 989.4e12 = 811.3e12/s: 2078.9 µs, and 5 to start
    (change,) = changes(mm(4096, 4096, 50257, 12_827_000))
    assert change.gpu_ms == pytest.approx(12.827 - 2.0839, abs=0.0002)
    assert "from 50257 to 50264" in change.change and "vocabulary" in change.change


LAYOUTS = [  # sizes and strides of A and B -> what lies contiguous, and its leading stride
    ([[8, 6], [6, 4]], [[6, 1], [4, 1]], (("k", 6), ("n", 4), ("n", 4))),
    ([[8, 6], [6, 4]], [[6, 1], [1, 6]], (("k", 6), ("k", 6), ("n", 4))),  # weight.t()
    ([[8, 6], [6, 4]], [[1, 8], [4, 1]], (("m", 8), ("n", 4), ("n", 4))),  # gradient.t() @ input
    ([[8, 6], [6, 4]], [[16, 1], [4, 1]], (("k", 16), ("n", 4), ("n", 4))),  # columns of a wider matrix
    ([[8, 6], [6, 4]], [[12, 2], [4, 1]], (("k", 6), ("n", 4), ("n", 4))),  # neither: it is copied
    ([[8, 6], [6, 4]], None, ()),
]


@pytest.mark.parametrize(("sizes", "strides", "leads"), LAYOUTS)
def test_which_dimension_must_be_aligned(sizes, strides, leads):
    found = gemm("mm", sizes, strides)
    assert found is not None and found.leads == leads


def linear(**more):
    """linear(x, weight) of an odd width as nsys records it: without strides, with pyprof's marker."""
    shapes = (("input", [8, 7]), ("weight", [4, 7]))
    given = [{"name": name, "type": "tensor", "shape": shape, "dtype": "float32"} for name, shape in shapes]
    call = {"v": 1, "mod": "torch.nn.functional", "op": "linear", "args": [given[0] | more, given[1]]}
    marker = [json.dumps(call, separators=(",", ":"))]
    name = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4"
    return run({**mm(8, 7, 4, 1000, name, "float32"), "strides": "", "marker": marker})


def test_a_kernel_s_name_says_how_operands_lie_that_are_no_part_of_another():
    assert product_of(linear(), 0).leads == (("k", 7), ("k", 7), ("n", 4))
    part = product_of(linear(stride=[16, 1]), 0)
    assert (part.leads, part.layout) == ((), ("k", "k"))


def test_a_batch_and_an_addend():
    assert str(gemm("bmm", [[2, 8, 6], [2, 6, 4]], None)) == "2 × [8, 6] @ [6, 4]"
    assert str(gemm("mm", [[8, 6], [6, 4]], None)) == "[8, 6] @ [6, 4]"
    assert gemm("baddbmm", [[2, 8, 4], [2, 8, 6], [2, 6, 4]], None) == gemm("bmm", [[2, 8, 6], [2, 6, 4]], None)
    assert gemm("mm", [[8, 6], [5, 4]], None) is None
    assert gemm("mv", [[8, 6], [6]], None) is None


def test_padding_by_itemsize():
    assert [padded_to(10, size) for size in (1, 2, 4)] == [16, 16, 12]


def test_forward_and_backward_of_one_size_are_one_card():
    linear = mm(4096, 768, 50257, 3_000_000, strides=[[768, 1], [1, 768]])
    dgrad = mm(4096, 50257, 768, 3_000_000, strides=[[50257, 1], [768, 1]])
    wgrad = mm(50257, 4096, 768, 3_000_000, strides=[[1, 50257], [768, 1]])
    (change,) = changes(linear, dgrad, wgrad)
    assert change.kernels == 3


NVJET = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_coopA_TNN"
ABSTAINS = {
    "aligned": mm(4096, 4096, 50264, 12_827_000),
    "rows may be odd": mm(4097, 4096, 4096, 1_040_000),
    "padded storage": mm(4096, 4096, 4097, 1_040_000, name=NVJET),
    "no shapes": mm(4096, 4096, 50257, 12_827_000, sizes=None, dtypes=None, strides=None),
    "no strides, and the kernel does not say that it suffers": mm(4096, 4096, 50257, 12_827_000, strides=None,
                                                                  name="sm80_xmma_gemm_bf16bf16_bf16f32_f32_nn_n"),
    "already as fast as padded": mm(4096, 4096, 50257, 2_200_000),
    "fp32 on the vector unit has no lines": mm(4097, 4097, 4097, 3_000_000, dtype="float32",
                                               name="sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8"),
    "a matrix of one column": mm(4096, 4096, 1, 900_000),
    "a vector": mm(1, 4097, 4097, 900_000, name="gemv2T_kernel_val"),
}  # fmt: skip


@pytest.mark.parametrize("why", ABSTAINS)
def test_says_nothing(why):
    assert changes(ABSTAINS[why], rule="alignment") == []


def test_says_nothing_of_a_device_it_does_not_know():
    assert changes(mm(4096, 4096, 50257, 12_827_000), gpu="a GPU nobody knows") == []


def test_without_strides_the_kernels_name_tells():
    (change,) = changes(mm(4096, 4096, 50257, 12_827_000, strides=None))
    assert change.rule == "alignment"


def test_below_the_threshold_nothing_is_said():
    small = mm(2048, 1001, 1001, 54_700)
    assert changes(small, {"ns": 4_500_000, "kShortName": "other"}) == []  # 44 µs are 0.97% of 4.55 ms
    assert len(changes(small, {"ns": 4_200_000, "kShortName": "other"})) == 1  # and 1.03% of 4.25


def bmm(batch, m, k, n, **more):
    """aten::bmm of row-major matrices by a kernel that loads single elements."""
    sizes, strides = [[batch, m, k], [batch, k, n]], [[m * k, k, 1], [k * n, n, 1]]
    return mm(m, k, n, 3_000_000) | {"aten": "aten::bmm", "sizes": sizes, "strides": strides} | more


def test_a_dimension_of_batched_products_alone_may_be_a_sequences():
    """[512, 512] @ [512, 63], each of a batch: no weight of a layer is an operand."""
    (finding,) = alignment(run(bmm(64, 512, 512, 63)))
    assert finding.change == (
        "Pad the tensors' dimension from 63 to 64. If it is a sequence's length, mask the padding in the softmax and "
        "in statistics such as means."
    )
    assert finding.cost == (
        "where the dimension is a sequence's length, a mask; where a layer makes it, a wider layer, whose checkpoints "
        "have other shapes"
    )


def test_one_product_of_a_layer_among_batched_ones_of_its_size_is_a_layers():
    (finding,) = alignment(run(bmm(64, 512, 512, 63), mm(65536, 512, 63, 3_000_000)))
    assert "layer's features from 63 to 64" in finding.change and not finding.cost  # that of all layers, of COSTS


def test_attention_is_told_by_its_products_where_its_softmax_is_in_another_kernel():
    """As in a plan that compiles first: the scores of 63 queries and keys, which the next product takes."""
    scores, values = bmm(24576, 63, 32, 63), bmm(24576, 63, 63, 32)
    assert changes(scores, values, rule="alignment") == []
    assert changes(scores, bmm(512, 63, 63, 32), rule="alignment") != []  # another batch: it does not take the scores
