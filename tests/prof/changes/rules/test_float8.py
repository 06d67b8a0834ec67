"""Linear layers in FP8: which ones, and what their casts take."""

from types import SimpleNamespace

import pytest

from pyprof.prof.changes.effect.edit import Abstained, Edit
from pyprof.prof.changes.effect.scenario import captured
from pyprof.prof.changes.rules import EDIT_RULES
from pyprof.prof.changes.rules.products.float8 import CAST_BYTES, CAST_NS, _expected, _layers
from tests.prof.changes.rules.advice_rows import mm, run
from tools.plan_pairs import GOLDEN, base_of

CHANGES = GOLDEN.parent / "changes"
NODES = ["aten::linear", "aten::mm"]
BF16 = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNN"


def linear(m, k, n, ns=1_000_000, nodes=NODES, **more):
    return mm(m, k, n, ns, name=BF16, nodes=nodes, **more)


def layers(*rows):
    return list(_layers(run(*rows)))


def test_layers_are_products_of_linear_calls():
    assert layers(linear(8192, 4096, 14336), linear(8192, 4096, 14336, nodes=["aten::bmm", "aten::mm"])) == [[0]]


@pytest.mark.parametrize("sizes", [(8192, 4096, 1001), (8192, 4090, 4096), (8190, 4096, 4096)])
def test_sizes_must_be_multiples_of_16(sizes):
    assert layers(linear(*sizes)) == []


def test_an_output_layer_over_a_vocabulary_stays():
    assert layers(linear(8192, 4096, 50304)) == []


def test_products_in_float32_stay():
    assert layers(linear(8192, 4096, 4096, dtype="float32", kShortName="sm80_xmma_gemm_f32f32_f32f32_f32_tn")) == []


def test_a_layer_has_two_products_in_the_backward_pass():
    """Autograd's numbers: the calls begin at 10 and 20, their products are 21 and 11."""
    back = {"phase": "backward", "dir": "bprop", "nodes": ["MmBackward0", "aten::mm"]}
    rows = [
        linear(8192, 4096, 4096, seqId=[10]),
        linear(8192, 4096, 4096, seqId=[20]),
        linear(4096, 8192, 4096, seqId=[21], **back),
        linear(8192, 4096, 4096, seqId=[21], **back),
        linear(8192, 4096, 4096, seqId=[11], **back),
    ]
    assert layers(*rows) == [[0, 4], [1, 2, 3]]


def test_in_inference_the_input_alone_is_cast():
    """962 GFLOP at 0.82 × 0.94 of 1979 TFLOP/s, 5 µs to start; 2^25 elements of input at 19 bytes, 4.08 TB/s."""
    rows = run(linear(8192, 4096, 14336))
    ((ns, casts),) = _expected(rows, [0]).values()
    product = 5000 + 2 * 8192 * 4096 * 14336 / (0.82 * 0.94 * 1979e12) * 1e9
    assert casts == 1
    assert ns == pytest.approx(product + CAST_NS + 2**25 * CAST_BYTES / 4.08e12 * 1e9, rel=0.01)


def test_in_training_weight_and_gradient_are_cast_too():
    rows = run(linear(8192, 4096, 4096), linear(8192, 4096, 4096), linear(4096, 8192, 4096))
    assert [casts for _, casts in _expected(rows, [0, 1, 2]).values()] == [2, 1, 0]


def proposal(case):
    (only,) = EDIT_RULES["fp8"](captured(base_of(case)))
    return only


def test_short_products_stay_in_bf16():
    """Layers of 2048 by 2048: with FP8, the step took 3.8 ms in place of 1.7."""
    assert proposal(CHANGES / "fp8_llama.before.json.gz") == Abstained(
        "fp8", "the casts would take what the products gain"
    )


def test_products_in_float32_need_mixed_precision_first():
    only = proposal(GOLDEN / "mixed.before.json.gz")
    assert isinstance(only, Abstained) and only.needs == "amp"


def test_products_in_float8_need_nothing_first():
    product = mm(2048, 2048, 2048, 90_000, name="nvjet_sm90_qqtst_128x128_128x6_2x1_v_bz_coopA_algo2_TNT",
                 dtype="float8_e4m3fn", aten="aten::_scaled_mm")  # fmt: skip
    (only,) = EDIT_RULES["fp8"](SimpleNamespace(run=run(product)))
    assert only == Abstained("fp8", "products run in FP8 already")


def test_the_gpus_time_is_that_of_the_measured_products_and_casts():
    """2.39 ms of products; in FP8 1.24, and the casts take 0.69 (fp8_mlp): the second layer's take all of its gain."""
    edit = proposal(CHANGES / "fp8_mlp.before.json.gz")
    assert isinstance(edit, Edit)
    assert edit.ns.tolist() == pytest.approx([631_500 + 129_300 + 27_100 + 1000] * 2, rel=0.05)


def test_a_product_of_less_than_50_microseconds_stays():
    assert layers(linear(2048, 2048, 2048, ns=49_000)) == []
