"""Fused attention's times beside those of an H200 (PyTorch 2.11), in captures of models that the rates are not from."""

import math

import pytest

from pyprof.prof.limits.devices import find_device
from pyprof.prof.limits.fused_attention import FusedCall

DEVICE = find_device("NVIDIA H200")
MEASURED = [  # the call, µs of all kernels of the op
    (FusedCall(6 * 32, 1024, 1024, 64, "bfloat16", causal=True), 84),  # 8 heads of keys and values
    (FusedCall(6 * 32, 1024, 1024, 64, "bfloat16", backward=True, causal=True), 291),
    (FusedCall(6 * 12, 768, 768, 64, "bfloat16", causal=True), 25),
    (FusedCall(6 * 12, 768, 768, 64, "bfloat16", backward=True, causal=True), 79),
    (FusedCall(8 * 16, 4096, 4096, 64, "bfloat16", causal=True), 630),
    (FusedCall(8 * 16, 4096, 4096, 64, "bfloat16", backward=True, causal=True), 1765),
    (FusedCall(4 * 32, 2048, 2048, 128, "float16"), 434),
    (FusedCall(4 * 32, 2048, 2048, 128, "float16", backward=True), 1270),
    (FusedCall(32 * 4, 1024, 1024, 64, "float32"), 1028),
    (FusedCall(32 * 4, 1024, 1024, 64, "float32", backward=True), 2406),
    (FusedCall(32 * 4, 256, 256, 64, "float32"), 81),
    (FusedCall(32 * 4, 256, 256, 64, "float32", backward=True), 169),
    (FusedCall(24 * 8, 400, 400, 64, "float32", masked=True), 348),
    (FusedCall(24 * 8, 400, 400, 64, "float32", backward=True, masked=True), 771),
]


def us(call):
    return call.ns(DEVICE, 4.8e12) / 1e3


@pytest.mark.parametrize(("call", "measured_us"), MEASURED, ids=lambda each: str(each)[:90])
def test_models_take_that_long(call, measured_us):
    assert us(call) == pytest.approx(measured_us, rel=0.21)


def test_whole_tiles_are_computed():
    """400 keys and queries are 7 tiles of 64, as 448 are: only the ramp, 16 keys, tells them apart."""
    ragged, whole = (us(FusedCall(192, size, size, 64, "float32")) - 2 for size in (400, 448))
    assert ragged / whole == pytest.approx((416 / 400) / (464 / 448))


@pytest.mark.parametrize(
    "call",
    [
        FusedCall(8, 64, 64, 64, "float64"), FusedCall(8, 64, 64, 512, "float32"), FusedCall(8, 0, 64, 64, "float32"),
        FusedCall(0, 64, 64, 64, "bfloat16"), FusedCall(8, 64, 64, 0, "bfloat16"),
    ],
)  # fmt: skip
def test_unknown_where_no_kernel_fits(call):
    assert math.isnan(call.ns(DEVICE, 4.8e12))
    assert math.isnan(FusedCall(8, 64, 64, 64, "bfloat16").ns(None, 4.8e12))
