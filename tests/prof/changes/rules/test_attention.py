"""Attention by products and a softmax, and by a slower backend than fits."""

import pytest

from tests.prof.changes.rules.advice_rows import changes

B, T, D = 96, 1024, 64  # heads of the batch, tokens, head dimension: 100663296 scores


def bmm(m, k, n, ns, **more):
    return {"aten": "aten::bmm", "sizes": [[B, m, k], [B, k, n]], "dtypes": ["bfloat16"] * 2, "phase": "forward",
            "kShortName": "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_TNN", "ns": ns, **more}  # fmt: skip


def over_scores(op, ns, **more):
    return {"aten": f"aten::{op}", "sizes": [[B // 12, 12, T, T], []], "dtypes": ["bfloat16", ""], "phase": "forward",
            "kShortName": "vectorized_elementwise_kernel", "ns": ns, **more}  # fmt: skip


def attention():
    return [bmm(T, D, T, 100_000), over_scores("div", 110_000), over_scores("_softmax", 130_000), bmm(T, T, D, 90_000)]


def test_unfused_by_hand():
    # 4·100663296·64 = 25.77e9 FLOP at 0.443 × 1024 / (1024 + 85) × 989.4e12 = 404.7e12/s: 63.7 µs, and 2; now 430
    (change,) = changes(*attention())
    assert (change.rule, change.kernels) == ("attention", 4)
    assert change.gpu_ms == pytest.approx(0.430 - 0.0657, abs=0.0002)
    assert "scaled_dot_product_attention" in change.change


def test_a_causal_mask_halves_the_work():
    """A triangle of the scores' sizes is added: 0.5 + 130 / 1024 of the 63.7 µs, and 2. Another mask costs."""
    triangle = {"aten": "aten::triu", "sizes": [[T, T], []], "ns": 4_000, "phase": "forward", "kShortName": "triu"}
    added = over_scores("add", 200_000) | {"sizes": [[B // 12, 12, T, T], [T, T]], "dtypes": ["bfloat16"] * 2}
    first, *others = attention()
    (change,) = changes(triangle, first, added, *others)
    assert 0.630 - change.gpu_ms == pytest.approx(0.627 * 0.0637 + 0.002, abs=0.005)
    (change,) = changes(first, added, *others)
    assert 0.630 - change.gpu_ms == pytest.approx(0.0637 / 0.57 + 0.002, abs=0.005)


def test_a_mask_of_truth_values_for_all_heads_is_taken_for_a_causal_one():
    """A mask of padding has a row for each sample."""
    first, *others = attention()
    filled = over_scores("masked_fill_", 270_000) | {"sizes": [[B // 12, 12, T, T], [T, T]]}
    (change,) = changes(first, filled, *others)
    assert 0.700 - change.gpu_ms == pytest.approx(0.627 * 0.0637 + 0.002, abs=0.005)
    (change,) = changes(first, filled | {"sizes": [[B // 12, 12, T, T], [B // 12, 1, 1, T]]}, *others)
    assert 0.700 - change.gpu_ms == pytest.approx(0.0637 + 0.002, abs=0.005)


@pytest.mark.parametrize(("masked", "measured_ms"), [(False, 0.2717), (True, 0.3057)])
def test_fused_attention_in_float32_on_an_h200(masked, measured_ms):
    """8 × 16 heads of 512 × 64, forward: tests/golden/timings; with a mask of the keys, 28.1 TFLOP/s."""
    scores, heads = [8, 16, 512, 512], 128
    sizes = [[[heads, 512, 64], [heads, 64, 512]], [scores, [8, 1, 1, 512]], [scores, []],
             [[heads, 512, 512], [heads, 512, 64]]]  # fmt: skip
    ops = ("bmm", "add" if masked else "div", "_softmax", "bmm")
    sizes[1] = sizes[1] if masked else [scores, []]
    rows = [
        {"aten": f"aten::{op}", "sizes": shapes, "dtypes": ["float32"] * 2, "phase": "forward", "ns": 500_000,
         "kShortName": "softmax_warp" if op == "_softmax" else "sgemm" if op == "bmm" else "elementwise"}
        for op, shapes in zip(ops, sizes, strict=True)
    ]  # fmt: skip
    fused = next(change for change in changes(*rows) if change.rule == "attention")
    assert 2.0 - fused.gpu_ms == pytest.approx(measured_ms, rel=0.05)


def test_backward_has_four_products():
    back = {"phase": "backward", "dir": "bprop"}
    rows = [bmm(T, T, D, 90_000, **back), bmm(T, D, T, 90_000, **back),
            over_scores("_softmax_backward_data", 200_000, **back), over_scores("div", 110_000, **back),
            bmm(D, T, T, 90_000, **back), bmm(T, T, D, 90_000, **back)]  # fmt: skip
    (change,) = changes(*rows)
    assert change.kernels == 6


def test_the_math_backend_is_named():
    rows = [{**row, "nodes": ["aten::_scaled_dot_product_attention_math", row["aten"]]} for row in attention()]
    (change,) = changes(*rows)
    assert change.rule == "attention_backend"


def test_without_shapes_the_names_tell_by_half():
    def kernel(name, ns):
        return {"kShortName": name, "kLongName": name, "ns": ns}

    rows = [kernel("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_tn", 100_000), kernel("elementwise_kernel", 110_000),
            kernel("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10>", 130_000),
            kernel("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_nn", 90_000)]  # fmt: skip
    (change,) = changes(*rows)
    assert (change.rule, change.kernels) == ("attention", 2)
    assert change.gpu_ms == pytest.approx(0.120)  # half of 240 µs
    assert not changes(*rows[:1], *rows[2:3])  # no second product


def efficient(dtype="bfloat16", head=D, bias=(), ns=500_000, **more):
    qkv = [8, T, 12, head]
    return {"aten": "aten::_efficient_attention_forward", "sizes": [qkv, qkv, qkv, list(bias), []],
            "dtypes": [dtype] * 3 + ["", ""], "kShortName": "fmha_cutlassF_bf16_aligned_64x64_rf_sm80", "ns": ns,
            "phase": "forward", **more}  # fmt: skip


def test_efficient_where_flash_fits():
    (change,) = changes(efficient())
    assert change.rule == "attention_backend"
    assert change.gpu_ms == pytest.approx(0.5 - 0.0657, abs=0.0002)


def test_flash_2_on_hopper():
    # measured on an H200: 12 more heads of 1024 × 64 by flash 125 µs, by cuDNN 82
    empty = [[]] * 7  # no packed sequences, 1024 and 1024, no dropout, not causal, no mask for debugging
    flash = {
        "aten": "aten::_flash_attention_forward",
        "sizes": [*efficient()["sizes"][:3], *empty],
        "dtypes": ["bfloat16"] * 3 + [""] * 7,
        "args": ["", "", "", "", "", "1024", "1024", "0.", "False", "False"],
    }
    (change,) = changes({**efficient(ns=94_000), **flash})
    assert change.rule == "attention_backend" and "CUDNN" in change.change
    ampere = changes({**efficient(ns=300_000), **flash}, gpu="NVIDIA A100-SXM4-80GB")
    assert ampere == []


def test_the_math_backend_computes_in_fp32_what_is_given_in_half():
    # measured on an H200 (math_attention): 17.8 ms a step, 1.35 by cuDNN
    inside = ["aten::scaled_dot_product_attention", "aten::_scaled_dot_product_attention_math"]
    cast = {**over_scores("copy_", 50_000), "sizes": [[8, 12, T, D]] * 2 + [[]], "dtypes": ["float32", "bfloat16", ""]}
    wide = [{**row, "dtypes": ["float32"] * len(row["dtypes"])} for row in attention()]
    rows = [{**row, "nodes": [*inside, row["aten"]]} for row in (cast, cast, cast, *wide)]
    found = changes(*rows)
    assert [change.rule for change in found if change.rule in ("attention_backend", "amp")] == ["attention_backend"]
    assert found[0].kernels == 7


def masked(strides, ns=1_000_000, op="add_"):
    """By the math backend, with a bias a head for all samples: 4 kernels."""
    add = over_scores(op, ns)
    add.update(sizes=[[8, 12, T, T], [1, 12, T, T], []], dtypes=["bfloat16"] * 2 + [""],
               strides=[[12 * T * T, T * T, T, 1], strides, []])  # fmt: skip
    rows = [bmm(T, D, T, ns), add, over_scores("_softmax", ns), bmm(T, T, D, ns)]
    return [{**row, "nodes": ["aten::_scaled_dot_product_attention_math", row["aten"]]} for row in rows]


def test_a_mask_whose_last_stride_is_not_one():
    # relative positions: an embedding [T, T, 12], permuted. the 63.7 µs over 0.57: 111.7 µs, and 2
    (change,) = changes(*masked([12, 1, 12 * T, 12]))
    assert change.gpu_ms == pytest.approx(4.0 - 0.1137, abs=0.0002)
    assert (
        "attn_mask.contiguous(), since the last stride of the mask is not 1; is_causal=True in place of"
        in change.change
    )
    (change,) = changes(*masked([12, 1, 12 * T, 12], op="add"))
    assert "attn_mask.contiguous()" in change.change
    (change,) = changes(*masked([12 * T * T, T * T, T, 1]))
    assert "contiguous" not in change.change and "use FlashAttention or cuDNN: " in change.change


def test_a_mask_with_a_gradient_leaves_the_memory_efficient_kernel():
    # 25.77e9 FLOP at 0.0913 × 1024 / (1024 + 16) × 989.4e12 = 88.9e12/s: 289.7 µs; backward 2.5 times as many at 0.0805
    # × 1024 / (1024 + 16) × 989.4e12 = 78.4e12/s: 821.5; and 2 each
    back = {"phase": "backward", "dir": "bprop", "nodes": ["SafeSoftmaxBackward0"]}
    rows = [bmm(T, T, D, 500_000, **back), bmm(T, D, T, 500_000, **back),
            over_scores("_softmax_backward_data", 500_000, **back), over_scores("sum", 500_000, **back),
            bmm(D, T, T, 500_000, **back), bmm(T, T, D, 500_000, **back)]  # fmt: skip
    (change,) = changes(*masked([12, 1, 12 * T, 12]), *rows, rule="attention_backend")
    assert change.kernels == 10
    assert change.gpu_ms == pytest.approx(7.0 - 0.2917 - 0.8235, abs=0.001)
    assert (
        "No other fused backend computes the gradient of a mask." in change.change
        and "EFFICIENT_ATTENTION" in change.change
    )


UNRELATED = bmm(512, D, 512, 100_000)
SAYS_NOTHING = {
    "no shapes": [{**row, "sizes": None, "dtypes": None} for row in attention()],
    "one product only": attention()[:3],
    "a classifier's softmax": [UNRELATED, over_scores("_softmax", 130_000), UNRELATED],
    "heads too wide for flash": [bmm(T, 512, T, 100_000), over_scores("_softmax", 130_000), bmm(T, T, 512, 90_000)],
    "as fast as fused": [{**row, "ns": 14_000} for row in attention()],
    "fp32 on the efficient backend": [efficient("float32")],
    "an attention bias": [efficient(bias=(8, 12, T, T))],
    "flash, as fast as cuDNN's": [{**efficient(ns=65_000), "aten": "aten::_flash_attention_forward"}],
}


@pytest.mark.parametrize("why", SAYS_NOTHING)
def test_says_nothing(why):
    names = {change.rule for change in changes(*SAYS_NOTHING[why])}
    assert not names & {"attention", "attention_backend"}


def test_says_nothing_before_ampere():
    assert changes(efficient(), gpu="Tesla T4") == []
