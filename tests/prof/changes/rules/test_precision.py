"""TF32 and mixed precision in runs without a replay: what they remove, and where to say nothing."""

import pytest

from tests.prof.changes.rules.advice_rows import changes, mm

SIMT = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x8_stage3"
TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_stage3"


def fp32(ns=2_678_000, name=SIMT, **more):
    return mm(4096, 4096, 4096, ns, name=name, dtype="float32", **more)


def test_tf32():
    # by measured calls of similar sizes: 8 times as fast; 345.8 µs measured by Nsight Compute on an H200
    (change,) = changes(fp32(), rule="tf32")
    assert change.gpu_ms == pytest.approx(2.678 - 0.3497, abs=0.0002)
    assert "float32_matmul_precision" in change.change


@pytest.mark.parametrize(("gpu", "unit"), [("AMD Instinct MI300X", "matrix cores"), ("NVIDIA H200", "tensor cores")])
def test_the_units_have_the_name_that_their_maker_gave_them(gpu, unit):
    (change,) = changes(fp32(20_000_000, "volta_sgemm_128x128_nn"), rule="tf32", gpu=gpu)
    assert change.why.endswith(f"ran without {unit}")


def test_amp():
    """The casts of both operands take 1.5 µs, and 6 bytes of 4096² elements at 4.08e12/s, 24.7 µs, each."""
    (change,) = changes(fp32(), rule="amp")
    assert change.gpu_ms == pytest.approx(2.678 - 0.1610 - 2 * 0.0262, abs=0.0005)
    assert "2 casts are added" in change.why


def test_a_name_alone_is_worth_half():
    # TF32 reaches 405.65, fp32 0.76 × 67 = 50.92 TFLOP/s: 7.966 times, half of that is 3.983; 2678 / 3.983 = 672.3 µs
    (change,) = changes(fp32(sizes=None, dtypes=None, strides=None))
    assert change.rule == "tf32"
    assert change.gpu_ms == pytest.approx(2.678 - 0.6723, abs=0.0002)


def test_mixed_precision_removes_more_than_tf32():
    assert [change.rule for change in changes(fp32())] == ["amp", "tf32"]


def test_with_tf32_on_only_amp_is_left():
    assert [change.rule for change in changes(fp32(400_000, TF32))] == ["amp"]


def conv(channels):
    """Its weight has so many input channels a group."""
    return {"aten": "aten::cudnn_convolution", "sizes": [[64, 64, 112, 112], [64, channels, 3, 3], [], [], [], [], []],
            "dtypes": ["float32"] * 2 + [""] * 5, "args": ["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False"],
            "kShortName": "implicit_convolve_sgemm", "ns": 5_000_000, "phase": "forward"}  # fmt: skip


def test_a_convolution_of_64_channels_deserves_it():
    (change,) = changes(conv(64), rule="tf32")
    assert change.kernels == 1


SAYS_NOTHING = {
    "a GPU without TF32": ([fp32()], "Tesla T4", "tf32"),
    "a GPU nobody knows": ([fp32()], "a GPU nobody knows", "tf32"),
    "the flag is set: another product used TF32": ([fp32(), fp32(400_000, TF32)], "NVIDIA H200", "tf32"),
    "a depthwise convolution": ([conv(1)], "NVIDIA H200", "tf32"),
    "fp64": ([mm(4096, 4096, 4096, 9_000_000, name="dgemm", dtype="float64")], "NVIDIA H200", "tf32"),
    "no shapes, and short": ([fp32(40_000, sizes=None, dtypes=None, strides=None)], "NVIDIA H200", "tf32"),
    "no shapes, and a name that tells no type": (
        [fp32(name="Kernel2", sizes=None, dtypes=None)],
        "NVIDIA H200",
        "tf32",
    ),
    "amp is on already": ([fp32(), mm(64, 64, 64, 3000, name="nvjet_sm90_tst_64x64")], "NVIDIA H200", "amp"),
    "amp is on already, with scaled gradients": (
        [fp32(), mm(64, 64, 64, 3000, name="sm80_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize64x64x32", dtype="float16")],
        "NVIDIA H200",
        "amp",
    ),
    "no tensor cores": ([fp32()], "NVIDIA GeForce GTX 1080 Ti", "amp"),
}


@pytest.mark.parametrize("why", SAYS_NOTHING)
def test_says_nothing(why):
    rows, gpu, rule = SAYS_NOTHING[why]
    assert changes(*rows, gpu=gpu, rule=rule) == []
