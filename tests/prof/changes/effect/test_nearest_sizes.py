"""The ratio of a call's times in two precisions or formats, against times measured on an H200."""

import math

import numpy as np
import pytest

from pyprof.prof.changes.effect.nearest_sizes import (
    Variant,
    convolution,
    limit_us,
    measured,
    measured_call,
    pixels,
    product,
    ratio,
)

FP32, TF32, BF16 = Variant("fp32"), Variant("tf32"), Variant("bf16")


def test_a_product_of_a_measured_size_changes_about_as_it_did():
    """4096 × 512 × 505 on the H200: 56.4 µs in fp32, 31.5 in TF32, 30.0 in bf16, since 505 fills no line."""
    call = product("fprop", 1, 4096, 512, 505)
    assert call == measured_call("gemm", "fprop", (4096, 512, 505))
    assert call.flop == 2 * 4096 * 512 * 505 and call.elements == 4096 * 512 + 4096 * 505 + 512 * 505
    slower = 56.38 / limit_us(call, "fp32", 66.9e12, 4.8e12)
    found = ratio(call, slower, FP32, TF32)
    assert found.factor == pytest.approx(31.46 / 56.38, rel=0.25)


def test_a_large_even_product_gains_what_the_units_give():
    """8192³ in fp32 takes 20.5 ms at 53.7 TFLOP/s (tests/golden/h200_bench.json); bf16 reaches 790: a fifteenth."""
    call = product("fprop", 1, 8192, 8192, 8192)
    found = ratio(call, 53.7**-1 * 66.9, FP32, BF16)
    assert 1 / 17 < found.factor < 1 / 11 and found.deviation < 0.3


def test_a_batch_norm_of_bf16_takes_longer_than_one_of_fp32():
    """64 × 128 × 64 × 64 in fp32 161 µs; in bf16, for which PyTorch has no kernel of cuDNN, 293, and 174 in NHWC."""
    call = pixels("batch_norm", "fprop", 64, 128, 64 * 64)
    nchw, limit = Variant("bf16", "nchw"), {p: limit_us(call, p, math.inf, 4.8e12) for p in ("fp32", "bf16")}
    assert ratio(call, 161.4 / limit["fp32"], Variant("fp32", "nchw"), nchw).factor == pytest.approx(1.81, rel=0.25)
    assert ratio(call, 292.6 / limit["bf16"], nchw, Variant("bf16", "nhwc")).factor == pytest.approx(0.59, rel=0.25)


def test_nothing_is_said_of_what_is_not_like_anything_measured():
    call = convolution("conv2d", "fprop", 1, 64, 56 * 56, 64, 56 * 56, 9, 1)
    nchw = Variant("fp32", "nchw")
    assert ratio(call, 2.0, nchw, Variant("fp8", "nchw")) is None
    assert ratio(call._replace(kind="conv4d"), 2.0, nchw, Variant("bf16", "nchw")) is None
    far = convolution("conv2d", "fprop", 1 << 20, 64, 1 << 20, 64, 1 << 20, 9, 1)
    assert ratio(far, 2.0, nchw, Variant("bf16", "nchw")) is None


@pytest.mark.parametrize(
    ("kind", "before", "after", "near"),
    [
        ("gemm", FP32, TF32, 0.25),
        ("gemm", TF32, BF16, 0.4),
        ("conv3d", Variant("tf32", "nchw"), Variant("bf16", "nchw"), 0.25),
        ("conv2d", Variant("bf16", "nchw"), Variant("bf16", "nhwc"), 0.3),
        ("batch_norm", Variant("fp32", "nchw"), Variant("bf16", "nchw"), 0.1),
    ],
)
def test_sums_of_calls_of_sizes_that_are_left_out(kind, before, after, near):
    """As in a network: of sums of 30 calls of 20 µs and more, nine of ten are near what was measured."""
    sizes = measured(kind)["fprop"]
    now, then = sizes.us[before], sizes.us[after]
    pairs = []
    for place in np.flatnonzero((now > 20) & ~np.isnan(then)).tolist():
        call = measured_call("gemm", "fprop", (1, 1, 1))._replace(kind=kind, features=tuple(sizes.features[place]))
        slower = float(now[place] / sizes.roof[before.precision][place])
        found = ratio(call, slower, before, after, leave_out=place)
        if found is not None:
            pairs.append((now[place] * found.factor, then[place]))
    predicted, told = np.array(pairs).T
    some = np.random.default_rng(1).integers(0, len(pairs), (400, 30))
    off = np.abs(np.log(predicted[some].sum(1) / told[some].sum(1)))
    assert len(pairs) > 50 and np.quantile(off, 0.9) < math.log(1 + near)
