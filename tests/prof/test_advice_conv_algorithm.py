"""Half-precision convolutions that ran without tensor cores, though their other passes did not."""

from __future__ import annotations

import pytest

from tests.prof.advice_rows import cards

X, WEIGHT, Y = [32, 64, 56, 56], [64, 64, 3, 3], [32, 64, 54, 54]
# 2 · 32·54·54 · 64·64·9: 6.88e9 FLOP a pass


def forward(name="implicit_convolve_sgemm", ns=2_000_000, **more):
    return {"aten": "aten::cudnn_convolution", "sizes": [X, WEIGHT, *[[]] * 7], "dtypes": ["float16"] * 2 + [""] * 7,
            "kShortName": name, "kLongName": f"void {name}<__half, __half, 128>(int)", "phase": "forward", "ns": ns,
            "dir": "fprop", "args": ["", "", "[0, 0]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"],
            **more}  # fmt: skip


def backward(ns=200_000, name="cutlass_tensorop_f16_s16816dgrad_optimized_f16_128x128_32x5_nhwc_align8", **more):
    """Gradients of input and weight: two kernels of 6.88e9 FLOP."""
    row = {"aten": "aten::convolution_backward", "sizes": [Y, X, WEIGHT, *[[]] * 8], "opId": 100, "phase": "backward",
           "dtypes": ["float16"] * 3 + [""] * 8, "kShortName": name, "kLongName": name, "ns": ns, "dir": "bprop",
           "args": ["", "", "", "[0]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"],
           "nodes": ["ConvolutionBackward0", "aten::convolution_backward"], **more}  # fmt: skip
    other = name.replace("dgrad", "wgrad")
    return [row, {**row, "kShortName": other, "kLongName": other}]


def test_the_rate_of_the_other_passes_by_hand():
    # backward 6.88e9 FLOP in 200 µs each: forward 200 µs, and 5; now 2000
    (card,) = cards(forward(), *backward(), rule="conv_algorithm")
    assert (card.kernels, card.confidence) == (1, "low")
    assert card.saved_ms == pytest.approx(2.0 - 0.205, abs=0.002)
    assert "cudnn.benchmark = True" in card.change and "implicit_convolve_sgemm" in card.why


def test_kernels_beside_each_other_count_once():
    # the same call, two groups' kernels on two streams from 0 to 2 ms and from 0.5 to 2.5: 2.5 ms, not 4
    rows = [forward(start=0, opId=1), forward(start=500_000, stream=9, opId=1)]
    (card,) = cards(*rows, *backward(), rule="conv_algorithm")
    assert card.saved_ms == pytest.approx(2.5 - 0.205, abs=0.002) and "beside each other" in card.why


ABSTAINS = {
    "no other pass": [forward()],
    "the other passes use none either": [forward(), *backward(name="dgrad2d_grouped_direct_kernel")],
    "another layer's": [forward(), *backward(sizes=[[32, 32, 54, 54], X, [32, 64, 3, 3], *[[]] * 8])],
    "as fast": [forward(ns=250_000), *backward()],
    "fp32": [forward(dtypes=["float32"] * 2 + [""] * 7), *backward()],
    "depthwise by PyTorch": [forward("conv_depthwise2d_forward_kernel"), *backward()],
    "no shapes": [forward(sizes=None), *backward(sizes=None)],
}


@pytest.mark.parametrize("why", ABSTAINS)
def test_no_word_on_algorithms(why):
    assert cards(*ABSTAINS[why], rule="conv_algorithm") == []
